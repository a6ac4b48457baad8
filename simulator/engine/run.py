"""One run: a scenario, a seed, and the program that is judged."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from controller.cluster.caches import ClusterCaches
from controller.descheduler import Descheduler
from controller.policy.model import API_VERSION, KIND, Mode, Policy
from controller.policy.parse import parse_policy
from controller.policy.render import policy_yaml
from controller.softtainter import SoftTainter
from informers.workers import Workers
from simulator.baseline import IN_ALL, PER_NODE, PREFIX, SERIES, Baseline
from simulator.build import Simulation, build
from simulator.engine.events import EventLog
from simulator.engine.invariants import Invariants
from simulator.engine.observer import RunObserver
from simulator.engine.ports import AgendaClock, SimulatedEvictions, SimulatedMetrics, SimulatedPatcher
from simulator.engine.sampler import NO_OPINION, Opinion, Sampler
from simulator.engine.watches import streams
from simulator.metrics.recorded import Sample
from simulator.record import CooldownInfo, LimitsInfo, NodeInfo, RunRecord
from simulator.scenario.schema import Scenario
from simulator.seeds import plain_random

Progress = Callable[[float], None]
"""Called now and then with the simulated seconds that have passed."""

PROGRESS_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run is asked to be. ``baseline_interval_s`` is only for the classic loop."""

    scenario: Scenario
    seed: int
    policy: Policy
    command: str
    label: str = "rebalancer"
    soft_tainter: bool = True
    baseline_interval_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Finished:
    record: RunRecord
    events: bytes
    errors: tuple[str, ...] = ()
    """What handlers raised; their keys came again."""


