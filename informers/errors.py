# ruff: noqa: N818 - these are answers, by the names that Kubernetes gives them
"""What a Kubernetes API server can answer instead of what was asked for, as types.

HTTP status codes and ``Status`` bodies are looked at here and nowhere else. The same ``Status`` comes in
two ways, as the body of a failed request and as the object of an ``ERROR`` event inside a watch that began
with 200; :func:`from_response` and :func:`from_status` give the same type for both.

Rules: ``k8s.io/apimachinery/pkg/api/errors`` and ``metav1.Status``.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from informers.secrets import without, without_secrets

SHORT = 300
"""How many characters of a body that is no ``Status`` (an HTML page of a proxy, say) go into the message."""
LONGEST_TEXT = 4_000
"""How many characters of each text in a ``Status`` are kept."""


class Cause(NamedTuple):
    """One entry of ``Status.details.causes``."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A request that did not bring what was asked for; of this very type if no other fits.

    ``status``: HTTP status, 0 if no answer came. ``reason``: ``Status.reason``, "" if absent.
    ``retry_after``: how long the server asks to wait (header ``Retry-After`` in seconds, else
    ``details.retryAfterSeconds``); its other form, a date, is not understood and counts as absent.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: timedelta | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.causes = causes

    def __str__(self) -> str:
        words = [str(self.status)] if self.status else []
        if self.reason:
            words.append(self.reason)
        return f"{' '.join(words)}: {self.message}" if words else self.message


class Unreachable(ApiError):
    """No connection: the request was never sent, and nothing can have come of it."""


class NoAnswer(ApiError):
    """Sent, but no whole answer came (timeout, connection lost, a stream gone silent).

    Whether the request took effect is unknown.
    """


class Garbled(ApiError):
    """An answer came that cannot be decoded."""


class BadRequest(ApiError):
    """400. Also the answer to a continue token that the server cannot read."""


class Unauthorized(ApiError):
    """401: the token is missing, wrong or expired."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404: the object, or the whole resource."""


class Conflict(ApiError):
    """409: the object has changed since it was read."""


class AlreadyExists(Conflict):
    """409 with that reason: there is an object of this name."""


class Gone(ApiError):
    """410: the resource version or continue token is older than what the server remembers. List again."""


class Invalid(ApiError):
    """422: understood and refused, such as a JSON patch whose ``test`` does not hold."""


class TooManyRequests(ApiError):
    """429, a verdict on the request: a disruption budget or an admission webhook says "not now"."""


class Throttled(TooManyRequests):
    """429 of a server that is busy: says nothing about the request itself; try later."""


class ServerError(ApiError):
    """5xx."""


class ResourceVersionTooLarge(ServerError):
    """504 with that cause: the resource version asked for lies ahead of this server.

    It lags behind its peers, or its data were restored from a backup.
    """


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def as_shown(text: str, at_most: int, known: Iterable[str] = ()) -> str:
    """What somebody else says, as a message repeats it: on one printable line, bounded, and without secrets.

    ``known``: values of the headers that he was sent.
    """
    shown = without(known, text[: 4 * at_most])
    printable = "".join(c if c.isprintable() else " " for c in shown)
    return without_secrets(" ".join(printable.split()))[:at_most]


def from_response(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an HTTP answer outside of 2xx stands for. Header names may be in any case."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = None
    waits = [value for name, value in headers.items() if name.lower() == "retry-after"]
    # Nine digits are more than anybody can mean, and as many as are surely a number.
    asked_s = int(waits[0]) if waits and re.fullmatch("[0-9]{1,9}", waits[0]) else None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        return _error(status, decoded, asked_s, is_status=True)
    text = as_shown(body[: 4 * SHORT].decode(errors="replace"), SHORT)
    return _error(status, {"message": text or "(empty body)"}, asked_s, is_status=False)


def from_status(status: Mapping[str, Any]) -> ApiError:
    """The error that a decoded ``Status`` stands for, such as the object of a watch's ``ERROR`` event."""
    code = status.get("code")
    return _error(code if isinstance(code, int) else 0, status, None, is_status=True)


def _error(code: int, status: Mapping[str, Any], asked_s: int | None, *, is_status: bool) -> ApiError:
    """``asked_s``: what the header asks for, if anything."""
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    if asked_s is None and isinstance(details.get("retryAfterSeconds"), int):
        asked_s = details["retryAfterSeconds"]
    causes = _causes(details.get("causes"))
    reason, message = _text(status.get("reason")), _text(status.get("message")) or "(no message)"
    kind = _kind(code, reason, message, {cause.reason for cause in causes})
    if kind is TooManyRequests and (asked_s or not is_status):
        verdict = message.startswith("admission webhook") or any(
            cause.reason == "DisruptionBudget" for cause in causes
        )
        kind = TooManyRequests if verdict else Throttled
    retry_after = timedelta(seconds=min(asked_s, 10**9)) if asked_s and asked_s > 0 else None
    return kind(message, status=code, reason=reason, retry_after=retry_after, causes=causes)


def _kind(code: int, reason: str, message: str, causes: set[str]) -> type[ApiError]:
    if reason in ("Expired", "Gone"):
        return Gone
    if reason == "AlreadyExists":
        return AlreadyExists
    if "ResourceVersionTooLarge" in causes or "Too large resource version" in message:
        return ResourceVersionTooLarge
    if code >= 500:
        return ServerError
    return _BY_STATUS.get(code, ApiError)


def _causes(value: object) -> tuple[Cause, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        Cause(_text(cause.get("reason")), _text(cause.get("message")), _text(cause.get("field")))
        for cause in value
        if isinstance(cause, Mapping)
    )


def _text(value: object) -> str:
    return as_shown(value, LONGEST_TEXT) if isinstance(value, str) else ""
