"""What is measured of the programs, as a real parser reads it."""

import math
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import ENDED, Phase
from controller.evictions.ledger import Ledger
from controller.evictions.views import Alarm
from controller.policy.model import Mode
from controller.telemetry.meter import Meter, misplaced
from controller.telemetry.names import Kind
from controller.utilization.classify import NodeClass
from controller.utilization.reading import NodeLoad, VmLoad
from informers.store import Lister, Writer
from tests.builders import GIB, START, node
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    POLICY,
    QUERY,
    classification,
    deviation,
    entry,
    load,
    policy,
    snapshot,
    thresholds,
    verdict,
)
from tests.controller.seen import Seen, say_everything, show_everything
from tests.simulator.promtool import promtool

UPSTREAM = "descheduler_"
LOW = "descheduler_lownodeutilization_"


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_the_page_is_read_by_a_real_parser_with_odd_names_intact(seen: Seen) -> None:
    say_everything(seen.meter)
    assert ('odd"\n\\name',) in seen.series("node_class")
    families = {family.name for family in text_string_to_metric_families(seen.page)}
    assert {name.name for name in seen.registry.collect()} <= families


def test_names_types_and_helps_are_as_prometheus_wants_them(seen: Seen) -> None:
    show_everything(seen)
    done = subprocess.run(  # noqa: S603
        [promtool(), "check", "metrics"], input=seen.page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_is_listed_with_its_kind_labels_and_meaning(seen: Seen) -> None:
    """So documents, alerts and the dashboard can be held against the list."""
    show_everything(seen)
    listed = {family.name.removesuffix("_total"): family for family in seen.metrics.families}
    shown = {family.name: family for family in seen.registry.collect()}
    assert listed.keys() == shown.keys()
    for name, family in shown.items():
        assert name.startswith(("vm_rebalancer_", UPSTREAM))
        assert listed[name].kind == family.type
        assert listed[name].text == family.documentation
        assert len(family.documentation) > 10
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(listed[name].labels)
    assert {family.kind for family in listed.values()} == set(Kind)


def test_failures_are_counted_each_time(seen: Seen) -> None:
    """A line says them once an hour; a rate is made of the counts."""
    for name in ("nodes", "nodes", "vmis"):
        seen.meter.informer_failed(name)
        seen.meter.failed("key", ValueError("odd"), MINUTE)
    assert seen.series("informer_errors_total") == {("nodes",): 2.0, ("vmis",): 1.0}
    assert seen.series("handler_errors_total") == {(): 3.0}


def test_metrics_are_infinitely_old_before_there_are_any_so_that_the_alert_fires(seen: Seen) -> None:
    assert seen.series("metrics_age_seconds") == {(): math.inf}
    assert "vm_rebalancer_metrics_age_seconds +Inf\n" in seen.page


def test_the_age_of_metrics_grows_until_the_next_refresh_that_brings_some(seen: Seen) -> None:
    seen.meter.refreshed(snapshot())
    seen.clock.advance(MINUTE)
    seen.meter.metrics_failed("503")
    assert seen.series("metrics_age_seconds") == {(): 60.0}
    assert seen.series("refresh_failures_total") == {(): 1.0}
    seen.meter.refreshed(snapshot())
    assert seen.series("metrics_age_seconds") == {(): 0.0}


def test_the_age_of_metrics_does_not_jump_with_the_wall_clock(seen: Seen) -> None:
    """``taken_at`` is wall-clock time, which somebody may set back."""
    seen.meter.refreshed(snapshot(taken_at=START + 5 * HOUR))
    assert seen.series("metrics_age_seconds") == {(): 0.0}


def test_coverage_is_no_number_before_the_first_classification(seen: Seen) -> None:
    """A soft-tainter, or a replica that stands by, would look as if no node had a value."""
    assert math.isnan(seen.series("metrics_coverage_ratio")[()])
    seen.meter.classified(classification(verdict()))
    assert seen.series("metrics_coverage_ratio") == {(): 1.0}


def test_series_of_a_node_that_has_gone_disappear(seen: Seen) -> None:
    seen.meter.classified(classification(verdict("node-1"), verdict("node-2", NodeClass.UNDER)))
    seen.meter.classified(classification(verdict("node-2", NodeClass.UNDER)))
    assert seen.series("node_class") == {("node-2",): 0.0}
    assert set(seen.series("node_value")) == {("node-2", QUERY)}


def test_a_value_that_is_missing_now_is_not_shown_as_it_was(seen: Seen) -> None:
    seen.meter.classified(classification(verdict("node-1"), verdict("node-2")))
    seen.meter.classified(classification(verdict("node-1", NodeClass.UNKNOWN, values={}), verdict("node-2")))
    assert seen.series("node_class") == {("node-1",): -1.0, ("node-2",): 2.0}
    assert set(seen.series("node_value")) == {("node-2", QUERY)}


def test_series_of_a_query_that_the_policy_no_longer_has_disappear(seen: Seen) -> None:
    before = classification(verdict())
    after = replace(
        before, limits={"new": before.limits[QUERY]}, nodes={"node-1": verdict(values={"new": 0.4})}
    )
    seen.meter.classified(before)
    seen.meter.classified(after)
    assert set(seen.series("node_value")) == {("node-1", "new")}
    assert set(seen.series("node_threshold")) == {("new", "under"), ("new", "over")}


def test_ends_and_answers_are_counted_by_their_kind(seen: Seen) -> None:
    say_everything(seen.meter)
    assert seen.counted("migrations_ended_total") == {("us", "Gone"): 1.0}
    assert seen.counted("evictions_total") == {("Triggered",): 1.0}
    assert seen.counted("eviction_dry_runs_total") == {("Triggered",): 1.0}
    assert seen.series("vms_passed_over_total") == {("Cooling",): 1.0}
    assert seen.series("nodes_at_rest_total") == {("NoUsefulMove",): 1.0}


OPEN_PHASES = sorted(set(Phase) - ENDED)
VMS = st.sampled_from(["vm-1", "vm-2", "vm-3"])
STEPS = st.one_of(
    st.tuples(st.just("adopt"), VMS, st.sampled_from(OPEN_PHASES)),
    st.tuples(st.just("observe"), VMS, st.sampled_from(sorted(Phase))),
    st.tuples(st.sampled_from(["release", "lose", "restart"]), VMS, st.sampled_from(OPEN_PHASES)),
)


def take_step(ledger: Ledger, meter: Meter, step: str, vm: str, phase: Phase) -> None:
    """As the descheduler's handlers do. ``restart``: the ledger is made anew, and nobody is told."""
    present = next((e for e in ledger.view().entries if e.vm.name == vm), None)
    if step == "restart":
        ledger.replace_all([entry("vm-1", phase=phase), entry("vm-2", phase=Phase.RUNNING)], [])
    elif step == "adopt":
        if ledger.adopt(entry(vm, phase=phase)):
            meter.transition(None, entry(vm, phase=phase))
    elif present is not None and step == "observe":
        if ledger.observe(present, after := replace(present, phase=phase)):
            meter.transition(present, after)
    elif present is not None and step == "release":
        if ledger.release(present.pod_uid):
            meter.transition(present, None)
    elif present is not None and (unknown := ledger.lose_answer(present.pod_uid)) is not None:
        meter.transition(present, unknown)


@given(st.lists(STEPS, max_size=12))
def test_what_is_on_the_move_is_what_the_ledger_holds_whatever_happened(
    steps: list[tuple[str, str, Phase]],
) -> None:
    seen = Seen()
    ledger = Ledger(seen.clock)
    seen.meter.show_ledger(ledger.view, lambda: POLICY)
    for step, vm, phase in steps:
        take_step(ledger, seen.meter, step, vm, phase)
        phases = [e.phase for e in ledger.view().entries]
        expected = {(str(phase),): float(phases.count(phase)) for phase in OPEN_PHASES}
        (family,) = seen.metrics.in_flight.collect()
        assert {(sample.labels["phase"],): sample.value for sample in family.samples} == expected


def test_the_alarm_is_shown_while_it_stops_the_evicting_and_not_longer(seen: Seen) -> None:
    """With or without a Lease: it is the ledger's alarm under the policy in force that stops it."""
    ledger, now = Ledger(seen.clock), [POLICY]
    seen.meter.show_ledger(ledger.view, lambda: now[0])
    assert seen.series("shutdown_alarm") == {(): 0.0}
    ledger.raise_alarm(Alarm("a VM went down", POLICY.digest))
    assert seen.series("shutdown_alarm") == {(): 1.0}
    now[0] = policy(digest="another")
    assert seen.series("shutdown_alarm") == {(): 0.0}


# --- what the moves do ---


def cluster(*names: str) -> Lister[Node]:
    writer: Writer[Node] = Writer({})
    writer.replace([node(name) for name in names])
    return writer.lister


def test_the_imbalance_is_what_would_have_to_move() -> None:
    assert misplaced([0.9, 0.5, 0.1]) == pytest.approx(0.4)
    assert misplaced([0.5, 0.5]) == 0.0
    assert misplaced([]) == 0.0


@given(st.lists(st.floats(0, 1.5), min_size=2, max_size=20), st.floats(0, 1), st.data())
def test_a_move_from_above_the_average_to_below_it_takes_off_what_it_carries(
    uses: list[float], share: float, data: st.DataObject
) -> None:
    average = sum(uses) / len(uses)
    source, target = uses.index(max(uses)), uses.index(min(uses))
    carried = share * min(uses[source] - average, average - uses[target])
    before = misplaced(uses)
    uses[source] -= carried
    uses[target] += carried
    assert misplaced(uses) == pytest.approx(before - max(carried, 0.0), abs=1e-9)


def test_imbalance_is_shown_of_nodes_whose_load_and_size_are_known(seen: Seen) -> None:
    seen.meter.show_nodes(cluster("node-1", "node-2"))
    loads = {"node-1": load(64.0, 64 * GIB), "node-2": load(0.0, 64 * GIB), "gone": load(64.0, 0.0)}
    seen.meter.refreshed(snapshot({}, loads=loads))
    seen.meter.classified(classification(verdict("node-1"), verdict("node-2"), verdict("unmeasured")))
    assert seen.series("load_misplaced_nodes") == {("cpu",): 0.5, ("memory",): 0.0}


def test_without_measured_loads_there_is_no_imbalance_rather_than_none(seen: Seen) -> None:
    seen.meter.show_nodes(cluster("node-1"))
    seen.meter.classified(classification(verdict("node-1")))
    assert seen.series("load_misplaced_nodes") == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (load(60.0, 64 * GIB), {("cpu",): 4.0 / 64.0, ("memory",): 0.0}),
        (load(6.0, 250 * GIB), {("cpu",): 0.0, ("memory",): 8.0 / 256.0}),
    ],
)
def test_what_an_arrival_has_taken_away_counts_for_what_its_source_had_most_of(
    seen: Seen, source: NodeLoad, expected: dict[tuple[str, ...], float]
) -> None:
    seen.meter.show_nodes(cluster("node-1"))
    seen.meter.refreshed(snapshot({}, loads={"node-1": source}))
    running = entry(phase=Phase.RUNNING, load=VmLoad(4.0, 8 * GIB))
    settling = replace(running, phase=Phase.SETTLING, ended_at=START + MINUTE)
    seen.meter.transition(running, settling)
    assert seen.series("load_moved_nodes_total") == expected
    seen.meter.transition(running, replace(settling, ours=False))
    assert seen.series("load_moved_nodes_total") == expected, "that was not us"


