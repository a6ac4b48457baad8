"""What the API server says when it does not do what was asked: Status bodies, word for word."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from simulator.kubevirt.objectstore import ApiError, Json

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Subject(NamedTuple):
    """The object or collection that a refusal is about."""

    plural: str
    group: str = ""
    name: str = ""
    kind: str = ""

    @property
    def qualified(self) -> str:
        """The resource's name in messages: ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def details(self, *, by_kind: bool = False, **more: Any) -> Json:
        """``Status.details``; its field ``kind`` holds the resource, or the kind if an object is invalid."""
        fields = {"name": self.name, "group": self.group, "kind": self.kind if by_kind else self.plural}
        return {key: value for key, value in fields.items() if value} | more


class Refusal(Exception):  # noqa: N818  it is an answer
    """A Status with ``status: Failure``. An empty reason or absent details are left out, as real ones are."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = _REASONS.get(status, "") if reason is None else reason
        self.details = details
        self.retry_after_s = retry_after_s
        self.metadata = metadata or {}

    def body(self) -> Json:
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        return status | {"code": self.status}

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.body())


class Cause(NamedTuple):
    """One fault of an object: ``field`` is its path, ``reason`` a FieldValue… constant."""

    reason: str
    message: str
    field: str


def success(code: int, details: Mapping[str, Any] | None = None) -> Json:
    """A Status with ``status: Success``; a code of 0 is left out, as in answers to DELETE."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = dict(details)
    return status | ({"code": code} if code else {})


def bad_request(message: str) -> Refusal:
    return Refusal(400, message)


def not_found(subject: Subject) -> Refusal:
    return Refusal(404, f'{subject.qualified} "{subject.name}" not found', details=subject.details())


def exists(subject: Subject) -> Refusal:
    message = f'{subject.qualified} "{subject.name}" already exists'
    return Refusal(409, message, reason="AlreadyExists", details=subject.details())


def conflict(subject: Subject, why: str = "") -> Refusal:
    """An update from an old state, or a precondition that does not hold."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {subject.qualified} "{subject.name}": {why}'
    return Refusal(409, message, details=subject.details())


def wrong_uid(subject: Subject, asked: str, found: str) -> Refusal:
    return conflict(
        subject, f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    )


def method_not_allowed(subject: Subject) -> Refusal:
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, message, details=subject._replace(name="").details())


def invalid(subject: Subject, causes: Sequence[Cause]) -> Refusal:
    """An object that breaks the rules of its kind."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{subject.kind}.{subject.group}" if subject.group else subject.kind
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return Refusal(
        422,
        f'{kind} "{subject.name}" is invalid: {shown}',
        details=subject.details(by_kind=True, causes=listed),
    )


def denied(message: str, subject: Subject) -> Refusal:
    """An admission webhook's No."""
    return Refusal(403, message, reason="Forbidden", details=subject.details())


def expired(message: str, continue_token: str = "") -> Refusal:
    """410: what was asked for by version has been compacted away."""
    return Refusal(410, message, metadata={"continue": continue_token} if continue_token else None)


def too_old(asked: int, oldest: int) -> Refusal:
    """410 to a watch that asks for changes which are not known any more."""
    return Refusal(410, f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, current: int) -> Refusal:
    """504: a version that the server has not reached yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Refusal(
        504,
        f"Too large resource version: {asked}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
        retry_after_s=1,
    )


def from_store(error: ApiError, subject: Subject) -> Refusal:
    """The store's and the control plane's refusals."""
    return Refusal(error.status, error.message, reason=error.reason, details=subject.details())
