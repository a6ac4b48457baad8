"""When loads hold: pure arithmetic on seconds since the start, a Monday 00:00."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simulator.scenario.cluster_schema import DAYS, Day, When

DAY_S = 86_400.0


def intervals(when: When, run_s: float) -> list[tuple[float, float]]:
    """The [start, end) within the run, in order and without overlap; one that would outlast the run ends with
    it."""
    first_s = when.start_minute * 60
    last_s = run_s if when.end_minute is None else min(run_s, when.end_minute * 60)
    found = []
    for window_start, window_end in _windows(when, last_s):
        for start, end in _within(when, max(window_start, first_s), min(window_end, last_s)):
            if end > start:
                found.append((start, end))
    return found


def _windows(when: When, last_s: float) -> Iterator[tuple[float, float]]:
    if when.hours is None and not when.days:
        yield 0.0, last_s
        return
    from_hour, to_hour = when.hours or (0.0, 24.0)
    nights = 1 if to_hour <= from_hour else 0
    day = -1  # a window over midnight may have begun the day before
    while day * DAY_S < last_s:
        if not when.days or DAYS[day % 7] in when.days:
            yield day * DAY_S + from_hour * 3600, (day + nights) * DAY_S + to_hour * 3600
        day += 1


def _within(when: When, start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    lasting_s = math.inf if when.for_minutes is None else when.for_minutes * 60
    if when.every_minutes is None:
        yield start_s, min(end_s, start_s + lasting_s)
        return
    period_s = when.every_minutes * 60
    number, begin = 0, start_s
    while begin < end_s:
        number += 1
        following = start_s + number * period_s
        yield begin, min(end_s, begin + lasting_s, following)
        begin = following


def at_hour(curve: Mapping[float, float], now_s: float) -> float:
    """The value of a day's curve (hour -> value): linear between its points, over midnight too."""
    points = sorted(curve.items())
    hours, values = [hour for hour, _ in points], [value for _, value in points]
    return float(np.interp(now_s % DAY_S / 3600, hours, values, period=24.0))


def on_day(days: Sequence[Day], now_s: float) -> bool:
    """Whether now is one of these days; no days: every day."""
    return not days or DAYS[int(now_s // DAY_S) % 7] in days


def poisson_times(rng: np.random.Generator, per_minute: float, start_s: float, end_s: float) -> list[float]:
    """Random instants in [start, end), on average so many a minute, in order."""
    if end_s <= start_s or per_minute <= 0:
        return []
    number = int(rng.poisson(per_minute * (end_s - start_s) / 60))
    return [float(time) for time in np.sort(rng.uniform(start_s, end_s, number))]
