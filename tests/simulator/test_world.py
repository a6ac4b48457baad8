"""The physical world: who gets what of a node, and what is booked of it."""

import numpy as np
import pytest

from simulator.specs import GIB
from simulator.world.pressure import cpu_pressure, io_pressure, memory_pressure
from tests.simulator.world_builders import node, vm, world_of


def test_everybody_gets_what_it_wants_while_the_cores_suffice() -> None:
    agenda, world = world_of("a")
    world.add_vm("vms/x", vm(demand=0.4), "a")
    world.add_vm("vms/y", vm(demand=0.6), "a")
    agenda.run_until(100)
    assert world.node_used_cores().tolist() == [10.0]
    assert world.vm_cpu_used_s().tolist() == pytest.approx([400.0, 600.0])
    assert world.vm_vcpu_delay_s().tolist() == [0.0, 0.0]
    assert world.node_counters().starved_core_s.tolist() == [0.0]


def test_cores_are_shared_in_proportion_when_demand_exceeds_them() -> None:
    agenda, world = world_of("a")
    world.add_vm("vms/x", vm(demand=0.5), "a")
    world.add_vm("vms/y", vm(demand=1.0), "a")
    agenda.run_until(30)
    assert world.node_demand_cores().tolist() == [15.0]
    assert world.node_used_cores().tolist() == [10.0]
    assert world.vm_cpu_used_s().tolist() == pytest.approx([100.0, 200.0])
    assert world.vm_vcpu_delay_s().tolist() == pytest.approx([50.0, 100.0])
    assert world.node_counters().starved_core_s.tolist() == pytest.approx([150.0])


def test_what_else_runs_on_a_node_takes_its_share_but_only_vms_starve() -> None:
    agenda, world = world_of()
    world.add_node(node("a", other_cpu_cores=4.0))
    world.add_vm("vms/x", vm(demand=1.0), "a")
    world.set_overhead_cores("a", 2.0)
    agenda.run_until(16)
    assert world.node_demand_cores().tolist() == [16.0]
    assert world.node_vm_demand_cores().tolist() == [10.0]
    assert world.vm_cpu_used_s().tolist() == pytest.approx([100.0])
    assert world.node_counters().starved_core_s.tolist() == pytest.approx([60.0])
    world.set_overhead_cores("a", 0.0)
    assert world.node_demand_cores().tolist() == [14.0]


def test_changes_act_from_now_on_and_never_on_the_past() -> None:
    agenda, world = world_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.2), "a")
    agenda.run_until(10)
    world.set_demand("vms/x", 0.8)
    agenda.run_until(20)
    world.move_vm("vms/x", "b")
    agenda.run_until(30)
    assert world.node_counters().cpu_used_s.tolist() == pytest.approx([100.0, 80.0])
    assert world.vm_cpu_used_s().tolist() == pytest.approx([180.0])
    assert world.node_of("vms/x") == "b"


def test_many_demands_at_once_equal_many_single_ones() -> None:
    """Loads change in bulk; a shortcut there must not change the physics."""
    agenda, world = world_of("a", "b")
    keys = [f"vms/{number}" for number in range(6)]
    for number, key in enumerate(keys):
        world.add_vm(key, vm(), "ab"[number % 2])
    world.set_demands(dict.fromkeys(keys[:3], 0.5))
    slots = world.slots(keys[3:])
    world.set_demands_at(slots, np.array([0.1, 0.2, 0.3]))
    world.set_touched_at(slots, np.array([1.0, 1.0, 0.0]))
    world.set_touched(keys[0], 0.0)
    assert [world.vm_demand_cores(key) for key in keys] == pytest.approx([5, 5, 5, 1, 2, 3])
    assert [world.vm_touched_bytes(key) / GIB for key in keys] == [0, 5, 5, 10, 10, 0]
    agenda.run_until(10)
    assert world.node_counters().cpu_used_s.tolist() == pytest.approx([100.0, 90.0])


