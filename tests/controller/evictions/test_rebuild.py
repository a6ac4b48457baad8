"""There is no private storage: what was on the move, and what to remember, is read off the cluster."""

from datetime import datetime, timedelta

import pytest

from controller.cluster.objects import (
    ANNOTATION_EVACUATION_MIGRATION,
    ANNOTATION_EVICTION_SOURCE,
    MigrationState,
    PhaseTransition,
    Vmi,
    Vmim,
)
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.rebuild import finished_migrations, finished_record, found_in_flight, found_settling
from tests.builders import START, launcher, vmi, vmim
from tests.controller.decision_builders import HOUR, MINUTE, SECOND, SMALL, finished, known, timing

TIMING = timing()
NOW = START + HOUR
OURS = {ANNOTATION_EVICTION_SOURCE: "descheduler"}
EVACUATION = {ANNOTATION_EVACUATION_MIGRATION: "node-1"}
MARKED = vmi(annotations=OURS, evacuation_node_name="node-1")


def attempt(
    number: int = 1,
    phase: str = "Running",
    *,
    created: datetime = NOW - MINUTE,
    ended: datetime | None = None,
    state: MigrationState | None = None,
    evacuation: bool = True,
    priority: str = "system-maintenance",
) -> Vmim:
    transitions = [PhaseTransition("Pending", created)]
    if ended is not None:
        transitions.append(PhaseTransition(phase, ended))
    return vmim(
        name=f"m-{number}",
        uid=f"vmim-{number}",
        phase=phase,
        created=created,
        phase_transition_timestamps=transitions,
        migration_state=state,
        annotations=EVACUATION if evacuation else {},
        priority=priority,
    )


def found(which: Vmi, *migrations: Vmim, pod: bool = True) -> Entry | None:
    pod_seen = launcher() if pod else None
    return found_in_flight(known(which, *migrations, source_pod=pod_seen, load=SMALL), TIMING, NOW)


def sure(entry: Entry | None) -> Entry:
    assert entry is not None
    return entry


# --- on the move ---


def test_nothing_on_the_move_gives_nothing() -> None:
    assert found(vmi()) is None
    assert found(vmi(), attempt(phase="Succeeded"), attempt(2, "Failed")) is None


def test_a_mark_of_ours_is_an_eviction_whose_migration_has_not_begun() -> None:
    entry = sure(found(MARKED))
    assert entry == Entry(
        pod_uid="pod-vm-1",
        pod="virt-launcher-vm-1",
        vm=VmKey("vms", "vm-1"),
        vmi_uid="vmi-vm-1",
        source="node-1",
        phase=Phase.PENDING,
        opened_at=NOW,
        changed_at=NOW,
        load=SMALL,
        ours=True,
        mark_seen=True,
    )


def test_somebody_elses_mark_counts_once_a_migration_exists() -> None:
    """It may be there for an outside controller that never acts."""
    drained = vmi(evacuation_node_name="node-1")
    assert found(drained) is None
    entry = sure(found(drained, attempt(priority="system-critical")))
    assert (entry.ours, entry.phase) == (False, Phase.RUNNING)


@pytest.mark.parametrize(
    ("vmim_phase", "phase"),
    [
        ("", Phase.PENDING),
        ("Scheduling", Phase.SCHEDULING),
        ("Running", Phase.RUNNING),
        ("Odd", Phase.RUNNING),
    ],
)
def test_takes_up_a_migration_where_it_stands(vmim_phase: str, phase: Phase) -> None:
    entry = sure(found(MARKED, attempt(phase=vmim_phase)))
    assert (entry.phase, entry.vmim_uid, entry.opened_at) == (phase, "vmim-1", NOW - MINUTE)


def test_a_users_migration_counts_without_any_mark() -> None:
    entry = sure(found(vmi(), attempt(evacuation=False)))
    assert (entry.ours, entry.source, entry.phase) == (False, "node-1", Phase.RUNNING)


