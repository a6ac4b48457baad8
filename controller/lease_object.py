"""The ``coordination.k8s.io/v1`` Lease as elections read and write it. What others put into it stays."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from informers.clock import Clock
from informers.errors import Garbled, NotFound
from informers.transport import Transport

_SHORTEST_DEADLINE_S = 0.001
_UNREADABLE = (msgspec.DecodeError, RecursionError)


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The part of ``Lease.spec`` that elections use."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Seen(NamedTuple):
    """What the API server shows (``None``: no Lease), and since when, on our monotonic clock, that is the same."""

    record: Record | None
    since_s: float


class LeaseObject:
    """The Lease as last read or written, kept whole: what others put into it is written back as it was."""

    def __init__(
        self, transport: Transport, namespace: str, name: str, clock: Clock, request_s: float
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._clock = clock
        self._request_s = request_s
        self._content: dict[str, Any] | None = None
        self.seen = Seen(None, 0.0)

    def __str__(self) -> str:
        return f"lease {self._namespace}/{self._name}"

    def annotation(self, name: str) -> str | None:
        content = self._content  # read once: any thread may ask
        metadata = content["metadata"] if content else {}
        text = (metadata.get("annotations") or {}).get(name)
        return text if isinstance(text, str) else None

    def read(self, until_s: float) -> Seen:
        """Raises ApiError. A 404 that is not the API server's own, such as a proxy's, does not mean "none"."""
        try:
            body = self._request("GET", f"{self._path}/{self._name}", None, until_s)
        except NotFound as error:
            if error.reason != "NotFound":
                raise
            body = None
        return self._note(body)

    def write(self, record: Record, annotations: Mapping[str, str | None], until_s: float) -> Seen:
        """Create the Lease, or replace it if it is still as it was read (else Conflict). ``None`` removes."""
        content = self._content or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
        }
        merged = {**(content["metadata"].get("annotations") or {}), **annotations}
        kept = {name: text for name, text in merged.items() if text is not None}
        body = {
            **content,
            "metadata": {**content["metadata"], "annotations": kept},
            "spec": {**(content.get("spec") or {}), **msgspec.to_builtins(record)},
        }
        method, path = ("PUT", f"{self._path}/{self._name}") if self._content else ("POST", self._path)
        return self._note(self._request(method, path, msgspec.json.encode(body), until_s))

    def _request(self, method: str, path: str, body: bytes | None, until_s: float) -> bytes:
        left_s = min(self._request_s, until_s - self._clock.monotonic())
        deadline = timedelta(seconds=max(left_s, _SHORTEST_DEADLINE_S))
        return self._transport.request(method, path, body=body, deadline=deadline)

    def _note(self, body: bytes | None) -> Seen:
        content, record = (None, None) if body is None else _decode(body)
        self._content = content
        if record != self.seen.record:
            self.seen = Seen(record, self._clock.monotonic())
        return self.seen


def _decode(body: bytes) -> tuple[dict[str, Any], Record]:
    try:
        content = msgspec.json.decode(body, type=dict[str, Any])
        record = msgspec.convert(content.get("spec") or {}, Record)
        version = content["metadata"]["resourceVersion"]
    except (*_UNREADABLE, KeyError, TypeError) as error:
        raise Garbled(f"the answer is no Lease: {error}") from None
    if not version:  # no write would be guarded
        raise Garbled("the answer is no Lease: it has no resourceVersion")
    return content, record


def micro_time(instant: datetime) -> str:
    """Kubernetes' ``MicroTime``."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_micro_time(text: str | None) -> datetime | None:
    """``None`` for what is no time: whoever has written it, nothing that is decided depends on it."""
    try:
        instant = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None