def test_how_long_a_migration_took_and_how_long_the_metrics_needed_to_show_it(seen: Seen) -> None:
    running = entry(phase=Phase.RUNNING)
    settling = replace(running, phase=Phase.SETTLING, ended_at=running.opened_at + 3 * MINUTE)
    seen.meter.transition(running, settling)
    seen.meter.transition(
        settling, replace(settling, phase=Phase.DONE, changed_at=running.opened_at + 5 * MINUTE)
    )
    assert seen.series("migration_duration_seconds_sum") == {("us",): 180.0}
    assert seen.series("settle_duration_seconds_sum") == {(): 120.0}


def test_failed_attempts_are_counted_each_once(seen: Seen) -> None:
    running = entry(phase=Phase.RUNNING)
    failed = replace(running, phase=Phase.RETRYING, attempts_failed=2)
    seen.meter.transition(running, failed)
    seen.meter.transition(failed, replace(failed, target="node-3"))
    assert seen.series("migration_attempts_failed_total") == {(): 2.0}


def test_what_a_predecessor_has_counted_is_not_counted_again(seen: Seen) -> None:
    """At a start, what is on the move and what settles is read off the cluster."""
    seen.meter.show_nodes(cluster("node-1"))
    seen.meter.refreshed(snapshot({}, loads={"node-1": load(60.0, 64 * GIB)}))
    retrying = entry("vm-1", phase=Phase.RETRYING, attempts_failed=2)
    settling = entry("vm-2", phase=Phase.SETTLING, changed_at=START + HOUR, ended_at=START + MINUTE)
    seen.meter.transition(None, retrying)
    seen.meter.transition(None, settling)
    assert seen.series("migration_attempts_failed_total") == {(): 0.0}
    assert seen.series("migration_duration_seconds_count") == {}
    assert seen.counted("load_moved_nodes_total") == {}
    seen.meter.transition(retrying, replace(retrying, attempts_failed=3))
    assert seen.series("migration_attempts_failed_total") == {(): 1.0}


