"""Requests to one Kubernetes API server, as bytes: who we are, deadlines, and errors as types.

Guarantees:

* A request ends within its deadline, whatever the server does; a watch is given up after a silence. Both end
  within ``connection.SLICE_S`` once they are cancelled or the transport is closed. (While connecting it may
  take up to ``CONNECT_S``, and as long as the system's resolver takes for a name.)
* ``Unreachable``: nothing was sent. ``NoAnswer``: sent, and nobody knows what came of it. All else is what
  the server said (:mod:`informers.errors`).
* Nothing is sent twice, except after 401: a server that does not know us has carried nothing out, so
  credentials are read afresh and the request is sent once more. Redirects are not followed: they are errors.
* Tokens and keys are in no error, log line or ``repr``.

Safe to use from any thread.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from threading import Event
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse, Timeout
from urllib3.exceptions import DecodeError, HTTPError

from informers import credentials
from informers.connection import Exchange, in_words, read_bounded, waiting
from informers.credentials import Access, Credentials
from informers.errors import ApiError, Garbled, NoAnswer, Unauthorized, Unreachable, from_response
from informers.secrets import without

log = logging.getLogger(__name__)

CONNECT_S = 5.0
MAX_ANSWER_BYTES = 16 << 20
MAX_ERROR_BYTES = 64 << 10
MAX_LINE_BYTES = 16 << 20
"""Of a watch. An object in etcd has at most 1.5 MB, one that an aggregated API serves may have more."""

_PART_BYTES = 1 << 20


class Answered(NamedTuple):
    """A request that has come to an end: ``status`` 0 if no answer came; ``took_s``: until the answer began."""

    method: str
    path: str
    watch: bool
    status: int
    took_s: float


class Transport:
    """See the module's guarantees."""

    def __init__(self, credentials: Credentials, *, compress: bool) -> None:
        """``compress``: ask for compressed answers. Worth it where the network is slower than 50 MB/s."""
        self._credentials = credentials
        self._compress = compress
        self._closed = Event()
        self._on_answer: Callable[[Answered], None] = lambda _: None

    def tell(self, on_answer: Callable[[Answered], None]) -> None:
        """Have each request reported once it is answered, refused or given up; in the thread that made it.

        A watch is reported once it is open. ``on_answer`` must be quick and not raise. Call this before the first
        request; the last call counts.
        """
        self._on_answer = on_answer

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None = None) -> "Transport":
        """In a pod: as that; elsewhere, or if either is given: as the kubeconfig says. Raises CredentialsError."""
        if os.environ.get("KUBERNETES_SERVICE_HOST") and not (kubeconfig or context):
            return cls.in_cluster()
        return cls.from_kubeconfig(kubeconfig, context)

    @classmethod
    def from_kubeconfig(cls, path: str | None, context: str | None = None) -> "Transport":
        """``path`` None: as kubectl looks for it. Raises CredentialsError, a ValueError."""
        return cls(credentials.from_kubeconfig(path, context), compress=True)

    @classmethod
    def in_cluster(cls) -> "Transport":
        """As the pod that we run in. Raises CredentialsError, a ValueError."""
        return cls(credentials.in_cluster(), compress=False)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline: timedelta,
        max_bytes: int = MAX_ANSWER_BYTES,
        cancel: Event | None = None,
    ) -> bytes:
        """The body of a 2xx answer. Raises ApiError for all else, Garbled if it is larger than ``max_bytes``.

        ``cancel``: once set, the answer is waited for no longer (NoAnswer).
        """
        headers = {"Accept-Encoding": "gzip" if self._compress else "identity"}
        if body is not None:
            headers["Content-Type"] = content_type
        exchange = self._exchange(cancel, within_s=deadline.total_seconds())
        with _broken_as_no_answer(), waiting(exchange):
            response = self._open(exchange, _Question(method, path, query, headers, body))
            try:
                return read_bounded(response, max_bytes)
            except (ApiError, HTTPError, HTTPException, OSError) as error:
                raise _broken_off(response.status, error) from None
            finally:
                _done_with(response)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        read_timeout: timedelta,
        cancel: Event | None = None,
    ) -> "Stream":
        """GET an answer that arrives bit by bit; raises as ``request`` does if the server refuses.

        ``read_timeout``: nothing arrives for so long: NoAnswer. ``cancel``: as for ``request``.
        """
        exchange = self._exchange(cancel, silence_s=read_timeout.total_seconds())
        with _broken_as_no_answer(), waiting(exchange):
            response = self._open(exchange, _Question("GET", path, query, {"Accept-Encoding": "identity"}))
        return Stream(response, exchange)

    def close(self) -> None:
        """End what is under way and refuse what comes (Unreachable)."""
        self._closed.set()
        self._credentials.current.pool.clear()

    def __repr__(self) -> str:
        return f"Transport({self._credentials!r})"

    def _exchange(
        self, cancel: Event | None, *, within_s: float | None = None, silence_s: float | None = None
    ) -> Exchange:
        if self._closed.is_set():
            raise Unreachable("this transport is closed")
        given_up = [self._closed.is_set] if cancel is None else [self._closed.is_set, cancel.is_set]
        return Exchange(within_s=within_s, silence_s=silence_s, given_up=given_up)

    def _open(self, exchange: Exchange, question: "_Question") -> BaseHTTPResponse:
        """The answer, if it is 2xx, with its body still to be read."""
        status = 0
        try:
            response = self._send_known(exchange, question)
            status = response.status
        except ApiError as error:
            status = error.status
            raise
        finally:
            watch = question.query.get("watch") == "1"
            answered = Answered(question.method, question.path, watch, status, exchange.elapsed_s())
            self._on_answer(answered)
        return response

    def _send_known(self, exchange: Exchange, question: "_Question") -> BaseHTTPResponse:
        """Once more, with fresh credentials, if the server does not know us."""
        access = self._credentials.current
        try:
            return self._send(access, exchange, question)
        except Unauthorized:
            renewed = self._credentials.renew(access, exchange.left_s(CONNECT_S))
            if renewed is None:
                raise
        return self._send(renewed, exchange, question)

    def _send(self, access: Access, exchange: Exchange, question: "_Question") -> BaseHTTPResponse:
        identity = self._credentials.headers(access, exchange.left_s(CONNECT_S))
        response = access.pool.urlopen(
            question.method,
            access.url + question.target,
            redirect=False,
            retries=False,
            preload_content=False,
            timeout=Timeout(connect=exchange.left_s(CONNECT_S), read=exchange.within_s),
            headers={
                "Accept": "application/json",
                "User-Agent": _user_agent(),
                **question.headers,
                **identity,
            },
            body=question.body,
        )
        if 200 <= response.status < 300:
            return response
        raise _error_of(response, identity)


