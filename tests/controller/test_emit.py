"""What is seen of the programs: metrics that a real parser reads, and lines that are said once an hour."""

import logging
import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.cluster.queries import Reason
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import ENDED, Phase
from controller.evictions.ledger import Ledger
from controller.evictions.plan import Plan
from controller.evictions.select import PassedOver
from controller.evictions.views import Alarm
from controller.telemetry import emit
from controller.telemetry.emit import Emitter
from controller.telemetry.names import Metrics
from controller.utilization.classify import NodeClass
from controller.utilization.reading import Dropped
from informers.errors import Unreachable
from informers.testing import ManualClock
from tests.builders import START, node
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    POLICY,
    QUERY,
    classification,
    entry,
    policy,
    slots,
    snapshot,
    verdict,
    view,
)
from tests.simulator.promtool import promtool

AGAIN = HOUR + timedelta(seconds=1)


@dataclass
class Seen:
    """An emitter, and what comes out of it."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    alarms: list[Alarm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.registry)
        self.emitter = Emitter(self.metrics, self.clock, self.alarms.append)

    @property
    def page(self) -> str:
        return generate_latest(self.registry).decode()

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of labels -> value."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.page)
            for sample in family.samples
            if sample.name == f"vm_rebalancer_{name}"
        }


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def at_rest(name: str = "node-1", code: str = "NoUsefulMove") -> Plan:
    passed = (PassedOver("vms/vm-1", Reason("Cooling", "rests")),)
    return Plan(name, START, verdict(name), slots(), rest=Reason(code, "nothing helps"), passed_over=passed)


def say_everything(emitter: Emitter) -> None:
    """Everything that a program tells its observer, once."""
    emitter.metrics_failed("503")
    emitter.failed("key", ValueError("odd"), MINUTE)
    emitter.refreshed(
        replace(snapshot({"node-1": 0.7}), dropped=(Dropped(QUERY, "x", "NaN"),), warnings=("partial",))
    )
    emitter.classified(classification(verdict("node-1"), verdict('odd"\n\\name', NodeClass.UNDER)))
    emitter.planned(at_rest())
    for dry_run in (True, False):
        emitter.answered(entry(), EvictionAnswer(Verdict.TRIGGERED, "triggered"), dry_run=dry_run)
    emitter.transition(None, entry())
    emitter.transition(entry(phase=Phase.RUNNING), entry(phase=Phase.GONE))
    emitter.alarmed(Alarm("down", "digest-1"))
    emitter.tainting(node("node-1"), frozenset({"a"}))
    emitter.show_ledger(lambda: view(entry()), lambda: POLICY)


# --- metrics ---


def test_the_page_is_read_by_a_real_parser_with_odd_names_intact(seen: Seen) -> None:
    say_everything(seen.emitter)
    assert ('odd"\n\\name',) in seen.series("node_class")
    families = {family.name for family in text_string_to_metric_families(seen.page)}
    assert {name.name for name in seen.registry.collect()} <= families


def test_names_types_and_helps_are_as_prometheus_wants_them(seen: Seen) -> None:
    say_everything(seen.emitter)
    done = subprocess.run(  # noqa: S603
        [promtool(), "check", "metrics"], input=seen.page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_is_named_after_the_program_and_explained(seen: Seen) -> None:
    for family in seen.registry.collect():
        assert family.name.startswith("vm_rebalancer_")
        assert len(family.documentation) > 15


def test_metrics_are_infinitely_old_before_there_are_any_so_that_the_alert_fires(seen: Seen) -> None:
    assert seen.series("metrics_age_seconds") == {(): math.inf}
    assert "vm_rebalancer_metrics_age_seconds +Inf\n" in seen.page


def test_the_age_of_metrics_grows_until_the_next_refresh_that_brings_some(seen: Seen) -> None:
    seen.emitter.refreshed(snapshot())
    seen.clock.advance(MINUTE)
    seen.emitter.metrics_failed("503")
    assert seen.series("metrics_age_seconds") == {(): 60.0}
    assert seen.series("refresh_failures_total") == {(): 1.0}
    seen.emitter.refreshed(snapshot())
    assert seen.series("metrics_age_seconds") == {(): 0.0}


def test_the_age_of_metrics_does_not_jump_with_the_wall_clock(seen: Seen) -> None:
    """``taken_at`` is wall-clock time, which somebody may set back."""
    seen.emitter.refreshed(snapshot(taken_at=START + 5 * HOUR))
    assert seen.series("metrics_age_seconds") == {(): 0.0}


def test_coverage_is_no_number_before_the_first_classification(seen: Seen) -> None:
    """A soft-tainter, or a replica that stands by, would look as if no node had a value."""
    assert math.isnan(seen.series("metrics_coverage_ratio")[()])
    seen.emitter.classified(classification(verdict()))
    assert seen.series("metrics_coverage_ratio") == {(): 1.0}


def test_series_of_a_node_that_has_gone_disappear(seen: Seen) -> None:
    seen.emitter.classified(classification(verdict("node-1"), verdict("node-2", NodeClass.UNDER)))
    seen.emitter.classified(classification(verdict("node-2", NodeClass.UNDER)))
    assert seen.series("node_class") == {("node-2",): 0.0}
    assert set(seen.series("node_value")) == {("node-2", QUERY)}


def test_a_value_that_is_missing_now_is_not_shown_as_it_was(seen: Seen) -> None:
    seen.emitter.classified(classification(verdict("node-1"), verdict("node-2")))
    seen.emitter.classified(
        classification(verdict("node-1", NodeClass.UNKNOWN, values={}), verdict("node-2"))
    )
    assert seen.series("node_class") == {("node-1",): -1.0, ("node-2",): 2.0}
    assert set(seen.series("node_value")) == {("node-2", QUERY)}


def test_series_of_a_query_that_the_policy_no_longer_has_disappear(seen: Seen) -> None:
    before = classification(verdict())
    after = replace(
        before, limits={"new": before.limits[QUERY]}, nodes={"node-1": verdict(values={"new": 0.4})}
    )
    seen.emitter.classified(before)
    seen.emitter.classified(after)
    assert set(seen.series("node_value")) == {("node-1", "new")}
    assert set(seen.series("node_threshold")) == {("new", "under"), ("new", "over")}


def test_ends_and_answers_are_counted_by_their_kind(seen: Seen) -> None:
    say_everything(seen.emitter)
    assert seen.series("migrations_ended_total") == {("Gone",): 1.0}
    assert seen.series("evictions_total") == {("Triggered",): 1.0}
    assert seen.series("eviction_dry_runs_total") == {("Triggered",): 1.0}
    assert seen.series("vms_passed_over_total") == {("Cooling",): 1.0}
    assert seen.series("nodes_at_rest_total") == {("NoUsefulMove",): 1.0}


OPEN_PHASES = sorted(set(Phase) - ENDED)
VMS = st.sampled_from(["vm-1", "vm-2", "vm-3"])
STEPS = st.one_of(
    st.tuples(st.just("adopt"), VMS, st.sampled_from(OPEN_PHASES)),
    st.tuples(st.just("observe"), VMS, st.sampled_from(sorted(Phase))),
    st.tuples(st.sampled_from(["release", "lose", "restart"]), VMS, st.sampled_from(OPEN_PHASES)),
)


def take_step(ledger: Ledger, emitter: Emitter, step: str, vm: str, phase: Phase) -> None:
    """As the descheduler's handlers do. ``restart``: the ledger is made anew, and nobody is told."""
    present = next((e for e in ledger.view().entries if e.vm.name == vm), None)
    if step == "restart":
        ledger.replace_all([entry("vm-1", phase=phase), entry("vm-2", phase=Phase.RUNNING)], [])
    elif step == "adopt":
        if ledger.adopt(entry(vm, phase=phase)):
            emitter.transition(None, entry(vm, phase=phase))
    elif present is not None and step == "observe":
        if ledger.observe(present, after := replace(present, phase=phase)):
            emitter.transition(present, after)
    elif present is not None and step == "release":
        if ledger.release(present.pod_uid):
            emitter.transition(present, None)
    elif present is not None and (unknown := ledger.lose_answer(present.pod_uid)) is not None:
        emitter.transition(present, unknown)


