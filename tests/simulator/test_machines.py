"""VMs over their life: creation, stop, start, deletion, restart."""

import pytest

from simulator.kubevirt.objectstore import POD, VMI, AlreadyExists, NotFound, at
from tests.simulator.kubevirt_builders import cluster, node, vm


def test_a_vm_with_an_age_is_there_at_once_and_was_created_before() -> None:
    built = cluster(vm(age_s=3600.0))
    assert built.vmi()["metadata"]["creationTimestamp"] == "2026-01-04T23:00:00Z"
    assert built.pods()[0]["status"]["startTime"] == "2026-01-04T23:00:00Z"
    assert built.vmi()["status"]["phase"] == "Running"
    assert built.world.node_of("vms/vm") == "node-0"


def test_the_scheduler_places_one_without_a_node() -> None:
    built = cluster(*(vm(f"vm-{n}", node=None) for n in range(3)))
    assert {built.vmi(f"vm-{n}")["status"]["nodeName"] for n in range(3)} == {"node-0", "node-1", "node-2"}


def test_a_vm_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"VM vms/vm fits on no node: 0/1 nodes are available: 1 Insufficient memory"
    ):
        cluster(vm(node=None, guest_bytes=1e12), nodes=1)
    with pytest.raises(ValueError, match="node 'nowhere'"):
        cluster(vm(node="nowhere"))


def test_a_new_vm_starts_step_by_step() -> None:
    built = cluster()
    built.control.create_vm(vm(age_s=0.0, node=None))
    assert not built.control.is_running("vms", "vm")
    built.run(20)
    phases = [obj["status"]["phase"] for _, obj in built.changes(VMI)]
    assert list(dict.fromkeys(phases)) == ["Pending", "Scheduling", "Scheduled", "Running"]
    pods = [
        (obj["status"]["phase"], obj["spec"].get("nodeName") is not None) for _, obj in built.changes(POD)
    ]
    assert list(dict.fromkeys(pods)) == [("Pending", False), ("Pending", True), ("Running", True)]
    assert built.control.is_running("vms", "vm")
    assert at(built.vmi(), "status", "activePods") == {
        built.pods()[0]["metadata"]["uid"]: built.vmi()["status"]["nodeName"]
    }


def test_a_new_vm_waits_until_there_is_room() -> None:
    built = cluster(nodes=0)
    built.control.create_vm(vm(age_s=0.0, node=None))
    built.run(60)
    assert built.pods()[0]["status"]["conditions"][0]["message"] == "no nodes available to schedule pods"
    built.control.add_node(node("node-0"))
    built.run(30)
    assert built.control.is_running("vms", "vm")


def test_a_stopped_vm_stays_down_until_it_is_started() -> None:
    built = cluster(vm())
    built.control.stop_vm("vms", "vm")
    built.run(600)
    assert built.store.get(VMI, "vms", "vm") is None
    assert built.pods() == []
    assert built.control.shutdowns == []
    built.control.start_vm("vms", "vm")
    built.run(30)
    assert built.control.is_running("vms", "vm")


def test_a_vm_can_be_started_while_it_still_goes_down() -> None:
    built = cluster(vm())
    before = built.vmi()["metadata"]["uid"]
    built.control.stop_vm("vms", "vm")
    built.control.start_vm("vms", "vm")
    built.run(30)
    assert built.vmi()["metadata"]["uid"] != before
    assert built.control.is_running("vms", "vm")


def test_a_deleted_vm_is_gone_and_its_name_is_free_again() -> None:
    built = cluster(vm())
    built.control.delete_vm("vms", "vm")
    with pytest.raises(AlreadyExists):
        built.control.create_vm(vm())
    with pytest.raises(NotFound):
        built.control.stop_vm("vms", "vm")
    built.run(200)
    built.control.create_vm(vm(node="node-1"))
    assert built.control.is_running("vms", "vm")


def test_one_stopped_while_it_waits_for_its_restart_stays_down() -> None:
    built = cluster(vm(eviction_strategy="None"))
    built.evict()
    built.run(20)
    built.control.stop_vm("vms", "vm")
    built.run(300)
    assert built.store.get(VMI, "vms", "vm") is None


def test_opt_out_pin_group_and_labels_show_on_vmi_and_launcher() -> None:
    built = cluster(
        vm(opted_out=True, pinned_to="node-0", anti_affinity_group="g", labels={"app": "db"}, priority=7)
    )
    (pod,) = built.pods()
    for obj in (built.vmi(), pod):
        assert obj["metadata"]["annotations"]["descheduler.alpha.kubernetes.io/prefer-no-eviction"] == "true"
        assert obj["metadata"]["labels"]["app"] == "db"
        assert obj["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "node-0"
        assert "podAntiAffinity" in obj["spec"]["affinity"]
    assert pod["spec"]["priority"] == 7


def test_a_vm_that_cannot_migrate_says_why() -> None:
    built = cluster(vm(migratable=False))
    (condition,) = built.vmi()["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("LiveMigratable", "False")
    assert condition["reason"] == "DisksNotLiveMigratable"
    assert condition["message"]