class _Question(NamedTuple):
    """What is asked of the server, whoever we are."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None = None

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Stream(Iterator[bytes]):
    """The lines of an answer as they arrive, without their ends and without empty ones; a context manager.

    Ends where the server ends the answer in good order. Raises NoAnswer where the connection breaks, falls
    silent or is given up, and Garbled for a line that does not end. Leaving the context gives it up.
    """

    def __init__(self, response: BaseHTTPResponse, exchange: Exchange) -> None:
        self._response = response
        self._exchange = exchange
        self._lines = split_lines(self._chunks())

    def set_read_timeout(self, read_timeout: timedelta) -> None:
        """From now on. By the thread that reads."""
        self._exchange.silence_s = read_timeout.total_seconds()

    def __next__(self) -> bytes:
        return next(self._lines)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _done_with(self._response)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            with _broken_as_no_answer():
                chunk = self._response.read1(_PART_BYTES)
            if not chunk:
                return
            yield chunk


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that the chunks are made of, however they are cut (a character may be, too).

    Without line ends and empty lines. Raises Garbled for a line of more than ``MAX_LINE_BYTES``.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        for part in others:
            if line := b"".join(parts):
                yield line
            parts, size = [part], len(part)
        if size > MAX_LINE_BYTES:
            raise Garbled(f"a line of the watch is longer than {MAX_LINE_BYTES} bytes")
    if line := b"".join(parts):
        yield line


def _error_of(response: BaseHTTPResponse, identity: Mapping[str, str]) -> ApiError:
    """The status counts, even if what the server says about it does not arrive or does not end.

    Who answers may be a proxy that shows the whole request, with who we are; that is taken out.
    """
    body = b""
    try:
        body = response.read(MAX_ERROR_BYTES)
    except (ApiError, HTTPError, HTTPException, OSError):
        log.debug("the body of an answer with status %d is lost", response.status)
    finally:
        _done_with(response)
    shown = without(identity.values(), body.decode("latin-1")).encode("latin-1")  # headers are ASCII
    return from_response(response.status, shown, response.headers)


def _broken_off(status: int, error: Exception) -> ApiError:
    """The head of the answer has come, and tells what became of the request; that counts, whatever befell its body."""
    if isinstance(error, ApiError):
        return type(error)(error.message, status=status)
    if isinstance(error, DecodeError):
        return Garbled(f"the answer cannot be decompressed: {in_words(error)}", status=status)
    return NoAnswer(f"the connection broke: {in_words(error)}", status=status)


def _done_with(response: BaseHTTPResponse) -> None:
    """Back into the pool if it was read to its end; else the connection is closed."""
    response.close()
    response.release_conn()


@contextmanager
def _broken_as_no_answer() -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise Garbled(f"the answer cannot be decompressed: {in_words(error)}") from None
    except (HTTPError, HTTPException, OSError) as error:
        raise NoAnswer(f"the connection broke: {in_words(error)}") from None


@cache
def _user_agent() -> str:
    try:
        return f"vm-rebalancer/{version('vm-rebalancer')}"
    except PackageNotFoundError:
        return "vm-rebalancer"
