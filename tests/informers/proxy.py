"""An HTTP proxy on 127.0.0.1 for tests."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from tests.informers.api_server import DEADLINE_S


class Proxy:
    """``asked``: the first lines of the requests it got."""

    def __init__(self, answer: Callable[["Proxy", socket.socket, str], None]) -> None:
        self.asked: list[str] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self._thread = Thread(target=self._run, name="proxy")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def tunnel(self, client: socket.socket, request: str) -> None:
        host, port = request.split()[1].split(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as server:
            client.sendall(b"HTTP/1.0 200 Connection established\r\n\r\n")
            back = Thread(target=copy, args=(server, client), name="proxy-back")
            back.start()
            copy(client, server)
            back.join(DEADLINE_S)

    def refuse(self, client: socket.socket, request: str) -> None:
        client.sendall(b"HTTP/1.0 403 Forbidden\r\n\r\n")

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    client.settimeout(DEADLINE_S)
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += client.recv(4096)
                    self.asked.append(head.split(b"\r\n")[0].decode())
                    self._answer(self, client, self.asked[-1])


def copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxying(answer: Callable[[Proxy, socket.socket, str], None]) -> Iterator[Proxy]:
    proxy = Proxy(answer)
    try:
        yield proxy
    finally:
        proxy.close()