def policy_for(scenario: Scenario, text: str | None = None, source: str = "scenario policy") -> Policy:
    """The policy of a run: the given text, or the default with the scenario's differences.

    Automatic unless it says otherwise: on a simulated cluster that is what people want to see. Raises ``PolicyErrors``.
    """
    if text is None:
        document = {"apiVersion": API_VERSION, "kind": KIND, **scenario.policy}
        text = yaml.safe_dump(document, sort_keys=False)
    return parse_policy(text, source=source, default_mode=Mode.AUTOMATIC)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """The garbage collector looks at all objects again and again, and on a large cluster took 40 % of a run's time.

    Hardly anything in a run is garbage that only it could find.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_collecting_rarely()
def run(asked: Run, progress: Progress = lambda _: None) -> Finished:
    """The rebalancer on the scenario. Raises ``BrokenInvariant``."""
    return rebalance(asked, build(asked.scenario, asked.seed), progress)


def rebalance(asked: Run, simulation: Simulation, progress: Progress = lambda _: None) -> Finished:
    """The same on a cluster that was built already, for those who want to look at it afterwards."""
    return _Rebalancing(asked, simulation).go(progress)


@_collecting_rarely()
def run_baseline(asked: Run, progress: Progress = lambda _: None) -> Finished:
    """The classic loop on the same scenario."""
    simulation = build(asked.scenario, asked.seed)
    agenda, log = simulation.agenda, EventLog(simulation.agenda)
    simulation.store.subscribe(log.changed)

    def read() -> list[Sample]:
        samples = simulation.metrics.series(SERIES)
        return simulation.troubles.apply(SERIES, samples, agenda.now_s)[0]

    loop = Baseline(
        simulation.control_plane,
        simulation.store,
        read,
        plain_random(asked.seed, "baseline"),
        soft_tainter=asked.soft_tainter,
    )

    def opinion() -> Opinion:
        cycle = loop.last
        if cycle is None:
            return NO_OPINION
        scores = {labels["instance"]: value for labels, value, _ in simulation.metrics.series(SERIES)}
        classes = {node: cycle.class_of(node) for node in cycle.values}
        return Opinion(scores, classes, cycle.under_at / 100, cycle.over_above / 100, PREFIX)

    sampler = Sampler(agenda, simulation.world, simulation.store, opinion, asked.scenario.minutes)
    # Both programs meet the trouble on the same placement: what the loop moves on a cluster that has none is what
    # the scenario `calm` shows. Half an interval is how long a loop waits on average until it wakes up.
    trouble_s = asked.scenario.trouble_start_minute * 60.0
    first_s = trouble_s + asked.baseline_interval_s / 2
    agenda.every(asked.baseline_interval_s, lambda: loop.cycle(agenda.now_s), first_s=first_s)
    end_s = asked.scenario.minutes * 60.0
    while agenda.now_s < end_s:
        agenda.run_until(min(agenda.now_s + PROGRESS_EVERY_S, end_s))
        progress(agenda.now_s)
    limits = LimitsInfo(node=PER_NODE, total=IN_ALL)
    return Finished(_record(asked, simulation, sampler, limits), log.text())


class _Rebalancing:
    """The controller's programs wired to a simulation, and the loop that lets both work in turn."""

    def __init__(self, asked: Run, simulation: Simulation) -> None:
        self._asked = asked
        self._simulation = simulation
        agenda, policy = simulation.agenda, asked.policy
        clock = AgendaClock(agenda)
        self._log = EventLog(agenda)
        self._observer = RunObserver(agenda, self._log)
        self._invariants = Invariants(policy, simulation.control_plane, agenda, asked.command)
        self._caches = ClusterCaches()
        metrics = SimulatedMetrics(simulation.metrics, simulation.troubles, agenda)
        self._descheduler = Descheduler(
            self._caches,
            metrics,
            SimulatedEvictions(simulation.control_plane, simulation.store, self._invariants.before_eviction),
            self._observer,
            lambda: policy,
            clock,
        )
        self._workers: list[Workers[Any]] = [self._descheduler.workers]
        self._tainter: SoftTainter | None = None
        if asked.soft_tainter:
            patcher = SimulatedPatcher(simulation.control_plane, self._invariants.before_patch)
            self._tainter = SoftTainter(
                self._caches.nodes, metrics, patcher, self._observer, lambda: policy, clock
            )
            self._workers.append(self._tainter.workers)
        self._sampler = Sampler(
            agenda, simulation.world, simulation.store, lambda: self._observer.opinion, asked.scenario.minutes
        )

    def go(self, progress: Progress) -> Finished:
        self._begin()
        agenda, end_s = self._simulation.agenda, self._asked.scenario.minutes * 60.0
        reported_s = 0.0
        while True:
            self._work()
            due_s = min((d for d in (agenda.next_due(), *self._dues()) if d is not None), default=end_s)
            if due_s >= end_s:
                break
            agenda.run_until(due_s)
            self._invariants.after_step()
            if agenda.now_s >= reported_s + PROGRESS_EVERY_S:
                reported_s = agenda.now_s
                progress(reported_s)
        agenda.run_until(end_s)
        self._invariants.after_step()
        self._invariants.unchanged()
        self._invariants.entries(self._descheduler.ledger)
        progress(end_s)
        limits = self._asked.policy.evictions.limits
        record = _record(
            self._asked, self._simulation, self._sampler, LimitsInfo(node=limits.node, total=limits.total)
        )
        record.decisions = self._observer.decisions
        record.why_not = self._observer.why_not()
        return Finished(record, self._log.text(), tuple(self._observer.errors))

    def _begin(self) -> None:
        """Lists, then watches, then the programs: as after their start on a cluster that has been running."""
        agenda, store = self._simulation.agenda, self._simulation.store
        store.subscribe(self._log.changed)
        rng = plain_random(self._asked.seed, "watches")
        for stream in streams(self._caches.informers(), agenda, rng):
            stream.list(store)
            store.subscribe(stream.receive)
        self._invariants.watch(informer.lister for informer in self._caches.informers().values())
        self._descheduler.start()
        if self._tainter is not None:
            self._tainter.start()

    def _work(self) -> None:
        while sum(workers.work_ready() for workers in self._workers):
            pass

    def _dues(self) -> list[float | None]:
        return [workers.next_due() for workers in self._workers]


def _record(asked: Run, simulation: Simulation, sampler: Sampler, limits: LimitsInfo) -> RunRecord:
    world, scenario = simulation.world, asked.scenario
    world.advance()
    totals = world.totals()
    cooldown = asked.policy.evictions.cooldown
    return RunRecord(
        scenario=scenario.name,
        description=scenario.description,
        expectation=scenario.expectation,
        label=asked.label,
        seed=asked.seed,
        minutes=scenario.minutes,
        policy_digest=asked.policy.digest,
        policy_yaml=policy_yaml(asked.policy),
        command=asked.command,
        trouble_start_s=scenario.trouble_start_minute * 60.0,
        limits=limits,
        cooldown=CooldownInfo(
            cooldown.base.total_seconds(), cooldown.max.total_seconds(), cooldown.window.total_seconds()
        ),
        nodes=[NodeInfo(n.name, n.cores, n.memory_bytes) for n in sampler.nodes.values()],
        vm_count=len(world.vm_keys()),
        samples=sampler.samples(),
        migrations=simulation.control_plane.migrations,
        shutdowns=simulation.control_plane.shutdowns,
        overutilized_node_seconds=float(totals.over_s),
        pressure_node_seconds=float(totals.cpu_waiting_s),
        starved_core_seconds=float(totals.starved_core_s),
        utilization_stddev=world.utilization_stddev(),
        over_intervals=world.over_intervals(),
    )
