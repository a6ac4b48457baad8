"""Leader election on a ``coordination.k8s.io/v1`` Lease, by the protocol of client-go's ``leaderelection``.

``kubernetes.leaderelection`` (37.0) has a Lease lock, but measures with ``time.time()`` and learns only from its next
requests, which have no deadline, that it was frozen; it never gives a lease back, cannot be stopped or asked, and
renews on after the work it protects has returned. Hence this one. As in client-go, a stranger's lease is judged by how
long ago *we* saw it change, on our own monotonic clock, so that no two machines' clocks are compared; and every write
is guarded by the resourceVersion that was read.

What makes it safe, as long as no machine's clock runs ``lease_duration / renew_deadline`` times faster than another's:

* A leader counts from *before* it sent the renewal that succeeded, and is none any more after ``renew_deadline``,
  whatever its thread is doing; the others count from *after* they saw that renewal, and longer.
* A request that writes is given up by ``WRITES_END`` of the lease duration after that renewal: with clocks that run
  within a tenth of each other, before anybody else may write.
* A new leader writes nothing before one lease duration has passed since its predecessor's last renewal: one that gave
  the lease back may have requests under way, and one whose Lease was deleted may not know it yet.
* A leader whose Lease is gone, or held by somebody else, has lost it for good.

The monotonic clock stands still while a machine is suspended; nodes of a cluster are not.
"""

import logging
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Condition, Event, Lock
from typing import Protocol

import msgspec

from controller.lease_object import LeaseObject, Record, Seen, from_micro_time, micro_time
from informers.clock import Clock
from informers.errors import ApiError
from informers.transport import Transport

log = logging.getLogger(__name__)

SHUTDOWN_ALARM = "vm-rebalancer.io/shutdown-alarm"
"""Annotation of the Lease: a JSON object with ``reason`` and ``policyDigest``."""

JITTER = 0.2
"""A retry comes after the retry period and up to this share of it more."""
WRITES_END = 0.9
_RELEASE_WITHIN_S = 2.0
_LOOK_EVERY_S = 0.1
_MICROSECOND = timedelta(microseconds=1)
_UNREADABLE = (msgspec.DecodeError, RecursionError)


class NotLeaderError(Exception):
    """We refuse to write: the lease is not ours, or has not been for long enough. Nothing was sent."""


class ShutdownAlarm(msgspec.Struct, frozen=True, rename="camel"):
    """A VM went down by our hand: no eviction until the policy's digest is another one."""

    reason: str
    policy_digest: str


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """client-go's defaults. Raises ValueError unless each leaves room for the next."""

    lease_duration: timedelta = timedelta(seconds=15)
    """How long others wait after the last renewal they saw; written to the Lease in whole seconds, rounded up."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """How long a leader leads after its last successful renewal."""
    retry_period: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        if self.retry_period <= timedelta(0):
            raise ValueError(f"retry period must be positive, found {self.retry_period}")
        if self.renew_deadline <= (1 + JITTER) * self.retry_period:
            raise ValueError(
                f"renew deadline must exceed {1 + JITTER} retry periods ({self.retry_period}), "
                f"found {self.renew_deadline}"
            )
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"lease duration must exceed the renew deadline ({self.renew_deadline}), found {self.lease_duration}"
            )


DEFAULT_TIMING = LeaseTiming()


@dataclass(frozen=True, slots=True)
class _Term:
    """Our leadership, from one acquisition on. Times in seconds are on our monotonic clock."""

    acquire_time: str | None
    stamp: datetime
    """The last ``renewTime`` that we wrote. It always grows: others see by it that we renew."""
    renewed_s: float
    safe_s: float
    """From then on no predecessor can be writing."""


class Pauses(Protocol):
    """Ends the election when it is set; a wait may end early, and then the lease is renewed early."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool:
        """Whether it is set."""


class Stop:
    """Like ``threading.Event``, but for ``hurry``: it ends a wait without setting it. For any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._set = False
        self._hurried = False

    def set(self) -> None:
        with self._changed:
            self._set = True
            self._changed.notify_all()

    def hurry(self) -> None:
        """What waits shall not wait any longer, this once."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._set or self._hurried, timeout)
            self._hurried = False
            return self._set


