"""From the mark to the end: order of changes, slots, priorities, back-off, cancelling, clean-up."""

from typing import Any

import pytest
from msgspec.structs import replace

from simulator.kubevirt.manifests import IN_PROGRESS
from simulator.kubevirt.migrations import Refused
from simulator.kubevirt.objectstore import KUBEVIRT, NODE, POD, VMI, VMIM, Json, NotFound, at
from simulator.kubevirt.options import KubeVirtOptions
from simulator.record import MigrationRecord
from simulator.specs import GIB
from tests.simulator.kubevirt_builders import SURE, Cluster, cluster, node, vm

FAILING = replace(SURE, failure_probability=1.0)
ALL_PHASES = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"]


def first_index(built: Cluster, kind: str, holds: Any) -> int:
    """Position of the first change after which a condition holds for an object of the kind."""
    return next(i for i, (_, e) in enumerate(built.events) if e.kind == kind and holds(e.object))


def transitions(vmim: Json) -> list[str]:
    return [entry["phase"] for entry in vmim["status"]["phaseTransitionTimestamps"]]


def begin_of(record: MigrationRecord) -> float:
    return next(time_s for time_s, phase in record.phases if phase == "Scheduling")


def test_passes_all_phases_in_order() -> None:
    built = cluster(vm())
    built.evict()
    built.run(90)
    (vmim,) = built.vmims()
    assert transitions(vmim) == ALL_PHASES
    added = next(obj for kind, obj in built.changes(VMIM) if kind == "ADDED")
    assert "status" not in added
    assert added["metadata"]["name"].startswith("kubevirt-evacuation-")
    assert added["metadata"]["annotations"] == {"kubevirt.io/evacuationMigration": "node-0"}
    assert added["metadata"]["labels"] == {"kubevirt.io/vmi-name": "vm"}


def test_even_if_there_is_nearly_nothing_to_copy() -> None:
    built = cluster(vm(guest_bytes=GIB, touched=0.0), options=replace(SURE, setup_bytes=0.0))
    built.evict()
    built.run(60)
    assert transitions(built.vmims()[0]) == ALL_PHASES


def test_success_shows_step_by_step() -> None:
    """nodeName and mark, then the migration's end, then the active pod, the source pod, and the VMIM last."""
    built = cluster(vm())
    built.evict()
    built.run(90)
    target = built.vmi()["status"]["nodeName"]
    source_pod = built.pods()[0]["metadata"]["name"]
    order = [
        first_index(built, VMI, lambda o: at(o, "status", "nodeName") == target),
        first_index(built, VMI, lambda o: at(o, "status", "migrationState", "completed")),
        first_index(built, VMI, lambda o: list(o["status"]["activePods"].values()) == [target]),
        first_index(
            built, POD, lambda o: o["metadata"]["name"] == source_pod and o["status"]["phase"] == "Succeeded"
        ),
        first_index(built, VMIM, lambda o: at(o, "status", "phase") == "Succeeded"),
        first_index(built, VMIM, lambda o: at(o, "status", "migrationState", "completed")),
    ]
    assert order == sorted(order)
    assert len({built.events[i][0] for i in order}) == len(order)
    at_move = built.events[order[0]][1].object
    assert "evacuationNodeName" not in at_move["status"]
    assert "endTimestamp" not in at_move["status"]["migrationState"]
    assert at_move["metadata"]["labels"]["kubevirt.io/nodeName"] == target


def test_the_guest_moves_when_the_copy_is_complete() -> None:
    built = cluster(vm())
    built.evict()
    built.run(20)
    assert built.world.node_of("vms/vm") == "node-0"
    built.run(70)
    record = built.control.migrations[0]
    assert built.world.node_of("vms/vm") == built.vmi()["status"]["nodeName"] == record.target
    assert (record.outcome, record.attempt, record.asked_by) == ("Succeeded", 1, "rebalancer")
    assert [phase for _, phase in record.phases] == ALL_PHASES


def test_the_source_pod_lingers_completed_and_then_goes() -> None:
    built = cluster(vm())
    built.evict()
    built.run(60)
    assert [p["status"]["phase"] for p in built.pods()] == ["Succeeded", "Running"]
    assert IN_PROGRESS in built.pods()[0]["metadata"]["annotations"]
    assert IN_PROGRESS not in built.pods()[1]["metadata"]["annotations"]
    built.run(120)
    assert [p["status"]["phase"] for p in built.pods()] == ["Running"]