def test_knows_source_and_target_of_a_vm_that_has_just_switched() -> None:
    state = MigrationState(source_node="node-1", target_node="node-2", migration_uid="vmim-1")
    at_target = vmi(node="node-2", migration_state=state)
    for migration in (attempt(evacuation=False, state=state), attempt(evacuation=False)):
        entry = sure(found(at_target, migration))
        assert (entry.source, entry.target, entry.phase) == ("node-1", "node-2", Phase.RUNNING)


def test_an_earlier_migrations_state_does_not_tell_the_source() -> None:
    old = MigrationState(source_node="node-7", target_node="node-1", migration_uid="vmim-0", completed=True)
    assert sure(found(vmi(migration_state=old), attempt(evacuation=False))).source == "node-1"


def test_is_known_by_its_vmim_where_the_pod_was_not_seen() -> None:
    assert sure(found(MARKED, attempt(), pod=False)).pod_uid == "vmim-1"
    assert sure(found(MARKED, pod=False)).pod_uid == "vmi-vm-1"


def test_old_enough_is_stuck_from_the_start() -> None:
    assert sure(found(MARKED, attempt(created=NOW - TIMING.migration))).phase is Phase.STUCK


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_vm_that_has_stopped_moves_nowhere(phase: str) -> None:
    """Its VMIM may not be final yet. An ended entry would never leave the ledger."""
    assert found(vmi(phase=phase), attempt()) is None


def test_a_vmi_that_is_on_no_node_yet_leaves_none() -> None:
    assert found(vmi(node="", phase="Scheduling"), attempt(evacuation=False)) is None


# --- failed attempts ---


def test_failed_attempts_of_the_same_eviction_count_from_the_first() -> None:
    first = attempt(1, "Failed", created=NOW - 10 * MINUTE, ended=NOW - 6 * MINUTE)
    second = attempt(2, "Failed", created=NOW - 6 * MINUTE, ended=NOW - 2 * MINUTE)
    third = attempt(3, "Pending", created=NOW - 2 * MINUTE)
    entry = sure(found(MARKED, third, first, second))
    assert (entry.phase, entry.attempts_failed, entry.opened_at) == (Phase.RETRYING, 2, NOW - 10 * MINUTE)


def test_between_two_attempts_it_is_retrying() -> None:
    failed = attempt(1, "Failed", created=NOW - 5 * MINUTE, ended=NOW - 10 * SECOND)
    entry = sure(found(MARKED, failed))
    assert (entry.phase, entry.attempts_failed, entry.opened_at) == (Phase.RETRYING, 1, NOW - 5 * MINUTE)


def test_what_an_eviction_given_up_long_ago_left_does_not_make_this_one_old() -> None:
    """Else it would count as stuck, and not against the cluster's limit."""
    long_ago = attempt(1, "Failed", created=NOW - 55 * MINUTE, ended=NOW - 50 * MINUTE)
    entry = sure(found(MARKED, long_ago, attempt(2, "Pending")))
    assert (entry.phase, entry.attempts_failed, entry.opened_at) == (Phase.PENDING, 0, NOW - MINUTE)
    assert entry.before == {"vmim-1"}
    assert sure(found(MARKED, long_ago)).opened_at == NOW


def test_a_users_failed_migration_is_no_attempt_of_the_next() -> None:
    """Without a mark KubeVirt does not try again."""
    failed = attempt(1, "Failed", created=NOW - 3 * MINUTE, ended=NOW - MINUTE, evacuation=False)
    entry = sure(found(vmi(), failed, attempt(2, evacuation=False)))
    assert (entry.phase, entry.attempts_failed, entry.before) == (Phase.RUNNING, 0, {"vmim-1"})


def test_failures_before_the_last_success_belong_to_that_move() -> None:
    failed = attempt(1, "Failed", created=NOW - 9 * MINUTE, ended=NOW - 8 * MINUTE)
    succeeded = attempt(2, "Succeeded", created=NOW - 8 * MINUTE, ended=NOW - 2 * MINUTE)
    entry = sure(found(MARKED, failed, succeeded, attempt(3)))
    assert (entry.attempts_failed, entry.before) == (0, {"vmim-1", "vmim-2"})


# --- another VMI of the same name ---


