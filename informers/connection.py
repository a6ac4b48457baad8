"""HTTP connections that can be waited for with patience of any kind, and given up from another thread.

What urllib3's connections lack, added by its own hooks (``ConnectionCls``, ``response_class``):

* A deadline for the whole exchange. urllib3's timeouts start again with each read, so a server that sends a
  byte now and then is waited for without end.
* An end on demand. A thread that waits for a socket looks up every ``SLICE_S`` whether anybody still wants
  the answer. (Shutting the socket down from another thread would be quicker, but Python's TLS sockets then go
  on reading, undecrypted, what had already arrived.)
* The difference between "nothing was sent" and "no answer came". Whatever fails while connecting (name, TCP,
  proxy, TLS) is :class:`Unreachable`; all that fails later is :class:`NoAnswer`.
* No use of connections that were idle for long: load balancers forget them without a word.
"""

import io
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import BadStatusLine, HTTPException, HTTPResponse, RemoteDisconnected, UnknownProtocol
from typing import TYPE_CHECKING, Any

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError, InvalidChunkLength, InvalidHeader, LocationParseError

from informers.clock import SystemClock
from informers.errors import ApiError, Garbled, NoAnswer, Unreachable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SLICE_S = 0.1
MAX_IDLE_S = 30.0
_BUFFER_BYTES = 1 << 16
_PART_BYTES = 1 << 20

_QUOTING = (BadStatusLine, UnknownProtocol, InvalidChunkLength, InvalidHeader)
"""Errors that repeat what came, which may be our own request with who we are."""

_clock = SystemClock()

# It warns of headers that it cannot parse, and shows them.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


class Exchange:
    """One request and its answer, as far as waiting goes.

    ``within_s``: what it may take in all, from now; ``silence_s``: for how long nothing may arrive. None: for
    ever. ``given_up``: as soon as one of these says True, the waiting ends. ``silence_s`` may be changed on
    the way, by the thread that reads.
    """

    def __init__(
        self, *, within_s: float | None, silence_s: float | None, given_up: Sequence[Callable[[], bool]]
    ) -> None:
        self.within_s = within_s
        self.silence_s = silence_s
        self._began_s = _clock.monotonic()
        self._deadline_s = None if within_s is None else self._began_s + within_s
        self._given_up = given_up

    def elapsed_s(self) -> float:
        """Since it was made."""
        return _clock.monotonic() - self._began_s

    def slice_s(self, since_s: float) -> float:
        """How long to wait now, having waited since then. Raises NoAnswer when there is no point in it."""
        if any(given_up() for given_up in self._given_up):
            raise NoAnswer("given up while waiting for the answer")
        now_s = _clock.monotonic()
        left_s = SLICE_S
        if self._deadline_s is not None:
            if now_s >= self._deadline_s:
                raise NoAnswer(f"no answer within {self.within_s:g} s")
            left_s = min(left_s, self._deadline_s - now_s)
        if self.silence_s is not None:
            if now_s >= since_s + self.silence_s:
                raise NoAnswer(f"nothing arrived for {self.silence_s:g} s")
            left_s = min(left_s, since_s + self.silence_s - now_s)
        return left_s

    def left_s(self, at_most_s: float) -> float:
        """What is left of the whole, but no more than that. Raises NoAnswer if nothing is."""
        self.slice_s(_clock.monotonic())
        if self._deadline_s is None:
            return at_most_s
        return max(0.001, min(at_most_s, self._deadline_s - _clock.monotonic()))


class _Current(threading.local):
    """The exchange of this thread. urllib3 leaves no other way to hand something to the connection it picks."""

    exchange: Exchange | None = None


_current = _Current()


@contextmanager
def waiting(exchange: Exchange) -> Iterator[None]:
    """Answers to requests that this thread makes inside are waited for as the exchange says."""
    before, _current.exchange = _current.exchange, exchange
    try:
        yield
    finally:
        _current.exchange = before


class _PatientReader(io.RawIOBase):
    """The receiving side of a socket. ``inner`` is what it has in place of this: it only gets closed."""

    def __init__(self, sock: socket.socket, inner: io.RawIOBase, exchange: Exchange) -> None:
        super().__init__()
        self._sock = sock
        self._inner = inner
        self._exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        since_s = _clock.monotonic()
        before = self._sock.gettimeout()
        try:
            while True:
                self._sock.settimeout(self._exchange.slice_s(since_s))
                try:
                    return self._sock.recv_into(buffer)
                except TimeoutError:
                    continue
        finally:
            self._sock.settimeout(before)

    def close(self) -> None:
        self._inner.close()
        super().close()


class _PatientResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if (exchange := _current.exchange) is not None and isinstance(self.fp, io.BufferedReader):
            reader = _PatientReader(sock, self.fp.detach(), exchange)
            self.fp = io.BufferedReader(reader, _BUFFER_BYTES)


class _PatientConnection(HTTPConnection):
    response_class = _PatientResponse
    _used_s = 0.0

    def connect(self) -> None:
        """Raises Unreachable."""
        try:
            super().connect()
        except (ApiError, HTTPError, HTTPException, OSError) as error:
            raise Unreachable(f"cannot connect to {self.host}:{self.port}: {in_words(error)}") from None
        self._used_s = _clock.monotonic()

    def getresponse(self) -> Any:
        self._used_s = _clock.monotonic()
        return super().getresponse()

    @property
    def is_connected(self) -> bool:
        """urllib3 asks this before it takes a connection from the pool, and opens a new one if it is not."""
        return _clock.monotonic() < self._used_s + MAX_IDLE_S and super().is_connected


def make_patient(manager: PoolManager) -> None:
    """Have the manager's pools open such connections, of whatever kind (TLS, SOCKS) it opens otherwise."""
    manager.pool_classes_by_scheme = {
        scheme: _patient_pool(kind) for scheme, kind in manager.pool_classes_by_scheme.items()
    }


def _patient_pool(kind: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    connection = type("PatientConnection", (_PatientConnection, kind.ConnectionCls), {})
    return type("PatientPool", (kind,), {"ConnectionCls": connection})


def read_bounded(response: BaseHTTPResponse, at_most: int) -> bytes:
    """The whole body, unpacked. Raises Garbled if it is larger than ``at_most`` bytes."""
    parts: list[bytes] = []
    size = 0
    while part := response.read(_PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > at_most:
            raise Garbled(f"the answer is larger than {at_most} bytes")
    return b"".join(parts)


def in_words(error: BaseException) -> str:
    """What the system or TLS says, without urllib3's wrappings; one line, and nothing of what a server has sent."""
    while (wrapped := _wrapped_in(error)) is not None:
        error = wrapped
    if isinstance(error, _QUOTING) and not isinstance(error, RemoteDisconnected):
        return f"what came is no HTTP ({type(error).__name__})"
    if isinstance(error, LocationParseError):
        return "an address that cannot be read"  # a proxy's may have a password in it
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return " ".join(text.split())


def _wrapped_in(error: BaseException) -> BaseException | None:
    return error.__cause__ or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