def test_limits_are_two_off_a_node_and_five_in_all() -> None:
    built = cluster(*(vm(f"vm-{n}", node=f"node-{n % 4}") for n in range(20)), nodes=8)
    for number in range(20):
        built.evict(f"vm-{number}")
    most_off_a_node = most = 0
    for _ in range(100):
        built.run(2)
        flying = [m for m in built.control.migrations if not m.outcome and len(m.phases) > 1]
        sources = [m.source for m in flying]
        most = max(most, len(flying))
        most_off_a_node = max([most_off_a_node, *(sources.count(s) for s in sources)])
    assert (most_off_a_node, most) == (2, 5)
    assert len(built.store.list(VMIM)) == 20


def test_limits_are_those_of_the_kubevirt_object_as_it_is_now() -> None:
    built = cluster(*(vm(f"vm-{n}") for n in range(4)))
    limit = ("spec", "configuration", "migrations", "parallelOutboundMigrationsPerNode")
    built.store.update(KUBEVIRT, "kubevirt", "kubevirt", {limit: 0})
    for number in range(4):
        built.evict(f"vm-{number}")
    built.run(30)
    assert {built.phases(f"vm-{n}")[0] for n in range(4)} == {"Pending"}
    built.store.update(KUBEVIRT, "kubevirt", "kubevirt", {limit: 4})
    built.run(3)
    assert {built.phases(f"vm-{n}")[0] for n in range(4)} == {"Scheduling"}


def test_waiting_migrations_go_by_priority_then_age() -> None:
    built = cluster(*(vm(name) for name in ("a", "b", "ours", "drain", "user")), nodes=4)
    for name in ("a", "b"):
        built.evict(name, requested_by="")
    built.run(5)
    built.evict("ours")
    built.control.create_migration("vms", "user")
    built.run(1)
    built.evict("drain", requested_by="")
    built.run(300)
    begun = {m.vm: begin_of(m) for m in built.control.migrations}
    assert sorted(begun, key=lambda key: begun[key])[2:] == ["vms/drain", "vms/user", "vms/ours"]


def test_a_failed_one_is_followed_by_another_that_waits() -> None:
    built = cluster(vm(), options=FAILING)
    built.evict()
    while built.phases() != ["Failed", "Pending"]:
        built.run(0.1)
    built.run(1)
    failed, waiting = built.vmims()
    assert (failed["status"]["phase"], waiting["status"]["phase"]) == ("Failed", "Pending")
    assert built.mark() == "node-0"
    state = built.vmi()["status"]["migrationState"]
    assert (state["failed"], state["completed"]) == (True, True)
    assert state["failureReason"]
    assert failed["status"]["migrationState"] == state
    assert built.world.node_of("vms/vm") == "node-0"


def test_the_back_off_doubles_up_to_320_s_since_only_five_are_kept() -> None:
    built = cluster(vm(), options=FAILING)
    built.evict()
    built.run(3600)
    records = built.control.migrations
    begun = [begin_of(m) for m in records if len(m.phases) > 1]
    ended = [m.ended_s or 0.0 for m in records]
    waits = [start - end for end, start in zip(ended, begun[1:], strict=False)]
    assert [round(w / 20) for w in waits[:6]] == [1, 2, 4, 8, 16, 16]
    assert [m.attempt for m in records] == list(range(1, len(records) + 1))
    assert built.phases().count("Failed") == 5


def test_success_ends_the_row_of_failures() -> None:
    options = replace(SURE, failure_probability=0.5)
    built = cluster(vm(), options=options, seed=4)
    built.evict()
    built.run(3600)
    assert built.phases()[-1] == "Succeeded"
    assert built.mark() is None
    assert built.control.migrations[0].outcome == "Failed"


def test_the_newest_five_finished_ones_stay() -> None:
    built = cluster(vm())
    for _ in range(7):
        built.control.create_migration("vms", "vm")
        built.run(200)
    assert built.phases() == ["Succeeded"] * 5
    assert [m["metadata"]["uid"] for m in built.vmims()] == [m.vmim_uid for m in built.control.migrations[2:]]


