"""Whoever takes over goes on with the same traces: nothing is lost, and nothing is told twice that was surely told."""

from controller.telemetry.spans import Link, trace_id
from e2e.collectors import WHOLE
from tests.controller.decision_builders import MINUTE, SECOND
from tests.controller.traced_cluster import FAILED_EARLY, evicted, fail, migrate, names


def test_a_move_that_settles_belongs_to_the_pod_it_has_left() -> None:
    """The VMI's own pod is the other one by then, and the note on it that the eviction was ours is gone."""
    cluster = evicted()
    cluster.work()
    cluster.attempt("vm-1", "Running")
    cluster.work()
    cluster.arrive("vm-1")
    cluster.clear_note("vm-1")
    cluster.pass_time(30 * SECOND)
    cluster.restart()
    cluster.pass_time(5 * MINUTE)
    root = cluster.one("eviction")
    assert root.trace_id == trace_id("pod-vm-1")
    assert root.attributes["k8s.pod.name"] == "virt-launcher-vm-1"
    assert root.attributes["vm_rebalancer.decided_elsewhere"] is True
    assert {span.parent for span in cluster.evictions if span is not root} == {root.span_id}
    assert len({span.span_id for span in cluster.evictions}) == len(cluster.evictions), "nothing twice"


def test_an_attempt_is_told_when_it_is_over_and_not_again() -> None:
    """What fails for hours should be seen meanwhile, and KubeVirt keeps only a few VMIMs."""
    cluster = evicted()
    fail(cluster)
    assert names(cluster.evictions) == sorted(["decide", *FAILED_EARLY, "request"])
    cluster.pass_time(30 * SECOND)
    cluster.restart()
    migrate(cluster, number=2)
    assert names(cluster.evictions) == sorted([*WHOLE, *FAILED_EARLY])
    assert cluster.one("eviction").attributes["vm_rebalancer.attempts"] == 2


def test_an_attempt_that_was_over_when_nobody_watched_is_told_by_the_successor() -> None:
    cluster = evicted()
    cluster.attempt("vm-1", "Pending")
    cluster.work()
    cluster.clock.advance(10 * SECOND)
    cluster.attempt("vm-1", "Failed")
    cluster.restart()
    migrate(cluster, number=2)
    assert names(cluster.evictions) == sorted([*WHOLE, "migration/pending"])


def test_the_pod_that_a_move_has_left_is_known_to_who_saw_it_go() -> None:
    """Settling takes longer than the source pod is there; a replica that stands by has seen it."""
    cluster = evicted()
    cluster.attempt("vm-1", "Running")
    cluster.work()
    cluster.arrive("vm-1")
    cluster.pass_time(30 * SECOND)
    standby = cluster.standby()
    cluster.remove_pod("virt-launcher-vm-1")
    cluster.restart(standby)
    cluster.pass_time(5 * MINUTE)
    root = cluster.one("eviction")
    assert root.trace_id == trace_id("pod-vm-1")
    assert {span.parent for span in cluster.evictions if span is not root} == {root.span_id}


def test_why_an_attempt_failed_is_waited_for() -> None:
    """KubeVirt notes it after the phase; told at once, the span would say nothing."""
    cluster = evicted()
    cluster.attempt("vm-1", "Pending")
    cluster.work()
    cluster.attempt("vm-1", "Failed", noted_end=False)
    cluster.work()
    assert names(cluster.evictions) == ["decide", "request"]
    cluster.attempt("vm-1", "Failed", failure="connection reset")
    migrate(cluster, number=2)
    (failed,) = (span for span in cluster.evictions if span.error)
    assert failed.error == "connection reset"


def test_a_move_whose_pod_is_gone_gets_no_trace_of_another_name() -> None:
    cluster = evicted()
    cluster.work()
    cluster.arrive("vm-1")
    cluster.work()
    cluster.remove_pod("virt-launcher-vm-1")
    cluster.restart()
    cluster.pass_time(5 * MINUTE)
    assert {span.trace_id for span in cluster.evictions} == {trace_id("pod-vm-1")}
    assert names(cluster.evictions) == ["decide", "migration/pending", "request"]


def test_a_second_eviction_is_still_linked_to_the_first() -> None:
    cluster = evicted()
    fail(cluster)
    cluster.unmark("vm-1")
    cluster.work()
    cluster.restart()
    assert len(cluster.api.evicted) == 2
    cluster.mark("vm-1")
    migrate(cluster, number=2)
    first, second = cluster.told("eviction")
    assert second.links == (Link(first.trace_id, first.span_id),)
    assert len({span.span_id for span in cluster.evictions}) == len(cluster.evictions)