def test_an_arrival_of_others_that_has_just_been_seen_is_counted(seen: Seen) -> None:
    """Its migration was over between two looks, so it is taken up when it has arrived."""
    at = START + MINUTE
    arrived = entry(phase=Phase.SETTLING, changed_at=at, ended_at=at)
    seen.meter.transition(None, replace(arrived, ours=False))
    assert seen.series("migration_duration_seconds_count") == {("others",): 1.0}


# --- nodes ---


def test_nodes_are_counted_by_class_with_zeros(seen: Seen) -> None:
    seen.meter.classified(classification(verdict("node-1"), verdict("node-2")))
    assert seen.series("nodes") == {("unknown",): 0.0, ("under",): 0.0, ("appropriate",): 0.0, ("over",): 2.0}


# --- the policy ---


def test_the_policy_in_force_is_shown_and_no_other(seen: Seen) -> None:
    assert seen.series("policy_valid") == {(): 0.0}
    seen.meter.policy_changed(POLICY, valid=True)
    seen.meter.policy_changed(policy(mode=Mode.PREDICTIVE, digest="digest-2"), valid=False)
    assert seen.series("policy_info") == {("digest-2", "Predictive"): 1.0}
    assert seen.series("policy_valid") == {(): 0.0}


# --- under the upstream names ---


