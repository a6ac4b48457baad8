"""Which of the VMs that may be moved is, and why not the others."""

from typing import Any

import pytest

from controller.cluster.placement import Placement
from controller.cluster.queries import Reason
from controller.evictions.select import Candidate, Ground, Selection, copying_time_s, select
from controller.policy.model import Order
from controller.utilization.reading import NodeLoad, VmLoad
from tests.builders import GIB, START, kubevirt, node
from tests.controller.decision_builders import (
    HOUR,
    evictions,
    ground,
    load,
    placement,
    policy,
    vm,
)

NODES = {name: node(name) for name in ("node-1", "node-2", "node-3")}
CORES, MEMORY = 64.0, 256 * GIB
"""Of each of them."""
GB_S = 1e9


def used(cpu: float, memory: float = 0.5, pressure: float = 0.0) -> NodeLoad:
    """As fractions of a node."""
    return load(cpu * CORES, memory * MEMORY, pressure)


def uses(cpu: float, memory: float = 0.01, dirty_bytes_per_s: float = 0.0) -> VmLoad:
    return VmLoad(cpu * CORES, memory * MEMORY, dirty_bytes_per_s)


def where(
    *vms: Candidate, loads: dict[str, NodeLoad] | None = None, best: Any = "node-2", **fields: Any
) -> Ground:
    """``node-1`` is hot unless ``loads`` says otherwise; the scheduler finds the nodes of ``best`` equally good."""
    names = [best] if isinstance(best, str) else best
    return ground(
        *vms,
        source=NODES["node-1"],
        place=lambda _: placement(*(NODES[name] for name in names)),
        loads=loads or {"node-1": used(0.9), "node-2": used(0.3)},
        policy=policy(evictions=evictions(**fields)),
    )


def chosen(selection: Selection) -> str | None:
    return selection.choice.candidate.vmi.name if selection.choice is not None else None


def reasons(selection: Selection) -> dict[str, str]:
    return {p.vm.name: p.reason.code for p in selection.passed_over}


# --- no choice ---


def test_says_whether_none_may_be_moved_or_none_would_help() -> None:
    assert select(where()).note == "no VM that may be moved"
    assert select(where(vm(), exclude=("vms",))).note == "no VM that may be moved"
    idle = select(where(vm(load=uses(0.0))))
    assert (idle.choice, idle.note, reasons(idle)) == (None, "no useful move", {"vm-1": "NoGain"})


def test_a_vm_that_fits_nowhere_is_left_where_it_is() -> None:
    """Else it would be evicted again in each round."""
    misfits = {"node-2": Reason("InsufficientMemory", "80 GiB are requested, 2 left")}
    selection = select(ground(vm(), place=lambda _: Placement((), misfits)))
    assert reasons(selection) == {"vm-1": "FitsNowhere"}
    assert "80 GiB are requested" in selection.passed_over[0].reason.text


def test_a_vm_that_fits_nowhere_does_not_keep_others_from_moving() -> None:
    def place(pod: Any) -> Placement:
        return placement(NODES["node-2"]) if pod.metadata.uid == "pod-vm-2" else Placement((), {})

    assert chosen(select(ground(vm("vm-1"), vm("vm-2"), place=place))) == "vm-2"


def test_a_destination_whose_load_is_unknown_is_none() -> None:
    selection = select(where(vm(), loads={"node-1": used(0.9)}))
    assert reasons(selection) == {"vm-1": "DestinationUnknown"}


@pytest.mark.parametrize("order", Order)
def test_without_the_load_of_the_source_nothing_can_be_said(order: Order) -> None:
    selection = select(where(vm(), loads={"node-2": used(0.1)}, order=order))
    assert reasons(selection) == {"vm-1": "NotMeasured"}
    assert "node-1" in selection.passed_over[0].reason.text


@pytest.mark.parametrize("order", Order)
def test_a_vm_that_is_not_measured_among_others_stays(order: Order) -> None:
    selection = select(where(vm("vm-1", load=None), vm("vm-2", load=uses(0.1)), order=order))
    assert (chosen(selection), reasons(selection)) == ("vm-2", {"vm-1": "NotMeasured"})


# --- gain ---


@pytest.mark.parametrize(
    ("loads", "vm_load", "gain"),
    [
        ({"node-1": used(0.9), "node-2": used(0.3)}, uses(0.1), 0.1),
        ({"node-1": used(0.9), "node-2": used(0.85)}, uses(0.04), 0.01),
        ({"node-1": used(1.2), "node-2": used(0.3)}, uses(0.3), 0.3),
        ({"node-1": used(0.5, 0.9), "node-2": used(0.5, 0.5)}, uses(0.0, 0.1), 0.1),
        ({"node-1": used(0.5, 0.5, 0.2), "node-2": used(0.1, 0.1)}, uses(0.1, 0.2), 0.2),
    ],
    ids=[
        "source gets lower",
        "destination gets higher",
        "demand over capacity",
        "memory",
        "pressure: the better one",
    ],
)
def test_gain_is_by_how_much_the_busier_of_the_two_gets_lower(
    loads: dict[str, NodeLoad], vm_load: VmLoad, gain: float
) -> None:
    choice = select(where(vm(load=vm_load), loads=loads)).choice
    assert choice is not None
    assert choice.gain == pytest.approx(gain)
    assert choice.target == "node-2"


