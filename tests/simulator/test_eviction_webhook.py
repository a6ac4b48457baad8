"""What an eviction request gets, line by line of KubeVirt's table; texts as recorded from a real API server."""

from typing import Any

import pytest

from simulator.kubevirt.evictions import EvictionAnswer
from simulator.kubevirt.objectstore import KUBEVIRT, PDB, POD, at
from simulator.kubevirt.options import KubeVirtOptions
from simulator.record import ShutdownRecord
from tests.simulator.kubevirt_builders import DENIED, DESCHEDULER, SURE, Cluster, cluster, node, vm

TRIGGERED = EvictionAnswer(429, f'{DENIED}Eviction triggered evacuation of VMI "vms/vm"')
AGAIN = EvictionAnswer(429, f'{DENIED}Evacuation in progress: Eviction triggered evacuation of VMI "vms/vm"')
NOT_MIGRATABLE = EvictionAnswer(
    429, f"{DENIED}VMI vm is configured with an eviction strategy but is not live-migratable"
)
TARGET = EvictionAnswer(429, f"{DENIED}Eviction request for target Pod")
BUDGET = EvictionAnswer(429, "Cannot evict pod as it would violate the pod's disruption budget.")
GRANTED = EvictionAnswer(201)

OLDER = KubeVirtOptions(webhook="older", failed_target_stays_probability=0.0)
NEWER_DOWN = KubeVirtOptions(webhook_down=True)
OLDER_DOWN = KubeVirtOptions(webhook="older", webhook_down=True)

TABLE = [
    (None, True, GRANTED, False),
    (None, False, GRANTED, False),
    ("None", True, GRANTED, False),
    ("None", False, GRANTED, False),
    ("LiveMigrate", True, TRIGGERED, True),
    ("LiveMigrate", False, NOT_MIGRATABLE, False),
    ("LiveMigrateIfPossible", True, TRIGGERED, True),
    ("LiveMigrateIfPossible", False, GRANTED, False),
    ("External", True, TRIGGERED, True),
    ("External", False, TRIGGERED, True),
]


@pytest.mark.parametrize("options", [SURE, OLDER])
@pytest.mark.parametrize(("strategy", "migratable", "answer", "marks"), TABLE)
def test_the_strategy_decides(
    options: KubeVirtOptions, strategy: str | None, migratable: bool, answer: EvictionAnswer, marks: bool
) -> None:
    built = cluster(vm(eviction_strategy=strategy, migratable=migratable), options=options)
    assert built.evict() == answer
    assert built.mark() == ("node-0" if marks else None)
    assert bool(built.control.shutdowns) is (answer == GRANTED)


@pytest.mark.parametrize(("strategy", "migratable", "answer", "marks"), TABLE)
def test_a_dry_run_gets_the_same_answer_and_changes_nothing(
    strategy: str | None, migratable: bool, answer: EvictionAnswer, marks: bool
) -> None:
    built = cluster(vm(eviction_strategy=strategy, migratable=migratable))
    version = built.store.resource_version
    assert built.evict(dry_run=True) == answer
    built.run(600)
    assert built.store.resource_version == version
    assert built.control.is_running("vms", "vm")


def test_the_clusters_strategy_holds_for_a_vmi_that_says_nothing() -> None:
    options = KubeVirtOptions(cluster_eviction_strategy="LiveMigrate")
    assert cluster(vm(eviction_strategy=None), options=options).evict() == TRIGGERED
    assert cluster(vm(eviction_strategy="None"), options=options).evict() == GRANTED


def test_a_change_of_the_kubevirt_object_holds_at_once() -> None:
    built = cluster(vm(eviction_strategy=None))
    strategy = ("spec", "configuration", "evictionStrategy")
    built.store.update(KUBEVIRT, "kubevirt", "kubevirt", {strategy: "LiveMigrate"})
    assert built.evict(dry_run=True) == TRIGGERED


@pytest.mark.parametrize(("options", "answer"), [(SURE, AGAIN), (OLDER, BUDGET)])
def test_a_marked_vmi_is_in_evacuation_whoever_asks(options: KubeVirtOptions, answer: EvictionAnswer) -> None:
    built = cluster(vm(), options=options)
    built.evict()
    assert built.evict() == answer
    assert built.evict(dry_run=True, requested_by="") == answer
    built.run(20)
    target = built.pods()[1]["metadata"]["name"]
    assert built.control.evict("vms", target, dry_run=False) == answer


@pytest.mark.parametrize("options", [SURE, OLDER])
def test_the_target_pod_of_a_users_migration_is_told_apart(options: KubeVirtOptions) -> None:
    built = cluster(vm(), options=options)
    built.control.create_migration("vms", "vm")
    built.run(15)
    target = built.pods()[1]["metadata"]["name"]
    assert built.control.evict("vms", target, dry_run=False) == TARGET
    assert built.mark() is None


def test_a_finished_launcher_may_go() -> None:
    built = cluster(vm())
    built.evict()
    built.run(60)
    source = built.pods()[0]
    assert source["status"]["phase"] == "Succeeded"
    assert built.evict() == GRANTED
    built.run(10)
    assert len(built.pods()) == 1
    assert built.control.shutdowns == []


