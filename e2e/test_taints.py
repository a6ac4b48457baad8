"""Soft taints, while others edit the same nodes."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from e2e.lab import ACTS_WITHIN_S, STARTS_WITHIN_S, Lab
from e2e.processes import Process

PREFIX = "nodeutilization.vm-rebalancer.io/"
EFFECT = "PreferNoSchedule"
HOT = "node-00"
BOTH = {"overutilized", "appropriate"}
WITHIN_S = 20.0
TIMES = 5
_MERGE = "application/merge-patch+json"
Taints = list[dict[str, Any]]


def tainted(lab: Lab, **soft_taints: Any) -> None:
    """Only the soft-tainter runs, so the crowd stays where it is; it has put its taints on."""
    lab.start("crowd")
    lab.set_policy(lab.policy({"softTaints": soft_taints}))
    lab.run("soft-tainter")
    lab.until(lambda: lab.cluster.own_taints().get(HOT), ACTS_WITHIN_S, "the crowded node is tainted")


def taints(lab: Lab) -> Taints:
    found: Taints = lab.cluster.ask("GET", f"/api/v1/nodes/{HOT}")["spec"].get("taints") or []
    return found


def edit(lab: Lab, change: Callable[[Taints], Taints]) -> None:
    """As an administrator does it: the whole list is replaced."""
    lab.cluster.ask("PATCH", f"/api/v1/nodes/{HOT}", {"spec": {"taints": change(taints(lab))}}, _MERGE)


def without_ours(there: Taints) -> Taints:
    return [t for t in there if not t["key"].startswith(PREFIX)]


def valued(there: Taints) -> Taints:
    return [{**t, "value": "somebody-s"} if t["key"].startswith(PREFIX) else t for t in there]


def is_as_it_should(lab: Lab) -> bool:
    own = [t for t in taints(lab) if t["key"].startswith(PREFIX) and t["effect"] == EFFECT]
    return {t["key"].removeprefix(PREFIX) for t in own} == BOTH and not any(t.get("value") for t in own)


@pytest.mark.parametrize("change", [without_ours, valued], ids=["removed", "altered"])
def test_a_taint_of_ours_is_back_before_the_next_refresh(
    lab: Lab, change: Callable[[Taints], Taints]
) -> None:
    """The scheduler may be at work meanwhile. Of the pace before there is one refresh to come at most."""
    tainted(lab)
    lab.until(lambda: is_as_it_should(lab), WITHIN_S, "both taints are there")
    (program,) = lab.replicas("soft-tainter")
    before = program.page()["vm_rebalancer_policy_info"]
    lab.set_policy(lab.policy({"metrics": {"refreshInterval": "1h", "maxAge": "2h"}}))
    lab.until(
        lambda: program.page()["vm_rebalancer_policy_info"] != before, WITHIN_S, "the policy is in force"
    )
    refreshes = program.metric("refresh_duration_seconds_count")
    for _ in range(TIMES):
        edit(lab, change)
        lab.until(lambda: is_as_it_should(lab), WITHIN_S, "they are back")
    assert program.metric("refresh_duration_seconds_count") - refreshes < TIMES


def test_taints_of_others_survive_whatever_they_are_while_ours_come_and_go(lab: Lab) -> None:
    """Our key with another effect is somebody's, too."""
    tainted(lab)
    before = without_ours(taints(lab))
    theirs: Taints = [
        {"key": f"{PREFIX}overutilized", "value": "why", "effect": "NoSchedule"},
        {"key": "example.com/a", "effect": EFFECT},
        {"key": f"x.{PREFIX}overutilized", "effect": EFFECT},
    ]
    edits = cycle([[], theirs[:1], theirs, list(reversed(theirs)), theirs[1:]])
    for _, more in zip(range(20), edits, strict=False):
        edit(lab, lambda there, more=more: [*more, *before, *_own(there)[:1]])  # type: ignore[misc]
    edit(lab, lambda _: [*theirs, *before])

    lab.until(lambda: is_as_it_should(lab), WITHIN_S, "ours are there")
    assert [t for t in taints(lab) if t["effect"] != EFFECT or not t["key"].startswith(PREFIX)] == [
        *theirs,
        *before,
    ]
    edit(lab, lambda there: [t for t in there if t not in theirs])


def _own(there: Taints) -> Taints:
    return [t for t in there if t["key"].startswith(PREFIX) and t["effect"] == EFFECT]


