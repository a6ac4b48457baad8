"""An HTTP proxy in front of Prometheus, on a port of this machine, that answers as troubled ones do."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_ANSWER_S = 20.0


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes


Change = Callable[[Reply], Reply]


@dataclass
class Proxy:
    """``change``: what becomes of each answer. ``delay_s``: before it is sent. ``token``: the only one let in."""

    port: int
    delay_s: float = 0.0
    token: str = ""

    def __post_init__(self) -> None:
        self.change: Change | None = None
        self._upstream = ("", 0)
        self._hurry = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, upstream: str) -> None:
        """``upstream``: the real one's URL."""
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 0)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy._serve(self)

            do_POST = do_GET  # noqa: N815  as http.server wants it

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        self._hurry.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def well(self) -> None:
        """From now on it does nothing but hand through."""
        self.change, self.delay_s = None, 0.0

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        reply = self._reply_to(request)
        if self.change is not None:
            reply = self.change(reply)
        self._hurry.wait(self.delay_s)
        try:
            request.send_response(reply.status)
            request.send_header("Content-Type", reply.content_type)
            request.send_header("Content-Length", str(len(reply.body)))
            request.end_headers()
            request.wfile.write(reply.body)
        except OSError:
            request.close_connection = True  # who asked has gone

    def _reply_to(self, request: BaseHTTPRequestHandler) -> Reply:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return Reply(401, "text/plain", b"Unauthorized\n")
        length = int(request.headers.get("Content-Length") or 0)
        headers = {"Content-Type": request.headers.get("Content-Type", "")} if length else {}
        connection = HTTPConnection(*self._upstream, timeout=_ANSWER_S)
        try:
            connection.request(request.command, request.path, request.rfile.read(length) or None, headers)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers.get("Content-Type", ""), answer.read())
        except (OSError, HTTPException) as error:
            return Reply(502, "text/plain", str(error).encode())
        finally:
            connection.close()


# --- what may become of an answer ---


def instead(status: int, content_type: str, body: str) -> Change:
    return lambda _: Reply(status, content_type, body.encode())


def each_series(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Change:
    """Of each query's result; ``None`` takes a series out of it."""

    def changed(reply: Reply) -> Reply:
        if reply.status != 200:
            return reply
        document = json.loads(reply.body)
        series = [change(each) for each in document["data"]["result"]]
        document["data"]["result"] = [each for each in series if each is not None]
        return reply._replace(body=json.dumps(document).encode())

    return changed
