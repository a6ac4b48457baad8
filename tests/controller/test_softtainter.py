"""The soft-tainter on nodes in a cache, in virtual time."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from controller.cluster.objects import Node, Taint
from controller.policy.model import Mode, Policy, SoftTaintMode, TaintScheme
from controller.softtainter import SoftTainter
from controller.taints.desired import APPROPRIATE, EFFECT, OVER
from informers.informer import Informer
from informers.testing import ManualClock, step
from tests.builders import START, node
from tests.controller.decision_builders import HOT, HOUR, MINUTE, POLICY, SECOND, policy, soft_taints
from tests.controller.fakes import FakeMetrics, FakePatcher, RecordingObserver

BOTH = {OVER, APPROPRIATE}
CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
GPU = Taint("dedicated", "gpu", EFFECT)
PREDICTIVE = replace(POLICY, mode=Mode.PREDICTIVE)


def ours(key: str) -> Taint:
    return Taint(key, "", EFFECT)


class TaintedCluster:
    """node-1 is over-utilised, node-2 appropriate, node-3 under-utilised. What is patched shows by the node watch."""

    def __init__(self, *, policy: Policy | None = POLICY, taints: Iterable[Taint] = ()) -> None:
        self.policy = policy
        self.clock = ManualClock(START)
        self.nodes: Informer[Node] = Informer("nodes")
        self.metrics = FakeMetrics(self.clock, values={"node-1": 0.9, "node-2": 0.3, "node-3": 0.1})
        self.metrics.loads = {"node-1": HOT}
        self.patcher = FakePatcher(lambda node, taints: self.edit(node.name, *taints))
        self.observer = RecordingObserver()
        self.tainter = SoftTainter(
            self.nodes, self.metrics, self.patcher, self.observer, lambda: self.policy, self.clock
        )
        self.nodes.replace([node(name, taints=tuple(taints)) for name in self.metrics.values])
        self._version = 1

    def edit(self, name: str, *taints: Taint) -> None:
        """Somebody writes this list to the node."""
        self._version += 1
        before = self.node(name)
        metadata = msgspec.structs.replace(before.metadata, resource_version=str(self._version))
        self.nodes.apply("MODIFIED", msgspec.structs.replace(before, metadata=metadata, taints=taints))

    def node(self, name: str) -> Node:
        found = self.nodes.lister.get("", name)
        assert found is not None
        return found

    def start(self) -> None:
        self.tainter.start()
        self.work()

    def work(self) -> None:
        self.tainter.workers.work_ready()

    def pass_time(self, by: timedelta) -> None:
        end_s = self.clock.monotonic() + by.total_seconds()
        while (due_s := self.tainter.workers.next_due()) is not None and due_s <= end_s:
            step(self.clock, self.tainter.workers)
        self.clock.set_monotonic(end_s)

    def keys(self) -> list[set[str]]:
        """Of node-1, node-2 and node-3."""
        return [{t.key for t in self.node(name).taints} for name in ("node-1", "node-2", "node-3")]


# --- setting ---


def test_taints_what_is_over_utilised_and_what_is_not_the_best_place() -> None:
    cluster = TaintedCluster()
    cluster.start()
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]
    assert cluster.node("node-1").taints == (ours(APPROPRIATE), ours(OVER))


def test_one_patch_per_node_and_none_where_nothing_changes() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.pass_time(HOUR)
    assert [name for name, _ in cluster.patcher.patches] == ["node-1", "node-2"]


def test_takes_them_off_when_the_trouble_is_over() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.metrics.values.update({"node-1": 0.1, "node-2": 0.1})
    cluster.pass_time(MINUTE)
    assert cluster.keys() == [set(), set(), set()]


def test_keeps_foreign_taints_as_they_are() -> None:
    cluster = TaintedCluster(taints=[CORDONED, ours(OVER), GPU])
    cluster.start()
    assert cluster.node("node-1").taints == (CORDONED, ours(OVER), GPU, ours(APPROPRIATE))
    assert cluster.node("node-3").taints == (CORDONED, GPU)


def test_leaves_our_key_with_another_effect_to_whoever_set_it() -> None:
    hard = Taint(OVER, "", "NoSchedule")
    cluster = TaintedCluster(taints=[hard])
    cluster.start()
    assert cluster.node("node-1").taints == (hard, ours(APPROPRIATE), ours(OVER))
    assert cluster.node("node-3").taints == (hard,)


def test_takes_off_what_another_scheme_or_an_older_version_left() -> None:
    cluster = TaintedCluster(
        policy=policy(soft_taints=soft_taints(scheme=TaintScheme.SINGLE)),
        taints=[ours(APPROPRIATE), ours(f"{OVER}-level-2")],
    )
    cluster.start()
    assert cluster.keys() == [{OVER}, set(), set()]


# --- other hands ---


def test_a_taint_that_somebody_removes_comes_back_by_the_node_watch() -> None:
    """Not at the next period: the scheduler may be at work."""
    cluster = TaintedCluster()
    cluster.start()
    cluster.edit("node-1", GPU)
    cluster.work()
    assert cluster.node("node-1").taints == (GPU, ours(APPROPRIATE), ours(OVER))


def test_a_taint_of_ours_that_somebody_sets_goes() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.edit("node-3", ours(OVER))
    cluster.work()
    assert cluster.keys()[2] == set()


def test_a_conflict_is_retried_from_fresh_state() -> None:
    """Somebody wrote to the node between our look and our patch: the patch is made anew, with their taint in it."""
    cluster = TaintedCluster()
    cluster.patcher.conflicts = 1
    cluster.start()
    assert cluster.keys()[0] == set()
    assert cluster.observer.failures == [], "a conflict is nobody's failure"
    cluster.edit("node-1", GPU)
    cluster.work()
    assert cluster.node("node-1").taints == (GPU, ours(APPROPRIATE), ours(OVER))


def test_a_conflict_is_retried_even_if_no_event_comes() -> None:
    cluster = TaintedCluster()
    cluster.patcher.conflicts = 3
    cluster.start()
    cluster.pass_time(20 * SECOND)
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]


def test_one_nodes_failure_does_not_stop_the_others() -> None:
    cluster = TaintedCluster()
    cluster.patcher.failing = frozenset({"node-1"})
    cluster.start()
    cluster.pass_time(MINUTE)
    assert cluster.keys() == [set(), {APPROPRIATE}, set()]
    assert cluster.patcher.tried.count("node-1") > 3
    cluster.patcher.failing = frozenset()
    cluster.pass_time(2 * MINUTE)
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]


def test_a_node_that_has_gone_is_not_patched() -> None:
    cluster = TaintedCluster()
    cluster.patcher.failing = frozenset({"node-1"})
    cluster.start()
    tried = cluster.patcher.tried.count("node-1")
    cluster.nodes.apply("DELETED", cluster.node("node-1"))
    cluster.pass_time(10 * MINUTE)
    assert cluster.patcher.tried.count("node-1") == tried


def test_a_node_that_comes_later_is_looked_at() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.nodes.apply("ADDED", node("node-4", taints=[ours(OVER)]))
    cluster.work()
    assert cluster.node("node-4").taints == (), "it takes no part yet"
    cluster.metrics.values["node-4"] = 0.9
    cluster.metrics.loads["node-4"] = HOT
    cluster.pass_time(30 * SECOND)
    assert {t.key for t in cluster.node("node-4").taints} == BOTH


def test_a_cordoned_node_carries_none_of_ours() -> None:
    cluster = TaintedCluster()
    cluster.start()
    before = cluster.node("node-1")
    metadata = msgspec.structs.replace(before.metadata, resource_version="99")
    cordoned = msgspec.structs.replace(
        before, metadata=metadata, unschedulable=True, taints=(*before.taints, CORDONED)
    )
    cluster.nodes.apply("MODIFIED", cordoned)
    cluster.pass_time(30 * SECOND)
    assert cluster.node("node-1").taints == (CORDONED,)


# --- modes ---


def test_predictive_tells_and_writes_nothing() -> None:
    cluster = TaintedCluster(policy=PREDICTIVE)
    cluster.start()
    cluster.pass_time(HOUR)
    assert cluster.patcher.tried == []
    assert set(cluster.observer.wished) == {("node-1", frozenset(BOTH)), ("node-2", frozenset({APPROPRIATE}))}


def test_clean_up_takes_off_ours_and_only_ours() -> None:
    cluster = TaintedCluster(
        policy=policy(soft_taints=soft_taints(mode=SoftTaintMode.CLEANUP_ONLY)), taints=[GPU, ours(OVER)]
    )
    cluster.start()
    cluster.pass_time(HOUR)
    assert {cluster.node(f"node-{n}").taints for n in (1, 2, 3)} == {(GPU,)}
    assert len(cluster.patcher.patches) == 3


def test_clean_up_needs_no_metrics() -> None:
    cluster = TaintedCluster(
        policy=policy(soft_taints=soft_taints(mode=SoftTaintMode.CLEANUP_ONLY)), taints=[ours(OVER)]
    )
    cluster.metrics.failing = frozenset({"vm_rebalancer:busy"})
    cluster.start()
    assert cluster.keys() == [set(), set(), set()]


def test_clean_up_in_predictive_mode_writes_nothing_either() -> None:
    cleanup = policy(mode=Mode.PREDICTIVE, soft_taints=soft_taints(mode=SoftTaintMode.CLEANUP_ONLY))
    cluster = TaintedCluster(policy=cleanup, taints=[ours(OVER)])
    cluster.start()
    assert cluster.patcher.tried == []


def test_a_policy_that_turns_to_clean_up_takes_effect_without_a_restart() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.policy = policy(soft_taints=soft_taints(mode=SoftTaintMode.CLEANUP_ONLY))
    cluster.pass_time(30 * SECOND)
    assert cluster.keys() == [set(), set(), set()]


def test_without_a_policy_it_touches_no_taint() -> None:
    cluster = TaintedCluster(policy=None, taints=[ours(OVER)])
    cluster.start()
    cluster.pass_time(HOUR)
    assert (cluster.patcher.tried, cluster.metrics.asked) == ([], [])
    cluster.policy = POLICY
    cluster.pass_time(6 * SECOND)
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]


# --- metrics ---


def test_without_metrics_everything_stays_until_max_age() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.metrics.failing = frozenset(cluster.metrics.asked)
    cluster.pass_time(170 * SECOND)
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]
    assert len(cluster.observer.metric_failures) == 5
    cluster.pass_time(70 * SECOND)
    assert cluster.keys() == [set(), set(), set()]


def test_a_restart_without_metrics_leaves_what_is_there_for_max_age() -> None:
    cluster = TaintedCluster(taints=[ours(OVER)])
    cluster.metrics.failing = frozenset({"vm_rebalancer:busy"})
    cluster.clock.advance(HOUR)  # until the cache has synced
    cluster.start()
    cluster.pass_time(170 * SECOND)
    assert cluster.keys() == [{OVER}] * 3
    cluster.pass_time(MINUTE)
    assert cluster.keys() == [set()] * 3


SUSTAINED = replace(POLICY, thresholds=replace(POLICY.thresholds, sustain=2))


def test_a_restart_leaves_an_over_utilised_nodes_taints_until_it_has_seen_enough() -> None:
    """One snapshot cannot tell whether it lasts; the program before this one had seen more."""
    cluster = TaintedCluster(policy=SUSTAINED, taints=[ours(APPROPRIATE), ours(OVER)])
    cluster.start()
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]
    cluster.pass_time(HOUR)
    assert cluster.keys() == [BOTH, {APPROPRIATE}, set()]
    assert "node-1" not in [name for name, _ in cluster.patcher.patches]


def test_after_a_restart_the_first_snapshot_below_the_threshold_takes_them_off() -> None:
    cluster = TaintedCluster(policy=SUSTAINED, taints=[ours(APPROPRIATE), ours(OVER)])
    cluster.metrics.values["node-1"] = 0.3
    cluster.start()
    assert cluster.keys() == [{APPROPRIATE}, {APPROPRIATE}, set()]


def test_what_is_disabled_is_not_left_after_a_restart_either() -> None:
    disabled = replace(SUSTAINED, soft_taints=soft_taints(mode=SoftTaintMode.DISABLED))
    cluster = TaintedCluster(policy=disabled, taints=[ours(OVER)])
    cluster.start()
    assert cluster.keys() == [set(), set(), set()]


def test_one_node_without_a_value_does_not_keep_the_others_from_being_tainted() -> None:
    cluster = TaintedCluster(taints=[ours(APPROPRIATE)])
    del cluster.metrics.values["node-3"]
    cluster.start()
    assert cluster.keys() == [BOTH, set(), {APPROPRIATE}], "node-3's stays: nothing is known of it"
    cluster.pass_time(4 * MINUTE)
    assert cluster.keys()[2] == set()


@pytest.mark.parametrize("series", ["vm_rebalancer:vmi_cpu_demand_cores:avg2m"])
def test_asks_nothing_of_vms(series: str) -> None:
    cluster = TaintedCluster()
    cluster.start()
    assert series not in cluster.metrics.asked


def test_a_value_of_ours_that_somebody_changed_is_restored() -> None:
    cluster = TaintedCluster()
    cluster.start()
    cluster.edit("node-1", Taint(OVER, "changed", EFFECT), ours(APPROPRIATE))
    cluster.work()
    assert Taint(OVER, "changed", EFFECT) not in cluster.node("node-1").taints
