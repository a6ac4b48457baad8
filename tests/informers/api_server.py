"""A real HTTP server on 127.0.0.1 whose every answer, and every misbehaviour, a test writes itself."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from informers.errors import ApiError
from informers.transport import Transport

DEADLINE_S = 20.0
"""More than any test needs; what takes longer is broken."""


class Call:
    """One request as it came, and the means to answer it."""

    def __init__(self, handler: "_Handler", body: bytes) -> None:
        target = urlsplit(handler.path)
        self.method = handler.command
        self.target = handler.path
        self.path = target.path
        self.query = dict(parse_qsl(target.query, keep_blank_values=True))
        self.headers = dict(handler.headers.items())
        self.body = body
        self._handler = handler

    @property
    def client(self) -> tuple[str, int]:
        """Tells connections apart."""
        return self._handler.client_address

    @property
    def closing(self) -> Event:
        return self._handler.server.closing

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> None:
        self.begin(status, {"Content-Length": str(len(body)), **headers})
        self.write(body)

    def answer_json(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        self.answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def begin_stream(self) -> None:
        self.begin(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/json"})

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")

    def write(self, data: bytes) -> None:
        self._handler.wfile.write(data)

    def stall(self) -> None:
        """Say nothing more, and keep the connection: until the server closes, or the client goes away."""
        self._handler.connection.settimeout(DEADLINE_S)
        self._handler.connection.recv(1)
        self._handler.close_connection = True

    def drop(self) -> None:
        """Close the connection in the middle of it."""
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "ApiServer"

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.forget(self.connection)
        super().finish()

    def handle(self) -> None:
        with suppress(OSError):  # the client has gone: many a test is about that
            super().handle()

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._do
        raise AttributeError(name)

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call = Call(self, body)
        self.server.calls.append(call)
        self.server.asked.set()
        self.server.answer(call)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class ApiServer(ThreadingHTTPServer):
    """``answer`` is called in a thread for each connection. ``calls`` are all requests, in order; ``asked`` is
    set by the first.
    """

    daemon_threads = False  # and so close() waits for them: no thread outlives its test
    request_queue_size = 64

    def __init__(self, answer: Callable[[Call], None], tls: ssl.SSLContext | None, port: int) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.asked = Event()
        self.closing = Event()
        self._tls = tls
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that breaks off its handshake, for example

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def drop_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.drop_connections()
        self.server_close()


@contextmanager
def serving(
    answer: Callable[[Call], None], *, tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[ApiServer]:
    server = ApiServer(answer, tls, port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="api-server")
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(DEADLINE_S)


def status_body(code: int, reason: str, message: str = "no") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def write_kubeconfig(
    path: Path, url: str, *, user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] = {}
) -> str:
    """With the user's ``token: secret-token``, unless told otherwise; returns the path as text."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "test", "user": {"token": "secret-token"} if user is None else user}],
    }
    path.write_text(json.dumps(config))
    return str(path)


Connect = Callable[[ApiServer], Transport]


def error_when_ended(
    act: Callable[[Event], object], server: ApiServer, end: Callable[[Event], None]
) -> BaseException:
    """What ``act`` raises when ``end`` happens while it waits for the server."""
    caught: list[BaseException] = []
    cancel = Event()

    def work() -> None:
        try:
            act(cancel)
        except ApiError as error:
            caught.append(error)

    thread = Thread(target=work)
    thread.start()
    assert server.asked.wait(DEADLINE_S)
    end(cancel)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    return caught[0]