@pytest.mark.parametrize(("annotation", "between"), [("newer", True), ("older", False)])
def test_the_annotation_between_two_attempts_depends_on_the_generation(
    annotation: Any, between: bool
) -> None:
    built = cluster(vm(), options=replace(FAILING, annotation=annotation))
    built.evict()
    built.run(15)
    assert built.pods()[0]["metadata"]["annotations"][IN_PROGRESS] == "true"
    while built.phases()[0] != "Failed":
        built.run(1)
    built.run(5)
    assert (IN_PROGRESS in built.pods()[0]["metadata"]["annotations"]) is between
    built.run(30)
    assert IN_PROGRESS in built.pods()[0]["metadata"]["annotations"]


def test_cancelling_the_evacuation_takes_the_annotation_off() -> None:
    built = cluster(vm(), nodes=1)
    built.evict()
    built.run(5)
    built.control.evacuate_cancel("vms", "vm")
    built.run(5)
    assert IN_PROGRESS not in built.pods()[0]["metadata"]["annotations"]


def test_cancelling_the_evacuation_ends_the_retries_but_not_the_present_attempt() -> None:
    built = cluster(vm(), options=FAILING)
    built.evict()
    built.run(5)
    built.control.evacuate_cancel("vms", "vm")
    built.run(600)
    assert built.phases() == ["Failed"]


def test_an_external_vmi_is_marked_and_nobody_acts() -> None:
    built = cluster(vm(eviction_strategy="External"))
    built.evict()
    built.run(600)
    assert built.mark() == "node-0"
    assert built.vmims() == []


@pytest.mark.parametrize("after_s", [0.3, 1.5, 4.0, 11.0, 13.0, 25.0])
def test_deleting_the_vmim_cancels_it_in_any_phase_and_a_marked_vmi_gets_another(after_s: float) -> None:
    built = cluster(vm())
    built.evict()
    built.run(after_s)
    (before,) = built.vmims()
    built.control.delete_migration("vms", before["metadata"]["name"])
    built.run(4)
    (after,) = built.vmims()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert [m.outcome for m in built.control.migrations] == ["Cancelled", ""]
    built.run(150)
    assert built.phases() == ["Succeeded"]


