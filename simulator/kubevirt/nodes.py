"""Nodes: joining, cordon, taints, losing contact, leaving."""

from ipaddress import ip_network

from simulator.agenda import Handle
from simulator.kubevirt.machines import Machines
from simulator.kubevirt.manifests import APP, DOMAIN, LAUNCHER, SCHEDULABLE, daemon_pod, node, ready_condition
from simulator.kubevirt.migrations import Migrations
from simulator.kubevirt.objectstore import (
    NODE,
    POD,
    REMOVE,
    AlreadyExists,
    Conflict,
    Invalid,
    Json,
    NotFound,
    Path,
    at,
)
from simulator.kubevirt.plane import Plane, Vm
from simulator.kubevirt.pods import Pods
from simulator.specs import NodeSpec

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_SILENCE_S = 40.0
"""How long a node may be silent before Kubernetes calls its state Unknown."""
_TOLERATION_S = 300.0
"""How long launchers tolerate to be on a node that is not ready."""


class Nodes:
    """The node controller, and what befalls nodes. Unknown names raise `NotFound`."""

    def __init__(self, plane: Plane, pods: Pods, machines: Machines, migrations: Migrations) -> None:
        self._plane = plane
        self._pods = pods
        self._machines = machines
        self._migrations = migrations
        self._given_up: dict[str, Handle] = {}
        """Nodes that are not ready -> when their VMs are given up."""
        self._addresses = map(str, ip_network("10.0.0.0/8").hosts())

    def add(self, spec: NodeSpec) -> None:
        if self._plane.node(spec.name) is not None:
            raise AlreadyExists(NODE, spec.name)
        self._plane.world.add_node(spec)
        self._plane.nics[spec.name] = spec.nic_bytes_per_s
        self._plane.store.create(NODE, node(spec, next(self._addresses)))
        if spec.other_requests_cpu_cores or spec.other_requests_memory_bytes:
            self._plane.store.create(POD, daemon_pod(spec))

    def remove(self, name: str) -> None:
        """The machine is gone and its Node object deleted: its VMs are dead and come up elsewhere."""
        self._get(name)
        self._crash(name)
        self._give_up(name)
        self._forget(name)
        for pod in self._pods_on(name):
            self._plane.store.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._plane.store.delete(NODE, "", name)
        del self._plane.nics[name]
        self._plane.world.remove_node(name)

    def cordon(self, name: str, *, is_on: bool) -> None:
        taints = _without(self._get(name), _UNSCHEDULABLE)
        if is_on:
            taints.append(
                {"effect": "NoSchedule", "key": _UNSCHEDULABLE, "timeAdded": self._plane.now_text()}
            )
        changes: dict[Path, object] = {
            ("spec", "unschedulable"): True if is_on else REMOVE,
            **_taints(taints),
        }
        self._plane.store.update(NODE, "", name, changes)

    def replace_taints(self, name: str, expected_resource_version: str, taints: list[Json]) -> bool:
        """See `ControlPlane.replace_taints`."""
        self._get(name)
        seen: dict[tuple[str, str], None] = {}
        for position, taint in enumerate(taints):
            key = (taint["key"], taint["effect"])
            if key in seen:
                raise Invalid(
                    f'Node "{name}" is invalid: metadata.taints[{position}]: Duplicate value: {taint}: '
                    "taints must be unique by key and effect pair"
                )
            seen[key] = None
        version: Path = ("metadata", "resourceVersion")
        try:
            self._plane.store.update(NODE, "", name, {version: expected_resource_version, **_taints(taints)})
        except Conflict:
            return False
        return True

    def set_ready(self, name: str, *, ready: bool) -> None:
        """The node's condition Ready. Its VMs run on; if it stays false, they are given up after 5 minutes.

        A lost machine that is ready again has been restarted: what ran there is dead, and given up at once.
        """
        self._get(name)
        if ready:
            if name in self._plane.lost_nodes:
                self._give_up(name)
            self._forget(name)
            self._tell(name, "True", "KubeletReady", "")
        elif name not in self._given_up:
            self._tell(name, "False", "KubeletNotReady", _NOT_READY)
            self._plan_to_give_up(name)

    def lose(self, name: str) -> None:
        """The machine dies, its VMs with it. Kubernetes notices after 40 s, and gives them up 5 minutes later."""
        self._get(name)
        if name in self._plane.lost_nodes:
            return
        self._plane.lost_nodes[name] = None
        self._crash(name)

        def notice() -> None:
            if name in self._plane.lost_nodes:
                self._tell(name, "Unknown", "NodeStatusUnknown", _UNREACHABLE)
                self._plan_to_give_up(name)

        self._plane.agenda.after(_SILENCE_S, notice)

    def _get(self, name: str) -> Json:
        found = self._plane.node(name)
        if found is None:
            raise NotFound(NODE, name)
        return found

    def _vms_on(self, name: str) -> list[Vm]:
        """VMs whose VMI or launcher is on the node, or whose guest is."""
        found = []
        for vm in self._plane.vms.values():
            pod = self._plane.pod(vm, vm.pod)
            there = (
                vm.node,
                at(self._plane.vmi(vm) or {}, "status", "nodeName"),
                at(pod or {}, "spec", "nodeName"),
            )
            if vm.uid and name in there:
                found.append(vm)
        return found

    def _crash(self, name: str) -> None:
        self._migrations.node_lost(name)
        for vm in self._vms_on(name):
            if vm.node == name:
                self._machines.power_off(vm)

    def _plan_to_give_up(self, name: str) -> None:
        self._given_up[name] = self._plane.agenda.after(_TOLERATION_S, lambda: self._give_up(name))

    def _give_up(self, name: str) -> None:
        """What ran on the node is declared failed and started anew elsewhere; nothing is left of it there."""
        self._migrations.node_lost(name)
        for vm in self._vms_on(name):
            if vm.node in ("", name):
                self._machines.take_down(vm, phase="Failed", restart=vm.wanted)
        for pod in self._pods_on(name):
            metadata = pod["metadata"]
            if (metadata.get("labels") or {}).get(APP) != LAUNCHER:
                continue
            vm_of = self._plane.vms.get(f"{metadata['namespace']}/{metadata['annotations'][DOMAIN]}")
            if vm_of is not None:
                self._migrations.target_gone(vm_of, metadata["name"])
            self._pods.delete(metadata["namespace"], metadata["name"])

    def _pods_on(self, name: str) -> list[Json]:
        return [pod for pod in self._plane.store.list(POD) if pod["spec"].get("nodeName") == name]

    def _forget(self, name: str) -> None:
        """The node is well again, or gone."""
        self._plane.lost_nodes.pop(name, None)
        handle = self._given_up.pop(name, None)
        if handle is not None:
            handle.cancel()

    def _tell(self, name: str, status: str, reason: str, taint: str) -> None:
        before = self._get(name)
        taints = [t for t in at(before, "spec", "taints") or () if t["key"] not in (_NOT_READY, _UNREACHABLE)]
        if taint:
            taints += [
                {"effect": effect, "key": taint, "timeAdded": self._plane.now_text()}
                for effect in ("NoSchedule", "NoExecute")
            ]
        others = [c for c in before["status"]["conditions"] if c["type"] != "Ready"]
        conditions = [*others, ready_condition(status, reason, self._plane.agenda.now_s)]
        changes: dict[Path, object] = {
            ("status", "conditions"): conditions,
            **_taints(taints),
        }
        if status != "False":  # virt-handler still answers on a node that is only not ready
            changes["metadata", "labels", SCHEDULABLE] = "true" if status == "True" else "false"
        self._plane.store.update(NODE, "", name, changes)


def _without(node_object: Json, key: str) -> list[Json]:
    return [taint for taint in at(node_object, "spec", "taints") or () if taint["key"] != key]


def _taints(taints: list[Json]) -> dict[Path, object]:
    return {("spec", "taints"): taints or REMOVE}
