"""The trace of an eviction tells the whole story, however it ends, and its ID is the source pod's UID."""

from dataclasses import replace
from uuid import UUID

import pytest

from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase
from controller.policy.model import Mode
from controller.telemetry.spans import Link, Span, trace_id
from e2e.collectors import WHOLE
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND
from tests.controller.traced_cluster import (
    FAILED_EARLY,
    TracedCluster,
    evicted,
    fail,
    migrate,
    names,
    until_asked_again,
)

NOT_MIGRATABLE = EvictionAnswer(Verdict.NOT_MIGRATABLE, "VMI vms/vm-1 is not live-migratable")


def seconds(span: Span) -> float:
    return (span.end - span.start).total_seconds()


# --- a migration that succeeds ---


def test_the_trace_id_is_the_uid_of_the_source_pod() -> None:
    uid = "7f0c5b1e-3c7e-4b0e-9a53-2f1d6a7c9e10"
    assert trace_id(uid) == UUID(uid).int
    cluster = evicted()
    migrate(cluster)
    assert {span.trace_id for span in cluster.evictions} == {trace_id("pod-vm-1")}


def test_an_eviction_has_all_its_spans_under_one_root() -> None:
    cluster = evicted()
    migrate(cluster)
    assert names(cluster.evictions) == WHOLE
    root = cluster.one("eviction")
    assert (root.parent, root.error, root.links) == (0, "", ())
    assert {span.parent for span in cluster.evictions if span is not root} == {root.span_id}


def test_phases_last_as_long_as_kubevirt_says_and_leave_no_gap() -> None:
    cluster = evicted()
    migrate(cluster)
    phases = [cluster.one(f"migration/{p}") for p in ("pending", "scheduling", "preparing", "running")]
    assert [seconds(span) for span in phases] == [1.0, 2.0, 2.0, 1.0]
    assert [span.end for span in phases[:-1]] == [span.start for span in phases[1:]]


def test_settling_lasts_from_the_arrival_until_the_metrics_show_it() -> None:
    cluster = evicted()
    migrate(cluster)
    settle = cluster.one("settle")
    assert settle.start == cluster.one("migration/running").end
    assert seconds(settle) >= POLICY.evictions.settle.total_seconds()
    assert cluster.one("eviction").end == settle.end


def test_the_decision_is_told_with_values_thresholds_and_what_was_passed_over() -> None:
    cluster = TracedCluster("vm-1", "vm-2", "vm-3")
    told = cluster.told("decide")[0].attributes
    assert (told["vm_rebalancer.value.busy"], told["vm_rebalancer.threshold.over.busy"]) == (0.9, 0.5)
    assert (told["vm_rebalancer.candidates"], told["vm_rebalancer.rejected.NotFirst"]) == (3, 2)
    assert (told["k8s.node.name"], told["vm_rebalancer.target.node"]) == ("node-1", "node-9")


def test_the_root_says_what_moved_from_where_to_where() -> None:
    cluster = evicted()
    migrate(cluster)
    told = cluster.one("eviction").attributes
    assert told["k8s.pod.uid"] == "pod-vm-1"
    assert told["k8s.namespace.name"] == "vms"
    assert (told["vm_rebalancer.vm"], told["vm_rebalancer.vm.cpu_cores"]) == ("vms/vm-1", 4.0)
    assert (told["vm_rebalancer.source.node"], told["vm_rebalancer.target.node"]) == ("node-1", "node-9")
    assert told["vm_rebalancer.result"] == "Done"


def test_dry_run_and_request_are_events_with_their_answers() -> None:
    request = evicted().one("request")
    assert [event.name for event in request.events] == ["dry run answered", "answered"]
    assert [event.attributes["vm_rebalancer.verdict"] for event in request.events] == ["Triggered"] * 2
    assert (request.error, request.calls) == ("", True)


def test_decision_and_request_are_told_at_once_for_the_leader_may_be_killed() -> None:
    assert names(evicted().evictions) == ["decide", "request"]


# --- rounds ---


def test_a_decision_points_to_the_round_that_it_was_made_in() -> None:
    cluster = evicted()
    first = cluster.told("round")[0]
    assert cluster.one("decide").links == (Link(first.trace_id, first.span_id),)
    assert first.trace_id != cluster.one("decide").trace_id


def test_each_round_is_a_trace_of_its_own() -> None:
    cluster = TracedCluster()
    cluster.pass_time(MINUTE)
    rounds, refreshes = cluster.told("round"), cluster.told("refresh")
    assert len(refreshes) == cluster.observer.refreshes == 3
    assert len({span.trace_id for span in rounds}) == len(rounds) == len(cluster.told("classify"))
    assert {span.parent for span in refreshes} <= {span.span_id for span in rounds}


def test_a_refresh_that_failed_is_an_error_with_its_reason() -> None:
    cluster = TracedCluster()
    cluster.metrics.failing = frozenset(cluster.metrics.asked)
    cluster.pass_time(31 * SECOND)
    assert "503 no store is ready" in cluster.told("refresh")[-1].error
    assert "503 no store is ready" in cluster.told("round")[-1].error