@given(st.lists(STEPS, max_size=12))
def test_what_is_on_the_move_is_what_the_ledger_holds_whatever_happened(
    steps: list[tuple[str, str, Phase]],
) -> None:
    seen = Seen()
    ledger = Ledger(seen.clock)
    seen.emitter.show_ledger(ledger.view, lambda: POLICY)
    for step, vm, phase in steps:
        take_step(ledger, seen.emitter, step, vm, phase)
        phases = [e.phase for e in ledger.view().entries]
        expected = {(str(phase),): float(phases.count(phase)) for phase in OPEN_PHASES}
        assert seen.series("migrations_in_flight") == expected


def test_the_alarm_is_shown_while_it_stops_the_evicting_and_not_longer(seen: Seen) -> None:
    """With or without a Lease: it is the ledger's alarm under the policy in force that stops it."""
    ledger, now = Ledger(seen.clock), [POLICY]
    seen.emitter.show_ledger(ledger.view, lambda: now[0])
    assert seen.series("shutdown_alarm") == {(): 0.0}
    ledger.raise_alarm(Alarm("a VM went down", POLICY.digest))
    assert seen.series("shutdown_alarm") == {(): 1.0}
    now[0] = policy(digest="another")
    assert seen.series("shutdown_alarm") == {(): 0.0}


