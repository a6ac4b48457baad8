"""Virtual machines: starting, stopping, going down and coming up again, and the VMI and launcher that go with it."""

from collections.abc import Callable

import msgspec

from simulator.agenda import rfc3339
from simulator.kubevirt import manifests
from simulator.kubevirt.manifests import EVICT_ONLY, NODE_NAME
from simulator.kubevirt.objectstore import PDB, POD, VMI, AlreadyExists, Json
from simulator.kubevirt.plane import Plane, Vm
from simulator.kubevirt.pods import Pods
from simulator.specs import VmSpec


class Machines:
    """The VM and VMI controllers. `on_down` is called when a VM goes down, `on_gone` when its VMI is deleted."""

    def __init__(self, plane: Plane, pods: Pods) -> None:
        self._plane = plane
        self._pods = pods
        self._budgets: dict[str, str] = {}
        """VMI UID -> name of its PDB."""
        self.on_down: list[Callable[[Vm], None]] = []
        self.on_gone: list[Callable[[Vm], None]] = []

    def create(self, spec: VmSpec) -> Vm:
        """See `ControlPlane.create_vm`."""
        key = f"{spec.namespace}/{spec.name}"
        if key in self._plane.vms or self._plane.store.get(VMI, spec.namespace, spec.name) is not None:
            raise AlreadyExists(VMI, spec.name)
        if spec.node is not None and self._plane.node(spec.node) is None:
            raise ValueError(f"VM {key}: node {spec.node!r}, allowed: a node of the cluster")
        vm = Vm(spec, key)
        if spec.age_s > 0:
            self._place_running(vm)
        self._plane.vms[key] = vm
        if spec.age_s <= 0:
            self.start(vm)
        return vm

    def start(self, vm: Vm) -> None:
        """The owner wants the VM to run. Nothing happens if it does."""
        vm.wanted = True
        if not vm.uid:
            self._begin(vm)
        elif vm.going_down:
            vm.restart_at_s = self._plane.agenda.now_s

    def delete(self, vm: Vm) -> None:
        """The owner wants it no more."""
        del self._plane.vms[vm.key]
        self.take_down(vm, phase="Succeeded", restart=False)

    def power_off(self, vm: Vm) -> None:
        """The guest is dead, whatever the API knows of it. It takes up its work again after a restart."""
        if not vm.node:
            return
        demand = min(self._plane.world.vm_demand_cores(vm.key) / vm.spec.vcpus, 1.0)
        touched = min(self._plane.world.vm_touched_bytes(vm.key) / vm.spec.guest_bytes, 1.0)
        vm.spec = msgspec.structs.replace(vm.spec, demand=demand, touched=touched, age_s=0.0)
        self._plane.world.remove_vm(vm.key)
        vm.node = ""

    def take_down(self, vm: Vm, *, phase: str, restart: bool) -> None:
        """Stop the VM now; with ``restart`` its VM object has it started anew some time later.

        Pods get deleted, the VMI ends in the given phase and is deleted, with all that belongs to it.
        """
        vm.wanted = restart
        if not vm.uid or vm.going_down:
            return
        vm.going_down = True
        vm.restart_at_s = self._plane.agenda.now_s + self._plane.rng.uniform(*self._plane.options.restart_s)
        self.power_off(vm)
        for tell in self.on_down:
            tell(vm)
        for pod in self._plane.pods_of(vm):
            self._pods.delete(vm.spec.namespace, pod["metadata"]["name"])

        def end() -> None:
            self._plane.change_vmi(vm, {("status", "phase"): phase})
            self._plane.soon(lambda: self._remove_vmi(vm))

        self._plane.after(self._plane.options.pod_shutdown_s, end)

    def sync_budget(self, vm: Vm) -> None:
        """Older KubeVirt: a PDB for a running VMI whose eviction does not end it."""
        vmi = self._plane.vmi(vm)
        if self._plane.options.webhook == "newer" or vmi is None or vmi["status"]["phase"] != "Running":
            return
        guarded = self._plane.evicting_migrates(vmi) or self._plane.eviction_strategy(vmi) == "External"
        if guarded and vm.uid not in self._budgets:
            budget = self._plane.store.create(PDB, manifests.disruption_budget(vm.spec, vm.uid))
            self._budgets[vm.uid] = budget["metadata"]["name"]
        elif not guarded:
            self._remove_budget(vm)

    def has_budget(self, vm: Vm) -> bool:
        return vm.uid in self._budgets

    def plug(self, vm: Vm) -> None:
        """Hotplug a volume."""
        vm.hotplug = True
        self._plug(vm)

    def _place_running(self, vm: Vm) -> None:
        """Create the objects of a VM that has been running for a while. Raises ``ValueError`` if it fits nowhere."""
        vm.uid = self._plane.store.new_uid()
        vm.pod = self._plane.new_launcher_name(vm)
        pod = manifests.launcher(vm.spec, vm.pod, vm.uid)
        node = vm.spec.node
        if node is None:
            placement = self._plane.scheduler.place(pod)
            if placement.node is None:
                raise ValueError(f"VM {vm.key} fits on no node: {placement.message}")
            node = placement.node
        born_s = self._plane.agenda.now_s - vm.spec.age_s
        pod_uid = self._plane.store.new_uid()
        pod["metadata"] |= {"creationTimestamp": rfc3339(born_s), "uid": pod_uid}
        pod["metadata"]["annotations"][EVICT_ONLY] = ""
        pod["spec"]["nodeName"] = node
        pod["status"] = manifests.running_status(born_s)
        vmi = manifests.vmi(vm.spec)
        vmi["metadata"] |= {
            "creationTimestamp": rfc3339(born_s),
            "uid": vm.uid,
            "labels": {**vmi["metadata"]["labels"], NODE_NAME: node},
        }
        vmi["status"] = {
            "activePodUID": pod_uid,
            "activePods": {pod_uid: node},
            "conditions": [manifests.live_migratable(vm.spec)],
            "nodeName": node,
            "phase": "Running",
        }
        self._plane.store.create(VMI, vmi)
        self._plane.store.create(POD, pod)
        vm.pods[vm.pod] = None
        self._run(vm, node)

    def _begin(self, vm: Vm) -> None:
        vm.uid = self._plane.store.create(VMI, manifests.vmi(vm.spec))["metadata"]["uid"]
        uid = vm.uid

        def create_pod() -> None:
            if vm.uid != uid or vm.going_down:
                return
            vm.pod = self._plane.new_launcher_name(vm)
            vm.pods[vm.pod] = None
            self._pods.start(manifests.launcher(vm.spec, vm.pod, uid), lambda _: None, hand_over)
            self._plane.change_vmi(vm, {("status", "phase"): "Scheduling"})

        def hand_over(pod: Json) -> None:
            node, pod_uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
            self._plane.change_vmi(
                vm,
                {
                    ("metadata", "labels", NODE_NAME): node,
                    ("status", "phase"): "Scheduled",
                    ("status", "nodeName"): node,
                    ("status", "activePods"): {pod_uid: node},
                    ("status", "activePodUID"): pod_uid,
                },
            )
            self._plane.soon(lambda: boot(node))

        def boot(node: str) -> None:
            if vm.uid != uid or vm.going_down or node in self._plane.lost_nodes:
                return
            conditions = [manifests.live_migratable(vm.spec)]
            self._plane.change_vmi(vm, {("status", "phase"): "Running", ("status", "conditions"): conditions})
            self._run(vm, node)

        self._plane.soon(create_pod)

    def _run(self, vm: Vm, node: str) -> None:
        self._plane.world.add_vm(vm.key, vm.spec, node)
        vm.node = node
        self.sync_budget(vm)
        self._plug(vm)

    def _plug(self, vm: Vm) -> None:
        launcher = self._plane.pod(vm, vm.pod)
        if vm.hotplug and vm.node and launcher is not None:
            self._pods.attach_hotplug(vm, launcher)

    def _remove_vmi(self, vm: Vm) -> None:
        for tell in self.on_gone:
            tell(vm)
        self._remove_budget(vm)
        for pod in self._plane.pods_of(vm):
            self._plane.store.delete(POD, vm.spec.namespace, pod["metadata"]["name"])
        self._plane.store.delete(VMI, vm.spec.namespace, vm.spec.name)
        vm.uid = vm.pod = ""
        vm.pods = {}
        vm.going_down = False
        self._plane.agenda.at(vm.restart_at_s, lambda: self._restart(vm))

    def _restart(self, vm: Vm) -> None:
        if vm.wanted and not vm.uid and self._plane.vms.get(vm.key) is vm:
            self._begin(vm)

    def _remove_budget(self, vm: Vm) -> None:
        name = self._budgets.pop(vm.uid, None)
        if name is not None:
            self._plane.store.delete(PDB, vm.spec.namespace, name)