def test_a_pod_that_is_gone_is_not_found() -> None:
    answer = cluster().control.evict("vms", "virt-launcher-gone-abcde", dry_run=True)
    assert answer == (404, 'pods "virt-launcher-gone-abcde" not found', None)


def test_another_uid_than_expected_is_a_conflict_and_changes_nothing() -> None:
    built = cluster(vm())
    answer = built.evict(uid="0-0")
    assert answer.status == 409
    assert "UID in precondition: 0-0" in answer.message
    assert built.mark() is None
    assert built.evict(uid=built.pods()[0]["metadata"]["uid"]) == TRIGGERED


def test_newer_kubevirt_fails_closed_without_its_webhook() -> None:
    built = cluster(vm(), vm("free", eviction_strategy=None), options=NEWER_DOWN)
    for name in ("vm", "free"):
        answer = built.evict(name)
        assert answer.status == 500
        assert "failed calling webhook" in answer.message
    assert built.store.list(PDB) == []


def test_older_kubevirt_without_its_webhook_is_guarded_by_pdbs_only() -> None:
    built = cluster(
        vm(), vm("fixed", migratable=False), vm("free", eviction_strategy=None), options=OLDER_DOWN
    )
    assert built.evict() == BUDGET
    assert built.mark() is None
    assert [built.evict(name) for name in ("fixed", "free")] == [GRANTED, GRANTED]
    assert [record.vm for record in built.control.shutdowns] == ["vms/fixed", "vms/free"]


def test_the_webhook_can_go_and_come_back() -> None:
    built = cluster(vm())
    built.control.set_webhook_down(is_down=True)
    assert built.evict().status == 500
    built.control.set_webhook_down(is_down=False)
    assert built.evict() == TRIGGERED


def test_pdbs_come_and_go_with_their_vms() -> None:
    built = cluster(vm(), options=OLDER)
    assert len(built.store.list(PDB)) == 1
    built.control.stop_vm("vms", "vm")
    built.run(30)
    assert built.store.list(PDB) == []


def test_a_hotplug_pod_is_never_evicted() -> None:
    built = cluster(vm())
    built.control.hotplug_volume("vms", "vm")
    name = next(
        p["metadata"]["name"] for p in built.store.list(POD) if p["metadata"]["name"].startswith("hp-")
    )
    assert built.control.evict("vms", name, dry_run=False) == (
        429,
        f"{DENIED}cannot evict hotplug pod: {name} associated with running vmi: vm in namespace vms",
        None,
    )


def test_other_pods_are_no_business_of_kubevirts() -> None:
    built = cluster()
    built.control.add_node(node("more", other_requests_cpu_cores=1.0))
    assert built.control.evict("kube-system", "other-more", dry_run=True) == GRANTED


def test_a_throttled_request_is_told_when_to_come_again() -> None:
    built = cluster(vm(), options=KubeVirtOptions(throttle_probability=1.0))
    answer = built.evict()
    assert (answer.status, answer.retry_after_s) == (429, 1.0)
    assert built.mark() is None


def test_granting_takes_the_vm_down_and_it_comes_up_anew() -> None:
    """2xx means that the VM really goes down: its work stops, and a new VMI appears under the same name."""
    built = cluster(vm(eviction_strategy="None", demand=0.5))
    before = built.vmi()["metadata"]["uid"]
    built.run(10)
    assert built.evict() == GRANTED
    assert built.control.shutdowns == [ShutdownRecord(10.0, "vms/vm", "node-0", "rebalancer")]
    assert built.world.node_vm_demand_cores().sum() == 0.0
    built.run(30)
    assert built.store.get("VirtualMachineInstance", "vms", "vm") is None
    built.run(90)
    after = built.vmi()
    assert after["metadata"]["uid"] != before
    assert after["status"]["phase"] == "Running"
    assert built.world.vm_demand_cores("vms/vm") == 4.0
    assert len(built.pods()) == 1


def source(built: Cluster) -> Any:
    return at(built.vmi(), "metadata", "annotations", "kubevirt.io/eviction-source")


def test_only_the_descheduler_leaves_its_name() -> None:
    built = cluster(vm("vm"), vm("drained"))
    built.evict()
    built.evict("drained", requested_by="")
    assert source(built) == "descheduler"
    assert "kubevirt.io/eviction-source" not in built.vmi("drained")["metadata"]["annotations"]
    built.run(2)
    priorities = [built.vmims(name)[0]["spec"]["priority"] for name in ("vm", "drained")]
    assert priorities == ["system-maintenance", "system-critical"]


def test_the_name_goes_on_success_only_so_a_later_drain_still_looks_like_ours() -> None:
    built = cluster(vm(), nodes=1)
    built.evict(requested_by=DESCHEDULER)
    built.run(5)
    built.control.evacuate_cancel("vms", "vm")
    built.control.delete_migration("vms", built.vmims()[0]["metadata"]["name"])
    built.run(5)
    assert built.mark() is None
    assert source(built) == "descheduler"
    built.evict(requested_by="")
    built.run(5)
    assert built.vmims()[-1]["spec"]["priority"] == "system-maintenance"
    built.control.add_node(node("node-1"))
    built.run(120)
    assert built.vmi()["status"]["nodeName"] == "node-1"
    assert source(built) is None
