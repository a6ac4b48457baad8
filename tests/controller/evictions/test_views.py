"""What the ledger remembers of VMs and nodes, and for how long that keeps them where they are."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from controller.evictions.views import Finished, Refusal
from controller.policy.model import Breaker, Cooldown
from tests.builders import START
from tests.controller.decision_builders import BREAKER, COOLDOWN, HOUR, MINUTE, SECOND, finished, view

LATER = START + 100 * HOUR
VM = "vmi-vm-1"


def moved(*ago: timedelta, took: timedelta = MINUTE, succeeded: bool = True) -> tuple[Finished, ...]:
    """Migrations of vm-1 that ended so long before LATER, oldest first."""
    return tuple(
        finished(f"vmim-{number}", at=LATER - past, took=took, succeeded=succeeded)
        for number, past in enumerate(ago)
    )


def rests_for(moves: Sequence[Finished], cooldown: Cooldown = COOLDOWN) -> timedelta | None:
    """Counted from the last of them."""
    until = view(finished={VM: tuple(moves)}).cooling_until(VM, cooldown, moves[-1].at)
    return until - moves[-1].at if until is not None else None


@pytest.mark.parametrize(
    ("moves", "minutes"), [(1, 15), (2, 30), (3, 60), (4, 120), (5, 240), (6, 360), (7, 360), (100, 360)]
)
def test_cool_down_doubles_with_each_migration_up_to_its_cap(moves: int, minutes: int) -> None:
    ago = [(moves - number) * MINUTE for number in range(moves)]
    assert rests_for(moved(*ago)) == minutes * MINUTE


def test_cool_down_counts_migrations_inside_the_window_only() -> None:
    assert rests_for(moved(49 * HOUR, 48 * HOUR + SECOND, 0 * HOUR)) == 15 * MINUTE
    assert rests_for(moved(47 * HOUR, 0 * HOUR)) == 30 * MINUTE


def test_cool_down_is_never_shorter_than_the_last_migration_took() -> None:
    assert rests_for(moved(0 * HOUR, took=50 * MINUTE)) == 50 * MINUTE
    assert rests_for(moved(0 * HOUR, took=8 * HOUR)) == 8 * HOUR, "not even where that exceeds the cap"


def test_cool_down_ends() -> None:
    ledger = view(finished={VM: moved(0 * HOUR)})
    assert ledger.cooling_until(VM, COOLDOWN, LATER + 15 * MINUTE - SECOND) == LATER + 15 * MINUTE
    assert ledger.cooling_until(VM, COOLDOWN, LATER + 15 * MINUTE) is None


def test_failed_migrations_are_the_breakers_matter() -> None:
    assert rests_for(moved(0 * HOUR, succeeded=False)) is None


def test_others_do_not_cool() -> None:
    assert view(finished={VM: moved(0 * HOUR)}).cooling_until("vmi-vm-2", COOLDOWN, LATER) is None


def test_the_longest_cool_down_a_policy_can_state_is_no_overflow() -> None:
    year = 8760 * HOUR
    assert rests_for(moved(*(SECOND for _ in range(100))), Cooldown(year, year, year)) == year


@pytest.mark.parametrize(
    ("ago_minutes", "rests"),
    [
        ([20, 5, 0], False),
        ([11, 5, 0], False),
        ([10, 5, 0], True),
        ([2, 1, 0], True),
        ([0, 0, 0], True),
        ([1, 0], False),
        ([30, 29, 28, 0], True),
        ([80, 79, 78, 0], False),
    ],
)
def test_breaker_trips_on_failures_close_together(ago_minutes: list[int], rests: bool) -> None:
    failed = moved(*(m * MINUTE for m in ago_minutes), succeeded=False)
    assert (view(finished={VM: failed}).vm_resting_until(VM, BREAKER, LATER) is not None) is rests


def test_breaker_rests_from_the_failure_that_tripped_it() -> None:
    failed = moved(12 * MINUTE, 11 * MINUTE, 10 * MINUTE, succeeded=False)
    ledger = view(finished={VM: failed})
    assert ledger.vm_resting_until(VM, BREAKER, LATER) == LATER + 50 * MINUTE
    assert ledger.vm_resting_until(VM, BREAKER, LATER + 50 * MINUTE) is None


def test_breaker_of_one_failure_trips_at_once() -> None:
    failed = moved(0 * MINUTE, succeeded=False)
    assert view(finished={VM: failed}).vm_resting_until(VM, Breaker(1, SECOND, HOUR), LATER) == LATER + HOUR


def test_successes_do_not_trip_the_breaker_of_a_vm() -> None:
    ledger = view(finished={VM: moved(2 * MINUTE, MINUTE, 0 * MINUTE)})
    assert ledger.vm_resting_until(VM, BREAKER, LATER) is None


def test_breaker_of_a_node_counts_different_vms() -> None:
    """One bad VM says nothing of its node."""
    one_vm = tuple(finished(f"m-{n}", at=LATER, succeeded=False) for n in range(5))
    assert view(failures={"node-1": one_vm}).node_resting_until("node-1", BREAKER, LATER) is None
    three = tuple(finished(f"m-{n}", vm=f"vm-{n}", at=LATER, succeeded=False) for n in range(3))
    ledger = view(failures={"node-1": three})
    assert ledger.node_resting_until("node-1", BREAKER, LATER) == LATER + HOUR
    assert ledger.node_resting_until("node-2", BREAKER, LATER) is None


def test_a_refusal_holds_for_its_time() -> None:
    refusal = Refusal("not live-migratable", LATER + MINUTE)
    ledger = view(refusals={VM: refusal})
    assert ledger.refusal(VM, LATER) is refusal
    assert ledger.refusal(VM, LATER + MINUTE) is None
    assert ledger.refusal("vmi-vm-2", LATER) is None
