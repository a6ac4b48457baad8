"""The ledger's few verbs, and what they keep."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from controller.evictions.entry import ENDED, Entry, Phase
from controller.evictions.ledger import Ledger
from controller.evictions.views import Alarm, Refusal
from informers.testing import ManualClock
from tests.builders import START
from tests.controller.decision_builders import HOUR, MINUTE, entry, finished

DAY = 24 * HOUR


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def ledger(clock: ManualClock) -> Ledger:
    return Ledger(clock)


def opened(ledger: Ledger, what: Entry) -> Entry:
    assert ledger.try_open(what, ledger.view().version)
    return what


# --- reserving ---


def test_reserves_on_the_view_that_was_decided_on(ledger: Ledger) -> None:
    first = opened(ledger, entry("vm-1"))
    assert ledger.view().entries == (first,)


def test_a_reservation_on_an_older_view_fails_and_leaves_nothing(ledger: Ledger) -> None:
    """Two nodes that plan at once must not both take the last slot."""
    version = ledger.view().version
    assert ledger.try_open(entry("vm-1"), version)
    assert not ledger.try_open(entry("vm-2"), version)
    assert [e.vm.name for e in ledger.view().entries] == ["vm-1"]


def test_of_many_threads_with_the_same_view_one_reserves(ledger: Ledger) -> None:
    threads = 8
    version, together = ledger.view().version, threading.Barrier(threads)

    def reserve(number: int) -> bool:
        together.wait(10)
        return ledger.try_open(entry(f"vm-{number}"), version)

    with ThreadPoolExecutor(threads) as pool:
        assert sorted(pool.map(reserve, range(threads))) == [False] * (threads - 1) + [True]
    assert len(ledger.view().entries) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.adopt(entry("vm-9")),
        lambda ledger: ledger.refuse("vmi-vm-9", Refusal("no", START)),
        lambda ledger: ledger.remember(finished()),
        lambda ledger: ledger.raise_alarm(Alarm("down", "digest")),
        lambda ledger: ledger.replace_all([], []),
    ],
    ids=["adopt", "refuse", "remember", "alarm", "rebuild"],
)
def test_any_change_makes_older_views_useless(ledger: Ledger, change: Callable[[Ledger], object]) -> None:
    version = ledger.view().version
    change(ledger)
    assert ledger.view().version > version
    assert not ledger.try_open(entry("vm-1"), version)


@pytest.mark.parametrize("again", [entry("vm-1"), entry("vm-1", pod_uid="pod-other")])
def test_a_vm_in_flight_is_not_reserved_twice(ledger: Ledger, again: Entry) -> None:
    opened(ledger, entry("vm-1"))
    assert not ledger.try_open(again, ledger.view().version)


def test_the_view_is_the_same_object_until_something_changes(ledger: Ledger) -> None:
    before = ledger.view()
    assert ledger.view() is before
    opened(ledger, entry())
    assert ledger.view() is not before
    assert before.entries == ()


# --- answers ---


def test_an_answer_that_never_came_leaves_the_slot_reserved(ledger: Ledger) -> None:
    opened(ledger, entry())
    assert ledger.lose_answer("pod-vm-1") in ledger.view().entries
    (unknown,) = ledger.view().entries
    assert (unknown.phase, unknown.holds_slot()) == (Phase.UNKNOWN, True)


def test_an_accepted_request_counts_from_its_answer(ledger: Ledger, clock: ManualClock) -> None:
    opened(ledger, entry(answered_at=None))
    clock.advance(timedelta(seconds=20))
    confirmed = ledger.confirm("pod-vm-1")
    assert confirmed in ledger.view().entries
    assert confirmed is not None
    assert (confirmed.phase, confirmed.answered_at) == (Phase.REQUESTED, clock.now())


def test_what_the_watch_showed_before_the_answer_stays(ledger: Ledger) -> None:
    first = opened(ledger, entry())
    ledger.observe(first, replace(first, phase=Phase.PENDING))
    assert ledger.lose_answer("pod-vm-1") is None
    assert [e.phase for e in ledger.view().entries] == [Phase.PENDING]


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.UNKNOWN])
def test_a_refusal_gives_the_slot_back(ledger: Ledger, phase: Phase) -> None:
    opened(ledger, entry(phase=phase))
    assert ledger.release("pod-vm-1")
    assert ledger.view().entries == ()


def test_a_refusal_does_not_hide_a_move_that_is_seen(ledger: Ledger) -> None:
    """Somebody else was quicker: "Evacuation in progress" came as the answer, and the watch has shown the mark."""
    first = opened(ledger, entry())
    ledger.observe(first, replace(first, phase=Phase.PENDING))
    assert not ledger.release("pod-vm-1")
    assert [e.phase for e in ledger.view().entries] == [Phase.PENDING]


def test_releasing_what_is_not_there_changes_nothing(ledger: Ledger) -> None:
    before = ledger.view()
    assert not ledger.release("pod-vm-1")
    assert ledger.lose_answer("pod-vm-1") is None
    assert ledger.view() is before


# --- following ---


def test_a_transition_takes_the_place_of_the_entry_it_came_from(ledger: Ledger) -> None:
    first = opened(ledger, entry())
    second = replace(first, phase=Phase.RUNNING)
    assert ledger.observe(first, second)
    assert ledger.view().entries == (second,)


def test_a_transition_of_an_entry_that_has_moved_on_is_dropped(ledger: Ledger) -> None:
    """Two handlers saw the same entry; the slower one must not undo the faster."""
    first = opened(ledger, entry())
    second = replace(first, phase=Phase.RUNNING)
    ledger.observe(first, second)
    version = ledger.view().version
    assert not ledger.observe(first, replace(first, phase=Phase.LOST))
    assert (ledger.view().entries, ledger.view().version) == ((second,), version)


@pytest.mark.parametrize("phase", sorted(ENDED))
def test_an_ended_entry_is_not_kept(ledger: Ledger, phase: Phase) -> None:
    first = opened(ledger, entry())
    assert ledger.observe(first, replace(first, phase=phase))
    assert ledger.view().entries == ()
    assert not ledger.adopt(replace(first, phase=phase))
    ledger.replace_all([replace(first, phase=phase)], [])
    assert ledger.view().entries == ()


def test_adopts_what_is_not_known(ledger: Ledger) -> None:
    assert ledger.adopt(entry("vm-1", phase=Phase.RUNNING))
    assert not ledger.adopt(entry("vm-1", pod_uid="vmim-uid", phase=Phase.RUNNING))
    assert ledger.adopt(entry("vm-2", phase=Phase.SETTLING))
    assert [e.vm.name for e in ledger.view().entries] == ["vm-1", "vm-2"]


# --- memory ---


def test_remembers_each_migration_once(ledger: Ledger) -> None:
    assert ledger.remember(finished("vmim-1"))
    assert not ledger.remember(finished("vmim-1", at=START + HOUR))
    assert ledger.view().finished == {"vmi-vm-1": (finished("vmim-1"),)}


def test_remembers_in_the_order_of_their_ends(ledger: Ledger) -> None:
    late, early = finished("vmim-2", at=START + HOUR), finished("vmim-1")
    ledger.remember(late)
    ledger.remember(early)
    assert ledger.view().finished["vmi-vm-1"] == (early, late)


def test_what_was_forgotten_for_younger_ones_is_no_news(ledger: Ledger) -> None:
    """Its VMIM may still be there, and be seen again at every look."""
    many = [finished(f"vmim-{n:03}", at=START + n * MINUTE) for n in range(101)]
    assert [ledger.remember(f) for f in many] == [True] * 101
    assert not ledger.remember(many[0])
    assert ledger.view().finished["vmi-vm-1"] == tuple(many[1:])


def test_as_many_failures_are_kept_as_a_breaker_may_count(ledger: Ledger) -> None:
    for number in range(100):
        ledger.remember(finished(f"vmim-{number}", vm=f"vm-{number}", at=START, succeeded=False))
    assert len(ledger.view().failures["node-1"]) == 100


def test_a_success_clears_the_failures_of_its_node(ledger: Ledger) -> None:
    """A node from which a VM gets away is not to blame."""
    ledger.remember(finished("vmim-1", succeeded=False, at=START))
    ledger.remember(finished("vmim-2", succeeded=False, source="node-2", at=START))
    ledger.remember(finished("vmim-3", vm="vm-2", at=START + MINUTE))
    assert set(ledger.view().failures) == {"node-2"}
    ledger.remember(finished("vmim-4", succeeded=False, at=START + HOUR))
    assert set(ledger.view().failures) == {"node-1", "node-2"}


def test_a_failure_of_unknown_source_is_held_against_no_node(ledger: Ledger) -> None:
    ledger.remember(finished("vmim-1", succeeded=False, source=""))
    assert ledger.view().failures == {}
    assert set(ledger.view().finished) == {"vmi-vm-1"}


def test_remembers_as_long_as_a_policy_may_look_back() -> None:
    clock = ManualClock(START)
    ledger = Ledger(clock)
    ledger.remember(finished())
    clock.advance(364 * DAY)
    ledger.refuse("vmi-vm-2", Refusal("no", START))
    assert "vmi-vm-1" in ledger.view().finished
    clock.advance(2 * DAY)
    ledger.refuse("vmi-vm-3", Refusal("no", START))
    assert ledger.view().finished == {}


# --- starting afresh ---


def test_a_rebuild_replaces_entries_and_memory(ledger: Ledger) -> None:
    opened(ledger, entry("vm-1"))
    ledger.remember(finished("vmim-1", succeeded=False))
    ledger.replace_all([entry("vm-2", phase=Phase.RUNNING)], [finished("vmim-2", vm="vm-2")])
    view = ledger.view()
    assert [e.vm.name for e in view.entries] == ["vm-2"]
    assert set(view.finished) == {"vmi-vm-2"}
    assert view.failures == {}


def test_what_ended_badly_rests_from_the_very_moment_its_slot_is_free(ledger: Ledger) -> None:
    """In between somebody would pick the same VM again, or take its mark for another descheduler's."""
    first = opened(ledger, entry())
    rest = Refusal("its last eviction was Lost", START + HOUR)
    version = ledger.view().version
    assert ledger.observe(first, replace(first, phase=Phase.LOST), rest)
    assert ledger.view().version == version + 1, "in one step"
    assert ledger.view().refusals == {"vmi-vm-1": rest}
    assert not ledger.observe(first, replace(first, phase=Phase.LOST), Refusal("again", START))
    assert ledger.view().refusals == {"vmi-vm-1": rest}


def test_a_rebuild_keeps_refusals_and_the_alarm(ledger: Ledger) -> None:
    """Neither can be read off the cluster."""
    ledger.refuse("vmi-vm-1", Refusal("no", START))
    ledger.raise_alarm(Alarm("down", "digest"))
    ledger.replace_all([], [])
    assert ledger.view().refusals == {"vmi-vm-1": Refusal("no", START)}
    assert ledger.view().alarm == Alarm("down", "digest")


def test_a_rebuild_needs_no_order(ledger: Ledger) -> None:
    """A failure before a node's last success says nothing, wherever it stands in the list."""
    failed = finished("vmim-1", succeeded=False, at=START)
    succeeded = finished("vmim-2", vm="vm-2", at=START + MINUTE)
    ledger.replace_all([], [succeeded, failed])
    assert ledger.view().failures == {}
