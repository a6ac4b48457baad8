"""What became of an eviction, from what the stores show now."""

from datetime import datetime, timedelta

import pytest

from controller.cluster.objects import MigrationState, Vmim
from controller.evictions.entry import ENDED, IN_FLIGHT, REQUEST_WITHIN, Entry, Phase
from controller.evictions.lifecycle import Evidence, Sighting, advance, lost, next_look, overdue
from tests.builders import START, vmi, vmim
from tests.controller.decision_builders import MINUTE, NO_EVIDENCE, SECOND, entry, sighting, timing

TIMING = timing()
SOON = START + MINUTE
UNMARKED = vmi(node="node-1")
MARKED = vmi(node="node-1", evacuation_node_name="node-1")
SWITCHED = vmi(node="node-2", evacuation_node_name="node-1")
"""At the target; the mark is not off yet."""
ARRIVED = vmi(node="node-2")


def after(before: Entry, seen: Sighting, now: datetime = SOON, evidence: Evidence = NO_EVIDENCE) -> Entry:
    return advance(before, seen, evidence, TIMING, now)


def attempt(number: int = 1, phase: str = "Running", state: MigrationState | None = None) -> Vmim:
    return vmim(name=f"m-{number}", uid=f"vmim-{number}", phase=phase, migration_state=state)


# --- on the way ---


@pytest.mark.parametrize(
    ("vmim_phase", "phase"),
    [
        ("", Phase.PENDING),
        ("Pending", Phase.PENDING),
        ("Scheduling", Phase.SCHEDULING),
        ("Scheduled", Phase.SCHEDULING),
        ("PreparingTarget", Phase.PREPARING),
        ("TargetReady", Phase.PREPARING),
        ("Running", Phase.RUNNING),
        ("WaitingForSync", Phase.RUNNING),
        ("Synchronizing", Phase.RUNNING),
        ("SomethingOfALaterKubeVirt", Phase.RUNNING),
    ],
)
@pytest.mark.parametrize("marked", [MARKED, UNMARKED], ids=["marked", "mark not seen yet"])
def test_follows_the_phases_of_the_vmim(vmim_phase: str, phase: Phase, marked: Sighting) -> None:
    seen = after(entry(), sighting(marked, attempt(phase=vmim_phase)))
    assert (seen.phase, seen.vmim_uid, seen.changed_at) == (phase, "vmim-1", SOON)


@pytest.mark.parametrize("waiting", [Phase.REQUESTED, Phase.UNKNOWN])
def test_a_mark_is_the_first_sign(waiting: Phase) -> None:
    seen = after(entry(phase=waiting), sighting(MARKED))
    assert (seen.phase, seen.mark_seen) == (Phase.PENDING, True)


@pytest.mark.parametrize("waiting", [Phase.REQUESTED, Phase.UNKNOWN])
def test_without_a_sign_it_waits_and_stays_the_same_object(waiting: Phase) -> None:
    before = entry(phase=waiting)
    assert after(before, sighting(UNMARKED)) is before


def test_older_migrations_of_the_vm_are_no_sign() -> None:
    before = entry(before={"vmim-1", "vmim-2"})
    assert after(before, sighting(UNMARKED, attempt(1, "Succeeded"), attempt(2, "Failed"))) is before


def test_the_same_sight_gives_the_same_object() -> None:
    seen = sighting(MARKED, attempt(phase="Scheduling"))
    once = after(entry(), seen)
    assert after(once, seen, SOON + SECOND) is once


def test_learns_the_real_destination_from_the_vmim() -> None:
    """The scheduler need not agree with our prediction; the load is charged to where the VM goes."""
    state = MigrationState(source_node="node-1", target_node="node-7", migration_uid="vmim-1")
    assert after(entry(), sighting(MARKED, attempt(state=state))).target == "node-7"
    marked = vmi(node="node-1", evacuation_node_name="node-1", migration_state=state)
    assert after(entry(), sighting(marked, attempt())).target == "node-7", "or from the VMI"


def test_keeps_the_prediction_while_only_an_older_destination_is_known() -> None:
    old = MigrationState(source_node="node-8", target_node="node-1", migration_uid="vmim-0")
    marked = vmi(node="node-1", evacuation_node_name="node-1", migration_state=old)
    assert after(entry(), sighting(marked, attempt())).target == "node-2"


# --- completion ---


def test_completed_means_at_the_new_node_and_nothing_under_way() -> None:
    seen = after(entry(phase=Phase.RUNNING, mark_seen=True), sighting(ARRIVED, attempt(phase="Succeeded")))
    assert (seen.phase, seen.target, seen.ended_at) == (Phase.SETTLING, "node-2", SOON)


def test_charges_the_node_at_which_the_vm_arrived() -> None:
    assert after(entry(target="node-9"), sighting(ARRIVED, attempt(phase="Succeeded"))).target == "node-2"