@pytest.mark.parametrize(
    ("vm_cpu", "moves"),
    [(0.0, False), (0.009, False), (0.011, True), (0.55, True), (0.595, False), (0.7, False)],
)
def test_a_move_must_gain_at_least_min_gain(vm_cpu: float, moves: bool) -> None:
    """Too small a VM brings nothing; too large a one only moves the trouble."""
    selection = select(where(vm(load=uses(vm_cpu)), loads={"node-1": used(0.9), "node-2": used(0.3)}))
    assert (selection.choice is not None) is moves


def test_a_move_that_gains_nothing_is_none_even_where_min_gain_is_zero() -> None:
    assert reasons(select(where(vm(load=uses(0.0, 0.0)), min_gain=0.0))) == {"vm-1": "NoGain"}
    assert chosen(select(where(vm(load=uses(0.001)), min_gain=0.0))) == "vm-1"


def test_moves_that_make_the_spread_worse_are_none() -> None:
    """74 % here, 70 % there: a VM of 10 % would only swap the two."""
    selection = select(where(vm(load=uses(0.1)), loads={"node-1": used(0.74), "node-2": used(0.70)}))
    assert reasons(selection) == {"vm-1": "WouldOverload"}


def test_gain_counts_in_a_dimension_that_hurts_only() -> None:
    """The node is short of CPU: that its memory gets emptier is no use."""
    selection = select(
        where(vm(load=uses(0.0, 0.2)), loads={"node-1": used(0.9, 0.5), "node-2": used(0.1, 0.1)})
    )
    assert reasons(selection) == {"vm-1": "NoGain"}


@pytest.mark.parametrize("order", Order)
def test_does_not_buy_cpu_with_an_overload_of_memory(order: Order) -> None:
    full = {"node-1": used(0.9, 0.5), "node-2": used(0.1, 0.75)}
    assert chosen(select(where(vm(load=uses(0.1, 0.05)), loads=full, order=order))) == "vm-1"
    selection = select(where(vm(load=uses(0.1, 0.06)), loads=full, order=order))
    assert reasons(selection) == {"vm-1": "WouldOverload"}
    assert "81% memory" in selection.passed_over[0].reason.text


def test_does_not_buy_memory_with_an_overload_of_cpu() -> None:
    busy = {"node-1": used(0.5, 0.9), "node-2": used(0.55, 0.1)}
    assert reasons(select(where(vm(load=uses(0.1, 0.1)), loads=busy))) == {"vm-1": "WouldOverload"}


def test_nodes_of_different_size_are_compared_by_fractions() -> None:
    small = node("node-2", cpu_cores=16.0)
    loads = {"node-1": load(0.9 * 64), "node-2": load(0.1 * 16)}

    def selected(cores: float) -> str | None:
        return chosen(
            select(ground(vm(load=VmLoad(cores, GIB)), place=lambda _: placement(small), loads=loads))
        )

    assert selected(8.0) == "vm-1"
    assert selected(13.0) is None, "81 % of the small one, where it was 20 % of the large one"


def test_expects_the_worst_of_equally_likely_destinations() -> None:
    """kube-scheduler breaks ties at random: hoping for the idle one is hoping for luck."""
    loads = {"node-1": used(0.9), "node-2": used(0.1), "node-3": used(0.85)}
    selection = select(where(vm(load=uses(0.1)), loads=loads, best=["node-2", "node-3"]))
    assert reasons(selection) == {"vm-1": "WouldOverload"}
    small = select(where(vm(load=uses(0.03)), loads=loads, best=["node-2", "node-3"]))
    assert small.choice is not None
    assert small.choice.target == "node-3"


# --- order ---


def test_priority_comes_before_gain() -> None:
    selection = select(
        where(vm("vm-1", priority=10, load=uses(0.3)), vm("vm-2", priority=0, load=uses(0.02)))
    )
    assert (chosen(selection), reasons(selection)) == ("vm-2", {"vm-1": "NotFirst"})


def test_gain_filters_before_priority_orders() -> None:
    idle = vm("vm-1", priority=0, load=uses(0.0))
    assert chosen(select(where(idle, vm("vm-2", priority=10, load=uses(0.1))))) == "vm-2"


