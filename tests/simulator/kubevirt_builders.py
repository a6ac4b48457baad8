"""A small simulated cluster, and short ways to look at it, for tests of the control plane."""

import random
from dataclasses import dataclass, field
from typing import Any

from simulator.agenda import Agenda
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.evictions import EvictionAnswer
from simulator.kubevirt.objectstore import KUBEVIRT, NODE, POD, VMI, VMIM, Json, ObjectStore, WatchEvent, at
from simulator.kubevirt.options import KubeVirtOptions
from simulator.kubevirt.scheduler import Scheduler
from simulator.specs import GIB, NodeSpec, VmSpec
from simulator.world.world import World

DESCHEDULER = "sigs.k8s.io/descheduler"
DENIED = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
SURE = KubeVirtOptions(failed_target_stays_probability=0.0)


@dataclass
class Cluster:
    agenda: Agenda
    world: World
    store: ObjectStore
    control: ControlPlane
    scheduler: Scheduler
    """One beside the control plane's own, following the same store."""
    events: list[tuple[float, WatchEvent]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        self.agenda.run_until(self.agenda.now_s + seconds)

    def vmi(self, name: str = "vm") -> Json:
        found = self.store.get(VMI, "vms", name)
        assert found is not None
        return found

    def pods(self, name: str = "vm") -> list[Json]:
        """The VM's launchers, oldest first."""
        return [
            p for p in self.store.list(POD) if at(p, "metadata", "annotations", "kubevirt.io/domain") == name
        ]

    def running(self, name: str = "vm") -> list[Json]:
        return [p for p in self.pods(name) if p["status"]["phase"] == "Running"]

    def vmims(self, name: str = "vm") -> list[Json]:
        return [m for m in self.store.list(VMIM) if m["spec"]["vmiName"] == name]

    def phases(self, name: str = "vm") -> list[str]:
        return [at(m, "status", "phase") or "" for m in self.vmims(name)]

    def node(self, name: str) -> Json:
        found = self.store.get(NODE, "", name)
        assert found is not None
        return found

    def kubevirt(self) -> Json:
        return self.store.list(KUBEVIRT)[0]

    def mark(self, name: str = "vm") -> str | None:
        marked: str | None = at(self.vmi(name), "status", "evacuationNodeName")
        return marked

    def evict(self, name: str = "vm", **request: Any) -> EvictionAnswer:
        """Ask for the eviction of the VM's first launcher."""
        request = {"dry_run": False, "requested_by": DESCHEDULER, "asked_by": "rebalancer", **request}
        return self.control.evict("vms", self.pods(name)[0]["metadata"]["name"], **request)

    def changes(self, kind: str) -> list[tuple[str, Json]]:
        """(event type, object) of a kind since the cluster was built."""
        return [(event.type, event.object) for _, event in self.events if event.kind == kind]


def node(name: str, **changes: Any) -> NodeSpec:
    fields: dict[str, Any] = {"cores": 64.0, "memory_bytes": 512 * GIB, "nic_bytes_per_s": 1.25e9, **changes}
    return NodeSpec(name=name, **fields)


def vm(name: str = "vm", **changes: Any) -> VmSpec:
    fields: dict[str, Any] = {
        "vcpus": 8.0,
        "guest_bytes": 64 * GIB,
        "dirty_bytes_per_s": 25e6,
        "touched": 0.5,
        "node": "node-0",
        **changes,
    }
    return VmSpec(namespace="vms", name=name, **fields)


def cluster(*vms: VmSpec, nodes: int = 3, options: KubeVirtOptions = SURE, seed: int = 1) -> Cluster:
    """Nodes node-0, node-1, … of 64 cores and 512 GiB, and running VMs."""
    agenda = Agenda()
    world = World(agenda)
    store = ObjectStore(agenda, random.Random(seed))
    control = ControlPlane(world, agenda, store, options, random.Random(seed))
    built = Cluster(agenda, world, store, control, Scheduler(store, random.Random(seed)))
    for number in range(nodes):
        built.control.add_node(node(f"node-{number}"))
    for spec in vms:
        built.control.create_vm(spec)
    store.subscribe(lambda event: built.events.append((agenda.now_s, event)))
    return built
