"""Which Events are sent, and as what: new ones, one more of the same, one for many that are alike, or not at all.

Rules and numbers are those of client-go's ``EventCorrelator`` (``tools/record/events_cache.go``): the same Event again
only raises the count of the one that is there; from the tenth different message of one reason on one object within ten
minutes on, they share one Event; and an object that is spoken of too much is not for a while.
On top of that, all objects together share a bucket, the last half of which is kept from notices, so that what happens
is heard in a storm of them.

Passive: whoever calls says what time it is. Not thread-safe.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from cachetools import LRUCache

from controller.telemetry.events import Event, Subject, as_message

COMPONENT = "vm-rebalancer"
REMEMBERED = 4096
ALIKE = 10
ALIKE_WITHIN = timedelta(minutes=10)
OBJECT_BURST = 25
OBJECT_EVERY = timedelta(minutes=5)
BURST = 100
EVERY = timedelta(milliseconds=500)
KEPT_FROM_NOTICES = 50

_COMBINED = "(combined from similar events): "
_LONGEST_NAME = 253
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dropped(StrEnum):
    """Why an Event is not sent; a label of the metric."""

    TOO_MANY = "TooMany"
    TOO_MANY_OF_OBJECT = "TooManyOfObject"
    QUEUE_FULL = "QueueFull"
    NOT_TAKEN = "NotTaken"
    """The API refused it, or did not answer."""
    NOT_ALLOWED = "NotAllowed"
    """The policy in force is no longer an Automatic one, or the lease was lost."""
    ENDING = "Ending"
    """There was no time for it before the end of the program."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request: create ``event``, or bring the count, time and message of the one there up to it."""

    event: Event
    name: str
    count: int
    first: datetime
    last: datetime

    @property
    def namespace(self) -> str:
        """A node's Events are in the namespace ``default``."""
        return self.event.subject.namespace or "default"

    @property
    def is_new(self) -> bool:
        return self.count == 1

    def body(self) -> dict[str, Any]:
        """As a core/v1 Event."""
        api_version, kind, namespace, name, uid = self.event.subject
        involved = {
            "apiVersion": api_version,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": self.event.type,
            "reason": self.event.reason,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": "",
            "firstTimestamp": _time(self.first),
            **self.patch(),
        }

    def patch(self) -> dict[str, Any]:
        """A merge patch."""
        return {"message": self.event.message, "count": self.count, "lastTimestamp": _time(self.last)}


@dataclass(slots=True)
class Bucket:
    """Of tokens: as many as ``burst``, and a new one ``every`` so long. A clock set back costs nobody a token."""

    burst: float
    every: timedelta
    filled_at: datetime
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def refill(self, now: datetime) -> float:
        """How many there are now."""
        gained = max((now - self.filled_at) / self.every, 0.0)
        self.tokens, self.filled_at = min(self.tokens + gained, self.burst), now
        return self.tokens

    def take(self) -> None:
        self.tokens -= 1


@dataclass(slots=True)
class _Similar:
    """Different messages of one reason on one object."""

    last: datetime
    messages: dict[str, None] = field(default_factory=dict)


class Correlator:
    """See the module. Remembers as many objects, and Events, as client-go: the ones spoken of last."""

    def __init__(self, now: datetime) -> None:
        self._bucket = Bucket(BURST, EVERY, now)
        self._buckets: LRUCache[Subject, Bucket] = LRUCache(REMEMBERED)
        self._similar: LRUCache[Event, _Similar] = LRUCache(REMEMBERED)  # by the Event without its message
        self._sent: LRUCache[Event, Outgoing] = LRUCache(REMEMBERED)
        self._last_ns = 0

    def admit(self, event: Event, now: datetime) -> Outgoing | Dropped:
        """What is to be sent; it counts as sent from now on."""
        bucket = self._buckets.setdefault(event.subject, Bucket(OBJECT_BURST, OBJECT_EVERY, now))
        if bucket.refill(now) < 1:
            return Dropped.TOO_MANY_OF_OBJECT
        if self._bucket.refill(now) < 1 + (KEPT_FROM_NOTICES if event.notice else 0):
            return Dropped.TOO_MANY
        bucket.take()
        self._bucket.take()
        key, said = self._combined(event, now)
        known = self._sent.get(key)
        self._sent[key] = outgoing = (
            replace(known, event=said, count=known.count + 1, last=now)
            if known is not None
            else Outgoing(said, self._name(event.subject.name, now), 1, now, now)
        )
        return outgoing

    def _combined(self, event: Event, now: datetime) -> tuple[Event, Event]:
        """What the Event counts as, and what is said: itself, or the one for all that are like it."""
        kind = replace(event, message="")
        similar = self._similar.get(kind)
        if similar is None or now - similar.last > ALIKE_WITHIN:
            similar = self._similar[kind] = _Similar(now)
        similar.messages[event.message] = None
        similar.last = now
        if len(similar.messages) < ALIKE:
            return event, event
        del similar.messages[next(iter(similar.messages))]
        return kind, replace(event, message=as_message(_COMBINED + event.message))

    def _name(self, name: str, now: datetime) -> str:
        """As client-go makes them, from the time in nanoseconds, and never the same one twice."""
        now_ns = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_ns = max(now_ns, self._last_ns + 1)
        suffix = f".{self._last_ns:x}"
        return name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
