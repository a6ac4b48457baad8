"""One run: a scenario, a seed, and the program that is judged."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controller.policy.model import Mode, Policy
from controller.policy.parse import parse_policy
from controller.policy.render import policy_yaml
from controller.telemetry.spans import Span
from simulator.baseline import IN_ALL, PER_NODE, PREFIX, SERIES, Baseline
from simulator.build import Simulation, build
from simulator.engine.befall import befall, differing
from simulator.engine.events import EventLog
from simulator.engine.programs import DESCHEDULER, SOFT_TAINTER, Programs
from simulator.engine.sampler import NO_OPINION, Opinion, Sampler
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
    traced: bool = False
    """Whether the spans of the rebalancer's traces are kept."""


@dataclass(frozen=True, slots=True)
class Finished:
    record: RunRecord
    events: bytes
    errors: tuple[str, ...] = ()
    """What handlers raised; their keys came again."""
    spans: tuple[Span, ...] = ()


def policy_for(scenario: Scenario, text: str | None = None, source: str = "scenario policy") -> Policy:
    """The policy of a run: the given text, or the default with the scenario's differences.

    Automatic unless it says otherwise: on a simulated cluster that is what people want to see. Raises ``PolicyErrors``.
    """
    if text is None:
        return differing(scenario.policy, source)
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
    """The controller's programs on a simulation, with all that befalls them planned."""

    def __init__(self, asked: Run, simulation: Simulation) -> None:
        self._asked = asked
        self._simulation = simulation
        agenda, scenario = simulation.agenda, asked.scenario
        self._spans: list[Span] = []
        tell = self._spans.append if asked.traced else None
        self._programs = Programs(simulation, asked.policy, scenario.api, asked.seed, asked.command, tell)
        befall(self._programs, scenario, agenda)
        observer = self._programs.observer
        self._sampler = Sampler(
            agenda, simulation.world, simulation.store, lambda: observer.opinion, scenario.minutes
        )

    def go(self, progress: Progress) -> Finished:
        self._programs.start(DESCHEDULER)
        if self._asked.soft_tainter:
            self._programs.start(SOFT_TAINTER)
        agenda, end_s = self._simulation.agenda, self._asked.scenario.minutes * 60.0
        while agenda.now_s < end_s:
            self._programs.run_until(min(agenda.now_s + PROGRESS_EVERY_S, end_s))
            progress(agenda.now_s)
        self._programs.judge_taints()
        self._programs.invariants.unchanged()
        limits = self._asked.policy.evictions.limits
        record = _record(
            self._asked, self._simulation, self._sampler, LimitsInfo(node=limits.node, total=limits.total)
        )
        observer = self._programs.observer
        record.decisions = observer.decisions
        record.followed = observer.followed()
        record.why_not = observer.why_not()
        return Finished(record, self._programs.log.text(), tuple(observer.errors), tuple(self._spans))


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
