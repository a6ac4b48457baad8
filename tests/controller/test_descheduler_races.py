"""What happens between two steps, and what must not come again and again."""

from dataclasses import replace

import msgspec
import pytest

from controller.cluster.objects import MigrationState
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Entry, Phase
from controller.evictions.ledger import Ledger
from controller.evictions.views import Alarm, Refusal
from controller.policy.model import Cooldown, Limits, Mode
from tests.builders import launcher, node, vmi
from tests.controller.controlled_cluster import pod, with_evictions, with_vms
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND, metrics

PREDICTIVE = replace(POLICY, mode=Mode.PREDICTIVE)
NO_ANSWER = EvictionAnswer(Verdict.NO_ANSWER, "timed out")
NOT_MIGRATABLE = EvictionAnswer(Verdict.NOT_MIGRATABLE, "no")
GRANTED = EvictionAnswer(Verdict.GRANTED, "")


def test_rebuild_when_the_policy_comes_late() -> None:
    cluster = with_vms("vm-1", "vm-2", policy=None)
    cluster.mark("vm-2")
    cluster.start()
    cluster.policy = POLICY
    cluster.pass_time(6 * SECOND)
    assert cluster.api.evicted == []


def test_cooldowns_when_the_policy_comes_late() -> None:
    cluster = with_vms("vm-1", "vm-2", policy=None)
    cluster.attempt("vm-1", "Succeeded")
    cluster.start()
    cluster.policy = POLICY
    cluster.pass_time(6 * SECOND)
    assert cluster.api.evicted == [pod("vm-2")]


def test_a_former_vmis_failures_are_not_held_against_its_successor_or_node() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.cool("node-1")
    cluster.mark("vm-1")
    for n in (1, 2, 3):
        cluster.attempt("vm-1", "Failed", number=n)
    cluster.work()
    cluster.pass_time(12 * HOUR)
    cluster.stop("vm-1")
    cluster.caches.vmis.apply("ADDED", vmi("vm-1", uid="vmi-new", created=cluster.clock.now()))
    cluster.caches.launchers.apply("ADDED", launcher("vm-1", vmi_uid="vmi-new", uid="pod-new"))
    cluster.work()
    assert "vmi-new" not in cluster.descheduler.ledger.finished
    assert all(
        f.at < cluster.clock.now() - HOUR for f in cluster.descheduler.ledger.failures.get("node-1", ())
    )