def test_a_changed_node_makes_a_round_without_a_refresh() -> None:
    cluster = TracedCluster()
    before = len(cluster.told("refresh"))
    cluster.cool("node-8")
    cluster.add_idle("node-8")
    cluster.work()
    assert len(cluster.told("refresh")) == before
    assert cluster.told("round")[-1].attributes["vm_rebalancer.fresh_metrics"] is False


def test_a_round_that_broke_off_is_not_mixed_up_with_the_next() -> None:
    cluster = TracedCluster()
    cluster.tracer.refreshing()
    cluster.tracer.failed("key", ValueError("odd"), SECOND)
    cluster.pass_time(10 * SECOND)
    cluster.tracer.classified(cluster.observer.classifications[-1])
    assert seconds(cluster.told("round")[-1]) == 0.0


# --- ends that are none to be proud of ---


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_refused_request_is_a_whole_trace_with_the_servers_words(dry_run: bool) -> None:
    cluster = TracedCluster(hot=())
    cluster.add_vm("vm-1")
    (cluster.api.rehearsals if dry_run else cluster.api.answers)["virt-launcher-vm-1"] = NOT_MIGRATABLE
    cluster.add_hot("node-1")
    cluster.pass_time(MINUTE)
    assert names(cluster.evictions) == ["decide", "eviction", "request"]
    request = cluster.one("request")
    assert request.error == "NotMigratable: VMI vms/vm-1 is not live-migratable"
    assert request.attributes["vm_rebalancer.sent"] is not dry_run
    assert cluster.one("eviction").attributes["vm_rebalancer.result"] == "Refused"
    assert cluster.one("eviction").error == request.error


def test_a_retry_is_an_event_and_the_attempt_that_failed_is_an_error() -> None:
    cluster = evicted()
    fail(cluster, failure="target pod does not fit")
    migrate(cluster, number=2)
    assert names(cluster.evictions) == sorted([*WHOLE, *FAILED_EARLY])
    (failed,) = (span for span in cluster.evictions if span.error)
    assert (failed.name, failed.error) == ("migration/scheduling", "target pod does not fit")
    (retry,) = cluster.one("eviction").events
    assert retry.attributes["vm_rebalancer.failure"] == "target pod does not fit"
    assert cluster.one("eviction").attributes["vm_rebalancer.attempts.failed"] == 1
    assert cluster.one("eviction").error == "", "it has arrived after all"


def test_a_cancelled_eviction_is_an_error() -> None:
    cluster = evicted()
    fail(cluster, failure="no room")
    cluster.unmark("vm-1")
    cluster.work()
    root = cluster.one("eviction")
    assert root.attributes["vm_rebalancer.result"] == "Cancelled"
    assert root.error.endswith("taken back before the VM had moved: no room")


def test_a_vm_that_goes_away_ends_its_trace_and_cuts_the_phase_short() -> None:
    cluster = evicted()
    cluster.attempt("vm-1", "Pending")
    cluster.pass_time(SECOND)
    cluster.attempt("vm-1", "Running")
    cluster.pass_time(SECOND)
    cluster.stop("vm-1")
    cluster.work()
    root = cluster.one("eviction")
    assert root.attributes["vm_rebalancer.result"] == "Gone"
    assert cluster.one("migration/running").end == root.end
    assert cluster.one("migration/running").error == "given up before its end"


def test_an_eviction_without_a_sign_is_lost() -> None:
    cluster = TracedCluster("vm-1")
    cluster.pass_time(10 * MINUTE)
    assert names(cluster.evictions) == ["decide", "eviction", "request"]
    assert cluster.one("eviction").error == "no sign of the eviction was seen"


def test_a_stuck_migration_is_an_error_even_if_it_ends_well() -> None:
    cluster = evicted()
    cluster.attempt("vm-1", "Running")
    cluster.pass_time(HOUR)
    assert names(cluster.evictions) == ["decide", "request"]
    migrate(cluster)
    root = cluster.one("eviction")
    assert [event.name for event in root.events] == ["stuck"]
    assert root.error.startswith("stuck")


def test_an_answer_that_never_came_is_told_with_the_first_sign() -> None:
    cluster = TracedCluster(hot=())
    cluster.add_vm("vm-1")
    cluster.api.answers["virt-launcher-vm-1"] = EvictionAnswer(Verdict.NO_ANSWER, "timed out")
    cluster.add_hot("node-1")
    cluster.pass_time(MINUTE)
    assert cluster.evictions == []
    cluster.mark("vm-1")
    cluster.work()
    assert names(cluster.evictions) == ["decide", "request"]
    assert cluster.one("request").error == "NoAnswer: timed out"


# --- whose, and which ---


def test_nothing_is_evicted_in_predictive_mode_so_there_is_no_trace_of_it() -> None:
    cluster = TracedCluster("vm-1", policy=replace(POLICY, mode=Mode.PREDICTIVE))
    cluster.pass_time(MINUTE)
    assert cluster.observer.plans
    assert cluster.told("round")
    assert cluster.evictions == []


