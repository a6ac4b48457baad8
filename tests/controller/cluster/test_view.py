"""Joins over the stores."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.cluster import view
from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import KubeVirt, MigrationState, Node, Pod, Resources, Vmi, Vmim
from controller.cluster.pods import Affinity
from controller.cluster.view import ClusterView, source_node
from tests.builders import GIB, START, kubevirt, launcher, node, placed_pod, vmi, vmim

DUMP = Path(__file__).parents[2] / "data" / "cluster-dump.json"


def caches_of(**objects: Iterable[Any]) -> ClusterCaches:
    caches = ClusterCaches()
    for name, informer in caches.informers().items():
        informer.replace(objects.get(name, ()))
    return caches


def view_of(**objects: Iterable[Any]) -> ClusterView:
    return ClusterView.over(caches_of(**objects))


# --- nodes ---


def test_room_is_what_launchers_and_other_pods_on_the_node_request() -> None:
    seen = view_of(
        launchers=[
            launcher("vm-1", node="a", cpu_cores=1, memory_bytes=GIB),
            launcher("vm-2", node="a", cpu_cores=2, memory_bytes=GIB, phase="Succeeded"),
            launcher("vm-3", node="b", cpu_cores=4, memory_bytes=GIB),
            launcher("vm-4", node="", cpu_cores=8, memory_bytes=GIB, phase="Pending"),
        ],
        placed=[placed_pod("p", node="a", cpu_cores=16, memory_bytes=2 * GIB)],
    )
    assert seen.room("a").requested == Resources(17, 3 * GIB)
    assert seen.room("a").pods == 2
    assert seen.room("nowhere").pods == 0


def test_room_follows_the_stores() -> None:
    """It is added up once and kept, but never longer than no pod changes."""
    caches = caches_of(launchers=[launcher("vm-1", node="a", cpu_cores=1)])
    seen = ClusterView.over(caches)
    assert seen.room("a").requested.cpu_cores == 1
    caches.launchers.apply("MODIFIED", launcher("vm-1", node="b", cpu_cores=1, resource_version="2"))
    assert seen.room("a").pods == 0
    assert seen.room("b").pods == 1
    caches.placed.apply("ADDED", placed_pod("p", node="b"))
    assert seen.room("b").pods == 2


# --- VMs ---


def test_pairs_the_vmis_on_a_node_with_their_launchers() -> None:
    seen = view_of(
        vmis=[vmi("vm-1", node="a"), vmi("vm-2", node="b"), vmi("vm-3", node="a"), vmi("vm-4", node="")],
        launchers=[launcher("vm-3", node="a"), launcher("vm-2", node="b"), launcher("vm-1", node="a")],
    )
    assert [(vm.vmi.name, vm.pod.metadata.name) for vm in seen.vms_on("a")] == [
        ("vm-1", "virt-launcher-vm-1"),
        ("vm-3", "virt-launcher-vm-3"),
    ]
    assert seen.vms_on("") == []


def test_a_vmi_without_an_active_launcher_is_not_among_the_vms_on_its_node() -> None:
    assert view_of(vmis=[vmi("vm-1", node="a")]).vms_on("a") == []


@pytest.mark.parametrize(
    ("others", "active"),
    [
        ([launcher("vm-1", node="b", name="target", uid="t")], "source"),
        ([launcher("vm-1", node="", name="target", uid="t", phase="Pending")], "source"),
        ([launcher("vm-1", node="a", name="finished", uid="t", phase="Succeeded")], "source"),
        ([launcher("vm-1", node="a", name="leaving", uid="t", deleted=START)], "source"),
        ([launcher("vm-1", node="a", name="of-another-vmi", uid="t", vmi_uid="older")], "source"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_active_launcher_is_the_unfinished_one_on_the_vmis_node(
    others: list[Pod], active: str, first: bool
) -> None:
    source = launcher("vm-1", node="a", name="source", uid="s")
    pods = [source, *others] if first else [*others, source]
    pod = view_of(launchers=pods).launcher_of(vmi("vm-1", node="a"))
    assert pod is not None
    assert pod.metadata.name == active


def test_of_two_launchers_on_the_node_the_one_the_vmi_calls_active_counts() -> None:
    pods = [launcher("vm-1", node="a", name=n, uid=n) for n in ("x", "y")]
    pod = view_of(launchers=pods).launcher_of(vmi("vm-1", node="a", active_pods={"y": "a"}))
    assert pod is not None
    assert pod.metadata.name == "y"


def test_after_the_migration_the_target_is_the_launcher() -> None:
    pods = [
        launcher("vm-1", node="a", name="source", uid="s"),
        launcher("vm-1", node="b", name="target", uid="t"),
    ]
    pod = view_of(launchers=pods).launcher_of(vmi("vm-1", node="b"))
    assert pod is not None
    assert pod.metadata.name == "target"


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_the_launcher_that_the_vm_has_left_is_found_on_its_former_node(phase: str) -> None:
    """After a round trip two were there; the newer one counts, and none of another VMI."""
    pods = [
        launcher("vm-1", node="a", name="first", uid="f", phase="Succeeded"),
        launcher("vm-1", node="a", name="source", uid="s", phase=phase, created=START + timedelta(hours=1)),
        launcher("vm-1", node="b", name="target", uid="t"),
        launcher("vm-1", node="a", name="of-another-vmi", uid="o", vmi_uid="older"),
    ]
    seen, moved = view_of(launchers=pods), vmi("vm-1", node="b")
    found = seen.launcher_on(moved, "a")
    assert found is not None
    assert found.metadata.name == "source"
    assert seen.launcher_on(moved, "c") is None


def test_finds_vmis_by_key() -> None:
    seen = view_of(vmis=[vmi("vm-1")])
    found = seen.vmi(("vms", "vm-1"))
    assert found is not None
    assert found.uid == "vmi-vm-1"
    assert seen.vmi(("other", "vm-1")) is None
    assert seen.all_vmis() == [found]


def test_there_is_one_kubevirt_or_none_yet() -> None:
    assert view_of().kubevirt() is None
    assert view_of(kubevirts=[kubevirt(eviction_strategy="External")]).kubevirt() == kubevirt(
        eviction_strategy="External"
    )


# --- migrations ---


def test_tells_the_migrations_of_a_vmi_from_those_of_its_namesakes() -> None:
    seen = view_of(
        vmims=[vmim("vm-1", name="a"), vmim("vm-1", name="b", phase="Failed"), vmim("vm-1", namespace="x")]
    )
    assert [m.metadata.name for m in seen.migrations_of(vmi("vm-1"))] == ["a", "b"]


def test_a_vm_is_on_the_move_while_a_migration_of_it_is_unfinished() -> None:
    caches = caches_of(
        vmis=[vmi("vm-1", node="a"), vmi("vm-2", node="b"), vmi("vm-3", node="a")],
        vmims=[
            vmim("vm-1", name="m1", phase=""),
            vmim("vm-2", name="m2", phase="Succeeded"),
            vmim("vm-2", name="m3", phase="BrandNewPhase"),
            vmim("vm-3", name="m4", phase="Failed"),
            vmim("gone", name="m5"),
        ],
    )
    seen = ClusterView.over(caches)
    assert [(v.name, m.metadata.name) for v, m in seen.unfinished_migrations()] == [
        ("vm-1", "m1"),
        ("vm-2", "m3"),
    ]
    assert seen.moving() == {"vmi-vm-1": "a", "vmi-vm-2": "b"}
    assert seen.migrating_uids() == {"vmi-vm-1", "vmi-vm-2"}
    caches.vmims.apply("MODIFIED", vmim("vm-1", name="m1", phase="Succeeded", resource_version="2"))
    assert seen.migrating_uids() == {"vmi-vm-2"}


def state(source: str, uid: str = "") -> MigrationState:
    return MigrationState(source_node=source, migration_uid=uid)


@pytest.mark.parametrize(
    ("moved", "migration", "source"),
    [
        (vmi(node="a"), vmim(), "a"),
        # The VMI's node is the target already while the VMIM still runs.
        (vmi(node="b", migration_state=state("a", "vmim-vm-1")), vmim(), "a"),
        (vmi(node="b"), vmim(migration_state=state("a")), "a"),
        (vmi(node="b"), vmim(annotations={"kubevirt.io/evacuationMigration": "a"}), "a"),
        # The state left by an earlier migration tells nothing of this one.
        (vmi(node="b", migration_state=state("a", "earlier")), vmim(), "b"),
    ],
)
def test_the_source_of_a_migration_is_known_from_first_to_last(
    moved: Vmi, migration: Vmim, source: str
) -> None:
    assert source_node(moved, migration) == source


# --- placement ---


def apart(**labels: str) -> Affinity:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return msgspec.convert(
        {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}, Affinity
    )


def names(nodes: Iterable[Node]) -> list[str]:
    return [n.name for n in nodes]


def test_places_a_launcher_where_there_is_room() -> None:
    mover = launcher("vm-1", node="a", cpu_cores=4)
    seen = view_of(
        nodes=[node("a", cpu_cores=8), node("b", cpu_cores=8), node("c", cpu_cores=8)],
        launchers=[mover, launcher("vm-2", node="b", cpu_cores=5)],
    )
    placement = seen.placer(node("a"), [])(mover)
    assert names(placement.best) == ["c"]
    assert list(placement.misfits) == ["b"]


def test_vms_on_their_way_take_room_where_they_go() -> None:
    """Otherwise several moves decided within one migration would all go to the same node."""
    mover, arriving = launcher("vm-1", node="a", cpu_cores=4), launcher("vm-2", node="a", cpu_cores=5)
    seen = view_of(nodes=[node(n, cpu_cores=8) for n in "ab"], launchers=[mover, arriving])
    assert names(seen.placer(node("a"), [])(mover).best) == ["b"]
    assert names(seen.placer(node("a"), [("pod-vm-2", "b")])(mover).best) == []


def test_an_arrival_counts_once_when_its_target_pod_is_there() -> None:
    mover, source = launcher("vm-1", node="a", cpu_cores=4), launcher("vm-2", node="a", cpu_cores=4)
    target = launcher("vm-2", node="b", cpu_cores=4, name="target", uid="t")
    seen = view_of(nodes=[node(n, cpu_cores=8) for n in "ab"], launchers=[mover, source, target])
    assert names(seen.placer(node("a"), [("pod-vm-2", "b")])(mover).best) == ["b"]


def test_arrivals_nothing_is_known_of_do_no_harm() -> None:
    mover = launcher("vm-1", node="a")
    seen = view_of(nodes=[node("a"), node("b")], launchers=[mover])
    assert names(seen.placer(node("a"), [("unknown", "b"), ("pod-vm-1", "gone")])(mover).best) == ["b"]


def test_anti_affinity_holds_against_arrivals_too() -> None:
    mover, arriving = (
        launcher(vm, node="a", labels={"app": "web"}, affinity=apart(app="web")) for vm in ("x", "y")
    )
    seen = view_of(nodes=[node("a"), node("b"), node("c")], launchers=[mover, arriving])
    assert names(seen.placer(node("a"), [("pod-y", "b")])(mover).best) == ["c"]


def test_a_once_migrated_vm_can_migrate_again() -> None:
    """Its launcher keeps KubeVirt's anti-affinity against itself; that must not close every node."""
    mover = launcher("vm-1", node="a", affinity=apart(**{"kubevirt.io/created-by": "vmi-vm-1"}))
    seen = view_of(nodes=[node("a"), node("b")], launchers=[mover])
    assert names(seen.placer(node("a"), [])(mover).best) == ["b"]


