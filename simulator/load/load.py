"""What the VMs want: the scenario's loads, written into the world as time goes by.

A VM's demand is put together anew whenever something changes, in this order: its base (or a ``constant``),
the ``daily`` curve, a ``replay``, then ``hotspots`` (at least a level, or a factor), plus ``noise``, then
``spikes`` (at least a level), cut to [0, 1]. Touched memory likewise: base, replay, hotspots; pages touched
by a hot spot are given back at its end (free page reporting). Loads belong to VMs, not to nodes: a VM that
migrates takes its own along.

Every load draws from its own generator, seeded by its place in the scenario.
"""

import functools
from collections.abc import Callable

import numpy as np

from simulator.agenda import Agenda
from simulator.load.courses import Curve, NoiseCourse, Playback
from simulator.load.replay import Series
from simulator.load.select import Population, Selector
from simulator.load.times import intervals, poisson_times
from simulator.scenario.cluster_schema import Hotspot, Loads, Spikes, bounds
from simulator.seeds import generator
from simulator.world.layout import BoolArray, Layout
from simulator.world.vmtable import FloatArray, IntArray
from simulator.world.world import World


class Load:
    """Sets demand and touched memory through the world's bulk setters, only for VMs whose level changed.

    ``start()`` plans everything on the agenda. Invariant: between two events the world holds what
    ``levels()`` gives.
    """

    def __init__(
        self,
        loads: Loads,
        population: Population,
        world: World,
        agenda: Agenda,
        *,
        seed: int,
        run_s: float,
        series: Series | None,
    ) -> None:
        self._loads = loads
        self._population = population
        self._world = world
        self._agenda = agenda
        self._run_s = run_s
        self._seed = seed
        self._base_demand, self._base_touched = self._bases()
        self._curves = [
            Curve(daily, population, self._rng("daily", n)) for n, daily in enumerate(loads.daily)
        ]
        self._noises = [
            NoiseCourse(noise, population, self._rng("noise", n)) for n, noise in enumerate(loads.noise)
        ]
        self._replay = Playback(series, population) if series is not None else None
        self._hot: dict[int, IntArray] = {}  # number of the hot spot -> the VMs it has now
        self._spikes: dict[int, tuple[int, float]] = {}  # number of the spike -> its VM and level
        self._last_spike = 0
        self._layout: Layout | None = None
        self._positions = self._slots = np.zeros(0, dtype=np.intp)
        self._set_demand = self._set_touched = np.zeros(0)

    def start(self) -> None:
        """Set the levels of now and plan all that follows."""
        self._apply()
        self._plan_hotspots()
        for number, spikes in enumerate(self._loads.spikes):
            self._plan_spikes(spikes, number)
        if self._replay is not None:
            self._plan_replay(self._replay)
        self._agenda.every(self._loads.tick_seconds, self._tick)

    def levels(self) -> tuple[FloatArray, FloatArray]:
        """(demand, touched) of now, fractions by the population's positions."""
        demand, touched = self._base_demand.copy(), self._base_touched.copy()
        for curve in self._curves:
            curve.apply(demand, self._agenda.now_s)
        if self._replay is not None:
            self._replay.apply(demand, touched)
        for number in sorted(self._hot):
            _heat(self._loads.hotspots[number], self._hot[number], demand, touched)
        for noise in self._noises:
            noise.apply(demand)
        for vm, level in self._spikes.values():
            demand[vm] = max(demand[vm], level)
        return np.clip(demand, 0.0, 1.0), np.clip(touched, 0.0, 1.0)

    def _bases(self) -> tuple[FloatArray, FloatArray]:
        demand = np.array([vm.demand for vm in self._population.vms], dtype=float)
        touched = np.array([vm.touched for vm in self._population.vms], dtype=float)
        for number, constant in enumerate(self._loads.constant):
            chosen = Selector(self._population, constant.vms, self._rng("constant", number)).choose()
            if constant.demand is not None:
                demand[chosen] = constant.demand
            if constant.touched is not None:
                touched[chosen] = constant.touched
        return demand, touched

    def _tick(self) -> None:
        for noise in self._noises:
            noise.step(self._loads.tick_seconds)
        if self._noises or self._curves or self._world.layout() is not self._layout:
            self._apply()

    def _apply(self) -> None:
        demand, touched = self.levels()
        layout = self._world.layout()
        if layout is not self._layout:  # VMs may have come, gone or come back with their base demand
            self._layout = layout
            self._positions, self._slots = self._population.here()
            changed = np.ones(len(self._positions), dtype=bool)
            self._set(self._world.set_demands_at, demand, changed)
            self._set(self._world.set_touched_at, touched, changed)
        else:
            self._set(self._world.set_demands_at, demand, (demand != self._set_demand)[self._positions])
            self._set(self._world.set_touched_at, touched, (touched != self._set_touched)[self._positions])
        self._set_demand, self._set_touched = demand, touched

    def _set(
        self, setter: Callable[[IntArray, FloatArray], None], levels: FloatArray, changed: BoolArray
    ) -> None:
        if changed.any():
            setter(self._slots[changed], levels[self._positions[changed]])

    def _plan_hotspots(self) -> None:
        events: list[tuple[float, bool, Callable[[], None]]] = []
        for number, hotspot in enumerate(self._loads.hotspots):
            selector = Selector(self._population, hotspot.vms, self._rng("hotspots", number))
            for start_s, end_s in intervals(hotspot, self._run_s):
                events.append((start_s, True, self._beginning(number, selector)))
                if end_s < self._run_s:
                    events.append((end_s, False, self._ending(number)))
        # At one instant ends come first: what chases the hottest node must not see itself.
        for time_s, _, action in sorted(events, key=lambda event: event[:2]):
            self._begin_at(time_s, action)

    def _begin_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Plan an action; one that is due now is done now, so that the run begins with it."""
        if time_s <= self._agenda.now_s:
            action()
        else:
            self._agenda.at(time_s, action)

    def _beginning(self, number: int, selector: Selector) -> Callable[[], None]:
        def begin() -> None:
            self._hot[number] = selector.choose()
            self._apply()

        return begin

    def _ending(self, number: int) -> Callable[[], None]:
        def end() -> None:
            self._hot.pop(number, None)
            self._apply()

        return end

    def _plan_spikes(self, spikes: Spikes, number: int) -> None:
        rng = self._rng("spikes", number)
        candidates = Selector(self._population, spikes.vms, rng)
        end_s = self._run_s if spikes.end_minute is None else min(self._run_s, spikes.end_minute * 60)
        for time_s in poisson_times(rng, spikes.per_minute, spikes.start_minute * 60, end_s):
            self._agenda.at(time_s, functools.partial(self._spike, spikes, candidates, rng))

    def _spike(self, spikes: Spikes, candidates: Selector, rng: np.random.Generator) -> None:
        vms = self._population.existing(candidates.choose())
        which, how_long = rng.random(
            2
        ).tolist()  # two draws whatever happens to the VMs: the next ones stay the same
        if not len(vms):
            return
        low, high = bounds(spikes.for_minutes)
        number = self._last_spike = self._last_spike + 1
        self._spikes[number] = (int(vms[int(which * len(vms))]), spikes.demand)
        self._apply()
        self._agenda.after(60 * (low + (high - low) * how_long), lambda: self._end_spike(number))

    def _end_spike(self, number: int) -> None:
        del self._spikes[number]
        self._apply()

    def _plan_replay(self, replay: Playback) -> None:
        def play() -> None:
            next_s = replay.play(self._agenda.now_s)
            self._apply()
            if next_s is not None:
                self._agenda.at(next_s, play)

        self._begin_at(replay.first_s, play)

    def _rng(self, kind: str, number: int) -> np.random.Generator:
        return generator(self._seed, f"load.{kind}[{number}]")


def _heat(hotspot: Hotspot, vms: IntArray, demand: FloatArray, touched: FloatArray) -> None:
    if hotspot.factor is not None:
        demand[vms] *= hotspot.factor
    if hotspot.demand is not None:
        demand[vms] = np.maximum(demand[vms], hotspot.demand)
    if hotspot.touched is not None:
        touched[vms] = np.maximum(touched[vms], hotspot.touched)
