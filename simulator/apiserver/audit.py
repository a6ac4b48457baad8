"""The audit log: one JSON line for each request that was answered, watches when they begin."""

from datetime import datetime
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from simulator.apiserver.accounts import User
from simulator.apiserver.routing import Call


class Entry(msgspec.Struct, frozen=True):
    """What one request was, and what it got. Paths that are no resource's have only ``path``."""

    time: str
    user: str
    verb: str
    apiGroup: str  # noqa: N815  as in Kubernetes' audit events
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    dryRun: bool  # noqa: N815
    status: int
    message: str
    """What the API server says when it does not do what was asked."""
    userAgent: str  # noqa: N815


class Answer(NamedTuple):
    """``refusal``: the body of an answer that is no success."""

    status: int
    refusal: bytes


class AuditLog:
    """Appends to a file, line by line, so that readers see whole lines; without a file it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raises ``OSError``."""
        self._file: IO[bytes] | None = None if path is None else path.open("ab", buffering=0)

    def add(
        self, user: User, call: Call, answer: Answer, *, dry_run: bool, now: datetime, agent: str
    ) -> None:
        if self._file is None:
            return
        entry = Entry(
            time=now.isoformat(timespec="milliseconds"),
            user=user.name,
            verb=call.verb,
            apiGroup=call.group,
            resource=call.plural,
            subresource=call.subresource,
            namespace=call.namespace,
            name=call.name,
            path=call.path,
            dryRun=dry_run,
            status=answer.status,
            message=_message(answer.refusal),
            userAgent=agent,
        )
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Status(msgspec.Struct, frozen=True):
    message: str = ""


def _message(refusal: bytes) -> str:
    """Of a Status; what is none is a text."""
    try:
        return msgspec.json.decode(refusal, type=_Status).message
    except msgspec.DecodeError:
        return refusal.decode(errors="replace").strip()