def test_an_alarm_is_handed_on_and_said_aloud(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.alarmed(Alarm("a VM went down", "digest-1"))
    assert seen.alarms == [Alarm("a VM went down", "digest-1")]
    assert [(r.levelname, "a VM went down" in r.message) for r in lines.records] == [("CRITICAL", True)]


# --- logs ---

NEWS = {
    "no metrics": lambda emitter: emitter.metrics_failed("503"),
    "a handler failed": lambda emitter: emitter.failed("key", ValueError("odd"), MINUTE),
    "a sample was dropped": lambda emitter: emitter.refreshed(
        replace(snapshot(), dropped=(Dropped(QUERY, "node-9", "NaN"),))
    ),
    "warnings": lambda emitter: emitter.refreshed(replace(snapshot(), warnings=("partial",))),
    "classes": lambda emitter: emitter.classified(classification(verdict())),
    "nothing decided": lambda emitter: emitter.classified(classification(verdict(), skipped="no metrics")),
    "at rest": lambda emitter: emitter.planned(at_rest()),
    "taints": lambda emitter: emitter.tainting(node(), frozenset({"a"})),
}


@pytest.mark.parametrize("news", NEWS)
def test_news_are_said_once_and_again_after_an_hour(
    seen: Seen, lines: pytest.LogCaptureFixture, news: str
) -> None:
    for _ in range(3):
        NEWS[news](seen.emitter)
        seen.clock.advance(timedelta(minutes=19))
    assert len(lines.records) == 1
    seen.clock.advance(AGAIN - 3 * timedelta(minutes=19))
    NEWS[news](seen.emitter)
    assert len(lines.records) == 2


def test_an_outage_that_comes_back_is_news_again(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.metrics_failed("503")
    seen.emitter.refreshed(snapshot())
    seen.emitter.metrics_failed("503")
    assert len(lines.records) == 2


def test_a_change_is_said_at_once(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.classified(classification(verdict()))
    seen.emitter.classified(classification(verdict(node_class=NodeClass.UNDER)))
    seen.emitter.planned(at_rest(code="NodeLimit"))
    seen.emitter.planned(at_rest(code="TotalLimit"))
    assert len(lines.records) == 4
    assert "over-utilised nodes: none" in lines.text


def test_a_failure_of_a_handler_is_counted_each_time_and_shown_with_its_traceback(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        seen.emitter.failed("key", ValueError("odd"), MINUTE)
    assert seen.series("handler_errors_total") == {(): 2.0}
    assert "ValueError: odd" in lines.text


def test_trouble_of_the_api_is_a_warning_without_a_traceback(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    """It happens, passes, and where in our code it was met tells nobody anything."""
    seen.emitter.failed("key", Unreachable("connection refused"), MINUTE)
    (record,) = lines.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "connection refused" in record.getMessage()


def test_what_was_said_is_remembered_of_so_many_subjects_and_no_more(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(emit, "_SUBJECTS", 10)
    bounded = Emitter(Metrics(CollectorRegistry()), seen.clock, lambda _: None)
    for number in range(100):
        bounded.tainting(node(f"node-{number}"), frozenset({"a"}))
    assert len(lines.records) == 100
    assert len(bounded._said) == 10