def test_a_lost_eviction_is_not_sent_again_and_again() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.pass_time(14 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


@pytest.mark.timeout(5)
def test_cooldown_base_zero_does_not_loop() -> None:
    cluster = with_vms("vm-1", policy=with_evictions(POLICY, cooldown=Cooldown(0 * SECOND, 0 * SECOND, HOUR)))
    cluster.api.rehearsals[pod("vm-1")] = NOT_MIGRATABLE

    def few(_):
        assert len(cluster.api.requests) < 100

    cluster.api.on_request = few
    cluster.start()
    assert len(cluster.api.requests) < 10


def test_what_an_admin_cancelled_is_not_evicted_again_at_once() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.work()
    cluster.attempt("vm-1", "Failed")
    cluster.unmark("vm-1")
    cluster.pass_time(10 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


def test_refusal_says_something() -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = GRANTED
    cluster.start()
    assert cluster.descheduler.ledger.refusals["vmi-vm-1"].reason


def test_unknown_node_is_no_destination() -> None:
    cluster = with_vms("vm-1", idle=("node-8", "node-9"))
    cluster.caches.nodes.apply("MODIFIED", node("node-8", unschedulable=True, resource_version="9"))
    del cluster.metrics.values["node-9"]
    cluster.start()
    cluster.policy = replace(POLICY, metrics=metrics(min_coverage=0.1))
    cluster.pass_time(MINUTE)
    assert cluster.observer.classifications[-1].class_of("node-9").name == "UNKNOWN"
    assert cluster.api.evicted == []


def test_retry_after_is_respected() -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.THROTTLED, "busy", 2 * MINUTE)
    cluster.start()
    cluster.pass_time(110 * SECOND)
    assert len(cluster.api.requests) == 1


def test_a_released_slot_wakes_the_other_node() -> None:
    cluster = with_vms("vm-1", hot=("node-1", "node-2"), policy=with_evictions(POLICY, limits=Limits(1, 1)))
    cluster.add_vm("vm-2", "node-2")
    cluster.heat("node-2", 0.8)
    cluster.api.rehearsals[pod("vm-1")] = NOT_MIGRATABLE

    def meanwhile(request):
        if request.pod == pod("vm-1"):
            cluster.work()  # another thread considers node-2 while the answer is awaited

    cluster.api.on_request = meanwhile
    cluster.start()
    assert cluster.rests()["node-2"] != "TotalLimit" or cluster.api.evicted
    assert pod("vm-2") in cluster.api.evicted


def test_cordoned_between_plan_and_request() -> None:
    cluster = with_vms("vm-1")
    planned = cluster.observer.planned

    def cordon(plan):
        cluster.caches.nodes.apply("MODIFIED", node("node-1", unschedulable=True, resource_version="9"))
        planned(plan)

    cluster.observer.planned = cordon
    cluster.start()
    assert cluster.api.requests == []


def test_unknown_is_told() -> None:
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.start()
    assert cluster.observer.phases_of("vm-1") == [Phase.REQUESTED, Phase.UNKNOWN]


def test_an_answer_noted_between_a_look_and_its_note_lets_it_look_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mark shows while the eviction is still being answered: two threads change the entry."""
    cluster = with_vms("vm-1")
    cluster.start()
    observe = Ledger.observe

    def overtaken(ledger: Ledger, before: Entry, after: Entry, rest: Refusal | None) -> bool:
        monkeypatch.setattr(Ledger, "observe", observe)
        ledger.confirm(before.pod_uid)
        return observe(ledger, before, after, rest)

    monkeypatch.setattr(Ledger, "observe", overtaken)
    cluster.mark("vm-1")
    cluster.work()
    cluster.pass_time(SECOND)
    assert cluster.observer.failures == []
    assert cluster.phases() == {"vm-1": Phase.PENDING}


def test_alarm_between_rehearsal_and_request() -> None:
    cluster = with_vms("vm-1")
    alarm = Alarm("x", POLICY.digest)
    cluster.api.on_request = lambda r: r.dry_run and cluster.descheduler._ledger.raise_alarm(alarm)
    cluster.start()
    assert cluster.api.evicted == []


def test_predictive_between_rehearsal_and_request() -> None:
    cluster = with_vms("vm-1")

    def switch(r):
        cluster.policy = PREDICTIVE

    cluster.api.on_request = switch
    cluster.start()
    assert cluster.api.evicted == []


def test_follow_keys_of_the_rebuild_are_not_dropped_by_another_thread() -> None:
    cluster = with_vms("vm-1")
    cluster.mark("vm-1")
    original = cluster.descheduler._ledger.replace_all

    def slowly(*given):
        original(*given)
        cluster.work()  # another worker thread takes the Follow keys that the rebuild has just added

    cluster.descheduler._ledger.replace_all = slowly
    cluster.start()
    assert cluster.phases() == {"vm-1": Phase.PENDING}
    cluster.pass_time(31 * MINUTE)
    assert cluster.phases() == {"vm-1": Phase.STUCK}


def test_an_alarm_does_not_come_back_with_the_policy_that_it_was_raised_under() -> None:
    cluster = with_vms("vm-1")
    cluster.descheduler._ledger.raise_alarm(Alarm("x", POLICY.digest))
    cluster.start()
    assert cluster.rests() == {"node-1": "ShutdownAlarm"}
    cluster.policy = replace(PREDICTIVE, digest="another")
    cluster.pass_time(MINUTE)
    cluster.policy = POLICY
    cluster.pass_time(MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


def test_a_deleted_vmim_does_not_end_the_cool_down() -> None:
    """The VMI itself remembers its last migration."""
    cluster = with_vms("vm-1", "vm-2")
    now = cluster.clock.now()
    state = MigrationState(
        start_timestamp=now - 2 * MINUTE,
        end_timestamp=now - MINUTE,
        source_node="node-8",
        target_node="node-1",
        completed=True,
        migration_uid="vmim-gone",
    )
    cluster.caches.vmis.apply("MODIFIED", vmi("vm-1", migration_state=state, resource_version="5"))
    cluster.start()
    cluster.pass_time(10 * MINUTE)
    assert pod("vm-1") not in cluster.api.evicted


def test_limits_are_checked_again_after_the_dry_run() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.on_request = lambda _: cluster.attempt("vm-2", "Running")
    cluster.start()
    assert cluster.api.evicted == []


def test_one_odd_answer_does_not_stop_all_evicting_for_a_day() -> None:
    cluster = with_vms("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.THROTTLED, "busy", 24 * HOUR)
    cluster.start()
    del cluster.api.rehearsals[pod("vm-1")]
    cluster.pass_time(6 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


def test_an_alarm_holds_though_the_policy_was_swapped_during_the_request() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.answers[pod("vm-1")] = GRANTED

    def swap(request) -> None:
        if not request.dry_run:
            cluster.policy = replace(POLICY, digest="another")

    cluster.api.on_request = swap
    cluster.start()
    cluster.pass_time(5 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]


def test_a_launcher_that_finished_meanwhile_raises_no_alarm() -> None:
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = GRANTED

    def power_off(request) -> None:
        if not request.dry_run:
            (there,) = cluster.caches.launchers.lister.list()
            done = msgspec.structs.replace(there, phase="Succeeded")
            done = msgspec.structs.replace(
                done, metadata=msgspec.structs.replace(done.metadata, resource_version="7")
            )
            cluster.caches.launchers.apply("MODIFIED", done)

    cluster.api.on_request = power_off
    cluster.start()
    assert cluster.descheduler.ledger.alarm is None
