"""Stand-ins for :class:`informers.transport.Transport`, by protocol: scripted answers, and a server of Leases."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from informers.errors import ApiError, from_response

DATA = Path(__file__).parent / "data"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/rebalancing/leases"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it would have left."""

    method: str
    path: str
    body: Any
    content_type: str
    deadline: timedelta
    query: Mapping[str, str] = field(default_factory=dict)


class FakeTransport:
    """Answers requests in order with what it was given (bytes, or an error to raise) and remembers them."""

    def __init__(self, *answers: bytes | ApiError) -> None:
        self._answers = list(answers)
        self.sent: list[Sent] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline: timedelta,
    ) -> bytes:
        decoded = None if body is None else json.loads(body)
        self.sent.append(Sent(method, path, decoded, content_type, deadline, query))
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def recorded(name: str) -> dict[str, Any]:
    """A recorded exchange with a real API server or Prometheus."""
    content: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return content


def recorded_error(name: str) -> ApiError:
    answer = recorded(name)["response"]
    return from_response(answer["status"], json.dumps(answer["body"]).encode(), answer.get("headers", {}))


class LeaseServer:
    """One Lease as an API server keeps it: create, read, and replace guarded by the resourceVersion."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.puts = 0
        self.before: Callable[[str], None] = lambda method: None
        """Called before each request is carried out; may raise an ApiError, move time, or change the Lease."""
        self.after: Callable[[str], None] = lambda method: None
        """Called before each answer is given; what it raises takes the answer's place."""
        self._version = 0

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    @property
    def annotations(self) -> dict[str, str]:
        assert self.lease is not None
        return self.lease["metadata"].get("annotations") or {}

    def tell(self, on_answer: Callable[..., None]) -> None:
        """Nobody is told of its requests."""

    def put(self, spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> None:
        """As somebody else would: whatever stands there."""
        metadata = {"name": "l", "namespace": "rebalancing", "annotations": dict(annotations or {})}
        self._store({"metadata": metadata, "spec": dict(spec)})

    def annotate(self, name: str, text: str) -> None:
        """As ``kubectl annotate`` would: a change that is no renewal."""
        assert self.lease is not None
        self._store(
            {
                **self.lease,
                "metadata": {**self.lease["metadata"], "annotations": {**self.annotations, name: text}},
            }
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline: timedelta,
    ) -> bytes:
        assert deadline > timedelta(0)
        assert path == (LEASE_PATH if method == "POST" else f"{LEASE_PATH}/l")
        self.before(method)
        answer = self._carry_out(method, {} if body is None else json.loads(body))
        self.after(method)
        return answer

    def _carry_out(self, method: str, body: dict[str, Any]) -> bytes:
        if method == "POST":
            if self.lease is not None:
                raise recorded_error("lease-exists")
            self._store(body)
        elif self.lease is None:
            raise status_error(404, "NotFound", 'leases.coordination.k8s.io "l" not found')
        elif method == "PUT":
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                raise recorded_error("lease-conflict")
            self.puts += 1
            self._store(body)
        return json.dumps(self.lease).encode()

    def _store(self, lease: dict[str, Any]) -> None:
        self._version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self._version)}}


def status_error(code: int, reason: str, message: str) -> ApiError:
    """An error that the API server itself reports, in a ``Status``."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return from_response(code, json.dumps(status).encode(), {})
