"""Random clusters, loads, troubles and policies: the invariants hold in every run.

A run that breaks one is printed as a scenario, shrunk; saved to a file, ``vm-rebalancer simulate FILE`` repeats it.
Such scenarios are kept in ``tests/regressions``.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import Phase, event, given, note, settings
from hypothesis import strategies as st

from simulator.engine.ports import BrokenInvariant
from simulator.engine.run import Run, policy_for, run, run_baseline
from simulator.report.scores import Scores, scores
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.loading import load_scenario, parse_scenario
from simulator.scenario.schema import ChangePolicy, Scenario
from tests.properties.drawn_scenarios import scenarios
from tests.properties.effort import PATIENCE_S, effort

pytestmark = pytest.mark.timeout(PATIENCE_S)

LOST = ("Unreachable: ", "NoAnswer: ")
IMPOSSIBLE = ("fit on none of the nodes", "may not share a node")
REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.yaml"))


def go(scenario: Scenario, seed: int, *, soft_tainter: bool = True) -> Scores:
    """Runs with the invariants on, and checks besides what only the end of a run shows."""
    flag = "" if soft_tainter else " --no-soft-tainter"
    command = f"vm-rebalancer simulate scenario.yaml --seed {seed}{flag}"
    asked = Run(scenario, seed, policy_for(scenario), command, soft_tainter=soft_tainter)
    try:
        done = run(asked)
    except BrokenInvariant as error:  # no Exception, so Hypothesis would not shrink it
        raise AssertionError(str(error)) from error
    result = scores(done.record)
    if not any(isinstance(happening, ChangePolicy) for happening in scenario.happenings):
        assert result.repeated_migrations == 0  # it is counted with the cool-down of the policy at the start
    assert not [error for error in done.errors if not any(lost in error for lost in LOST)]
    assert not [s for s in done.record.shutdowns if s.cause == "rebalancer"]
    return result


def check(document: dict[str, Any], seed: int, *, soft_tainter: bool) -> None:
    text = yaml.safe_dump(document, sort_keys=False)
    flag = "" if soft_tainter else " --no-soft-tainter"
    note(f"vm-rebalancer simulate scenario.yaml --seed {seed}{flag}, with this scenario.yaml:\n{text}")
    try:
        result = go(parse_scenario(text), seed, soft_tainter=soft_tainter)
    except ScenarioErrors as error:
        if not any(words in str(error) for words in IMPOSSIBLE):
            raise
        event("impossible cluster")
    else:
        event("something moved" if result.migrations else "nothing moved")


@given(document=scenarios(), seed=st.integers(1, 1000), soft_tainter=st.booleans())
@effort(120)
def test_invariants_hold_in_random_clusters(document: dict[str, Any], seed: int, soft_tainter: bool) -> None:
    check(document, seed, soft_tainter=soft_tainter)


def test_a_broken_invariant_is_printed_as_a_scenario_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.evictions.plan.why_closed", lambda *_: None)
    monkeypatch.setattr("controller.descheduler.why_closed", lambda *_: None)

    @given(document=scenarios())
    @settings(effort(100), phases=[Phase.generate], database=None, derandomize=True, print_blob=False)
    def broken(document: dict[str, Any]) -> None:
        check(document, 7, soft_tainter=True)

    with pytest.raises(AssertionError, match=r"already \d+ (VMs )?on the move") as caught:
        broken()
    _, printed = "\n".join(caught.value.__notes__).split("--seed 7, with this scenario.yaml:\n")
    with pytest.raises(AssertionError, match="on the move"):
        go(parse_scenario(printed), 7)


@given(document=scenarios(), seed=st.integers(1, 1000))
@effort(50)
def test_the_classic_loop_gets_through_random_clusters(document: dict[str, Any], seed: int) -> None:
    try:
        scenario = parse_scenario(yaml.safe_dump(document, sort_keys=False))
        record = run_baseline(Run(scenario, seed, policy_for(scenario), "", "baseline")).record
    except ScenarioErrors as error:
        if not any(words in str(error) for words in IMPOSSIBLE):
            raise
        return
    assert record.end_s == scenario.minutes * 60
    assert not [m for m in record.migrations if m.asked_by == "rebalancer"]


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_broke_an_invariant_does_so_no_more(path: Path) -> None:
    for seed in (1, 2, 3):
        go(load_scenario(str(path)), seed)