def test_a_node_that_leaves_the_selector_loses_ours(lab: Lab) -> None:
    tainted(lab)
    label = "kubevirt.io/schedulable"
    lab.cluster.ask("PATCH", f"/api/v1/nodes/{HOT}", {"metadata": {"labels": {label: "false"}}}, _MERGE)
    lab.until(lambda: HOT not in lab.cluster.own_taints(), WITHIN_S, "it carries none of ours")
    assert "node-01" in lab.cluster.own_taints(), "the others keep theirs"


def test_a_node_that_cannot_be_patched_does_not_keep_others_from_being_tainted(lab: Lab) -> None:
    lab.start("crowd")
    lab.cluster.fault("error", verbs=["patch"], resources=["nodes"], names=[HOT], status=500)
    lab.set_policy(lab.policy())
    (program,) = lab.run("soft-tainter")
    lab.until(
        lambda: {"node-01", "node-02"} <= lab.cluster.own_taints().keys(), ACTS_WITHIN_S, "others are tainted"
    )
    assert HOT not in lab.cluster.own_taints()
    assert HOT in program.process.output(), "it is said"
    lab.cluster.end_faults()
    lab.until(lambda: HOT in lab.cluster.own_taints(), 70.0, "it is tainted, too")


@pytest.mark.parametrize("scale", ["linear", "exponential"])
def test_graded_taints_grow_with_the_load(lab: Lab, scale: str) -> None:
    tainted(lab, scheme="Graded", levels=4, scale=scale)
    for keys in lab.cluster.own_taints().values():
        assert sorted(keys) == [f"overutilized-level-{k}" for k in range(1, len(keys) + 1)]
    lab.set_policy(lab.policy({"softTaints": {"scheme": "Single"}}))
    lab.until(
        lambda: lab.cluster.own_taints().get(HOT) == ["overutilized"], WITHIN_S, "the scheme has changed"
    )


def test_predictive_leaves_what_is_there_and_clean_up_takes_it_off(lab: Lab) -> None:
    """Going back to Predictive changes nothing on nodes, not even for the better."""
    tainted(lab)
    lab.until(lambda: is_as_it_should(lab), WITHIN_S, "both taints are there")
    (program,) = lab.replicas("soft-tainter")
    lab.set_policy(lab.policy({"mode": "Predictive"}))
    lab.until(
        lambda: program.metric("policy_info", mode="Predictive") == 1, WITHIN_S, "Predictive is in force"
    )
    written, shown = len(lab.cluster.writes_of(program.account)), program.metric("taint_changes_total")
    edit(lab, lambda there: without_ours(there) + _own(there)[:1])
    lab.until(lambda: program.metric("taint_changes_total") > shown, WITHIN_S, "it shows what it would do")
    assert len(lab.cluster.writes_of(program.account)) == written

    lab.set_policy(lab.policy({"softTaints": {"mode": "CleanupOnly"}}))
    lab.until(lambda: not lab.cluster.own_taints(), WITHIN_S, "all are off")


def test_the_clean_up_ends_well_if_none_is_left_and_the_running_tainter_brings_none_back(lab: Lab) -> None:
    tainted(lab)
    (running,) = lab.replicas("soft-tainter")
    lab.restarts = True
    cleanup = _cleaned_up(lab)
    assert cleanup.exit_code == 0, cleanup.output()
    assert lab.cluster.own_taints() == {}
    lab.until(lambda: running.restarts, STARTS_WITHIN_S, "the tainter has lost its lease")
    lab.until(running.is_ready, STARTS_WITHIN_S, "it stands by again")
    lab.let_pass(10)
    assert lab.cluster.own_taints() == {}


def test_the_clean_up_fails_while_a_node_keeps_its_taints(lab: Lab) -> None:
    tainted(lab)
    (running,) = lab.replicas("soft-tainter")
    running.process.may_end = True
    lab.cluster.fault("error", verbs=["patch"], resources=["nodes"], names=[HOT], status=500)
    cleanup = _cleaned_up(lab)
    assert cleanup.exit_code == 1
    assert f"node {HOT} still carries" in cleanup.output()
    assert set(lab.cluster.own_taints()) == {HOT}


def _cleaned_up(lab: Lab) -> Process:
    """The clean-up, once it has ended."""
    program = lab.launch_installed("soft-tainter", "--cleanup", replica=1)
    program.process.may_end = True
    lab.programs.remove(program)  # nobody starts it again
    lab.until(lambda: program.process.exit_code is not None, 4 * STARTS_WITHIN_S, "the clean-up has ended")
    assert "Traceback" not in program.process.output()
    return program.process
