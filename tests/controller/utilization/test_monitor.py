"""Refreshing and classifying, as both programs do it."""

from dataclasses import replace

import pytest

from controller.cluster.selectors import parse_selector
from controller.monitor import Monitor, eligible_nodes
from controller.policy.model import Policy
from controller.utilization.classify import NodeClass
from controller.utilization.reading import NODE_CPU, VM_CPU, MetricsError
from informers.store import Writer
from informers.testing import ManualClock
from tests.builders import START, node
from tests.controller.decision_builders import (
    EVERYTHING,
    HOT,
    MINUTE,
    POLICY,
    SECOND,
    SERIES,
    SMALL,
    metrics,
    policy,
    query,
    thresholds,
)
from tests.controller.fakes import FakeMetrics

SUSTAIN_2 = policy(thresholds=thresholds(sustain=2))


class Watched:
    """A monitor of two nodes, of which node-1 is hot."""

    def __init__(self, *, with_vms: bool = True) -> None:
        self.clock = ManualClock(START)
        self.metrics = FakeMetrics(self.clock, values={"node-1": 0.9, "node-2": 0.3})
        self.metrics.loads = {"node-1": HOT}
        self.metrics.vms = {("vms", "vm-1"): SMALL}
        nodes: Writer = Writer()
        nodes.replace([node("node-1"), node("node-2")])
        self.monitor = Monitor(self.metrics, nodes.lister, self.clock, with_vms=with_vms)

    def round(self, policy: Policy = POLICY) -> NodeClass:
        """Refresh, classify, and half a minute later; the class of node-1."""
        self.monitor.refresh(policy)
        found = self.monitor.reclassify(policy)
        assert self.monitor.classification(policy) is found
        self.clock.advance(30 * SECOND)
        return found.class_of("node-1")


def test_has_no_opinion_before_the_first_refresh() -> None:
    watched = Watched()
    assert (watched.monitor.latest, watched.monitor.classification(POLICY)) == (None, None)
    assert watched.monitor.reclassify(POLICY).skipped == "no metrics yet"


def test_classifies_by_what_was_seen_before_too() -> None:
    watched = Watched()
    assert watched.round(SUSTAIN_2) is NodeClass.APPROPRIATE
    assert watched.round(SUSTAIN_2) is NodeClass.OVER


@pytest.mark.parametrize("series", [SERIES, NODE_CPU, VM_CPU])
def test_a_failed_query_keeps_the_last_whole_snapshot(series: str) -> None:
    """Good values must not be overwritten by zeros, nor by halves."""
    watched = Watched()
    watched.round()
    before = watched.monitor.latest
    watched.metrics.failing = frozenset({series})
    with pytest.raises(MetricsError, match="503"):
        watched.monitor.refresh(POLICY)
    assert watched.monitor.latest is before
    assert watched.monitor.reclassify(POLICY).class_of("node-1") is NodeClass.OVER


def test_the_last_good_snapshot_serves_until_max_age() -> None:
    watched = Watched()
    watched.monitor.refresh(POLICY)
    watched.clock.advance(3 * MINUTE)
    assert watched.monitor.reclassify(POLICY).class_of("node-1") is NodeClass.OVER
    watched.clock.advance(SECOND)
    assert watched.monitor.reclassify(POLICY).skipped


def test_old_answers_say_nothing_about_other_queries() -> None:
    watched = Watched()
    watched.round(SUSTAIN_2)
    other = replace(SUSTAIN_2, metrics=metrics(queries=[query(recorded=False)]))
    assert watched.round(other) is NodeClass.APPROPRIATE, "another query, though by the same name"
    assert watched.round(other) is NodeClass.OVER


def test_a_threshold_that_changed_needs_no_new_answers() -> None:
    watched = Watched()
    watched.round(SUSTAIN_2)
    assert (
        watched.monitor.reclassify(policy(thresholds=thresholds(sustain=1))).class_of("node-1")
        is NodeClass.OVER
    )


def test_has_no_opinion_under_a_policy_that_it_has_not_classified_by() -> None:
    watched = Watched()
    watched.round(SUSTAIN_2)
    assert watched.monitor.classification(POLICY) is None


def test_asks_of_vms_only_where_one_is_to_be_chosen() -> None:
    for with_vms in (True, False):
        watched = Watched(with_vms=with_vms)
        watched.round()
        assert (VM_CPU in watched.metrics.asked) is with_vms
        assert bool(watched.monitor.latest and watched.monitor.latest.vms) is with_vms


def test_selected_ready_and_schedulable_nodes_take_part() -> None:
    nodes = [
        node("node-1"),
        node("node-2", ready=False),
        node("node-3", unschedulable=True),
        node("node-4", labels={"kubevirt.io/schedulable": "false"}),
    ]
    schedulable = parse_selector("kubevirt.io/schedulable=true")
    assert [n.name for n in eligible_nodes(nodes, schedulable)] == ["node-1"]
    assert [n.name for n in eligible_nodes(nodes, EVERYTHING)] == ["node-1", "node-4"]
