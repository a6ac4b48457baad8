"""A server that shows whoever asks his own request, secrets and all, in every way that an answer can go wrong."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.controller.running_programs import AsProcess

WITHIN_S = 90.0
Manner = Callable[[Request], Reply]


def _head(request: Request) -> str:
    return "".join(f"{name}: {value}\n" for name, value in request.headers.items())


def _secret(request: Request) -> str:
    return request.headers.get("authorization", "nobody")


def _status(code: int, reason: str) -> Manner:
    def answer(request: Request) -> Reply:
        body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
        said = f"{request.method} {request.target} {_secret(request)} {_head(request)}"
        return reply(code, {**body, "message": said, "details": {"causes": [{"message": said}]}})

    return answer


def _page(code: int) -> Manner:
    def answer(request: Request) -> Reply:
        body = f"<html>{_secret(request)}<pre>{_head(request)}</pre></html>"
        return reply(code, body.encode(), {"Content-Type": "text/html"})

    return answer


def _prometheus_error(request: Request) -> Reply:
    return reply(422, {"status": "error", "errorType": _secret(request), "error": _head(request)})


def _prometheus_answer(request: Request) -> Reply:
    """Text where a number is expected, and a warning."""
    sample = {"metric": {}, "value": [1, _secret(request)]}
    data = {"resultType": "vector", "result": [sample]}
    return reply(200, {"status": "success", "data": data, "warnings": [_head(request)]})


def _watch_events(request: Request) -> Reply:
    lines = [
        {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": _page_text(request)}},
        {"type": _page_text(request), "object": {"metadata": {"name": "x"}}},
    ]
    return reply(200, "\n".join(map(json.dumps, lines)).encode())


def _page_text(request: Request) -> str:
    return f"<html>Authorization: {_secret(request)}"


def _raw(text: str) -> Manner:
    """``{}`` in the text: the secret."""
    return lambda request: [text.replace("{}", _secret(request)).encode()]


MANNERS: dict[str, Manner] = {
    "401": _status(401, "Unauthorized"),
    "403": _status(403, "Forbidden"),
    "429": _status(429, "TooManyRequests"),
    "500": _status(500, "InternalError"),
    "a page with 400": _page(400),
    "a page with 502": _page(502),
    "a page with 200": _page(200),
    "its headers as JSON": lambda request: reply(200, dict(request.headers)),
    "an error of Prometheus": _prometheus_error,
    "an answer of Prometheus": _prometheus_answer,
    "events of a watch": _watch_events,
    "no HTTP": _raw("{}\r\n\r\n"),
    "another protocol": _raw("HTTP/9{} 200 OK\r\n\r\n"),
    "broken headers": _raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{}\r\n: {}\r\n\r\n{}"),
    "two lengths": _raw("HTTP/1.1 200 OK\r\nContent-Length: {}, {}\r\n\r\n"),
    "broken chunks": _raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\n{}\r\n"),
    "broken off": _raw("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{}"),
    "not compressed": _raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n{}"),
}
REDIRECT = "a redirect"
ALL_MANNERS = (*MANNERS, REDIRECT)


class Echo(NamedTuple):
    """``url`` of a server that answers in each of its manners in turn, and never as it should."""

    url: str
    answered: Counter[str]
    """Manner -> how often."""
    elsewhere: list[Request]
    """What came to the other server, to which it redirects."""

    def wait_until_all_are_shown(self, program: AsProcess) -> None:
        """Each of its manners, once; Prometheus is asked each second."""
        deadline_s = time.monotonic() + WITHIN_S
        while not all(self.answered[manner] for manner in ALL_MANNERS):
            assert program.process.poll() is None, program.log
            assert time.monotonic() < deadline_s, f"shown so far: {dict(self.answered)}"
            time.sleep(0.1)


@contextmanager
def echoing(only: Sequence[str] = ()) -> Iterator[Echo]:
    """``only`` in these manners."""
    answered: Counter[str] = Counter()
    lock = Lock()
    with HttpServer(lambda _: reply(200, {})) as other:

        def redirect(request: Request) -> Reply:
            to = f"{other.url}/?token={_secret(request)}"
            return reply(302, b"", {"Location": to.replace("//", f"//{_secret(request)}@", 1)})

        manners = {**MANNERS, REDIRECT: redirect}
        chosen = {name: manners[name] for name in only or manners}

        def answer(request: Request) -> Reply:
            with lock:
                name = min(chosen, key=lambda manner: answered[manner])
                answered[name] += 1
            return chosen[name](request)

        with HttpServer(answer) as server:
            yield Echo(server.url, answered, other.requests)
