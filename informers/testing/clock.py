"""Time that moves only when it is told to."""

from datetime import datetime, timedelta
from typing import Any

from informers.workers import Workers


class ManualClock:
    """A :class:`~informers.clock.Clock` that stands still; ``monotonic()`` begins at 0 s.

    Both times move together. For one thread: nobody who waits for this clock is woken when it moves.
    """

    def __init__(self, start: datetime) -> None:
        """Raises ValueError if ``start`` has no time zone."""
        if start.tzinfo is None:
            raise ValueError(f"start must have a time zone, found {start.isoformat()}")
        self._start = start
        self._monotonic_s = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._monotonic_s)

    def monotonic(self) -> float:
        return self._monotonic_s

    def advance(self, by: timedelta) -> None:
        self.set_monotonic(self._monotonic_s + by.total_seconds())

    def set_monotonic(self, to_s: float) -> None:
        """Raises ValueError if that would be a step back."""
        if to_s < self._monotonic_s:
            raise ValueError(f"time cannot go back from {self._monotonic_s} s to {to_s} s")
        self._monotonic_s = to_s


def step(clock: ManualClock, *workers: Workers[Any]) -> int:
    """Jump to the moment when the next key is due (never back) and work off what is ready then.

    Returns the number of handler calls; 0 if nothing is due, ever, and the clock stays where it is.
    """
    due = [due_s for each in workers if (due_s := each.next_due()) is not None]
    if not due:
        return 0
    clock.set_monotonic(max(clock.monotonic(), min(due)))
    return sum(each.work_ready() for each in workers)
