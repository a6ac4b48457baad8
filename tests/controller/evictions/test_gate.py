"""May a VM be evicted from this node now?"""

from datetime import timedelta

import pytest

from controller.evictions.entry import IN_FLIGHT, Phase
from controller.evictions.gate import (
    Movement,
    Slots,
    count_slots,
    effective_limits,
    unsettled_arrivals,
    why_closed,
)
from controller.evictions.views import Alarm, LedgerView
from controller.policy.model import Limits
from tests.builders import START, kubevirt
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    POLICY,
    SECOND,
    entry,
    finished,
    policy,
    slots,
    view,
)

NOW = START + HOUR
LIMITS = Limits(node=1, total=5)
TIMEOUT = 30 * MINUTE


def counted(ledger: LedgerView, *movements: Movement, node: str = "node-1") -> tuple[int, int]:
    found = count_slots(node, ledger, movements, LIMITS, TIMEOUT, NOW)
    assert (found.node_limit, found.total_limit) == (1, 5)
    return found.node_used, found.total_used


def closed(ledger: LedgerView, slots: Slots, node: str = "node-1") -> str | None:
    reason = why_closed(node, slots, ledger, POLICY, NOW)
    return reason.code if reason is not None else None


# --- counting ---


@pytest.mark.parametrize("phase", sorted(IN_FLIGHT - {Phase.STUCK}))
def test_a_vm_on_the_move_takes_a_slot_of_its_node_and_of_the_cluster(phase: Phase) -> None:
    """RETRYING too: while KubeVirt holds the mark it may start again at any time."""
    assert counted(view(entry(phase=phase))) == (1, 1)
    assert counted(view(entry(phase=phase)), node="node-2") == (0, 1)


def test_a_stuck_vm_counts_on_its_node_only() -> None:
    stuck = view(entry(phase=Phase.STUCK))
    assert counted(stuck) == (1, 0)
    assert counted(stuck, Movement("vmi-vm-1", "node-1", NOW)) == (1, 0), (
        "KubeVirt's newest attempt is no news"
    )


def test_the_slot_is_free_at_completion_where_the_move_can_be_charged() -> None:
    assert counted(view(entry(phase=Phase.SETTLING))) == (0, 0)


def test_the_slot_is_held_until_settled_where_the_vm_is_not_measured() -> None:
    assert counted(view(entry(phase=Phase.SETTLING, load=None))) == (1, 1)


def test_other_peoples_migrations_take_slots_too() -> None:
    drain = Movement("vmi-vm-9", "node-1", NOW - MINUTE)
    assert counted(view(), drain) == (1, 1)
    assert counted(view(entry()), drain) == (2, 2)


def test_counts_a_vm_once_however_it_is_known() -> None:
    ours = entry(phase=Phase.RUNNING)
    assert counted(view(ours), Movement(ours.vmi_uid, "node-1", NOW)) == (1, 1)


def test_old_foreign_migrations_cannot_stop_the_cluster() -> None:
    stuck = [Movement(f"vmi-{n}", "node-1", NOW - TIMEOUT) for n in range(9)]
    assert counted(view(), *stuck) == (9, 0)
    assert counted(view(), *stuck, node="node-2") == (0, 0)


def test_a_migration_of_unknown_source_takes_a_slot_of_the_cluster() -> None:
    assert counted(view(), Movement("vmi-vm-9", "", NOW)) == (0, 1)


def test_the_policys_limits_never_exceed_kubevirts_own() -> None:
    rapid = Limits(node=5, total=50)
    assert effective_limits(rapid, kubevirt()) == Limits(node=2, total=5)
    assert effective_limits(LIMITS, kubevirt(parallel_migrations_per_cluster=3)) == Limits(node=1, total=3)
    assert effective_limits(rapid, None) == Limits(node=2, total=5), "its defaults"


# --- the gate ---


def test_is_open_when_nothing_speaks_against_it() -> None:
    assert closed(view(), slots()) is None


def test_the_limit_of_the_node_closes_it() -> None:
    assert closed(view(), slots(node_used=1)) == "NodeLimit"


def test_the_limit_of_the_cluster_closes_it() -> None:
    assert closed(view(), slots(node_limit=2, total_used=5)) == "TotalLimit"


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.RUNNING, Phase.RETRYING, Phase.SETTLING])
def test_a_node_with_unsettled_arrivals_is_no_source(phase: Phase) -> None:
    """Its metrics are about to change: they say nothing of what it should send."""
    arriving = view(entry(source="node-2", target="node-1", phase=phase))
    assert closed(arriving, slots()) == "UnsettledArrivals"
    assert closed(arriving, slots(), node="node-2") is None


def test_a_stuck_arrival_does_not_close_its_target_for_ever() -> None:
    assert closed(view(entry(source="node-2", target="node-1", phase=Phase.STUCK)), slots()) is None


def test_names_some_of_many_arrivals() -> None:
    ledger = view(*(entry(f"vm-{n}", source="node-2", target="node-1") for n in range(5)))
    reason = why_closed("node-1", slots(), ledger, POLICY, NOW)
    assert reason is not None
    assert reason.text.endswith("vms/vm-0, vms/vm-1, vms/vm-2 and 2 more")
    assert len(unsettled_arrivals("node-1", ledger)) == 5


def test_a_node_rests_after_failures_of_different_vms() -> None:
    failed = tuple(finished(f"m-{n}", vm=f"vm-{n}", at=NOW - MINUTE, succeeded=False) for n in range(3))
    assert closed(view(failures={"node-1": failed}), slots()) == "NodeBreaker"
    assert closed(view(failures={"node-2": failed}), slots()) is None


def test_the_shutdown_alarm_stops_every_node_until_the_policy_changes() -> None:
    alarmed = view(alarm=Alarm("vms/vm-1 went down", "digest-1"))
    for name in ("node-1", "node-2"):
        assert closed(alarmed, slots(), node=name) == "ShutdownAlarm"
    assert why_closed("node-1", slots(), alarmed, policy(digest="digest-2"), NOW) is None


def test_a_slot_comes_free_as_time_passes_for_what_is_stuck_only() -> None:
    moving = Movement("vmi-vm-9", "node-2", NOW - TIMEOUT + SECOND)
    assert counted(view(), moving) == (0, 1)
    later = count_slots("node-1", view(), [moving], LIMITS, TIMEOUT, NOW + timedelta(seconds=1))
    assert later.total_used == 0
