"""What is said of VMs and nodes, and what is not."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controller.cluster.objects import MigrationState, Vmim
from controller.cluster.queries import Reason
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import ENDED, Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.select import Choice, PassedOver
from controller.evictions.views import Alarm
from controller.policy.model import Mode
from controller.telemetry.events import EventType
from controller.utilization.classify import NodeClass
from tests.builders import START, vmim
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    SECOND,
    classification,
    entry,
    evictions,
    policy,
    slots,
    snapshot,
    verdict,
    vm,
)
from tests.controller.event_builders import ON_NODE_1, ON_VM_1, Observed

AGAIN = HOUR + SECOND
TRIGGERED = EvictionAnswer(Verdict.TRIGGERED, "Eviction triggered evacuation of VMI")
GRANTED = EvictionAnswer(Verdict.GRANTED, "")
ALARM = Alarm("the eviction of vms/vm-1 was granted, so the VM goes down instead of migrating", "digest-1")
PREDICTIVE = policy(mode=Mode.PREDICTIVE)
SHUTDOWN_ALLOWED = policy(evictions=evictions(allow_shutdown=True))


@pytest.fixture
def seen() -> Observed:
    return Observed()


def plan(rest: Reason | None = None, *passed_over: PassedOver, choice: Choice | None = None) -> Plan:
    return Plan("node-1", START, verdict("node-1"), slots(), choice, rest, passed_over)


def passed_over(code: str, text: str = "for a reason", name: str = "vm-1") -> PassedOver:
    return PassedOver(VmKey("vms", name), Reason(code, text))


CHOICE = Choice(vm("vm-1"), "node-2", 0.1, 8.0, "uses 4.0 cores")
NO_USEFUL_MOVE = Reason("NoUsefulMove", "no useful move")


# --- evictions ---


def test_says_why_a_vm_was_evicted_and_where_it_should_go(seen: Observed) -> None:
    seen.observer.planned(plan(choice=CHOICE))
    seen.observer.answered(entry(), TRIGGERED, dry_run=True)
    assert seen.sink.events == []
    seen.observer.answered(entry(), TRIGGERED, dry_run=False)
    said = seen.only
    assert (said.subject, said.type, said.reason) == (ON_VM_1, EventType.NORMAL, "RebalanceStarted")
    assert said.message == "Evicted from over-utilised node node-1, expected at node-2; uses 4.0 cores"


def arrived(target: str, after: timedelta) -> Entry:
    return entry(phase=Phase.SETTLING, target=target, ended_at=START + after, changed_at=START + after)


def test_says_how_long_a_migration_took_and_where_it_really_went(seen: Observed) -> None:
    seen.observer.planned(plan(choice=CHOICE))
    seen.observer.transition(entry(phase=Phase.RUNNING), arrived("node-3", 72 * SECOND))
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (ON_VM_1, EventType.NORMAL, "Rebalanced")
    assert seen.only.message == "Live migration from node-1 to node-3 took 1m12s; it was expected at node-2"


def test_keeps_quiet_about_a_wish_that_came_true_or_is_not_known(seen: Observed) -> None:
    """After a restart nobody knows what was wished."""
    seen.observer.transition(entry(phase=Phase.RUNNING), arrived("node-3", SECOND))
    seen.observer.planned(plan(choice=CHOICE))
    seen.observer.transition(entry(phase=Phase.RUNNING), arrived("node-2", SECOND))
    assert ["expected" in said.message for said in seen.sink.events] == [False, False]


def failed(name: str, reason: str, created: datetime) -> Vmim:
    state = MigrationState(failure_reason=reason)
    return vmim(name=name, uid=name, phase="Failed", created=created, migration_state=state)


def test_says_what_kubevirt_says_of_the_attempt_that_failed_last() -> None:
    """In whatever order a list brings them; and not of somebody else's, before ours."""
    attempts = (
        failed("old", "long ago", START + HOUR),
        failed("b", "timeout", START + MINUTE),
        failed("a", "no route", START),
    )
    seen = Observed(vmims=attempts)
    before = entry(phase=Phase.RUNNING, before=["old"])
    seen.observer.transition(before, replace(before, phase=Phase.RETRYING, attempts_failed=1))
    assert (seen.only.type, seen.only.reason) == (EventType.WARNING, "MigrationFailed")
    assert seen.only.message == "Attempt 1 to migrate it from node-1 failed; timeout; KubeVirt tries again"


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (Phase.STUCK, "MigrationStuck"),
        (Phase.CANCELLED, "MigrationCancelled"),
        (Phase.LOST, "EvictionLost"),
    ],
)
def test_warns_of_a_migration_that_does_not_end_well(seen: Observed, phase: Phase, reason: str) -> None:
    before = entry(phase=Phase.PENDING)
    seen.observer.transition(before, replace(before, phase=phase, changed_at=START + 30 * MINUTE))
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (ON_VM_1, EventType.WARNING, reason)
    assert "30m" in seen.only.message