def test_of_equal_priority_the_cheapest_relief_comes_first() -> None:
    """Relief a third sooner than by the greatest gain: the large one takes eight times as long for twice as much."""
    large = vm("vm-1", load=uses(0.2, 0.32))
    small = vm("vm-2", load=uses(0.1, 0.04))
    assert chosen(select(where(large, small))) == "vm-2"


def test_memory_that_changes_fast_is_dear_to_copy() -> None:
    calm = vm("vm-2", load=uses(0.1, 0.04))
    busy = vm("vm-1", load=uses(0.11, 0.04, dirty_bytes_per_s=0.8 * GB_S))
    assert chosen(select(where(busy, calm))) == "vm-2"


def test_ties_break_by_name_whatever_the_order_of_the_candidates() -> None:
    first, second = vm("vm-1"), vm("vm-2")
    assert chosen(select(where(first, second))) == chosen(select(where(second, first))) == "vm-1"


@pytest.mark.parametrize(
    ("vm_load", "bandwidth", "seconds"),
    [
        (VmLoad(1.0, 80e9), 0.0, 80.0),
        (VmLoad(1.0, 80e9), 2e9, 40.0),
        (VmLoad(1.0, 80e9, 0.5e9), 0.0, 160.0),
        (VmLoad(1.0, 80e9, 5e9), 0.0, 1600.0),
        (VmLoad(1.0, 0.0), 0.0, 1.0),
    ],
    ids=["assumed network", "KubeVirt's limit", "dirty rate", "faster than the copy", "never free of charge"],
)
def test_cost_is_the_time_to_copy_the_memory(vm_load: VmLoad, bandwidth: float, seconds: float) -> None:
    assert copying_time_s(vm_load, kubevirt(bandwidth_per_migration=bandwidth)) == pytest.approx(seconds)


def test_lowest_priority_orders_by_priority_requests_and_age() -> None:
    first = vm("vm-5", load=uses(0.02))
    others = [
        vm("vm-4", load=uses(0.3), created=START + HOUR / 2),
        vm("vm-3", load=uses(0.3), memory_bytes=16 * GIB),
        vm("vm-2", load=uses(0.3), cpu_cores=1.6),
        vm("vm-1", load=uses(0.3), priority=5, cpu_cores=0.1),
    ]
    everyone = [*others, first]
    order = []
    while everyone:
        selection = select(where(*everyone, order=Order.LOWEST_PRIORITY))
        assert selection.choice is not None
        order.append(selection.choice.candidate.vmi.name)
        everyone.remove(selection.choice.candidate)
    assert order == ["vm-5", "vm-4", "vm-3", "vm-2", "vm-1"]


def test_lowest_priority_moves_nothing_useless_either() -> None:
    idle = vm("vm-1", load=uses(0.0))
    selection = select(where(idle, vm("vm-2", priority=9, load=uses(0.1)), order=Order.LOWEST_PRIORITY))
    assert (chosen(selection), reasons(selection)) == ("vm-2", {"vm-1": "NoGain"})


# --- no VM is measured ---


def blind(loads: dict[str, NodeLoad], *vms: Candidate) -> Selection:
    return select(where(*(vms or (vm(load=None),)), loads=loads))


def test_without_metrics_of_vms_the_order_is_by_priority_and_the_reason_says_so() -> None:
    older = vm("vm-2", load=None)
    selection = blind({"node-1": used(0.9), "node-2": used(0.3)}, vm("vm-1", load=None, priority=1), older)
    assert selection.choice is not None
    assert selection.choice.candidate is older
    assert "no VM is measured" in selection.choice.why
    assert selection.choice.candidate.load is None, "so that the ledger holds the slot until it has settled"


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ({"node-1": used(0.9), "node-2": used(0.9)}, "NoGain"),
        ({"node-1": used(0.9, 0.5), "node-2": used(0.95, 0.1)}, "NoGain"),
        ({"node-1": used(0.9, 0.5), "node-2": used(0.1, 0.9)}, "WouldOverload"),
        ({"node-1": used(0.5, 0.9), "node-2": used(0.7, 0.1)}, "WouldOverload"),
    ],
    ids=["as busy", "busier where it hurts", "short of memory", "short of CPU"],
)
def test_without_metrics_of_vms_the_destination_must_at_least_be_better_off(
    loads: dict[str, NodeLoad], reason: str
) -> None:
    assert reasons(blind(loads)) == {"vm-1": reason}


def test_a_vm_that_may_not_move_does_not_make_the_others_blind() -> None:
    """Measured or not, only those count that may be moved."""
    selection = select(
        where(vm("vm-1", load=None), vm("vm-2", load=uses(0.1), priority=7), priority_threshold=5)
    )
    assert selection.choice is not None
    assert "no VM is measured" in selection.choice.why
