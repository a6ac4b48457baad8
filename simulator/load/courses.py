"""Loads that follow a course over time: daily curves, noise, recorded series."""

import math

import numpy as np

from simulator.load.replay import Series
from simulator.load.select import Population, Selector
from simulator.load.times import at_hour, on_day
from simulator.scenario.cluster_schema import Daily, Noise
from simulator.world.vmtable import FloatArray


class Curve:
    """The demand of its VMs is a function of the hour, on the days it holds for."""

    def __init__(self, daily: Daily, population: Population, rng: np.random.Generator) -> None:
        self._daily = daily
        self._vms = Selector(population, daily.vms, rng).choose()

    def apply(self, demand: FloatArray, now_s: float) -> None:
        if on_day(self._daily.days, now_s):
            demand[self._vms] = at_hour(self._daily.demand, now_s)


class NoiseCourse:
    """AR(1): ``x(t + dt) = f x(t) + std sqrt(1 - f²) N(0, 1)`` with ``f = exp(-dt / correlation time)``.

    It starts in its stationary state, and its standard deviation is ``std`` whatever the step.
    """

    def __init__(self, noise: Noise, population: Population, rng: np.random.Generator) -> None:
        self._noise = noise
        self._rng = rng
        self._vms = Selector(population, noise.vms, rng).choose()
        courses = noise.sets or len(self._vms)
        self._course_of_vm = np.arange(len(self._vms)) % max(1, courses)
        self._values = noise.std * rng.standard_normal(courses)

    def step(self, step_s: float) -> None:
        kept = math.exp(-step_s / (60 * self._noise.correlation_minutes))
        fresh = self._rng.standard_normal(len(self._values))
        self._values = kept * self._values + self._noise.std * math.sqrt(1 - kept * kept) * fresh

    def apply(self, demand: FloatArray) -> None:
        demand[self._vms] += self._values[self._course_of_vm]


class Playback:
    """The rows of a series in order of time; a VM keeps its last values until its next row."""

    def __init__(self, series: Series, population: Population) -> None:
        vcpus = np.array([vm.vcpus for vm in population.vms])
        guest_bytes = np.array([vm.guest_bytes for vm in population.vms])
        self._series = series
        self._demand = series.cpu_cores / vcpus[series.vms]
        self._touched = series.memory_bytes / guest_bytes[series.vms]
        self._now_demand = np.full(len(vcpus), np.nan)
        self._now_touched = np.full(len(vcpus), np.nan)
        self._next_row = 0
        self.first_s = float(series.times_s[0])

    def play(self, now_s: float) -> float | None:
        """Take up all rows up to now; returns the time of the next one."""
        first, end = self._next_row, int(np.searchsorted(self._series.times_s, now_s, side="right"))
        vms = self._series.vms[first:end]
        for now, values in (
            (self._now_demand, self._demand[first:end]),
            (self._now_touched, self._touched[first:end]),
        ):
            given = ~np.isnan(values)
            now[vms[given]] = values[given]
        self._next_row = end
        return float(self._series.times_s[end]) if end < len(self._series.times_s) else None

    def apply(self, demand: FloatArray, touched: FloatArray) -> None:
        for levels, now in ((demand, self._now_demand), (touched, self._now_touched)):
            given = ~np.isnan(now)
            levels[given] = now[given]