def test_says_nothing_of_migrations_that_others_asked_for(seen: Observed) -> None:
    for phase in Phase:
        before = replace(entry(phase=Phase.PENDING), ours=False)
        seen.observer.transition(before, replace(before, phase=phase, attempts_failed=1))
    assert seen.sink.events == []


def test_says_nothing_of_steps_that_are_part_of_every_move(seen: Observed) -> None:
    steps = set(Phase) - ENDED - {Phase.SETTLING, Phase.STUCK} | {Phase.DONE, Phase.GONE}
    for phase in sorted(steps):
        seen.observer.transition(entry(), entry(phase=phase))
    seen.observer.transition(None, entry())
    seen.observer.transition(entry(), None)
    assert seen.sink.events == []


def test_says_that_a_vm_has_arrived_though_nobody_watched_it_move(seen: Observed) -> None:
    """It was said to start, and a restart came in between; KubeVirt speaks of what others asked for."""
    seen.observer.transition(None, replace(arrived("node-3", 72 * SECOND), ours=False))
    assert seen.sink.events == []
    seen.observer.transition(None, arrived("node-3", 72 * SECOND))
    assert (seen.only.reason, seen.only.message) == (
        "Rebalanced",
        "Live migration from node-1 to node-3 took 1m12s",
    )


@pytest.mark.parametrize("verdict", [Verdict.NOT_MIGRATABLE, Verdict.DISRUPTION_BUDGET, Verdict.REFUSED])
def test_a_refusal_is_said_on_the_vm_once_an_hour(seen: Observed, verdict: Verdict) -> None:
    for _ in range(3):
        seen.observer.answered(entry(), EvictionAnswer(verdict, "webhook says no"), dry_run=True)
    assert (seen.only.subject, seen.only.type) == (ON_VM_1, EventType.WARNING)
    assert (seen.only.reason, seen.only.message) == (
        "EvictionRefused",
        "The API refused its eviction: webhook says no",
    )


@pytest.mark.parametrize("verdict", [Verdict.WEBHOOK_DOWN, Verdict.FORBIDDEN])
def test_trouble_of_the_api_is_said_on_the_node_and_not_on_each_vm(seen: Observed, verdict: Verdict) -> None:
    for name in ("vm-1", "vm-2"):
        seen.observer.answered(entry(name), EvictionAnswer(verdict, "no"), dry_run=False)
    assert (seen.only.subject, seen.only.reason) == (ON_NODE_1, "EvictionFailed")
    assert seen.only.message == "VM vms/vm-1 could not be evicted: no"


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict.IN_PROGRESS,
        Verdict.MIGRATION_TARGET,
        Verdict.POD_GONE,
        Verdict.POD_REPLACED,
        Verdict.THROTTLED,
        Verdict.UNREACHABLE,
        Verdict.NO_ANSWER,
    ],
)
def test_answers_that_pass_by_themselves_are_not_said(seen: Observed, verdict: Verdict) -> None:
    seen.observer.answered(entry(), EvictionAnswer(verdict, ""), dry_run=False)
    assert seen.sink.events == []


# --- VMs that go down ---


def test_the_alarm_is_said_on_the_vm_that_went_down(seen: Observed) -> None:
    seen.observer.answered(entry("vm-2"), GRANTED, dry_run=False)
    assert seen.sink.events == [], "its pod may have finished meanwhile"
    seen.observer.alarmed(ALARM, entry())
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (
        ON_VM_1,
        EventType.WARNING,
        "ShutdownAlarm",
    )
    assert "all evicting has stopped" in seen.only.message