def test_node_arrays_are_in_the_order_of_insertion_also_after_a_node_has_gone() -> None:
    agenda, world = world_of("c", "a", "b")
    world.add_vm("vms/x", vm(demand=0.3), "b")
    world.remove_node("c")
    world.add_node(node("c"))
    assert world.node_names() == ("a", "b", "c")
    assert world.node_used_cores().tolist() == pytest.approx([0.0, 3.0, 0.0])
    agenda.run_until(10)
    assert world.vm_cpu_used_s().tolist() == pytest.approx([30.0])


def test_totals_keep_what_a_removed_node_has_gathered() -> None:
    agenda, world = world_of("a", "b")
    world.add_vm("vms/x", vm(demand=1.0), "a")
    world.add_vm("vms/y", vm(demand=1.0), "a")
    agenda.run_until(10)
    world.remove_vm("vms/x")
    world.move_vm("vms/y", "b")
    world.remove_node("a")
    agenda.run_until(20)
    totals = world.totals()
    assert float(totals.starved_core_s) == pytest.approx(100.0)
    assert float(totals.over_s) == pytest.approx(20.0)
    assert world.node_counters().over_s.tolist() == [10.0]
    assert world.over_intervals() == {"a": [(0.0, 10.0)], "b": [(10.0, 20.0)]}


def test_a_slot_that_is_used_again_brings_nothing_along() -> None:
    agenda, world = world_of("a")
    world.add_vm("vms/x", vm(demand=1.0), "a")
    agenda.run_until(10)
    world.remove_vm("vms/x")
    world.add_vm("vms/y", vm(demand=0.1), "a")
    agenda.run_until(20)
    assert world.vm_keys() == ("vms/y",)
    assert world.vm_cpu_used_s().tolist() == pytest.approx([10.0])


def test_grows_beyond_its_first_capacity() -> None:
    agenda, world = world_of("a")
    for number in range(300):
        world.add_vm(f"vms/{number}", vm(vcpus=0.01, demand=1.0), "a")
    agenda.run_until(10)
    assert world.node_used_cores().tolist() == pytest.approx([3.0])
    assert world.vm_cpu_used_s().sum() == pytest.approx(30.0)


def test_over_means_that_vms_want_more_than_80_percent_whatever_else_runs() -> None:
    agenda, world = world_of()
    world.add_node(node("a", other_cpu_cores=5.0))
    world.add_vm("vms/x", vm(demand=0.8), "a")
    agenda.run_until(10)
    world.set_demand("vms/x", 0.81)
    agenda.run_until(13)
    assert world.node_counters().over_s.tolist() == [3.0]


def test_intervals_of_being_over_join_and_end_exactly() -> None:
    """minutes_to_balance is read off these intervals."""
    agenda, world = world_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.9), "a")
    world.add_vm("vms/y", vm(), "b")
    agenda.run_until(10)
    world.set_demands({"vms/x": 0.1, "vms/y": 0.9})
    agenda.run_until(20)
    world.set_demand("vms/y", 0.1)
    world.set_demand("vms/y", 0.95)
    agenda.run_until(30)
    world.set_demand("vms/y", 0.1)
    agenda.run_until(40)
    world.set_demand("vms/x", 0.9)
    agenda.run_until(45)
    assert world.over_intervals() == {"a": [(0, 10), (40, 45)], "b": [(10, 30)]}
    assert world.any_over_intervals() == [(0, 30), (40, 45)]


def test_the_last_node_that_is_over_can_go() -> None:
    agenda, world = world_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.9), "a")
    agenda.run_until(10)
    world.remove_vm("vms/x")
    world.remove_node("a")
    agenda.run_until(20)
    assert world.any_over_intervals() == [(0, 10)]


def test_stddev_is_the_mean_over_time_over_nodes() -> None:
    agenda, world = world_of("a", "b")
    assert world.utilization_stddev() == 0.0
    world.add_vm("vms/x", vm(demand=0.4), "a")
    agenda.run_until(10)
    world.set_demand("vms/x", 0.0)
    agenda.run_until(20)
    assert world.utilization_stddev() == pytest.approx(0.1)


def test_memory_is_what_guests_have_touched_and_other_use() -> None:
    _, world = world_of()
    world.add_node(node("a", other_memory_bytes=20 * GIB))
    world.add_vm("vms/x", vm(guest_bytes=64 * GIB, touched=0.5), "a")
    assert world.node_memory_bytes().tolist() == [52 * GIB]
    assert world.node_memory_pressure().tolist() == [0.0]


