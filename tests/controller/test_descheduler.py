"""How a VM is asked for: rehearsed, reserved, checked again, and never shut down."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.keys import Consider
from controller.policy.model import Limits, Mode
from tests.controller.controlled_cluster import ControlledCluster, pod, with_evictions, with_vms
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND, entry

PREDICTIVE = replace(POLICY, mode=Mode.PREDICTIVE)
NOT_MIGRATABLE = EvictionAnswer(Verdict.NOT_MIGRATABLE, "it is not live-migratable")
GRANTED = EvictionAnswer(Verdict.GRANTED, "")


# --- asking ---


def test_rehearses_before_it_evicts() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    assert [(r.pod, r.dry_run) for r in cluster.api.requests] == [(pod("vm-1"), True), (pod("vm-1"), False)]
    assert cluster.phases() == {"vm-1": Phase.REQUESTED}


def test_reserves_the_slot_before_any_request() -> None:
    """A crash or a second thread in between must not let another VM go."""
    cluster = with_vms("vm-1")
    held: list[dict[str, Phase]] = []
    cluster.api.on_request = lambda _: held.append(cluster.phases())
    cluster.start()
    assert held == [{"vm-1": Phase.REQUESTED}] * 2


@pytest.mark.parametrize(
    "rehearsal", [NOT_MIGRATABLE, GRANTED, EvictionAnswer(Verdict.DISRUPTION_BUDGET, "")]
)
def test_what_a_rehearsal_does_not_call_a_migration_is_never_asked_for(rehearsal: EvictionAnswer) -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = rehearsal
    cluster.start()
    assert cluster.api.evicted == []
    assert cluster.phases() == {}


def test_a_refused_vm_is_not_asked_again_and_another_is_taken_at_once() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.rehearsals[pod("vm-1")] = NOT_MIGRATABLE
    cluster.start()
    assert cluster.api.rehearsed == [pod("vm-1"), pod("vm-2")]
    assert cluster.api.evicted == [pod("vm-2")]
    cluster.migrate("vm-2")
    cluster.pass_time(14 * MINUTE)
    assert cluster.api.rehearsed.count(pod("vm-1")) == 1
    cluster.pass_time(2 * MINUTE)
    assert cluster.api.rehearsed.count(pod("vm-1")) == 2, "a while later it may have changed"


def test_an_older_webhook_that_was_out_of_reach_does_not_keep_all_vms_for_a_cool_down() -> None:
    """Meanwhile each VM seems to be kept by its disruption budget."""
    cluster = with_vms("vm-1", "vm-2")
    for name in ("vm-1", "vm-2"):
        cluster.api.rehearsals[pod(name)] = EvictionAnswer(Verdict.DISRUPTION_BUDGET, "budget")
    cluster.start()
    cluster.pass_time(1 * MINUTE)
    assert cluster.api.rehearsed == [pod("vm-1"), pod("vm-2")], "not in a loop"
    cluster.api.rehearsals.clear()
    cluster.pass_time(POLICY.effective_settle + POLICY.metrics.refresh_interval)
    assert cluster.api.evicted[:1] == [pod("vm-1")]


def test_an_eviction_refused_after_its_rehearsal_gives_the_slot_back() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.answers[pod("vm-1")] = NOT_MIGRATABLE
    cluster.start()
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]
    assert cluster.phases() == {"vm-2": Phase.REQUESTED}


def test_as_many_go_at_once_as_the_limit_of_the_node_allows() -> None:
    cluster = with_vms("vm-1", "vm-2", "vm-3", policy=with_evictions(POLICY, limits=Limits(2, 5)))
    cluster.start()
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]


def test_does_not_empty_a_node_of_vms_that_all_refuse() -> None:
    cluster = with_vms("vm-1", "vm-2", "vm-3")
    for name in ("vm-1", "vm-2", "vm-3"):
        cluster.api.rehearsals[pod(name)] = NOT_MIGRATABLE
    cluster.start()
    cluster.pass_time(5 * MINUTE)
    assert cluster.api.rehearsed == [pod(name) for name in ("vm-1", "vm-2", "vm-3")]
    assert cluster.rests() == {"node-1": "NoUsefulMove"}


@pytest.mark.parametrize(
    "trouble",
    [Verdict.THROTTLED, Verdict.WEBHOOK_DOWN, Verdict.UNREACHABLE, Verdict.FORBIDDEN],
)
def test_trouble_of_the_api_is_not_held_against_the_vm(trouble: Verdict) -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(trouble, "later")
    cluster.start()
    assert cluster.api.rehearsed == [pod("vm-1")], "another VM would fare no better"
    assert cluster.descheduler.ledger.refusals == {}
    del cluster.api.rehearsals[pod("vm-1")]
    cluster.pass_time(31 * SECOND)
    assert cluster.api.evicted == [pod("vm-1")]


def test_a_vm_whose_dry_run_hangs_does_not_block_its_node() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.NO_ANSWER, "timed out")
    cluster.start()
    assert cluster.api.rehearsed == [pod("vm-1")]
    cluster.pass_time(31 * SECOND)
    assert cluster.api.rehearsed[1] == pod("vm-2")


def test_comes_back_when_the_server_asks_it_to() -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.THROTTLED, "busy", 7 * SECOND)
    cluster.start()
    del cluster.api.rehearsals[pod("vm-1")]
    cluster.pass_time(6 * SECOND)
    assert cluster.api.evicted == []
    cluster.pass_time(SECOND)
    assert cluster.api.evicted == [pod("vm-1")]


def test_a_node_that_has_calmed_down_meanwhile_is_not_asked_again() -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.THROTTLED, "busy", 40 * SECOND)
    cluster.start()
    cluster.metrics.values["node-1"] = 0.3
    cluster.pass_time(5 * MINUTE)
    assert len(cluster.api.requests) == 1


@pytest.mark.parametrize("verdict", [Verdict.POD_GONE, Verdict.POD_REPLACED, Verdict.MIGRATION_TARGET])
def test_what_the_stores_do_not_show_yet_is_waited_for(verdict: Verdict) -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(verdict, "")
    cluster.start()
    assert cluster.api.rehearsed == [pod("vm-1")]
    assert (cluster.phases(), cluster.descheduler.ledger.refusals) == ({}, {})


# --- checking again before acting ---


def test_plans_again_when_the_ledger_has_changed_meanwhile() -> None:
    """Another thread took a slot between the look and the reservation."""
    cluster = with_vms("vm-1")
    held: list[set[str]] = []

    def disturb(_: Plan) -> None:
        if not cluster.observer.plans:
            cluster.descheduler._ledger.adopt(entry("vm-9", source="node-2", target="node-3"))

    cluster.observer.on_planned = disturb
    cluster.api.on_request = lambda _: held.append(set(cluster.phases()))
    cluster.start()
    assert [p.slots.total_used for p in cluster.observer.plans[:2]] == [0, 1]
    assert held == [{"vm-1", "vm-9"}] * 2, "nothing was sent without a slot of its own"


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda cluster: cluster.mark("vm-1", ours=False),
        lambda cluster: cluster.attempt("vm-1", "Pending"),
        lambda cluster: cluster.stop("vm-1"),
    ],
    ids=["drained", "migrated by a user", "gone"],
)
def test_a_vm_that_changed_between_plan_and_request_is_not_asked(
    meanwhile: Callable[[ControlledCluster], None],
) -> None:
    cluster = with_vms("vm-1")

    def change(_: Plan) -> None:
        if not cluster.observer.plans:
            meanwhile(cluster)

    cluster.observer.on_planned = change
    cluster.start()
    assert cluster.api.requests == []
    assert Phase.REQUESTED not in cluster.phases().values()


def test_nothing_is_sent_under_a_policy_that_was_replaced() -> None:
    cluster = with_vms("vm-1")

    def replace_policy(_: Plan) -> None:
        cluster.policy = PREDICTIVE

    cluster.observer.on_planned = replace_policy
    cluster.start()
    assert cluster.api.requests == []
    assert cluster.phases() == {}


def test_nothing_is_evicted_on_a_classification_that_is_too_old() -> None:
    """The refresh hangs, so that nobody classifies anew, and another event wakes the node."""
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.mark("vm-1")
    cluster.work()
    cluster.clock.advance(POLICY.metrics.max_age + SECOND)
    cluster.descheduler.handle(Consider("node-1"))
    assert len(cluster.observer.plans) == 2, "the first, and one that found the slot taken"
    cluster.pass_time(SECOND)
    cluster.descheduler.handle(Consider("node-1"))
    assert len(cluster.observer.plans) > 2, "the refresh has come back"


# --- no VM is ever shut down by us ---


def test_the_shutdown_alarm_stops_all_evicting() -> None:
    cluster = with_vms("vm-1", "vm-2", hot=("node-1", "node-2"))
    cluster.add_vm("vm-3", "node-2")
    cluster.api.answers[pod("vm-1")] = GRANTED
    cluster.start()
    assert len(cluster.observer.alarms) == 1
    assert "vms/vm-1" in cluster.observer.alarms[0].reason
    assert cluster.observer.alarms[0].policy_digest == POLICY.digest
    cluster.stop("vm-1")
    cluster.pass_time(24 * HOUR)
    assert cluster.api.evicted == [pod("vm-1")]
    assert set(cluster.rests().values()) == {"ShutdownAlarm"}


def test_an_alarm_from_before_a_restart_still_stops_all_evicting() -> None:
    cluster = with_vms("vm-1")
    cluster.descheduler.start(Alarm("vm-0 went down", POLICY.digest))
    cluster.pass_time(HOUR)
    assert cluster.api.requests == []


def test_the_alarm_holds_until_the_policy_changes() -> None:
    cluster = with_vms("vm-1")
    cluster.descheduler._ledger.raise_alarm(Alarm("vm-0 went down", POLICY.digest))
    cluster.start()
    assert cluster.api.requests == []
    cluster.policy = replace(POLICY, digest="digest-2")
    cluster.pass_time(MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


def test_who_allows_shutdowns_gets_no_alarm() -> None:
    cluster = with_vms("vm-1", policy=with_evictions(POLICY, allow_shutdown=True))
    cluster.api.rehearsals[pod("vm-1")] = GRANTED
    cluster.api.answers[pod("vm-1")] = GRANTED
    cluster.start()
    assert (cluster.api.evicted, cluster.observer.alarms) == ([pod("vm-1")], [])


# --- Predictive, and no policy ---


def test_predictive_decides_and_reports_and_sends_nothing() -> None:
    cluster = with_vms("vm-1", policy=PREDICTIVE)
    cluster.start()
    cluster.pass_time(HOUR)
    assert (cluster.api.requests, cluster.phases()) == ([], {})
    assert {plan.choice.candidate.vmi.name for plan in cluster.observer.plans if plan.choice} == {"vm-1"}


def test_without_a_policy_it_waits() -> None:
    cluster = with_vms("vm-1", policy=None)
    cluster.start()
    cluster.pass_time(HOUR)
    assert (cluster.metrics.asked, cluster.api.requests, cluster.observer.plans) == ([], [], [])
    cluster.policy = POLICY
    cluster.pass_time(6 * SECOND)
    assert cluster.api.evicted == [pod("vm-1")]
