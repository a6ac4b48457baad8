"""The time, and the only module that reads it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What tells the time: the system's clock, a test's or a simulation's."""

    def now(self) -> datetime:
        """The wall-clock time, timezone-aware, in UTC. May jump; for comparing with times that others
        wrote.
        """

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. Never goes back; for delays and durations."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
