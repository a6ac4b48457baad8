"""A program is killed right before or right after a step of it: nobody is harmed, nothing is forgotten.

Every request to the API server and every change of the ledger is a step, by its first occurrence; the fixture judges
what must never happen.
"""

import os
from pathlib import Path

import pytest

from e2e.crash_steps import KNOWN, Crashes, add_to_known, known_steps
from e2e.lab import ACTS_WITHIN_S, BALANCES_WITHIN_S, Lab

STANDS_FOR_ALL = "after descheduler POST pods/eviction"
"""The VM migrates, and nobody has heard the answer."""
_POINTS = [f"{when} {step}" for step in known_steps() for when in ("before", "after")]
_NOT_IN_EACH_RUN = {
    "descheduler observe",
    "descheduler observe Requested Pending",
    "descheduler observe Pending Scheduling",
    "descheduler observe Scheduling Preparing",
    "descheduler observe Preparing Running",
}
"""A watch may tell two phases at once."""
ROWS = [pytest.param(p, marks=() if p == STANDS_FOR_ALL else pytest.mark.full) for p in _POINTS]


@pytest.mark.parametrize("point", ROWS)
def test_it_is_started_again(lab: Lab, tmp_path: Path, point: str) -> None:
    crashes = Crashes(lab, tmp_path, point)
    lab.start("single")
    crashes.run_all(replicas=1)

    _until_it_has_crashed(lab, crashes, point)

    _check_all_is_well(lab)
    assert sum(program.restarts for program in lab.programs) >= 1


@pytest.mark.parametrize("point", ROWS)
def test_another_replica_takes_over(lab: Lab, tmp_path: Path, point: str) -> None:
    """Where it crashes while it starts, there may be no other yet: then it is started again."""
    crashes = Crashes(lab, tmp_path, point)
    lab.start("single")
    crashes.run_all(replicas=2)
    crashes.nobody_comes_again()

    _until_it_has_crashed(lab, crashes, point)

    _check_all_is_well(lab)
    dead = [program for program in lab.programs if program.process.exit_code is not None]
    assert len(dead) + sum(program.restarts for program in lab.programs) >= 1


@pytest.mark.full
def test_all_steps_that_are_passed_are_known(lab: Lab, tmp_path: Path) -> None:
    """With ``VM_REBALANCER_E2E_RECORD`` set those that are not become so."""
    crashes = Crashes(lab, tmp_path)
    lab.start("single")
    crashes.run_all(replicas=2)
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")
    _check_all_is_well(lab)

    passed, known = crashes.passed(), set(known_steps())
    if "VM_REBALANCER_E2E_RECORD" in os.environ:
        add_to_known(passed - known)
    else:
        assert passed - known == set(), "run this with VM_REBALANCER_E2E_RECORD set"
    assert known - passed - _NOT_IN_EACH_RUN == set(), f"no more steps of the programs, in {KNOWN.name}"


def test_the_step_that_stands_for_all_is_one() -> None:
    assert STANDS_FOR_ALL in _POINTS
    assert set(known_steps()) >= _NOT_IN_EACH_RUN


def _until_it_has_crashed(lab: Lab, crashes: Crashes, point: str) -> None:
    """Or until all has been done without coming to that step: some depend on how the watches are interleaved."""
    lab.until(lambda: crashes.crashed or _has_done_all(lab), ACTS_WITHIN_S + BALANCES_WITHIN_S, "it crashes")
    if crashes.crashed:
        return
    if point.partition(" ")[2] not in _NOT_IN_EACH_RUN:
        pytest.fail("this run has not come to that step")
    pytest.skip("this run has not come to that step, as some do")


def _has_done_all(lab: Lab) -> bool:
    truth = lab.cluster.truth()
    if not (truth.own_moves and truth.is_balanced):
        return False
    return any(one.leads() and not any(one.samples("migrations_in_flight")) for one in lab.replicas())


def _check_all_is_well(lab: Lab) -> None:
    truth = lab.until_balanced()
    leader = lab.leader()
    lab.until(
        lambda: not any(leader.samples("migrations_in_flight")), ACTS_WITHIN_S, "no slot is held any more"
    )
    lab.until(lambda: _taints_are_right(lab), ACTS_WITHIN_S, "over-utilised nodes are tainted, no other")
    moved = [move.vm for move in truth.own_moves if move.attempt == 1]
    assert sorted(set(moved)) == sorted(moved), "a VM was moved again within its cool-down"


def _taints_are_right(lab: Lab) -> bool:
    tainted = {node for node, keys in lab.cluster.own_taints().items() if "overutilized" in keys}
    return tainted == set(lab.cluster.truth().crowded)
