"""``/healthz``, ``/readyz``, ``/metrics`` and what pages a program adds, on one port.

The two probes run their checks and answer with all of them, 200 if none has a reason and 503 otherwise::

    {"ok": false, "checks": [{"name": "policy", "ok": false, "reason": "no valid policy was seen yet"}]}

A client may send ``MAX_REQUEST_BYTES``, and has ``CLIENT_WITHIN_S`` from connecting to having read its answer. Of more
than ``MAX_CLIENTS`` at once the oldest is cut off, so that nobody can keep the kubelet out. Of a request, nothing but
method, path and ``Accept`` is looked at, and nothing is logged.
"""

import io
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from informers.clock import Clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

log = logging.getLogger(__name__)

CLIENT_WITHIN_S = 10.0
MAX_CLIENTS = 16
MAX_REQUEST_BYTES = 16 * 1024
_LOOK_EVERY_S = 0.1

Check = Callable[[], str]
"""Returns why something is not as it should be, "" if it is. Must be quick. That it raises is a reason, too."""
Page = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""From the ``Accept`` header to status, content type and body."""


class HealthServer:
    """``live`` and ``ready``: the checks of ``/healthz`` and ``/readyz`` by name, in the order shown.

    ``pages``: more of them, by path. Whoever reaches the port can read them.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        registry: CollectorRegistry,
        clock: Clock,
        pages: Mapping[str, Page] = MappingProxyType({}),
    ) -> None:
        """``host``: an address to listen on, "" for all of IPv4, "::" for all there are; ``port`` 0: any free one."""
        self._address = host, port
        self._clock = clock
        self._pages: Mapping[str, Page] = {
            "/healthz": lambda _: _probe(live),
            "/readyz": lambda _: _probe(ready),
            "/metrics": lambda accept: _metrics(registry, accept),
            **pages,
        }
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self) -> int:
        """Listen and answer from now on; once. Returns the port. Raises OSError if the address is not to be had."""
        host, port = self._address
        try:
            self._server = _Server(self._address, self._pages, self._clock)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {error.strerror}") from None
        self._thread = Thread(
            target=self._server.serve_forever, args=(_LOOK_EVERY_S,), name="health", daemon=True
        )
        self._thread.start()
        return int(self._server.server_address[1])

    def stop(self, timeout: timedelta) -> bool:
        """Close everything; True if all threads have ended in time."""
        if self._server is None or self._thread is None:
            return True
        until_s = self._clock.monotonic() + timeout.total_seconds()
        self._server.shutdown()
        self._server.server_close()
        threads = [self._thread, *self._server.cut_off()]
        for thread in threads:
            thread.join(max(0.0, until_s - self._clock.monotonic()))
        return not any(thread.is_alive() for thread in threads)


def _probe(checks: Mapping[str, Check]) -> tuple[HTTPStatus, str, bytes]:
    reasons = {name: _reason(name, check) for name, check in checks.items()}
    ok = not any(reasons.values())
    rows = [{"name": name, "ok": not reason, "reason": reason} for name, reason in reasons.items()]
    body = msgspec.json.encode({"ok": ok, "checks": rows}) + b"\n"
    return HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, "application/json", body


def _reason(name: str, check: Check) -> str:
    try:
        return check()
    except Exception as error:
        log.exception("check %s failed", name)
        return f"the check itself failed: {type(error).__name__}"


def _metrics(registry: CollectorRegistry, accept: str) -> tuple[HTTPStatus, str, bytes]:
    encode, content_type = choose_encoder(accept)
    return HTTPStatus.OK, content_type, encode(registry)


class _Server(ThreadingHTTPServer):
    """A thread for each client, and what it takes to be rid of them."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page], clock: Clock) -> None:
        self.pages = pages
        self.clock = clock
        # Guards the clients, oldest first.
        self._lock = Lock()
        self._clients: dict[socket.socket, Thread] = {}
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)  # HTTPServer's would ask the resolver for our name

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            oldest = next(iter(self._clients)) if len(self._clients) >= MAX_CLIENTS else None
            self._clients[request] = thread
        if oldest is not None:
            _cut(oldest)
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def cut_off(self) -> list[Thread]:
        """End all connections; the threads that will end of it."""
        with self._lock:
            clients = dict(self._clients)
        for client in clients:
            _cut(client)
        return list(clients.values())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("a client of the health port was lost", exc_info=True)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._until_s = self.server.clock.monotonic() + CLIENT_WITHIN_S
        self.rfile.close()
        self.rfile = io.BufferedReader(_BoundedReader(self.connection, self._left_s))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """The inherited one would repeat parts of the request."""
        body = f"{HTTPStatus(code).phrase}\n".encode()
        self._send(HTTPStatus(code), "text/plain", body, with_body=self.command != "HEAD")

    def version_string(self) -> str:
        return "vm-rebalancer"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a request may carry a token."""

    def _answer(self, *, with_body: bool) -> None:
        page = self.server.pages.get(urlsplit(self.path).path)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            status, content_type, body = page(self.headers.get("Accept", ""))
        except Exception:
            log.exception("a page of the health port failed")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._send(status, content_type, body, with_body=with_body)

    def _send(self, status: HTTPStatus, content_type: str, body: bytes, *, with_body: bool) -> None:
        self.connection.settimeout(self._left_s())
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _left_s(self) -> float:
        left_s = self._until_s - self.server.clock.monotonic()
        if left_s <= 0:
            raise TimeoutError("the client takes too long")
        return left_s


class _BoundedReader(io.RawIOBase):
    """What a client sends, as long as there is time left and it is not too much."""

    def __init__(self, connection: socket.socket, left_s: Callable[[], float]) -> None:
        super().__init__()
        self._connection = connection
        self._left_s = left_s
        self._left_bytes = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if self._left_bytes <= 0:
            raise ConnectionError("the client sends too much")
        self._connection.settimeout(self._left_s())
        count = self._connection.recv_into(buffer)
        self._left_bytes -= count
        return count
