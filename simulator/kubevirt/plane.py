"""What the parts of the simulated control plane share: virtual machines, the stores, delays, records."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from simulator.agenda import Agenda, Handle, rfc3339
from simulator.kubevirt.objectstore import KUBEVIRT, NODE, POD, VMI, Json, ObjectStore, Path, at
from simulator.kubevirt.options import KubeVirtOptions, Range
from simulator.kubevirt.scheduler import Scheduler
from simulator.record import AskedBy, MigrationRecord, ShutdownRecord
from simulator.specs import NodeSpec, VmSpec


class PhysicalWorld(Protocol):
    """What the control plane does to the hardware. A key is ``namespace/name``."""

    def add_node(self, spec: NodeSpec) -> None: ...
    def remove_node(self, name: str) -> None: ...
    def add_vm(self, key: str, spec: VmSpec, node: str) -> None: ...
    def remove_vm(self, key: str) -> None: ...
    def move_vm(self, key: str, node: str) -> None: ...
    def set_overhead_cores(self, node: str, cores: float) -> None: ...
    def vm_demand_cores(self, key: str) -> float: ...
    def vm_touched_bytes(self, key: str) -> float: ...


class Finished(NamedTuple):
    """A VMIM of the present VMI that has ended and is still there."""

    name: str
    evacuation: bool
    succeeded: bool
    ended_s: float


@dataclass(slots=True, eq=False)
class Vm:
    """A VM for as long as its owner has it, over restarts."""

    spec: VmSpec
    key: str
    uid: str = ""
    """UID of its VMI; empty while there is none."""
    pod: str = ""
    """The launcher that the guest runs in, or will."""
    node: str = ""
    """Where the guest is; empty while it does not run. The VMI's ``status.nodeName`` trails behind."""
    wanted: bool = True
    """Its owner wants it to run."""
    going_down: bool = False
    restart_at_s: float = 0.0
    pods: dict[str, None] = field(default_factory=dict)
    """Pods of the present VMI that may still exist, oldest first."""
    asked_by: AskedBy = "other"
    """Who had the VMI marked for evacuation."""
    attempts: int = 0
    """Migrations since the mark."""
    finished: list[Finished] = field(default_factory=list)
    """Oldest first."""
    backup: bool = False
    """A backup is running."""
    hotplug: bool = False
    """It has hotplugged volumes."""


class Plane:
    """State and services shared by all parts. Each part changes only its own fields of a `Vm`."""

    def __init__(
        self,
        world: PhysicalWorld,
        agenda: Agenda,
        store: ObjectStore,
        options: KubeVirtOptions,
        rng: random.Random,
    ) -> None:
        self.world = world
        self.agenda = agenda
        self.store = store
        self.options = options
        self.rng = rng
        self.scheduler = Scheduler(store, random.Random(rng.getrandbits(64)))
        self.vms: dict[str, Vm] = {}
        self.nics: dict[str, float] = {}
        """Node -> bytes/s."""
        self.lost_nodes: dict[str, None] = {}
        """Nodes that do not answer any more."""
        self.migrations: list[MigrationRecord] = []
        self.shutdowns: list[ShutdownRecord] = []

    def after(self, delay_s: Range, action: Callable[[], None]) -> Handle:
        """Plan an action after a random delay from the range."""
        return self.agenda.after(self.rng.uniform(*delay_s), action)

    def soon(self, action: Callable[[], None]) -> Handle:
        """Plan what a controller of KubeVirt does about something that it has just seen."""
        return self.after(self.options.reaction_s, action)

    def now_text(self) -> str:
        return rfc3339(self.agenda.now_s)

    def vmi(self, vm: Vm) -> Json | None:
        return self.store.get(VMI, vm.spec.namespace, vm.spec.name)

    def change_vmi(self, vm: Vm, changes: dict[Path, object]) -> None:
        self.store.update(VMI, vm.spec.namespace, vm.spec.name, changes)

    def pod(self, vm: Vm, name: str) -> Json | None:
        return self.store.get(POD, vm.spec.namespace, name)

    def pods_of(self, vm: Vm) -> list[Json]:
        """All pods of the present VMI, finished ones too."""
        pods = [pod for name in vm.pods if (pod := self.pod(vm, name)) is not None]
        vm.pods = {pod["metadata"]["name"]: None for pod in pods}
        return pods

    def new_launcher_name(self, vm: Vm) -> str:
        return self.store.new_name(POD, vm.spec.namespace, f"virt-launcher-{vm.spec.name}-")

    def node(self, name: str) -> Json | None:
        return self.store.get(NODE, "", name)

    def configuration(self) -> Json:
        """``spec.configuration`` of the KubeVirt object as it is now."""
        kubevirts = self.store.list(KUBEVIRT)
        return (at(kubevirts[0], "spec", "configuration") if kubevirts else None) or {}

    def eviction_strategy(self, vmi: Json) -> str | None:
        """The VMI's own strategy, else the cluster's."""
        strategy: str | None = at(vmi, "spec", "evictionStrategy")
        return strategy if strategy is not None else self.configuration().get("evictionStrategy")

    def evicting_migrates(self, vmi: Json) -> bool:
        """Whether KubeVirt answers a mark on the VMI with a migration of its own."""
        return is_live_migratable(vmi) and self.eviction_strategy(vmi) in (
            "LiveMigrate",
            "LiveMigrateIfPossible",
        )


def is_live_migratable(vmi: Json) -> bool:
    conditions = at(vmi, "status", "conditions") or []
    return any(c["type"] == "LiveMigratable" and c["status"] == "True" for c in conditions)


def is_finished(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