class LeaderElection:
    """One candidate. ``run`` needs a thread of its own; everything else is for any thread and never blocks on it.

    ``identity`` shall name this process alone; ``rng`` is for the jitter. ``seize``: do not wait for a lease that is
    held, but take it; its holder finds out with its next renewal, well before we may write.
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        rng: random.Random,
        timing: LeaseTiming = DEFAULT_TIMING,
        *,
        seize: bool = False,
    ) -> None:
        self._seize = seize
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._duration_s = timing.lease_duration.total_seconds()
        self._written_duration_s = math.ceil(self._duration_s)  # set from any thread
        self._deadline_s = timing.renew_deadline.total_seconds()
        self._retry_s = timing.retry_period.total_seconds()
        # All below belongs to the thread in run(), which replaces each value whole; others only read.
        self._lease = LeaseObject(transport, namespace, name, clock, self._deadline_s / 2)
        self._term: _Term | None = None
        self._ended = False
        self._problem = ""
        # What the last acquisition meant to write: if no answer came and it is there next time, it is ours.
        self._attempted: Record | None = None
        self._former_renewal: datetime | None = None
        # Except this one, which the lock guards: annotations to be written, or to be taken off (None), next time.
        self._lock = Lock()
        self._unwritten: Mapping[str, str | None] = {}

    def is_leader(self) -> bool:
        """Whether the last successful renewal is younger than the renew deadline, at this very moment."""
        term = self._term
        return term is not None and self._current(term)

    def writes_allowed(self) -> bool:
        """Whether we lead and no predecessor can be writing any more: True for one candidate at a time."""
        term = self._term
        return term is not None and self._current(term) and self._clock.monotonic() >= term.safe_s

    def time_to_write(self) -> timedelta:
        """How long a write that begins now may take: by then nobody else writes. Zero unless writes are allowed."""
        term = self._term
        if term is None or not self.writes_allowed():
            return timedelta(0)
        end_s = term.renewed_s + max(self._deadline_s, WRITES_END * self._duration_s)
        return timedelta(seconds=max(0.0, end_s - self._clock.monotonic()))

    def wait_until_safe(self, stop: Event) -> bool:
        """Wait until writes are allowed. False if ``stop`` was set first, or ``run`` has ended."""
        while not stop.is_set() and not self._ended:
            if self.writes_allowed():
                return True
            stop.wait(_LOOK_EVERY_S)
        return False

    @property
    def holder(self) -> str:
        """Who held the lease when it was last read; "" for nobody."""
        record = self._lease.seen.record
        return (record.holder_identity or "") if record else ""

    @property
    def former_renewal(self) -> datetime | None:
        """When the holder before us renewed last, by its own clock; ``None`` if there was none or we do not lead."""
        return self._former_renewal

    @property
    def transitions(self) -> int:
        """How often the lease has changed hands, as it said when it was last read."""
        record = self._lease.seen.record
        return (record.lease_transitions or 0) if record else 0

    @property
    def problem(self) -> str:
        """Why the last try to acquire or renew failed; "" if it did not. That another holds it is no failure."""
        return self._problem

    def alarm(self) -> ShutdownAlarm | None:
        """The alarm that the Lease keeps, as last read; known from the moment we lead."""
        text = self._unwritten.get(SHUTDOWN_ALARM, self._lease.annotation(SHUTDOWN_ALARM))
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=ShutdownAlarm)
        except _UNREADABLE as error:
            log.warning("%s: %s is no alarm: %s", self._lease, SHUTDOWN_ALARM, error)
            return None

    def keep_alarm(self, alarm: ShutdownAlarm | None) -> None:
        """Have the Lease keep this alarm, or none, from the next renewal (or the release) on.

        Only a leader may say that there is none: what a stand-by knows may be old when its turn comes.
        """
        text = msgspec.json.encode(alarm).decode() if alarm is not None else None
        if text is not None or self.is_leader():
            with self._lock:
                self._unwritten = {SHUTDOWN_ALARM: text}

    def keep_others_out(self, duration: timedelta) -> None:
        """With the next renewal, have the others wait for so long after it; for who is going to end without release."""
        self._written_duration_s = math.ceil(duration.total_seconds())

    def kept_out_s(self) -> int:
        """How long the others wait, as last written, in seconds; 0 without a lease of ours."""
        record = self._lease.seen.record
        ours = record is not None and record.holder_identity == self._identity
        return (record.lease_duration_seconds or 0) if record is not None and ours else 0

    def run(self, stop: Pauses) -> bool:
        """Acquire the lease, renew it, and give it back when ``stop`` is set; once.

        True: stopped. False: leadership was lost. Once it has returned, or raised, writes are never allowed again.
        After ``stop`` it takes one renew deadline at most.
        """
        try:
            while not stop.is_set():
                self._attempt()
                if self._ended:
                    log.error("%s: leadership lost: %s", self._lease, self._problem)
                    return False
                stop.wait(self._retry_s * (1 + JITTER * self._rng.random()))
            return True
        finally:
            self._ended = True
            term, self._term = self._term, None  # no write may begin any more when the lease goes back
            if term is not None and self._current(term):
                self._give_back(term)

    def _current(self, term: _Term) -> bool:
        return self._clock.monotonic() - term.renewed_s < self._deadline_s

    def _attempt(self) -> None:
        """Try once to acquire or to renew, and see whether leadership is lost."""
        problem, holder = "", self.holder
        try:
            if self._term is None:
                self._acquire()
            elif self._current(self._term):
                self._renew(self._term)
        except ApiError as error:
            problem = str(error)
        if self._term is not None and not self._current(self._term):
            self._ended = True
            problem = f"not renewed in time ({problem or self._problem or 'this process stood still'})"
        elif self._ended:
            problem = f"the lease is held by {self.holder or 'nobody'}"
        elif problem and problem != self._problem:
            log.warning("%s: %s", self._lease, problem)
        elif self.holder != holder:
            log.info("%s: held by %s", self._lease, self.holder or "nobody")
        self._problem = problem

    def _acquire(self) -> None:
        until_s = self._clock.monotonic() + self._deadline_s
        record, since_s = self._lease.read(until_s)
        ran_out = False
        if record is not None and record.holder_identity and record != self._attempted:
            waits_s = max(self._duration_s, float(record.lease_duration_seconds or 0))
            ran_out = self._clock.monotonic() >= since_s + waits_s
            if not (ran_out or self._seize):
                return
        stamp = self._clock.now()
        self._attempted = Record(
            holder_identity=self._identity,
            lease_duration_seconds=self._written_duration_s,
            acquire_time=micro_time(stamp),
            renew_time=micro_time(stamp),
            lease_transitions=(record.lease_transitions or 0) + 1 if record else 0,
        )
        if record is not None and record.holder_identity != self._identity:
            self._former_renewal = from_micro_time(record.renew_time)
        sent_s = self._clock.monotonic()
        written = self._write(self._attempted, until_s)
        # Of a predecessor that was not watched until its lease ran out, we know only that it had none when we wrote.
        safe_s = sent_s if ran_out else self._clock.monotonic() + self._duration_s
        acquire_time = written.record.acquire_time if written.record else None
        self._term = _Term(acquire_time, stamp, sent_s, safe_s)

    def _renew(self, term: _Term) -> None:
        until_s = term.renewed_s + self._deadline_s
        record = self._lease.read(until_s).record
        if record is None or not self._is_ours(record, term):
            self._term, self._ended = None, True
            return
        stamp = max(self._clock.now(), term.stamp + _MICROSECOND)
        renewed = msgspec.structs.replace(
            record, renew_time=micro_time(stamp), lease_duration_seconds=self._written_duration_s
        )
        sent_s = self._clock.monotonic()
        self._write(renewed, until_s)
        self._term = replace(term, stamp=stamp, renewed_s=sent_s)

    def _write(self, record: Record, until_s: float) -> Seen:
        annotations = self._unwritten
        seen = self._lease.write(record, annotations, until_s)
        with self._lock:
            if self._unwritten is annotations:
                self._unwritten = {}
        return seen

    def _is_ours(self, record: Record, term: _Term) -> bool:
        return record.holder_identity == self._identity and record.acquire_time == term.acquire_time

    def _give_back(self, term: _Term) -> None:
        until_s = self._clock.monotonic() + _RELEASE_WITHIN_S
        stamp = micro_time(max(self._clock.now(), term.stamp + _MICROSECOND))
        try:
            record = self._lease.read(until_s).record
            if record is not None and self._is_ours(record, term):
                released = msgspec.structs.replace(
                    record, holder_identity="", lease_duration_seconds=1, acquire_time=stamp, renew_time=stamp
                )
                self._write(released, until_s)
                log.info("%s: given back", self._lease)
        except ApiError as error:
            log.warning("%s: not given back, it runs out by itself: %s", self._lease, error)