def test_migrations_of_others_have_no_trace() -> None:
    """Who asked for them knows of them."""
    cluster = TracedCluster(hot=())
    cluster.add_vm("vm-1")
    cluster.work()
    cluster.drain("vm-1")
    cluster.pass_time(10 * MINUTE)
    assert cluster.observer.transitions, "it was followed"
    assert cluster.evictions == []


def test_a_second_eviction_of_a_pod_is_another_root_linked_to_the_first() -> None:
    cluster = evicted()
    fail(cluster)
    cluster.unmark("vm-1")
    until_asked_again(cluster)
    cluster.mark("vm-1")
    migrate(cluster, number=2)
    first, second = cluster.told("eviction")
    assert (first.trace_id, first.links) == (second.trace_id, ())
    assert second.links == (Link(first.trace_id, first.span_id),)
    assert len({span.span_id for span in cluster.evictions}) == len(cluster.evictions)


def test_a_pod_that_was_refused_may_be_evicted_later() -> None:
    cluster = TracedCluster(hot=())
    cluster.add_vm("vm-1")
    cluster.api.rehearsals["virt-launcher-vm-1"] = NOT_MIGRATABLE
    cluster.add_hot("node-1")
    cluster.pass_time(MINUTE)
    cluster.api.rehearsals.clear()
    until_asked_again(cluster)
    cluster.mark("vm-1")
    migrate(cluster)
    refused, moved = cluster.told("eviction")
    assert refused.trace_id == moved.trace_id
    assert moved.links == (), "it is the first that was carried out"
    assert len({span.span_id for span in cluster.evictions}) == len(cluster.evictions)


def test_evictions_that_left_nothing_behind_are_told_apart_by_order() -> None:
    cluster = evicted()
    cluster.work()
    cluster.unmark("vm-1")
    until_asked_again(cluster)
    cluster.mark("vm-1")
    cluster.work()
    cluster.unmark("vm-1")
    cluster.work()
    assert len(cluster.told("eviction")) == 2
    assert len({span.span_id for span in cluster.evictions}) == len(cluster.evictions)


def test_of_a_pod_that_is_refused_again_and_again_nothing_is_kept() -> None:
    """A budget without room is asked again every half minute, for months."""
    cluster = TracedCluster(hot=())
    cluster.add_vm("vm-1")
    cluster.api.rehearsals["virt-launcher-vm-1"] = NOT_MIGRATABLE
    cluster.add_hot("node-1")
    cluster.pass_time(8 * HOUR)
    assert len(cluster.told("eviction")) >= 3
    assert len(cluster.tracer._ended) == 0
    assert len(cluster.tracer._open) == 0


def test_an_end_that_another_worker_tells_first_is_not_opened_again() -> None:
    """Nothing would end it, and it would stay for ever."""
    (opened,) = TracedCluster("vm-1").descheduler.ledger.entries
    late = TracedCluster()
    late.tracer.transition(opened, replace(opened, phase=Phase.GONE, changed_at=late.clock.now()))
    told = len(late.spans)
    late.tracer.transition(None, opened)
    late.tracer.answered(opened, EvictionAnswer(Verdict.TRIGGERED, ""), dry_run=False)
    late.tracer.transition(opened, replace(opened, load=None))
    assert late.spans[told:] == []
    assert len(late.tracer._open) == 0


def test_of_attempts_that_have_been_told_only_their_essence_is_kept() -> None:
    """A mark may stand for days, and each attempt leaves a VMIM with all that KubeVirt has noted."""
    cluster = evicted()
    for number in range(1, 9):
        fail(cluster, number, failure=f"no room, {number}")
    (known,) = cluster.tracer._open.values()
    assert (len(known.told), len(known.attempts)) == (8, 0)
    kept = list(known.told.values())
    assert all(len(each.phase_transition_timestamps) <= 3 and not each.metadata.annotations for each in kept)
    assert [each.migration_state.failure_reason for each in kept if each.migration_state] == [
        f"no room, {number}" for number in range(1, 9)
    ]
    told = len(cluster.evictions)
    migrate(cluster, number=9)
    root = cluster.one("eviction")
    assert [event.attributes["vm_rebalancer.attempt"] for event in root.events] == list(range(2, 10))
    assert (root.attributes["vm_rebalancer.attempts"], root.attributes["vm_rebalancer.attempts.failed"]) == (
        9,
        8,
    )
    assert root.start <= min(span.start for span in cluster.evictions)
    last = cluster.told("migration/running")[-1]
    assert last.attributes["vm_rebalancer.attempt"] == 9
    assert names(cluster.evictions[told:]) == sorted(set(WHOLE) - {"decide", "request"}), "nothing twice"


def test_what_is_over_is_not_kept() -> None:
    """Else it would grow for ever."""
    cluster = evicted()
    assert len(cluster.tracer._open) == 1
    migrate(cluster)
    assert len(cluster.tracer._open) == 0
