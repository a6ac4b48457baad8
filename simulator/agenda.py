"""Virtual time: what happens next in the simulated world.

Times are seconds since the start of the run. Entries due at the same time run in the order in which they were
added, so that a run is repeatable.
"""

import heapq
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
"""The wall-clock time at second 0: a Monday, so that week-day patterns start where people expect them."""


class Calendar(NamedTuple):
    """What the clocks in a simulated cluster show."""

    start: datetime = EPOCH
    """At second 0."""
    speed: float = 1.0
    """Seconds of the world that pass in one of theirs."""


CALENDAR: ContextVar[Calendar] = ContextVar("calendar", default=Calendar())  # noqa: B039  it is immutable
"""A cluster that runs in real time runs in a context with a calendar of its own; all others have the default."""


class Handle:
    """A planned entry; ``cancel()`` makes it never run."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Agenda:
    """A heap of (time, sequence number, action). Invariant: ``now_s`` never goes back."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sequence = 0
        self._heap: list[tuple[float, int, Handle]] = []

    def at(self, time_s: float, action: Callable[[], None]) -> Handle:
        """Plan an action; a time in the past means now."""
        handle = Handle(action)
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._sequence, handle))
        self._sequence += 1
        return handle

    def after(self, delay_s: float, action: Callable[[], None]) -> Handle:
        return self.at(self.now_s + delay_s, action)

    def every(self, period_s: float, action: Callable[[], None], *, first_s: float | None = None) -> None:
        """Run an action for ever, first at ``first_s`` (default: one period from now)."""

        def again() -> None:
            action()
            self.after(period_s, again)

        self.at(self.now_s + period_s if first_s is None else first_s, again)

    def next_due(self) -> float | None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_until(self, time_s: float) -> None:
        """Run all that is due up to and including ``time_s``, then stand there."""
        while (due := self.next_due()) is not None and due <= time_s:
            _, _, handle = heapq.heappop(self._heap)
            self.now_s = due
            action, handle.action = handle.action, None
            if action is not None:
                action()
        self.now_s = max(self.now_s, time_s)


def to_wall_time(time_s: float) -> datetime:
    start, speed = CALENDAR.get()
    return start + timedelta(seconds=time_s / speed)


def rfc3339(time_s: float) -> str:
    """A Kubernetes ``metav1.Time``: whole seconds, UTC."""
    return to_wall_time(time_s).strftime("%Y-%m-%dT%H:%M:%SZ")