def test_a_former_vmis_migrations_are_not_the_new_ones() -> None:
    born_since = vmi(uid="vmi-new", created=NOW - 30 * SECOND)
    assert found(born_since, attempt(created=NOW - MINUTE)) is None
    assert finished_migrations([attempt(phase="Failed", created=NOW - MINUTE)], born_since) == []


def test_a_former_vmis_failure_is_no_attempt_of_the_new_one() -> None:
    reborn = vmi(created=NOW - 2 * MINUTE, annotations=OURS, evacuation_node_name="node-1")
    former = attempt(1, "Failed", created=NOW - 3 * MINUTE, ended=NOW - MINUTE - SECOND)
    entry = sure(found(reborn, former, attempt(2, "Pending", created=NOW - MINUTE)))
    assert (entry.phase, entry.attempts_failed) == (Phase.PENDING, 0)


# --- ended lately ---


def settling(
    *, ended_ago: timedelta = MINUTE, node: str = "node-2", completed: bool = True, failed: bool = False
) -> Entry | None:
    state = MigrationState(
        start_timestamp=NOW - 9 * MINUTE,
        end_timestamp=NOW - ended_ago,
        source_node="node-1",
        target_node="node-2",
        completed=completed,
        failed=failed,
        migration_uid="vmim-1",
    )
    return found_settling(known(vmi(node=node, migration_state=state), load=SMALL), TIMING, NOW)


def test_what_ended_lately_is_settling_from_its_end_in_the_api() -> None:
    """Nobody watched; the metrics may not show it yet."""
    entry = sure(settling())
    assert (entry.phase, entry.source, entry.target) == (Phase.SETTLING, "node-1", "node-2")
    assert (entry.ended_at, entry.load, entry.vmim_uid) == (NOW - MINUTE, SMALL, "vmim-1")


@pytest.mark.parametrize(("priority", "ours"), [("system-maintenance", True), ("system-critical", False)])
def test_whose_move_is_settling_is_told_by_its_vmim(priority: str, ours: bool) -> None:
    """The note on the VMI is gone once the VM has arrived."""
    arrived = vmi(
        node="node-2",
        migration_state=MigrationState(
            end_timestamp=NOW - MINUTE, source_node="node-1", completed=True, migration_uid="vmim-1"
        ),
    )
    done = attempt(1, "Succeeded", priority=priority)
    assert sure(found_settling(known(arrived, done), TIMING, NOW)).ours is ours


def test_what_ended_long_ago_shows_in_any_metric() -> None:
    assert settling(ended_ago=2 * TIMING.settle - SECOND) is not None
    assert settling(ended_ago=2 * TIMING.settle) is None


def test_a_migration_that_failed_or_goes_on_does_not_settle() -> None:
    assert settling(completed=False) is None
    assert settling(failed=True) is None
    assert settling(node="node-1") is None
    assert found_settling(known(vmi()), TIMING, NOW) is None


# --- what to remember ---


def test_remembers_ended_migrations_by_their_times_in_the_api() -> None:
    state = MigrationState(source_node="node-7", end_timestamp=NOW)
    ended = attempt(1, "Succeeded", created=NOW - 9 * MINUTE, ended=NOW - MINUTE, state=state)
    assert finished_migrations([ended, attempt(2)], vmi()) == [
        finished("vmim-1", source="node-7", at=NOW - MINUTE, took=8 * MINUTE)
    ]


def test_the_end_that_we_saw_counts_more_than_the_apis() -> None:
    ended = attempt(1, "Failed", created=NOW - 9 * MINUTE, ended=NOW - MINUTE)
    assert finished_migrations([ended], vmi(), observed_at=NOW) == [
        finished("vmim-1", succeeded=False, at=NOW, took=8 * MINUTE)
    ]


def test_does_without_times_that_are_not_there() -> None:
    bare = vmim(phase="Failed", created=NOW, annotations=EVACUATION)
    assert finished_record(bare, "vmi-vm-1") == finished(
        "vmim-vm-1", succeeded=False, at=NOW, took=timedelta(0)
    )
    assert finished_record(vmim(phase="Failed", created=None), "vmi-vm-1") is None
    assert finished_record(vmim(phase="Running"), "vmi-vm-1") is None
