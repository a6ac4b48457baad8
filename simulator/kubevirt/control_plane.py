"""The simulated control plane: what people, programs and accidents can do to a cluster with KubeVirt.

It behaves as read off KubeVirt's sources (August 2026) and Kubernetes 1.36. All of it happens on the agenda: what
one of KubeVirt's controllers does about a change is an event of its own, some tenths of a second later.

Rooms: `evictions` (webhook), `evacuation` (marks), `migrations` (queue and slots), `flights` (phases), `copying`
(network), `machines` (VMs and VMIs), `pods` (kubelet), `scheduler`, `nodes`, `drains`, `manifests` (JSON).
"""

import random

from simulator.agenda import Agenda
from simulator.kubevirt import manifests
from simulator.kubevirt.copying import Copying
from simulator.kubevirt.drains import Drains
from simulator.kubevirt.evacuation import Evacuation
from simulator.kubevirt.evictions import EvictionAnswer, Evictions, Request
from simulator.kubevirt.flights import Flights
from simulator.kubevirt.machines import Machines
from simulator.kubevirt.migrations import Migrations
from simulator.kubevirt.nodes import Nodes
from simulator.kubevirt.objectstore import KUBEVIRT, VMI, Json, NotFound, ObjectStore, WatchEvent
from simulator.kubevirt.options import KubeVirtOptions
from simulator.kubevirt.plane import PhysicalWorld, Plane, Vm
from simulator.kubevirt.pods import Pods
from simulator.record import AskedBy, MigrationRecord, ShutdownRecord
from simulator.specs import NodeSpec, VmSpec