def test_memory_pressure_comes_near_exhaustion_and_brings_io_pressure() -> None:
    agenda, world = world_of()
    world.add_node(node("a", other_memory_bytes=95 * GIB))
    assert world.node_memory_pressure().tolist() == pytest.approx([0.125])
    assert world.node_io_pressure().tolist() == pytest.approx([0.0625])
    agenda.run_until(8)
    counters = world.node_counters()
    assert counters.memory_waiting_s.tolist() == pytest.approx([1.0])
    assert counters.io_waiting_s.tolist() == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("load", "pressure"), [(0, 0), (0.7, 0), (0.8, 0.3 / 9), (1, 0.3), (1.25, 0.5), (2, 0.8), (100, 1)]
)
def test_cpu_pressure_starts_at_70_percent_and_counts_the_starved_share(load: float, pressure: float) -> None:
    assert cpu_pressure(np.array([load])).tolist() == pytest.approx([pressure])


def test_pressure_rises_smoothly_and_stays_a_share_of_time() -> None:
    loads = np.linspace(0, 5, 5001)
    for pressure in (cpu_pressure(loads), memory_pressure(loads), io_pressure(memory_pressure(loads))):
        assert pressure.min() == 0.0
        assert pressure.max() <= 1.0
        assert np.diff(pressure).min() >= 0.0
        assert np.diff(pressure).max() < 0.012


def test_counters_of_a_vm_start_anew_on_its_new_node() -> None:
    agenda, world = world_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.5, age_s=1000), "a")
    slot = world.slots(["vms/x"])
    assert world.vm_readings().cpu_usage_s[slot].tolist() == [5000.0]
    agenda.run_until(10)
    world.move_vm("vms/x", "b")
    assert world.vm_readings().cpu_usage_s[slot].tolist() == [0.0]
    agenda.run_until(12)
    assert world.vm_readings().cpu_usage_s[slot].tolist() == pytest.approx([10.0])
    assert world.vm_cpu_used_s().tolist() == pytest.approx([60.0])


def test_control_plane_nodes_are_workers_only_if_they_say_so() -> None:
    _, world = world_of("plain")
    control_plane = {"node-role.kubernetes.io/control-plane": ""}
    world.add_node(node("cp", labels=control_plane))
    world.add_node(node("master", labels={"node-role.kubernetes.io/master": ""}))
    world.add_node(node("both", labels={**control_plane, "node-role.kubernetes.io/worker": ""}))
    assert world.layout().workers.tolist() == [True, False, False, True]


def test_refuses_what_cannot_be() -> None:
    _, world = world_of("a")
    world.add_vm("vms/x", vm(), "a")
    with pytest.raises(ValueError, match="node 'a' exists already"):
        world.add_node(node("a"))
    with pytest.raises(ValueError, match="both must be > 0"):
        world.add_node(node("b", cores=0.0))
    with pytest.raises(ValueError, match="VM 'vms/x' runs already, on node 'a'"):
        world.add_vm("vms/x", vm(), "a")
    with pytest.raises(ValueError, match="still holds 1 VMs, 'vms/x' for one"):
        world.remove_node("a")
    with pytest.raises(ValueError, match=r"found the fraction 1\.5, allowed are 0 to 1"):
        world.set_demand("vms/x", 1.5)
    with pytest.raises(ValueError, match="found the fraction nan"):
        world.set_touched("vms/x", float("nan"))
    with pytest.raises(ValueError, match="must be >= 0"):
        world.set_overhead_cores("a", -1.0)
    with pytest.raises(KeyError):
        world.add_vm("vms/y", vm(), "nowhere")
    with pytest.raises(KeyError):
        world.set_demand("vms/unknown", 0.5)


def test_an_empty_world_can_be_asked() -> None:
    agenda, world = world_of()
    agenda.run_until(10)
    assert world.node_used_cores().tolist() == []
    assert world.vm_cpu_used_s().tolist() == []
    assert float(world.totals().starved_core_s) == 0.0
    assert world.utilization_stddev() == 0.0
    assert world.any_over_intervals() == []