def test_a_dry_run_that_would_take_the_vm_down_is_said(seen: Observed) -> None:
    seen.observer.answered(entry(), GRANTED, dry_run=True)
    assert (seen.only.reason, seen.only.message) == (
        "EvictionRefused",
        "A dry run of its eviction says that the VM would go down",
    )


def test_a_shutdown_that_the_policy_allows_is_said_loudly(seen: Observed) -> None:
    seen.policy = SHUTDOWN_ALLOWED
    seen.observer.answered(entry(), GRANTED, dry_run=True)
    seen.observer.answered(entry(), GRANTED, dry_run=False)
    assert (seen.only.type, seen.only.reason) == (EventType.WARNING, "ShutDown")


# --- notices ---


@pytest.mark.parametrize(
    "code", ["NotLiveMigratable", "NoEvictionStrategy", "UnknownEvictionStrategy", "FitsNowhere", "Breaker"]
)
def test_says_once_an_hour_what_a_person_can_do_something_about(seen: Observed, code: str) -> None:
    for text in ("this", "or that"):
        seen.observer.planned(plan(None, passed_over(code, text), choice=CHOICE))
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (ON_VM_1, EventType.WARNING, code)
    assert seen.only.message == "Not moved off over-utilised node node-1: this"
    assert seen.only.notice
    seen.clock.advance(AGAIN)
    seen.observer.planned(plan(None, passed_over(code)))
    assert seen.sink.reasons == [code, code]


@pytest.mark.parametrize(
    "code", ["NoGain", "CoolDown", "TooYoung", "OptedOut", "NamespaceExcluded", "NotFirst", "Refused"]
)
def test_what_is_wanted_or_passes_by_itself_is_not_said(seen: Observed, code: str) -> None:
    seen.observer.planned(plan(None, passed_over(code), choice=CHOICE))
    assert seen.sink.events == []


def test_each_vm_and_each_reason_has_an_hour_of_its_own(seen: Observed) -> None:
    seen.observer.planned(plan(None, passed_over("FitsNowhere"), passed_over("FitsNowhere", name="vm-2")))
    seen.observer.planned(plan(None, passed_over("Breaker")))
    assert [(e.subject.name, e.reason) for e in seen.sink.events] == [
        ("vm-1", "FitsNowhere"),
        ("vm-2", "FitsNowhere"),
        ("vm-1", "Breaker"),
    ]


def test_a_notice_that_was_not_taken_is_said_the_next_time(seen: Observed) -> None:
    """In a storm, everybody has a turn; it is not always the first ones that are heard."""
    seen.sink.takes = False
    seen.observer.planned(plan(None, passed_over("FitsNowhere")))
    seen.sink.takes = True
    seen.observer.planned(plan(None, passed_over("FitsNowhere")))
    assert seen.sink.reasons == ["FitsNowhere"]


def test_nothing_is_said_of_a_vm_that_has_gone(seen: Observed) -> None:
    seen.observer.planned(plan(None, passed_over("FitsNowhere", name="gone")))
    assert seen.sink.events == []


def test_says_on_the_node_that_nothing_can_be_moved_from_it_and_why(seen: Observed) -> None:
    rest = [
        passed_over("NoGain", "too small"),
        passed_over("NoGain", "too small", "vm-2"),
        passed_over("CoolDown"),
    ]
    seen.observer.planned(plan(NO_USEFUL_MOVE, *rest))
    assert seen.sink.events == []
    seen.clock.advance(5 * MINUTE)
    seen.observer.planned(plan(NO_USEFUL_MOVE, *rest))
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (
        ON_NODE_1,
        EventType.NORMAL,
        "NoUsefulMove",
    )
    assert seen.only.message == (
        "Over-utilised (so the test says), and sends no VM: no useful move"
        "; 2 x NoGain (too small); 1 x CoolDown (for a reason)"
    )


def test_a_node_that_has_nothing_to_send_between_two_moves_is_no_news(seen: Observed) -> None:
    """Its metrics do not show yet that it has been relieved."""
    for between in (plan(choice=CHOICE), plan(Reason("NodeLimit", "1 of 1"))) * 2:
        seen.observer.planned(plan(NO_USEFUL_MOVE))
        seen.clock.advance(4 * MINUTE)
        seen.observer.planned(between)
    assert seen.sink.events == []