class ControlPlane:
    """A KubeVirt cluster's control plane over a world and an object store.

    The caller makes world, agenda and store; nothing else may write to them but loads to the world, and requests like
    those of a real API client to the store (taints, the KubeVirt object). Requests about something that is not there
    raise `NotFound`.
    """

    def __init__(
        self,
        world: PhysicalWorld,
        agenda: Agenda,
        store: ObjectStore,
        options: KubeVirtOptions,
        rng: random.Random,
    ) -> None:
        self._plane = Plane(world, agenda, store, options, rng)
        pods = Pods(self._plane)
        self._machines = Machines(self._plane, pods)
        flights = Flights(self._plane, pods, Copying(self._plane))
        self._migrations = Migrations(self._plane, flights)
        self._evacuation = Evacuation(self._plane, self._migrations)
        self._evictions = Evictions(self._plane, pods, self._machines, self._migrations, self._evacuation)
        self._nodes = Nodes(self._plane, pods, self._machines, self._migrations)
        self._drains = Drains(self._plane, self._nodes, self._evictions)
        self._machines.on_down.append(self._migrations.vm_down)
        self._machines.on_gone.append(self._migrations.vmi_gone)
        store.create(KUBEVIRT, manifests.kubevirt(options))
        store.subscribe(self._observe)

    @property
    def migrations(self) -> list[MigrationRecord]:
        """Every VMIM there ever was, oldest first, kept up to date."""
        return self._plane.migrations

    @property
    def shutdowns(self) -> list[ShutdownRecord]:
        """VMs that an eviction took down; ``cause`` is who asked for it."""
        return self._plane.shutdowns

    # Virtual machines

    def create_vm(self, spec: VmSpec) -> None:
        """Create a VM that its owner wants to run.

        With an ``age_s`` it has been running for so long: it is there at once, on ``spec.node``, or where the
        scheduler puts it. Without one it starts now, and the scheduler places it. Raises `AlreadyExists`, also while a
        deleted VM of that name is going down, and ``ValueError`` if the node is unknown or it fits nowhere.
        """
        self._machines.create(spec)

    def is_running(self, namespace: str, name: str) -> bool:
        """Whether its guest runs, which is when the world knows the VM."""
        vm = self._plane.vms.get(f"{namespace}/{name}")
        return vm is not None and bool(vm.node)

    def stop_vm(self, namespace: str, name: str) -> None:
        """Its owner stops it: it goes down and stays down until `start_vm`."""
        self._machines.take_down(self._vm(namespace, name), phase="Succeeded", restart=False)

    def start_vm(self, namespace: str, name: str) -> None:
        """Its owner starts it: a new VMI, placed by the scheduler. Nothing happens if it runs."""
        self._machines.start(self._vm(namespace, name))

    def delete_vm(self, namespace: str, name: str) -> None:
        """Its owner deletes it: it goes down for good."""
        self._machines.delete(self._vm(namespace, name))

    def set_backup(self, namespace: str, name: str, *, running: bool) -> None:
        """While a backup of a VM runs, its migrations of the lowest priority stay Pending."""
        self._vm(namespace, name).backup = running

    def hotplug_volume(self, namespace: str, name: str) -> None:
        """Plug a volume into a running VM: from now on a hotplug pod is beside its launcher."""
        self._machines.plug(self._vm(namespace, name))

    # Evictions and migrations

    def evict(
        self,
        namespace: str,
        pod: str,
        *,
        dry_run: bool,
        uid: str = "",
        requested_by: str = "",
        asked_by: AskedBy = "other",
    ) -> EvictionAnswer:
        """``POST …/pods/{pod}/eviction``. ``asked_by`` goes into the records, KubeVirt does not see it."""
        return self._evictions.evict(namespace, pod, Request(dry_run, uid, requested_by, asked_by))

    def delete_pod(self, namespace: str, name: str) -> None:
        """Somebody deletes a pod without asking: nothing guards it, and with a running launcher its VM goes down."""
        self._evictions.delete(namespace, name)

    def create_migration(
        self, namespace: str, vmi: str, asked_by: AskedBy = "other", metadata: Json | None = None
    ) -> str:
        """A person migrates a VM (``virtctl migrate``); returns the VMIM's name. Raises `Refused`, `AlreadyExists`.

        ``metadata``: the VMIM's, if that person writes it himself.
        """
        vm = self._vm(namespace, vmi)
        created = self._migrations.create(
            vm, "user-triggered", evacuated_node=None, asked_by=asked_by, metadata=metadata
        )
        return created.name

    def delete_migration(self, namespace: str, name: str) -> None:
        """Delete a VMIM. An unfinished one is cancelled first; an evacuation is followed by another while marked."""
        self._migrations.delete(namespace, name)

    def evacuate_cancel(self, namespace: str, vmi: str) -> None:
        """Empty a VMI's mark (``virtctl evacuate-cancel``); a migration that exists goes on."""
        self._evacuation.cancel(self._vm(namespace, vmi))

    def set_webhook_down(self, *, is_down: bool) -> None:
        """Take KubeVirt's eviction webhook out of reach, or bring it back."""
        self._evictions.webhook_down = is_down

    # Nodes

    def add_node(self, spec: NodeSpec) -> None:
        """A node joins, ready. Raises `AlreadyExists`."""
        self._nodes.add(spec)

    def remove_node(self, name: str) -> None:
        """A machine goes, and its Node object with it. VMs still there are dead and come up elsewhere."""
        self._nodes.remove(name)

    def lose_node(self, name: str) -> None:
        """A machine dies with its VMs. It is NotReady after 40 s; 5 minutes later its VMs are started elsewhere."""
        self._nodes.lose(name)

    def set_node_ready(self, name: str, *, ready: bool) -> None:
        """A node's condition Ready. VMs run on there, but are given up after 5 minutes of not being ready."""
        self._nodes.set_ready(name, ready=ready)

    def cordon(self, name: str) -> None:
        self._nodes.cordon(name, is_on=True)

    def uncordon(self, name: str) -> None:
        """Let a node take pods again; ends its drain."""
        self._drains.stop(name)

    def drain(self, name: str) -> None:
        """``kubectl drain``: cordon it and ask for evictions every 5 s until no VM is left; stays cordoned."""
        self._drains.start(name)

    def is_drained(self, name: str) -> bool:
        """No launcher is left on the node but finished ones."""
        return self._drains.is_drained(name)

    def replace_taints(self, node: str, expected_resource_version: str, taints: list[Json]) -> bool:
        """Replace a node's taints if it is still as it was read; ``False``: it is not (conflict).

        Raises `Invalid` if two taints have the same key and effect.
        """
        return self._nodes.replace_taints(node, expected_resource_version, taints)

    def _vm(self, namespace: str, name: str) -> Vm:
        vm = self._plane.vms.get(f"{namespace}/{name}")
        if vm is None:
            raise NotFound(VMI, name)
        return vm

    def _observe(self, event: WatchEvent) -> None:
        if event.kind == KUBEVIRT:  # the cluster's eviction strategy may have changed
            for vm in self._plane.vms.values():
                self._machines.sync_budget(vm)
