"""What becomes of a migration, and of its VM: rows of the fault matrix."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from e2e.cluster import RefusedError
from e2e.faults.deeds import of_vm
from e2e.faults.row import SLOW, Row, no_deed
from e2e.faults.scene import Scene
from e2e.faults.signs import Sign, grows, shows_value

VMIMS = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations"
LONG_PHASES = (
    "kubevirt.reaction_s=[3,4]",
    "kubevirt.pod_scheduling_s=[6,7]",
    "kubevirt.pod_start_s=[8,9]",
    "kubevirt.prepare_s=[8,9]",
)
"""Each phase lasts long enough to be met in it."""


def is_copied(scene: Scene) -> object:
    """A VM of ours is being copied."""
    return [move for move in scene.lab.cluster.truth().being_copied if move.ours]


def in_phase(phase: str) -> Callable[[Scene], bool]:
    """A migration is; it is noted."""

    def met(scene: Scene) -> bool:
        for vmim in scene.lab.cluster.items(VMIMS):
            if vmim.get("status", {}).get("phase", "Pending") == phase:
                scene.notes["vmim"] = vmim
                return True
        return False

    return met


def delete_vmim(scene: Scene) -> None:
    """The one that was noted."""
    _delete(scene, scene.notes["vmim"])


def _delete(scene: Scene, vmim: Mapping[str, Any]) -> None:
    metadata = vmim["metadata"]
    scene.lab.cluster.act("delete_migration", namespace=metadata["namespace"], name=metadata["name"])


def _cancel(scene: Scene, vm: str) -> None:
    namespace, _, vmi = vm.partition("/")
    scene.lab.cluster.act("evacuate_cancel", namespace=namespace, vmi=vmi)


def tried_again() -> Sign:
    """The VM's migration begins anew: what had come further is pending once more."""
    return Sign(
        "the VM waits for its next attempt",
        lambda scene, one: any(
            f"VM {scene.noted_vm} " in line
            and line.rstrip().endswith((": Pending", ": Retrying", ": Scheduling"))
            for line in scene.said(one).splitlines()
        ),
    )


def _deleted() -> Iterator[Row]:
    for phase in ("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"):
        yield Row(
            name=f"VMIM deleted while {phase}",
            kind="migration",
            when=in_phase(phase),
            begins=delete_vmim,
            # another takes its place before anybody could tell them apart
            shows=() if phase == "Pending" else (tried_again(),),
            settings=(SLOW, *LONG_PHASES),
            one_of_its_kind=phase == "Running",
        )


def cancel_for_good(scene: Scene) -> None:
    """The mark first, else KubeVirt tries again."""
    _cancel(scene, scene.noted_vm)
    delete_vmim(scene)


def delete_and_create_again(scene: Scene) -> None:
    """Another VM under the same name, as soon as the old one has gone."""
    namespace, name = scene.vm
    cluster = scene.lab.cluster
    cluster.act("delete_vm", namespace=namespace, name=name)
    spec = {
        "namespace": namespace,
        "name": name,
        "vcpus": 4,
        "guest_bytes": 16 << 30,
        "dirty_bytes_per_s": 0,
        "demand": 0.75,
        "age_s": 0,
    }

    def created() -> bool:
        try:
            cluster.act("create_vm", spec=spec)
        except RefusedError as error:
            if error.status != 409:
                raise
            return False
        return True

    scene.lab.until(created, 20, "the name is free again")


def cordon_all(scene: Scene) -> None:
    for name in scene.lab.cluster.truth().nodes:
        scene.lab.cluster.act("cordon", name=name)


def uncordon_all(scene: Scene) -> None:
    for name in scene.lab.cluster.truth().nodes:
        scene.lab.cluster.act("uncordon", name=name)


def end_stuck(scene: Scene) -> None:
    """An operator cancels what hangs."""
    for move in scene.lab.cluster.truth().on_the_move:
        _cancel(scene, move.vm)
    for vmim in scene.lab.cluster.items(VMIMS):
        if vmim.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            _delete(scene, vmim)


def migrate_idle_ones(scene: Scene) -> None:
    scene.notes["theirs"] = [
        scene.lab.cluster.act("create_migration", namespace="vms", vmi=f"idle-{number:03}")
        for number in range(6)
    ]


def _gone() -> Iterator[Row]:
    for name, begins in {
        "stopped by its owner": of_vm("stop_vm"),
        "deleted": of_vm("delete_vm"),
        "created again under its name": delete_and_create_again,
    }.items():
        yield Row(
            name=f"{name} while it migrates",
            kind="VM",
            when=is_copied,
            begins=begins,
            shows=(grows("migrations_ended_total", result="Gone"),),
            one_of_its_kind=name == "stopped by its owner",
        )


ROWS = (
    *_deleted(),
    Row(
        name="evacuatecancel, the migration goes on",
        kind="migration",
        when=is_copied,
        begins=of_vm("evacuate_cancel"),
        shows=(),
        goes_on_meanwhile=True,
    ),
    Row(
        name="evacuatecancel, and the VMIM is deleted",
        kind="migration",
        when=in_phase("Running"),
        begins=cancel_for_good,
        shows=(grows("migrations_ended_total", result="Cancelled"),),
    ),
    Row(
        name="target unschedulable",
        kind="migration",
        when=in_phase("Scheduling"),
        begins=cordon_all,
        ends=uncordon_all,
        shows=(shows_value("migrations_in_flight", lambda count: count >= 1, phase="Scheduling"),),
        settings=(SLOW, *LONG_PHASES),
        lasts_s=10,
    ),
    Row(
        name="stuck for ever",
        kind="migration",
        begins=no_deed,
        ends=end_stuck,
        shows=(shows_value("migrations_in_flight", lambda count: count >= 1, phase="Stuck"),),
        settings=("kubevirt.stuck_probability=0.5",),
        stuck_after_s=15,
        goes_on_meanwhile=True,
    ),
    *_gone(),
    Row(
        name="all slots taken by migrations of others",
        kind="slots",
        begins=migrate_idle_ones,
        ends=end_stuck,
        shows=(grows("nodes_at_rest_total", reason="TotalLimit"),),
        settings=(SLOW, "vms.idle.memory_gib=130"),
        lasts_s=8,
        one_of_its_kind=True,
    ),
)