def test_makes_sense_of_a_whole_recorded_cluster() -> None:
    kinds: dict[str, Any] = {
        "Node": Node,
        "Pod": Pod,
        "VirtualMachineInstance": Vmi,
        "VirtualMachineInstanceMigration": Vmim,
        "KubeVirt": KubeVirt,
    }
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for item in json.loads(DUMP.read_bytes())["items"]:
        found[item["kind"]].append(msgspec.convert(item, kinds[item["kind"]]))
    seen = view_of(
        nodes=found["Node"],
        launchers=found["Pod"],
        vmis=found["VirtualMachineInstance"],
        vmims=found["VirtualMachineInstanceMigration"],
        kubevirts=found["KubeVirt"],
    )
    assert sum(len(seen.vms_on(name)) for name in seen.node_names()) == len(seen.all_vmis()) == 148
    assert sum(seen.room(name).pods for name in seen.node_names()) == 150  # one of 151 has completed
    marked = {v.uid for v in seen.all_vmis() if v.evacuation_node_name}
    assert marked == seen.migrating_uids()
    assert set(seen.moving().values()) == {v.evacuation_node_name for v in seen.all_vmis()} - {""}
    source = seen.node("node-00")
    assert source is not None
    place = seen.placer(source, [])
    for vm in seen.vms_on("node-00"):
        placement = place(vm.pod)
        assert len(placement.scores) + len(placement.misfits) == 9
        assert placement.best


def test_the_indexes_are_those_the_informers_are_made_with() -> None:
    lister = ClusterCaches().launchers.lister
    for index in view.LAUNCHER_INDEXES:
        assert lister.by_index(index, "nothing") == []
