"""A queue of keys to work on: passive, without threads and without a clock.

Guarantees, which a controller builds on:

* Fair: keys are handed out in the order in which they became ready, urgent ones before all others.
* Stingy: a key is never handed out again before ``done``; added several times before it is handed out, it
  is handed out once.
* Nothing is lost: after ``add(key)`` the key is handed out at least once more; if it is being worked on at
  that moment, then after ``done``. So whoever works on a key sees everything that happened before it was
  added.
* Delays: a key added with a delay becomes ready when that has passed and not earlier; of several such keys,
  in the order of their due times, ties in the order of adding. A key has at most one delayed entry, the
  earliest asked for; ``add`` leaves it alone.
* Back-off: the n-th ``add_rate_limited`` of a key since ``forget`` waits ``base_delay_s * 2**(n-1)``, at most
  ``max_delay_s``.
* Repeatable: the same calls give the same answers. Nothing here is random, nor depends on hashing.

Not safe to use from several threads at once; :class:`informers.workers.Workers` holds a lock around it.
Times are seconds on one monotonic clock, the caller's.
"""

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from informers.durations import DurationCounter, Durations

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class WorkQueueStatistics:
    """How many keys are ``ready``, ``working``, ``again`` (added while worked on), ``delayed``, ``failing``
    (rate-limited and not forgotten since). Totals since the start: ``added`` (made ready or marked for
    another run), ``handed_out``, ``rate_limited``; ``waited``: how long keys were ready, or asked for again
    while worked on, until they were handed out.
    """

    ready: int
    working: int
    again: int
    delayed: int
    failing: int
    added: int
    handed_out: int
    rate_limited: int
    waited: Durations


class WorkQueue(Generic[K]):
    """See the module's guarantees. ``None`` is not a key. ``urgent`` always says the same of a key.

    Invariants: ``_urgent`` holds the urgent keys that are ready, ``_ready`` the others; they share no key with
    ``_working``. ``_again`` is a subset of ``_working``. A heap entry counts only if ``_due`` holds the same time and
    sequence number for its key.
    """

    def __init__(
        self,
        *,
        urgent: Callable[[K], bool] = lambda _: False,
        base_delay_s: float = 1.0,
        max_delay_s: float = 60.0,
    ) -> None:
        if not 0 < base_delay_s <= max_delay_s < math.inf:
            raise ValueError(f"need 0 < base_delay_s <= max_delay_s, found {base_delay_s} and {max_delay_s}")
        self._is_urgent = urgent
        self._base_delay_s = base_delay_s
        self._max_delay_s = max_delay_s
        # Dicts stand for ordered sets: the order of a set would depend on hashes. Values: waiting since.
        self._urgent: dict[K, float] = {}
        self._ready: dict[K, float] = {}
        self._working: dict[K, None] = {}
        self._again: dict[K, float] = {}
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._sequence = 0
        self._added = self._handed_out = self._rate_limited = 0
        self._waited = DurationCounter()

    def add(self, key: K, now_s: float) -> None:
        """Have the key worked on, as soon as possible."""
        waiting = self._again if key in self._working else self._lane_of(key)
        if key not in waiting:
            waiting[key] = now_s
            self._added += 1

    def add_after(self, key: K, delay_s: float, now_s: float) -> None:
        """Have the key worked on once ``delay_s`` has passed; at once if it is not positive.

        Raises ValueError if the times are not finite.
        """
        due_s = now_s + delay_s
        if not math.isfinite(due_s):
            raise ValueError(f"delay and time must be finite, found {delay_s} and {now_s}")
        if delay_s <= 0:
            self.add(key, now_s)
        elif key not in self._due or due_s < self._due[key][0]:
            self._due[key] = due_s, self._sequence
            heapq.heappush(self._heap, (due_s, self._sequence, key))
            self._sequence += 1
            if len(self._heap) > 2 * len(self._due) + 16:  # superseded entries must not pile up
                self._heap = [(due_s, sequence, key) for key, (due_s, sequence) in self._due.items()]
                heapq.heapify(self._heap)

    def add_rate_limited(self, key: K, now_s: float) -> float:
        """Have the key worked on after its back-off; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(self._max_delay_s, self._base_delay_s * 2.0 ** min(failures, 64))
        self._rate_limited += 1
        self.add_after(key, delay_s, now_s)
        return delay_s

    def forget(self, key: K) -> None:
        """The key is fine again: its next back-off starts from the beginning. A pending delay stays."""
        self._failures.pop(key, None)

    def pop_ready(self, now_s: float) -> K | None:
        """Hand out the next key, None if there is none at this time. The caller owes a ``done``."""
        while (due_s := self._next_delayed()) is not None and due_s <= now_s:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key, due_s)
        lane = self._urgent or self._ready
        for key, since_s in lane.items():
            del lane[key]
            self._waited.add(now_s - since_s)
            self._working[key] = None
            self._handed_out += 1
            return key
        return None

    def done(self, key: K) -> None:
        """The work on a key handed out is over. Raises ValueError if it was not handed out."""
        if key not in self._working:
            raise ValueError(f"{key!r} is not being worked on")
        del self._working[key]
        if key in self._again:
            self._lane_of(key)[key] = self._again.pop(key)

    def next_due(self) -> float | None:
        """When there will be something to hand out, if nothing is added: ``-inf`` for now, None for never.

        The time of a delayed key that is being worked on counts, too; it may lie in the past.
        """
        return -math.inf if self._urgent or self._ready else self._next_delayed()

    def statistics(self) -> WorkQueueStatistics:
        return WorkQueueStatistics(
            ready=len(self._urgent) + len(self._ready),
            working=len(self._working),
            again=len(self._again),
            delayed=len(self._due),
            failing=len(self._failures),
            added=self._added,
            handed_out=self._handed_out,
            rate_limited=self._rate_limited,
            waited=self._waited.snapshot(),
        )

    def _lane_of(self, key: K) -> dict[K, float]:
        return self._urgent if self._is_urgent(key) else self._ready

    def _next_delayed(self) -> float | None:
        while self._heap:
            due_s, sequence, key = self._heap[0]
            if self._due.get(key) == (due_s, sequence):
                return due_s
            heapq.heappop(self._heap)
        return None
