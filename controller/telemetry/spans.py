"""Spans as plain values, and the IDs they are known by: pure.

Every ID is derived from what it names, so that whoever tells of the same thing, before or after a restart, names it
alike: the trace of an eviction is the UID of the source pod, and a span is the hash of that UID, of what tells it from
others of its kind (the VMIM's UID, say), and of its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = Mapping[str, AttributeValue]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Link(NamedTuple):
    """Points to a span, in this or another trace."""

    trace_id: int
    span_id: int


class Event(NamedTuple):
    """Something that happened at one moment within a span."""

    name: str
    at: datetime
    attributes: Attributes = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Span:
    """One span, from beginning to end.

    ``trace_id`` has 128 bits, ``span_id`` and ``parent`` have 64; a ``parent`` of 0: it is a root. ``error`` says
    what went wrong; empty: nothing did. ``calls`` marks the request to a server.
    """

    trace_id: int
    span_id: int
    name: str
    start: datetime
    end: datetime
    parent: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    error: str = ""
    calls: bool = False


def trace_id(uid: str) -> int:
    """The UID itself, which is 128 bits; hashed where it is no UUID."""
    try:
        number = UUID(uid).int
    except ValueError:
        number = 0
    return number or _hashed(16, uid)


def span_id(pod_uid: str, which: str, name: str) -> int:
    """``which`` tells it from other spans of that name in the trace: the VMIM's UID, or which eviction of the pod."""
    return _hashed(8, pod_uid, which, name)


def nanoseconds(at: datetime) -> int:
    """Since the epoch, exactly."""
    return (at - _EPOCH) // _MICROSECOND * 1000


def _hashed(size: int, *parts: str) -> int:
    """Never 0, which OpenTelemetry takes for no ID."""
    digest = sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:size]) or 1