def test_upstream_dashboards_see_the_query_as_their_one_resource(seen: Seen) -> None:
    seen.meter.classified(
        classification(
            verdict("node-1", values={QUERY: 0.7}), verdict("node-2", NodeClass.UNKNOWN, values={})
        )
    )
    assert seen.series("node_utilization_value", LOW) == {("node-1", "MetricResource"): 0.7}
    assert seen.series("node_utilization_threshold", LOW) == {
        ("node-1", "MetricResource", "low"): 0.2,
        ("node-1", "MetricResource", "high"): 0.5,
    }
    assert seen.series("node_classification", LOW) == {("node-1",): 2.0}, "it has no number for unknown"


def test_several_queries_are_several_resources_upstream(seen: Seen) -> None:
    one = classification(verdict("node-1", values={QUERY: 0.7, "io": 0.1}))
    seen.meter.classified(replace(one, limits={**one.limits, "io": one.limits[QUERY]}))
    assert set(seen.series("node_utilization_value", LOW)) == {("node-1", QUERY), ("node-1", "io")}


def test_the_upstream_mode_is_unknown_before_there_is_a_policy(seen: Seen) -> None:
    assert math.isnan(seen.series("threshold_mode", LOW)[()])
    seen.meter.policy_changed(POLICY, valid=True)
    assert seen.series("threshold_mode", LOW) == {(): 0.0}
    seen.meter.policy_changed(policy(thresholds=thresholds(bounds=deviation())), valid=True)
    assert seen.series("threshold_mode", LOW) == {(): 1.0}


def test_upstream_dashboards_see_evictions_as_success_or_error_and_no_dry_runs(seen: Seen) -> None:
    for answer in (Verdict.TRIGGERED, Verdict.NOT_MIGRATABLE):
        for dry_run in (True, False):
            seen.meter.answered(entry(), EvictionAnswer(answer, ""), dry_run=dry_run)
    labels = ("LowNodeUtilization", "vm-rebalancer", entry().vm.namespace, entry().source)
    shown = {frozenset(found): value for found, value in seen.series("pods_evicted_total", UPSTREAM).items()}
    assert shown == {frozenset({"success", *labels}): 1.0, frozenset({"error", *labels}): 1.0}
