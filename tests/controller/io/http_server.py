"""An HTTP server on the loopback address that answers as a test tells it to, byte by byte if it must be."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def form(self) -> dict[str, str]:
        """Parameters of the URL and of a form in the body."""
        pairs = parse_qs(urlsplit(self.target).query) | parse_qs(self.body.decode())
        return {name: values[0] for name, values in pairs.items()}


Reply = Iterable[bytes]
"""What goes onto the wire, in these portions; the connection is closed at its end."""


def reply(status: int, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + content]


@dataclass
class HttpServer:
    """Serves from its first to its last line as a context manager; a thread for each connection.

    ``wait()`` inside of ``answer`` pauses for a moment, and ends the answer when the server is closed.
    """

    answer: Callable[[Request], Reply]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def wait(self, pause_s: float = 0.01) -> None:
        """Raises OSError once the server is closed."""
        if self._closed.wait(pause_s):
            raise OSError("closed")

    def dribble(self, content: bytes) -> Iterable[bytes]:
        """Byte by byte, for ever: the last one again and again."""
        while True:
            for index in range(len(content)):
                self.wait()
                yield content[index : index + 1]
            content = content[-1:]

    def hang(self) -> Reply:
        while True:
            self.wait()
            yield b""

    def __enter__(self) -> "HttpServer":
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as incoming:
                request = _read(incoming)
                self.requests.append(request)
                for portion in self.answer(request):
                    connection.sendall(portion)


def _read(incoming: Any) -> Request:
    method, target, _ = incoming.readline().decode().split()
    headers = {}
    while line := incoming.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, target, headers, incoming.read(int(headers.get("content-length", "0"))))
