"""Killed right before or right after any step, and started again: nobody is harmed, nothing is forgotten.

The list of steps is what a run without a crash passes; the steps are named after the code (see ``steps``).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from controller.evictions.entry import Phase
from controller.evictions.ledger import Ledger
from controller.evictions.views import Alarm
from controller.ports import EvictionApi, MetricsSource, NodePatcher
from controller.taints.desired import OVER, is_ours
from simulator.engine.ports import BrokenInvariant
from simulator.engine.run import policy_for
from tests.crashes.crashing_run import CrashingRun
from tests.crashes.scenarios import FOREIGN, QUIET, ROUGH, SMOOTH, TIGHT
from tests.crashes.steps import Point, Steps, verbs_of
from tests.properties.effort import TIMES

AT_ONCE_S, LEASE_S = 1.0, 15.0
"""A restarted container that needs no lease; and another replica, which has to wait until the lease has run out."""
RECOVERS_WITHIN_MIN = 10.0
POLICY_CHANGES_S = 300.0
LOST_ON_THE_WAY = ("Unreachable", "NoAnswer")


def smooth(steps: Steps, away_s: float) -> CrashingRun:
    return CrashingRun(SMOOTH, steps, away_s=away_s)


def rough(steps: Steps, away_s: float) -> CrashingRun:
    return CrashingRun(ROUGH, steps, away_s=away_s)


def alarmed(steps: Steps, away_s: float) -> CrashingRun:
    """A VM has gone down by our hand before; somebody changes the policy after five minutes."""
    first = policy_for(QUIET)
    second = replace(first, digest="another")
    alarm = Alarm("a VM went down", first.digest)
    change = POLICY_CHANGES_S, second
    return CrashingRun(QUIET, steps, away_s=away_s, alarm=alarm, next_policy=change)


Make = Callable[[Steps, float], CrashingRun]


@cache
def recorded(make: Make) -> Steps:
    """What is done without a crash, but for the end, when there would be no time to recover."""
    run = make(Steps(), AT_ONCE_S)
    return run.go(run.scenario.minutes - RECOVERS_WITHIN_MIN).steps


def at_each_point(make: Make, most: int, about: str = "") -> pytest.MarkDecorator:
    """None, if the run without a crash fails: that shows in the last test here, and would else spoil collection."""
    try:
        points = [point for point in recorded(make).points(most) if about in point.step]
    except (BrokenInvariant, Exception):  # noqa: BLE001 - raised again in that test
        points = []
    return pytest.mark.parametrize("point", points, ids=str)


@at_each_point(smooth, most=1 if TIMES == 1 else 2)
def test_on_a_quiet_cluster(point: Point) -> None:
    _check(smooth(Steps(point), AT_ONCE_S))


@at_each_point(smooth, most=1)
def test_another_replica_takes_over(point: Point) -> None:
    _check(smooth(Steps(point), LEASE_S))


@at_each_point(rough, most=1)
def test_in_the_midst_of_trouble(point: Point) -> None:
    _check(rough(Steps(point), AT_ONCE_S))


@at_each_point(rough, most=1)
def test_another_replica_takes_over_in_the_midst_of_trouble(point: Point) -> None:
    _check(rough(Steps(point), LEASE_S))


@at_each_point(alarmed, most=3, about="alarm")
def test_with_an_alarm_in_force(point: Point) -> None:
    """The Lease keeps it: whoever comes evicts nothing before the policy has changed."""
    run = alarmed(Steps(point), AT_ONCE_S)
    _check(run)
    assert min(move.created_s for move in run.moves) >= POLICY_CHANGES_S


def test_the_runs_pass_every_change_of_the_ledger_every_request_and_every_phase() -> None:
    """Else the list of steps would be shorter than the code."""
    passed = {step for make in (smooth, rough, alarmed) for step in recorded(make).passed}
    requests = {name for port in (EvictionApi, NodePatcher, MetricsSource) for name in _methods(port)}
    assert {step.split()[0] for step in passed} == {*verbs_of(Ledger), *requests}
    assert {word for step in passed for word in step.split()} >= {*map(str, Phase), "dry_run"}


def _methods(port: type) -> list[str]:
    return [name for name in vars(port) if not name.startswith("_")]


def _check(run: CrashingRun) -> None:
    run.go()
    assert run.steps.crashed, "nobody was killed"
    assert [error for error in run.errors if error.split(": ")[1] not in LOST_ON_THE_WAY] == []
    assert run.simulation.control_plane.shutdowns == []
    assert run.moved_too_soon() == []
    assert run.open_entries() == [], "slots have leaked"
    assert run.crowded() == {TIGHT}, "not balanced"
    _check_taints(run)


def _check_taints(run: CrashingRun) -> None:
    assert run.tainted[TIGHT] == [False, True], "its taint was taken off, though it was crowded all along"
    for node, taints in run.taints().items():
        assert (OVER in {taint.key for taint in taints}) == (node == TIGHT), node
        foreign = [(t.key, t.value, t.effect) for t in taints if not is_ours(t)]
        assert foreign == [tuple(FOREIGN.values())], node