@pytest.mark.parametrize("after_s", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_a_vmim_that_was_deleted_before_it_began_never_begins(after_s: float) -> None:
    """Whichever of the two comes first, the end of its wait or the look at its deletion."""
    built = cluster(vm(), options=replace(SURE, reaction_s=(0.2, 3.0), stuck_probability=1.0))
    built.evict()
    built.run(after_s)
    while not built.vmims():
        built.run(0.1)
    built.control.evacuate_cancel("vms", "vm")
    built.control.delete_migration("vms", built.vmims()[0]["metadata"]["name"])
    built.run(60)
    assert built.vmims() == []
    assert [m.outcome for m in built.control.migrations] == ["Cancelled"]


def test_a_cancelled_copy_says_so_on_the_vmi() -> None:
    built = cluster(vm())
    name = built.control.create_migration("vms", "vm")
    built.run(25)
    built.control.delete_migration("vms", name)
    deleted = built.vmims()[0]["metadata"]
    assert "deletionTimestamp" in deleted
    built.run(10)
    state = built.vmi()["status"]["migrationState"]
    assert (state["abortRequested"], state["abortStatus"], state["failed"]) == (True, "Succeeded", True)
    assert built.vmims() == []
    assert built.world.node_of("vms/vm") == "node-0"
    assert len(built.running()) == 1


def test_it_is_too_late_to_cancel_when_the_guest_has_moved() -> None:
    built = cluster(vm())
    name = built.control.create_migration("vms", "vm")
    while built.world.node_of("vms/vm") == "node-0":
        built.run(0.1)
    built.control.delete_migration("vms", name)
    built.run(10)
    assert built.control.migrations[0].outcome == "Succeeded"
    assert built.vmims() == []


def test_an_unschedulable_target_fails_after_five_minutes_and_says_why() -> None:
    built = cluster(vm(), nodes=2)
    built.control.cordon("node-1")
    built.evict()
    built.run(60)
    target = built.pods()[1]
    (condition,) = target["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
    )
    assert condition["message"].startswith(
        "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1"
    )
    assert built.phases() == ["Scheduling"]
    built.run(246)
    record = built.control.migrations[0]
    assert record.outcome == "Failed"
    assert "0/2 nodes are available" in record.failure
    assert "migrationState" not in built.vmi()["status"]
    assert built.mark() == "node-0"


def test_an_unschedulable_target_goes_on_as_soon_as_there_is_room() -> None:
    built = cluster(vm(), nodes=2)
    built.control.cordon("node-1")
    built.evict()
    built.run(60)
    built.control.uncordon("node-1")
    built.run(90)
    assert built.phases() == ["Succeeded"]


def test_a_target_that_never_gets_ready_fails_after_fifteen_minutes() -> None:
    built = cluster(vm(), options=replace(SURE, pod_start_s=(2000.0, 2000.0)))
    built.evict()
    built.run(890)
    assert built.phases() == ["Scheduling"]
    built.run(20)
    record = built.control.migrations[0]
    assert (record.outcome, record.started_s) == ("Failed", None)
    assert record.failure.startswith("pending pod vms/virt-launcher-vm-")


def test_a_target_on_a_node_that_is_lost_goes_with_it() -> None:
    built = cluster(vm(), nodes=2)
    built.evict()
    built.run(3)
    built.control.lose_node("node-1")
    built.run(330)
    assert built.phases() == ["Scheduling"]
    built.run(20)
    assert built.control.migrations[0].failure == "Migration target pod was removed during active migration."


def test_a_guest_that_died_before_the_copy_is_not_copied() -> None:
    built = cluster(vm(), nodes=2)
    built.evict()
    built.run(3)
    built.control.lose_node("node-0")
    built.run(30)
    assert built.control.migrations[0].failure == "Live migration failed: domain is not running"


def test_a_backup_holds_ours_back_but_not_a_drain() -> None:
    built = cluster(vm("ours"), vm("drained"))
    for name in ("ours", "drained"):
        built.control.set_backup("vms", name, running=True)
    built.evict("ours")
    built.evict("drained", requested_by="")
    built.run(90)
    assert (built.phases("ours"), built.phases("drained")) == (["Pending"], ["Succeeded"])
    built.control.set_backup("vms", "ours", running=False)
    built.run(90)
    assert built.phases("ours") == ["Succeeded"]


def test_a_completed_target_may_stay_behind() -> None:
    built = cluster(vm(), options=replace(FAILING, failed_target_stays_probability=1.0))
    built.evict()
    built.run(1200)
    left = [p for p in built.pods() if p["status"]["phase"] == "Succeeded"]
    assert len(left) == sum(m.outcome == "Failed" for m in built.control.migrations)
    assert all("kubevirt.io/migrationJobUID" in p["metadata"]["labels"] for p in left)
    assert built.scheduler.requested("node-0").pods == 1
    built.control.stop_vm("vms", "vm")
    built.run(30)
    assert built.pods() == []


def test_a_stuck_one_never_ends_and_keeps_its_slot() -> None:
    built = cluster(vm(), options=replace(SURE, stuck_probability=1.0))
    built.evict()
    built.run(86_400)
    assert built.phases() == ["Running"]
    built.control.delete_migration("vms", built.vmims()[0]["metadata"]["name"])
    built.run(2)
    assert built.control.migrations[0].outcome == "Cancelled"


def test_only_one_migration_of_a_vmi_at_a_time() -> None:
    built = cluster(vm(), vm("fixed", migratable=False))
    built.control.create_migration("vms", "vm")
    with pytest.raises(Refused, match="in-flight migration detected"):
        built.control.create_migration("vms", "vm")
    with pytest.raises(Refused, match="DisksNotLiveMigratable"):
        built.control.create_migration("vms", "fixed")


def test_a_vm_that_goes_down_cannot_be_migrated() -> None:
    built = cluster(vm())
    built.control.stop_vm("vms", "vm")
    with pytest.raises(Refused, match="finalized"):
        built.control.create_migration("vms", "vm")


def test_a_finished_vmim_that_somebody_deletes_is_no_reason_to_wait() -> None:
    """KubeVirt's back-off counts the failed VMIMs that it still finds."""
    built = cluster(vm(), options=FAILING)
    built.evict()
    while built.phases() != ["Failed", "Pending"]:
        built.run(0.1)
    built.run(600)
    assert built.phases().count("Failed") > 3
    for vmim in built.vmims():
        built.control.delete_migration("vms", vmim["metadata"]["name"])
    built.run(2)
    assert built.phases() == ["Scheduling"]
    with pytest.raises(NotFound):
        built.control.delete_migration("vms", "no-such")


def test_an_eviction_during_a_users_migration_is_answered_by_that_one() -> None:
    """Its success empties the mark; there is no second migration."""
    built = cluster(vm())
    built.control.create_migration("vms", "vm")
    built.run(15)
    built.evict()
    built.run(100)
    assert built.phases() == ["Succeeded"]
    assert built.mark() is None


def test_the_target_never_lands_beside_the_source_or_its_group() -> None:
    group = {"anti_affinity_group": "g"}
    built = cluster(vm("a", **group), vm("b", node="node-1", **group), nodes=3)
    built.evict("a")
    built.run(90)
    assert built.vmi("a")["status"]["nodeName"] == "node-2"


def test_a_pinned_vm_has_nowhere_to_go() -> None:
    built = cluster(vm(pinned_to="node-0"))
    built.evict()
    built.run(30)
    message = built.pods()[1]["status"]["conditions"][0]["message"]
    assert "2 node(s) didn't match Pod's node affinity/selector" in message


def test_the_target_needs_the_sources_cpu() -> None:
    built = cluster(nodes=0)
    for name, model in (("node-0", "Icelake"), ("node-1", "Skylake"), ("node-2", "Icelake")):
        labels = {
            f"host-model-cpu.node.kubevirt.io/{model}": "true",
            f"cpu-model-migration.node.kubevirt.io/{model}": "true",
            "cpu-vendor.node.kubevirt.io/Intel": "true",
        }
        built.control.add_node(node(name, labels=labels))
    built.control.create_vm(vm())
    built.evict()
    built.run(90)
    assert built.vmi()["status"]["nodeName"] == "node-2"
    assert built.running()[0]["spec"]["nodeSelector"] == {
        "kubevirt.io/schedulable": "true",
        "cpu-model-migration.node.kubevirt.io/Icelake": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    }


def test_hotplug_pods_follow_the_guest() -> None:
    built = cluster(vm())
    built.control.hotplug_volume("vms", "vm")
    built.evict()
    built.run(200)
    (pod,) = [
        p for p in built.store.list(POD) if p["metadata"]["labels"].get("kubevirt.io") == "hotplug-disk"
    ]
    assert pod["spec"]["nodeName"] == built.vmi()["status"]["nodeName"]


def test_evicting_the_target_pod_of_an_unprotected_vm_ends_the_migration_only() -> None:
    built = cluster(vm(eviction_strategy="None"))
    built.control.create_migration("vms", "vm")
    built.run(15)
    target = built.pods()[1]["metadata"]["name"]
    assert built.control.evict("vms", target, dry_run=False).status == 201
    built.run(30)
    assert built.control.migrations[0].outcome == "Failed"
    assert built.control.shutdowns == []
    assert built.control.is_running("vms", "vm")


def test_a_vm_that_stops_takes_its_migration_and_vmims_along() -> None:
    built = cluster(vm())
    built.evict()
    built.run(20)
    built.control.stop_vm("vms", "vm")
    built.run(60)
    assert built.control.migrations[0].outcome == "Failed"
    assert built.store.list(VMIM) == []
    assert built.pods() == []
    assert not built.control.is_running("vms", "vm")


def test_the_same_seed_gives_the_same_events() -> None:
    def events() -> list[Any]:
        built = cluster(
            *(vm(f"vm-{n}") for n in range(6)), options=KubeVirtOptions(failure_probability=0.3), seed=5
        )
        for number in range(6):
            built.evict(f"vm-{number}")
        built.run(900)
        return built.events

    assert events() == events()


def test_a_new_node_takes_part_in_the_migrations() -> None:
    built = cluster(vm(), nodes=1)
    built.evict()
    built.run(30)
    built.control.add_node(node("node-9"))
    built.run(90)
    assert built.vmi()["status"]["nodeName"] == "node-9"
    assert at(built.store.get(NODE, "", "node-9") or {}, "status", "allocatable", "cpu") == "64"
