# ruff: noqa: N818 - these are answers, by the names that Kubernetes gives them
"""What a Kubernetes API server can answer instead of what was asked for, as types.

HTTP status codes and ``Status`` bodies are looked at here and nowhere else. The same ``Status`` comes in
two ways, as the body of a failed request and as the object of an ``ERROR`` event inside a watch that began
with 200; :func:`from_response` and :func:`from_status` give the same type for both.

Rules: ``k8s.io/apimachinery/pkg/api/errors`` and ``metav1.Status``.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

SHORT = 300
"""How many characters of a body that is no ``Status`` (an HTML page of a proxy, say) go into the message."""


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
}


def from_response(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an HTTP answer outside of 2xx stands for. Header names may be in any case."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        decoded = None
    is_status = isinstance(decoded, dict) and decoded.get("kind") == "Status"
    waits = [value for name, value in headers.items() if name.lower() == "retry-after"]
    header_s = int(waits[0]) if waits and waits[0].isascii() and waits[0].isdigit() else None
    if is_status:
        return _build(status, decoded, header_s)
    message = " ".join(body[: 4 * SHORT].decode(errors="replace").split())[:SHORT]
    return _build(status, {"message": message or "(empty body)", "kind": ""}, header_s)


def from_status(status: Mapping[str, Any]) -> ApiError:
    """The error that a decoded ``Status`` stands for, such as the object of a watch's ``ERROR`` event."""
    code = status.get("code")
    return _build(code if isinstance(code, int) else 0, status, None)


def _build(code: int, status: Mapping[str, Any], header_s: int | None) -> ApiError:
    details = _mapping(status.get("details"))
    causes = tuple(
        Cause(_text(cause.get("reason")), _text(cause.get("message")), _text(cause.get("field")))
        for cause in map(_mapping, details.get("causes") or ())
    )
    asked_s = header_s if header_s is not None else details.get("retryAfterSeconds")
    error = ApiError(
        _text(status.get("message")) or "(no message)",
        status=code,
        reason=_text(status.get("reason")),
        retry_after=timedelta(seconds=min(asked_s, 86400))
        if isinstance(asked_s, int) and asked_s > 0
        else None,
        causes=causes,
    )
    kind = _kind(error, is_status=status.get("kind", "Status") == "Status")
    return kind(
        error.message, status=code, reason=error.reason, retry_after=error.retry_after, causes=error.causes
    )


def _kind(error: ApiError, *, is_status: bool) -> type[ApiError]:
    reasons = {cause.reason for cause in error.causes}
    if error.reason in ("Expired", "Gone"):
        return Gone
    if error.status == 409 and error.reason == "AlreadyExists":
        return AlreadyExists
    if error.status == 429:
        verdict = "DisruptionBudget" in reasons or error.message.startswith("admission webhook")
        busy = error.retry_after is not None or not is_status
        return Throttled if busy and not verdict else TooManyRequests
    if "ResourceVersionTooLarge" in reasons or "Too large resource version" in error.message:
        return ResourceVersionTooLarge
    if error.status >= 500:
        return ServerError
    return _BY_STATUS.get(error.status, ApiError)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