@pytest.mark.parametrize(
    "seen",
    [
        sighting(MARKED, attempt(phase="Succeeded")),
        sighting(UNMARKED, attempt(phase="Succeeded")),
        sighting(ARRIVED, attempt(phase="Running")),
        sighting(SWITCHED, attempt(phase="Running")),
        sighting(SWITCHED, attempt(phase="Succeeded")),
    ],
    ids=["VMI behind", "VMI far behind", "VMIM behind", "VMIM running", "mark still on"],
)
def test_half_the_signs_are_no_completion(seen: Sighting) -> None:
    """A queued or switching migration that counts as finished frees a slot that is not free."""
    assert after(entry(phase=Phase.RUNNING, mark_seen=True), seen).phase is Phase.RUNNING


def test_an_arrival_needs_no_vmim() -> None:
    """It may be garbage-collected, or its watch be behind."""
    assert after(entry(phase=Phase.RUNNING, mark_seen=True), sighting(ARRIVED)).phase is Phase.SETTLING


def test_a_mark_at_the_new_node_is_the_next_eviction_not_this_one() -> None:
    drained = vmi(node="node-2", evacuation_node_name="node-2")
    assert after(entry(phase=Phase.RUNNING), sighting(drained)).phase is Phase.SETTLING


# --- failure ---


def test_holds_on_while_kubevirt_tries_again() -> None:
    between = after(entry(phase=Phase.RUNNING), sighting(MARKED, attempt(1, "Failed")))
    assert (between.phase, between.attempts_failed) == (Phase.RETRYING, 1)
    queued = after(between, sighting(MARKED, attempt(1, "Failed"), attempt(2, "Pending")))
    assert (queued.phase, queued.vmim_uid) == (Phase.RETRYING, "vmim-2")
    again = after(queued, sighting(MARKED, attempt(1, "Failed"), attempt(2, "Running")))
    assert again.phase is Phase.RUNNING
    assert all(e.holds_slot() for e in (between, queued, again))


def test_remembers_failed_attempts_when_their_vmims_are_collected() -> None:
    seen = after(entry(attempts_failed=3), sighting(MARKED, attempt(9, "Failed")))
    assert (seen.attempts_failed, seen.phase) == (3, Phase.RETRYING)


@pytest.mark.parametrize("phase", sorted(IN_FLIGHT - {Phase.REQUESTED, Phase.UNKNOWN}))
def test_a_mark_that_went_without_success_cancels(phase: Phase) -> None:
    seen = after(entry(phase=phase, mark_seen=True), sighting(UNMARKED, attempt(1, "Failed")))
    assert seen.phase is Phase.CANCELLED
    assert not seen.open


def test_a_failure_before_the_mark_was_seen_decides_nothing() -> None:
    """The watch of VMIs is behind: KubeVirt may be about to try again, and the slot must not be free till then."""
    running = after(entry(), sighting(UNMARKED, attempt(1, "Running")))
    failed = after(running, sighting(UNMARKED, attempt(1, "Failed")))
    assert (failed.phase, failed.holds_slot()) == (Phase.UNKNOWN, True)
    caught_up = after(failed, sighting(MARKED, attempt(1, "Failed"), attempt(2, "Pending")))
    assert caught_up.phase is Phase.RETRYING


@pytest.mark.parametrize(
    "seen", [sighting(None), sighting(vmi(phase="Succeeded")), sighting(vmi(phase="Failed"))]
)
@pytest.mark.parametrize("phase", sorted(IN_FLIGHT))
def test_a_vm_that_stopped_or_went_ends_it(seen: Sighting, phase: Phase) -> None:
    assert after(entry(phase=phase), seen).phase is Phase.GONE


def test_gone_counts_more_than_a_migration_that_still_shows() -> None:
    assert after(entry(), sighting(vmi(phase="Failed"), attempt())).phase is Phase.GONE


# --- time ---


def test_too_long_is_stuck() -> None:
    at = START + TIMING.migration
    running = entry(phase=Phase.RUNNING)
    assert after(running, sighting(MARKED, attempt()), at - SECOND).phase is Phase.RUNNING
    stuck = after(running, sighting(MARKED, attempt()), at)
    assert (stuck.phase, stuck.holds_slot(), stuck.counts_cluster_wide()) == (Phase.STUCK, True, False)


def test_stuck_ends_like_any_other() -> None:
    stuck, late = entry(phase=Phase.STUCK, mark_seen=True), START + 2 * TIMING.migration
    assert after(stuck, sighting(ARRIVED), late).phase is Phase.SETTLING
    assert after(stuck, sighting(UNMARKED), late).phase is Phase.CANCELLED
    assert after(stuck, sighting(None), late).phase is Phase.GONE


def test_a_vm_that_went_and_came_back_is_not_followed_for_ever() -> None:
    """Both moves happened while nobody looked: its VMIM succeeded, and yet it is where it was."""
    moved = entry(phase=Phase.RUNNING, mark_seen=True)
    seen = sighting(UNMARKED, attempt(1, "Succeeded"), attempt(2, "Succeeded"))
    assert after(moved, seen, START + TIMING.migration).phase is Phase.CANCELLED


