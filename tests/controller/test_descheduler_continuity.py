"""What the descheduler does without fresh metrics, and after a new start."""

from datetime import timedelta

import pytest

from controller.evictions.entry import Phase
from controller.policy.model import Cooldown, Policy
from tests.builders import node
from tests.controller.controlled_cluster import ControlledCluster, pod, with_evictions, with_vms
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND

# --- metrics ---


def test_a_failed_refresh_keeps_the_last_snapshot_until_max_age() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.metrics.failing = frozenset(cluster.metrics.asked)
    cluster.pass_time(MINUTE)
    cluster.migrate("vm-1")
    cluster.work()
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")], "on the snapshot of a minute ago"
    assert len(cluster.observer.metric_failures) == 2
    cluster.pass_time(3 * MINUTE)
    assert cluster.observer.classifications[-1].skipped.startswith("only 0 of 2")


def test_nothing_is_decided_in_a_round_with_too_few_values() -> None:
    cluster = with_vms("vm-1", idle=("node-8", "node-9"))
    del cluster.metrics.values["node-8"], cluster.metrics.values["node-9"]
    cluster.start()
    cluster.pass_time(HOUR)
    assert cluster.observer.classifications[-1].over_utilised() == ["node-1"]
    assert (cluster.observer.plans, cluster.api.requests) == ([], [])


def test_nothing_is_decided_on_values_beyond_max_age() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.mark("vm-1")
    cluster.metrics.failing = frozenset(cluster.metrics.asked)
    cluster.pass_time(4 * MINUTE)
    cluster.migrate("vm-1")
    cluster.pass_time(HOUR)
    assert cluster.api.evicted == [pod("vm-1")]
    cluster.metrics.failing = frozenset()
    cluster.pass_time(MINUTE)
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]


def test_a_node_that_is_cordoned_sends_no_more() -> None:
    """An upgrade drains it: that is not our business."""
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.caches.nodes.apply("MODIFIED", node("node-1", unschedulable=True, resource_version="2"))
    cluster.migrate("vm-1")
    cluster.pass_time(10 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


# --- a new start ---


def test_what_was_on_the_move_is_known_before_the_first_decision() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.mark("vm-2")
    cluster.start()
    assert cluster.phases() == {"vm-2": Phase.PENDING}
    assert cluster.api.requests == []
    assert cluster.rests()["node-1"] == "NodeLimit"
    cluster.attempt("vm-2", "Running")
    cluster.arrive("vm-2")
    cluster.work()
    assert cluster.api.evicted == [pod("vm-1")]


def test_what_was_on_the_move_is_known_when_the_policy_comes_late() -> None:
    cluster = with_vms("vm-1", "vm-2", policy=None)
    cluster.mark("vm-2")
    cluster.start()
    cluster.policy = POLICY
    cluster.pass_time(6 * SECOND)
    assert (cluster.phases(), cluster.api.requests) == ({"vm-2": Phase.PENDING}, [])


def test_what_was_moved_lately_is_left_alone_by_the_next_leader_too() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.attempt("vm-1", "Succeeded")
    cluster.pass_time(5 * MINUTE)
    cluster.start()
    assert cluster.api.evicted == [pod("vm-2")]
    assert (
        cluster.descheduler.ledger.cooling_until("vmi-vm-1", POLICY.evictions.cooldown, cluster.clock.now())
        == cluster.clock.now() + 10 * MINUTE
    )


def test_a_move_that_ended_just_before_the_start_settles() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.migrate("vm-1")
    cluster.start()
    assert cluster.phases()["vm-1"] is Phase.SETTLING
    cluster.pass_time(timedelta(minutes=3))
    assert "vm-1" not in cluster.phases()


@pytest.mark.parametrize(
    "policy", [POLICY, with_evictions(POLICY, cooldown=Cooldown(HOUR, 2 * HOUR, 3 * HOUR))]
)
def test_an_hour_without_trouble_sends_nothing_and_fails_nowhere(policy: Policy) -> None:
    cluster = ControlledCluster(hot=(), idle=("node-1", "node-2"), policy=policy)
    cluster.add_vm("vm-1")
    cluster.start()
    cluster.pass_time(HOUR)
    assert (cluster.api.requests, cluster.observer.failures) == ([], [])
    assert len(cluster.observer.snapshots) == 121
