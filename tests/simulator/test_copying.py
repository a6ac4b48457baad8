"""How long copies take: shares of the NICs, dirty pages, time-outs, and what they cost."""

import pytest
from msgspec.structs import replace

from simulator.kubevirt.options import KubeVirtOptions
from simulator.specs import GIB
from tests.simulator.kubevirt_builders import SURE, Cluster, cluster, vm

NIC = 1.25e9
FIXED = replace(SURE, setup_bytes=0.0, switch_over_s=(0.0, 0.0), reaction_s=(0.0, 0.0))


def copied_for(built: Cluster, name: str = "vm") -> float:
    """Seconds from the start of copying to the VMIM's end, with no delays besides."""
    record = next(m for m in built.control.migrations if m.vm == f"vms/{name}" and m.started_s is not None)
    assert record.ended_s is not None
    return record.ended_s - (record.started_s or 0.0)


def migrated(*names: str, options: KubeVirtOptions = FIXED, **changes: float) -> Cluster:
    built = cluster(*(vm(name, **changes) for name in names), nodes=4, options=options)
    for name in names:
        built.control.create_migration("vms", name)
    built.run(4 * 3600)
    return built


def test_takes_resident_memory_over_what_the_dirty_rate_leaves() -> None:
    built = migrated("vm", guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=250e6)
    assert copied_for(built) == pytest.approx((32 * GIB - 0.3 * NIC) / (NIC - 250e6))


def test_the_set_up_is_transferred_too() -> None:
    options = replace(FIXED, setup_bytes=2 * GIB)
    built = migrated("vm", options=options, guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=0.0)
    assert copied_for(built) == pytest.approx((34 * GIB - 0.3 * NIC) / NIC)


def test_two_off_one_node_share_its_nic() -> None:
    options = replace(FIXED, pod_scheduling_s=(1.0, 1.0), pod_start_s=(5.0, 5.0), prepare_s=(1.0, 1.0))
    built = migrated("a", "b", options=options, guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=0.0)
    for name in ("a", "b"):
        assert copied_for(built, name) == pytest.approx((32 * GIB - 0.15 * NIC) / (NIC / 2))


def test_the_one_that_is_left_gets_the_whole_nic() -> None:
    options = replace(FIXED, pod_scheduling_s=(1.0, 1.0), pod_start_s=(5.0, 5.0), prepare_s=(1.0, 1.0))
    small, large = (
        vm("small", touched=0.25, dirty_bytes_per_s=0.0),
        vm("large", touched=0.5, dirty_bytes_per_s=0.0),
    )
    built = cluster(small, large, nodes=4, options=options)
    for name in ("small", "large"):
        built.control.create_migration("vms", name)
    built.run(600)
    together = (16 * GIB - 0.15 * NIC) / (NIC / 2)
    alone = (32 * GIB - together * NIC / 2 - 0.3 * NIC) / NIC
    assert copied_for(built, "small") == pytest.approx(together)
    assert copied_for(built, "large") == pytest.approx(together + alone)


def test_kubevirts_bandwidth_per_migration_is_a_cap() -> None:
    options = replace(FIXED, bandwidth_per_migration_bytes_per_s=256 * float(1 << 20))
    built = migrated("vm", options=options, guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=0.0)
    cap = 256 * float(1 << 20)
    assert copied_for(built) == pytest.approx((32 * GIB - 0.3 * cap) / cap)


def test_slow_stretches_it() -> None:
    slow = migrated("vm", options=replace(FIXED, slow_factor=20.0), dirty_bytes_per_s=250e6)
    assert copied_for(slow) == pytest.approx(20.0 * copied_for(migrated("vm", dirty_bytes_per_s=250e6)))


def test_a_guest_that_dirties_faster_than_the_network_fails_when_progress_ends() -> None:
    """The first pass over its memory is progress; 150 s later KubeVirt aborts."""
    built = migrated("vm", guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=2 * NIC)
    record = built.control.migrations[0]
    assert record.outcome == "Failed"
    assert "stuck for 150 sec" in record.failure
    assert copied_for(built) == pytest.approx(32 * GIB / NIC + 150.0)


def test_a_guest_that_converges_too_slowly_fails_at_the_completion_time_out() -> None:
    """150 s for each GiB of guest memory."""
    built = migrated("vm", guest_bytes=4 * GIB, touched=1.0, dirty_bytes_per_s=0.999 * NIC)
    record = built.control.migrations[0]
    assert record.outcome == "Failed"
    assert "not completed after 600 sec" in record.failure
    assert copied_for(built) == pytest.approx(600.0)


def test_a_small_remainder_is_switched_over_even_if_pages_are_dirtied_faster() -> None:
    options = replace(FIXED, setup_bytes=1e6)
    built = migrated("vm", options=options, guest_bytes=GIB, touched=0.0, dirty_bytes_per_s=2 * NIC)
    assert built.control.migrations[0].outcome == "Succeeded"


def test_copying_costs_cpu_on_both_nodes_while_it_runs() -> None:
    built = cluster(vm(demand=0.0), nodes=2)
    built.control.create_migration("vms", "vm")
    built.run(25)
    assert built.world.node_demand_cores().tolist() == [1.5, 1.5]
    built.run(60)
    assert built.world.node_demand_cores().tolist() == [0.0, 0.0]


def test_memory_touched_after_the_start_does_not_change_the_copy() -> None:
    built = cluster(vm(guest_bytes=64 * GIB, touched=0.5, dirty_bytes_per_s=0.0), nodes=2, options=FIXED)
    built.control.create_migration("vms", "vm")
    built.run(15)
    built.world.set_touched("vms/vm", 1.0)
    built.run(100)
    assert copied_for(built) == pytest.approx((32 * GIB - 0.3 * NIC) / NIC)


def test_that_many_fail_while_they_copy() -> None:
    names = [f"vm-{number}" for number in range(60)]
    options = replace(SURE, failure_probability=0.3, parallel_outbound_migrations_per_node=60)
    built = cluster(
        *(vm(name, vcpus=1, guest_bytes=2 * GIB, dirty_bytes_per_s=0.0) for name in names),
        nodes=4,
        options=replace(options, parallel_migrations_per_cluster=60),
    )
    for name in names:
        built.control.create_migration("vms", name)
    built.run(3600)
    failed = sum(m.outcome == "Failed" for m in built.control.migrations)
    assert 8 <= failed <= 28
    assert all(m.started_s is not None for m in built.control.migrations)


def test_what_arrives_does_not_slow_down_what_leaves() -> None:
    """A NIC is full duplex: two VMs that change places take as long as one alone."""
    options = replace(FIXED, pod_scheduling_s=(1.0, 1.0), pod_start_s=(5.0, 5.0), prepare_s=(1.0, 1.0))
    changes = {"guest_bytes": 64 * GIB, "touched": 0.5, "dirty_bytes_per_s": 0.0}
    built = cluster(vm("a", **changes), vm("b", node="node-1", **changes), nodes=2, options=options)
    for name in ("a", "b"):
        built.control.create_migration("vms", name)
    built.run(600)
    for name in ("a", "b"):
        assert copied_for(built, name) == pytest.approx((32 * GIB - 0.3 * NIC) / NIC)