def test_a_node_that_is_over_utilised_again_counts_from_now(seen: Observed) -> None:
    seen.observer.planned(plan(NO_USEFUL_MOVE))
    look(seen, replace(verdict("node-1"), node_class=NodeClass.APPROPRIATE), KNOWN, after=MINUTE)
    seen.clock.advance(HOUR)
    seen.observer.planned(plan(NO_USEFUL_MOVE))
    assert seen.sink.events == []


@pytest.mark.parametrize("code", ["NodeBreaker", "ShutdownAlarm"])
def test_warns_on_the_node_of_what_keeps_it_from_sending(seen: Observed, code: str) -> None:
    for _ in range(2):
        seen.observer.planned(plan(Reason(code, "it rests")))
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (ON_NODE_1, EventType.WARNING, code)


@pytest.mark.parametrize("code", ["UnsettledArrivals", "NodeLimit", "TotalLimit", "Relieved"])
def test_a_node_that_waits_for_its_turn_is_no_news(seen: Observed, code: str) -> None:
    seen.observer.planned(plan(Reason(code, "later")))
    assert seen.sink.events == []


# --- nodes without metrics ---

UNKNOWN = replace(verdict("node-1", NodeClass.UNKNOWN), reason="no value younger than 3m")
KNOWN = verdict("node-2", NodeClass.APPROPRIATE)


def look(seen: Observed, *verdicts: object, after: timedelta) -> None:
    seen.clock.advance(after)
    seen.observer.classified(classification(*verdicts))  # type: ignore[arg-type]


def test_a_node_without_metrics_is_told_apart_once_it_lasts(seen: Observed) -> None:
    look(seen, UNKNOWN, KNOWN, after=SECOND)
    look(seen, UNKNOWN, KNOWN, after=4 * MINUTE)
    assert seen.sink.events == []
    look(seen, UNKNOWN, KNOWN, after=MINUTE)
    look(seen, UNKNOWN, KNOWN, after=MINUTE)
    assert (seen.only.subject, seen.only.type, seen.only.reason) == (
        ON_NODE_1,
        EventType.WARNING,
        "NoMetrics",
    )
    assert seen.only.message == "Neither sends nor gets VMs: no value younger than 3m"


def test_a_node_that_lacks_metrics_now_and_then_is_no_news(seen: Observed) -> None:
    for _ in range(4):
        look(seen, UNKNOWN, KNOWN, after=3 * MINUTE)
        look(seen, replace(UNKNOWN, node_class=NodeClass.UNDER), KNOWN, after=SECOND)
    assert seen.sink.events == []


def test_metrics_that_are_missing_altogether_are_not_said_on_each_node(seen: Observed) -> None:
    for _ in range(3):
        look(seen, UNKNOWN, replace(UNKNOWN, node="node-2"), after=5 * MINUTE)
    assert seen.sink.events == []


# --- silence ---


@pytest.mark.parametrize("in_force", [PREDICTIVE, None])
def test_says_nothing_unless_the_policy_is_automatic(seen: Observed, in_force: object) -> None:
    """Predictive changes nothing in the cluster, and an Event is a change."""
    seen.policy = in_force  # type: ignore[assignment]
    for _ in range(2):
        seen.observer.planned(plan(NO_USEFUL_MOVE, passed_over("FitsNowhere"), choice=CHOICE))
        seen.clock.advance(HOUR)
    for answered in Verdict:
        seen.observer.answered(entry(), EvictionAnswer(answered, ""), dry_run=False)
    seen.observer.alarmed(ALARM, entry())
    for phase in Phase:
        seen.observer.transition(entry(phase=Phase.PENDING), replace(entry(phase=phase), attempts_failed=1))
    for _ in range(3):
        look(seen, UNKNOWN, KNOWN, after=5 * MINUTE)
    assert seen.sink.events == []


def test_what_is_about_no_object_is_not_said(seen: Observed) -> None:
    seen.observer.refreshing()
    seen.observer.refreshed(snapshot())
    seen.observer.metrics_failed("no route to host")
    seen.observer.failed("key", RuntimeError(), SECOND)
    assert seen.sink.events == []