def test_no_sign_in_time_is_overdue() -> None:
    waiting = entry(phase=Phase.UNKNOWN)
    due = START + TIMING.acknowledge
    assert not overdue(waiting, TIMING, due - SECOND)
    assert overdue(waiting, TIMING, due)
    assert not overdue(entry(phase=Phase.PENDING), TIMING, due)


def test_a_request_that_is_still_under_way_is_not_missed_yet() -> None:
    """A sign is due only after an answer, and dry run and request may take their time."""
    waiting = entry(phase=Phase.REQUESTED, answered_at=None)
    due = START + 2 * REQUEST_WITHIN + TIMING.acknowledge
    assert not overdue(waiting, TIMING, due - SECOND)
    assert overdue(waiting, TIMING, due)
    assert next_look(waiting, TIMING, START) == due - START


def test_no_sign_in_the_api_either_is_lost() -> None:
    given_up = lost(entry(phase=Phase.UNKNOWN), SOON)
    assert (given_up.phase, given_up.open) == (Phase.LOST, False)


def test_an_attempt_that_failed_was_a_sign_so_nothing_is_lost() -> None:
    assert lost(entry(phase=Phase.UNKNOWN, attempts_failed=1), SOON).phase is Phase.CANCELLED


@pytest.mark.parametrize(
    ("phase", "wait"),
    [
        (Phase.REQUESTED, TIMING.acknowledge - MINUTE),
        (Phase.UNKNOWN, TIMING.acknowledge - MINUTE),
        (Phase.PENDING, TIMING.migration - MINUTE),
        (Phase.RETRYING, TIMING.migration - MINUTE),
        (Phase.STUCK, None),
        (Phase.SETTLING, None),
        (Phase.DONE, None),
    ],
)
def test_says_when_time_alone_may_change_it(phase: Phase, wait: timedelta | None) -> None:
    assert next_look(entry(phase=phase), TIMING, SOON) == wait


def test_the_next_look_is_never_in_the_past() -> None:
    assert next_look(entry(), TIMING, START + 24 * TIMING.migration) == timedelta(0)


# --- settling ---


ENDED_AT = START + 5 * MINUTE
SHOWN = ENDED_AT + TIMING.settle
SETTLING = entry(phase=Phase.SETTLING, ended_at=ENDED_AT)


def settled(source: datetime | None, target: datetime | None, as_of: datetime = SHOWN) -> bool:
    times = {"node-1": source, "node-2": target}
    evidence = Evidence({node: at for node, at in times.items() if at is not None}, as_of)
    return after(SETTLING, sighting(ARRIVED), as_of, evidence).phase is Phase.DONE


def test_settles_once_samples_of_both_nodes_are_late_enough() -> None:
    assert settled(SHOWN, SHOWN)
    assert not settled(SHOWN - SECOND, SHOWN)
    assert not settled(SHOWN, SHOWN - SECOND)


def test_asking_late_does_not_make_a_sample_young() -> None:
    """The sample's own time counts: an instant query's is only the time of asking."""
    assert not settled(SHOWN - SECOND, SHOWN - SECOND, as_of=SHOWN + 10 * MINUTE)


def test_settles_without_a_node_that_has_gone_or_lost_its_metric() -> None:
    assert settled(None, SHOWN)
    assert settled(SHOWN, None)
    assert settled(None, None)
    assert not settled(None, None, as_of=SHOWN - SECOND)


def test_does_not_settle_before_the_first_snapshot() -> None:
    assert after(SETTLING, sighting(ARRIVED), SHOWN, Evidence({})) is SETTLING


def test_a_destination_without_a_name_does_not_settle_for_ever() -> None:
    nowhere = entry(phase=Phase.SETTLING, target="", ended_at=ENDED_AT)
    assert after(nowhere, sighting(ARRIVED), SHOWN, Evidence({"node-1": SHOWN}, SHOWN)).phase is Phase.DONE


def test_a_vm_that_stops_where_it_arrived_settles_once_its_source_shows_that_it_left() -> None:
    """The source's metrics still have the VM in them, whatever became of it."""
    assert after(SETTLING, sighting(None)) is SETTLING


def test_what_the_vm_does_next_does_not_open_a_settling_entry_again() -> None:
    on_the_move = vmi(node="node-2", evacuation_node_name="node-2")
    assert after(SETTLING, sighting(on_the_move, attempt(7, "Running"))) is SETTLING


@pytest.mark.parametrize("phase", sorted(ENDED))
def test_ended_stays_ended(phase: Phase) -> None:
    before = entry(phase=phase)
    for seen in (sighting(MARKED, attempt()), sighting(ARRIVED), sighting(None)):
        assert after(before, seen, START + 24 * TIMING.migration) is before
