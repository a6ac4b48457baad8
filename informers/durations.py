"""How long things took, counted in buckets: what a histogram shows, without anything to show it with.

Not safe to use from several threads at once; whoever counts holds a lock.
"""

from bisect import bisect_left
from typing import NamedTuple

BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Upper bounds of the buckets, each included; what took longer has a last one of its own."""


class Durations(NamedTuple):
    """A snapshot: how many fell into each bucket (one more than ``BOUNDS_S``), and the sum of all."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    total_s: float = 0.0


class DurationCounter:
    """Counts; a time that runs backwards counts as none."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def add(self, took_s: float) -> None:
        took_s = max(0.0, took_s)
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._total_s += took_s

    def snapshot(self) -> Durations:
        return Durations(tuple(self._counts), self._total_s)
