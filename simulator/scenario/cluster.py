"""A scenario's groups of nodes and VMs, expanded into single ones, each VM with the node on which it
starts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.kubevirt.manifests import MAX_PODS
from simulator.load.select import drawn, matching
from simulator.scenario.checking import Problem, ScenarioErrors
from simulator.scenario.cluster_schema import Immovable, Loads, NodeGroup, VmGroup, bounds
from simulator.scenario.references import node_name
from simulator.scenario.schema import Scenario
from simulator.seeds import generator
from simulator.specs import GIB, NodeSpec, VmSpec

ZONE = "topology.kubernetes.io/zone"
OVERHEAD_BYTES = 400.0 * (1 << 20)
"""What KubeVirt adds to the guest's memory when it requests memory for a launcher."""
CPU_ALLOCATION_RATIO = 10.0
"""KubeVirt's default: a launcher requests a tenth of its vCPUs."""
_HARD = ("NoSchedule", "NoExecute")


class Cluster(NamedTuple):
    """What is there when the run begins. Names are unique; every ``node`` of a VM is one of the nodes or
    ``None``."""

    nodes: tuple[NodeSpec, ...]
    vms: tuple[VmSpec, ...]
    cordoned: tuple[str, ...] = ()
    not_ready: tuple[str, ...] = ()


def expand(scenario: Scenario, seed: int) -> Cluster:
    """The cluster that a scenario describes. Raises ``ScenarioErrors`` if its VMs do not fit."""
    nodes = tuple(
        node_spec(group, spec, number)
        for group, spec in scenario.nodes.items()
        for number in range(spec.count)
    )
    vms = {
        group: list(vm_specs(group, spec, range(spec.count), scenario.load, seed))
        for group, spec in scenario.vms.items()
    }
    placed = _Placement(nodes).place(scenario.vms, vms)
    return Cluster(nodes, with_immovable(placed, nodes, scenario.immovable, seed))


def node_spec(group: str, spec: NodeGroup, number: int) -> NodeSpec:
    zone = {ZONE: spec.zones[number % len(spec.zones)]} if spec.zones else {}
    return NodeSpec(
        name=node_name(group, number),
        cores=spec.cores,
        memory_bytes=spec.memory_gib * GIB,
        nic_bytes_per_s=spec.nic_gbit_per_s * 1e9 / 8,
        labels={**zone, **spec.labels},
        taints=tuple({"key": t.key, "value": t.value, "effect": t.effect} for t in spec.taints),
        other_cpu_cores=spec.other_cpu_cores,
        other_memory_bytes=spec.other_memory_gib * GIB,
        other_requests_cpu_cores=spec.other_requests_cpu_cores,
        other_requests_memory_bytes=spec.other_requests_memory_gib * GIB,
    )


def vm_specs(group: str, spec: VmGroup, numbers: range, loads: Loads, seed: int) -> Iterator[VmSpec]:
    """VMs of a group, without a node yet. A VM's number decides its draws: more VMs change no others."""
    low, high = bounds(spec.dirty_mb_per_s)
    shares = generator(seed, f"vms.{group}.dirty").random(numbers.stop)
    for number in numbers:
        sets_of = spec.anti_affine_sets_of
        yield VmSpec(
            namespace=spec.namespace,
            name=f"{group}-{number:03}",
            vcpus=spec.vcpus,
            guest_bytes=spec.memory_gib * GIB,
            dirty_bytes_per_s=1e6 * (low + (high - low) * float(shares[number])),
            demand=loads.demand if spec.demand is None else spec.demand,
            touched=loads.touched if spec.touched is None else spec.touched,
            priority=spec.priority,
            eviction_strategy=spec.eviction_strategy,
            migratable=spec.migratable,
            opted_out=spec.opted_out,
            anti_affinity_group=f"{group}-set-{number // sets_of}" if sets_of else None,
            labels=spec.labels,
            age_s=spec.age_minutes * 60,
            group=group,
        )


def with_immovable(
    vms: tuple[VmSpec, ...], nodes: Iterable[NodeSpec], rules: Iterable[Immovable], seed: int
) -> tuple[VmSpec, ...]:
    """The VMs, some of them made unmovable as the scenario says."""
    changed = list(vms)
    for number, rule in enumerate(rules):
        started_on = [vm.node or "" for vm in vms]
        candidates = matching(rule.vms, vms, started_on, {node.name: node.cores for node in nodes})
        chosen = drawn(rule.vms, candidates, generator(seed, f"immovable[{number}]"))
        for turn, position in enumerate(chosen.tolist()):
            changed[position] = _immovable(changed[position], rule.ways[turn % len(rule.ways)])
    return tuple(changed)


def _immovable(vm: VmSpec, way: str) -> VmSpec:
    changes: Mapping[str, Mapping[str, object]] = {
        "not-migratable": {"migratable": False, "eviction_strategy": "LiveMigrate"},
        "not-migratable-if-possible": {"migratable": False, "eviction_strategy": "LiveMigrateIfPossible"},
        "strategy-none": {"eviction_strategy": "None"},
        "pinned": {"pinned_to": vm.node},
        "opted-out": {"opted_out": True},
    }
    return msgspec.structs.replace(vm, **changes[way])


class _Placement:
    """Puts VMs where their groups say, as far as requests, pod limit and anti-affinity allow."""

    def __init__(self, nodes: tuple[NodeSpec, ...]) -> None:
        self._names = [node.name for node in nodes]
        self._index = {name: number for number, name in enumerate(self._names)}
        self._zones = np.array([node.labels.get(ZONE, "") for node in nodes], dtype=object)
        self._open = np.array([all(taint["effect"] not in _HARD for taint in node.taints) for node in nodes])
        self._cores = np.array([node.cores for node in nodes])
        self._memory = np.array([node.memory_bytes for node in nodes])
        self._free_cores = self._cores - np.array([node.other_requests_cpu_cores for node in nodes])
        self._free_memory = self._memory - np.array([node.other_requests_memory_bytes for node in nodes])
        self._free_pods = np.full(len(nodes), MAX_PODS - 1)
        self._vcpus = np.zeros(len(nodes))
        self._taken: dict[str, set[int]] = {}

    def place(self, groups: Mapping[str, VmGroup], vms: Mapping[str, list[VmSpec]]) -> tuple[VmSpec, ...]:
        """Named nodes first, then the rest evenly, large VMs before small ones."""
        where: dict[str, str | None] = {}
        failed: Counter[str] = Counter()
        waiting = []
        for group, members in vms.items():
            for vm, names in zip(members, _wanted(groups[group]), strict=True):
                if groups[group].placement == "scheduler":
                    where[vm.name] = None
                else:
                    waiting.append((not names, -vm.vcpus, -vm.guest_bytes, vm, names))
        for _, _, _, vm, names in sorted(waiting, key=lambda item: item[:3]):
            node = self._put(vm, names, groups[vm.group].zone)
            if node is None:
                failed[vm.group] += 1
            where[vm.name] = node
        if failed:
            raise ScenarioErrors(
                "scenario", [_no_room(group, groups[group], n) for group, n in failed.items()]
            )
        return tuple(
            msgspec.structs.replace(
                vm, node=where[vm.name], pinned_to=where[vm.name] if groups[group].pinned else None
            )
            for group, members in vms.items()
            for vm in members
        )

    def _put(self, vm: VmSpec, names: tuple[str, ...], zone: str | None) -> str | None:
        cpu, memory = vm.vcpus / CPU_ALLOCATION_RATIO, vm.guest_bytes + OVERHEAD_BYTES
        fits = (self._free_cores >= cpu) & (self._free_memory >= memory) & (self._free_pods > 0)
        if names:
            named = np.zeros_like(fits)
            named[[self._index[name] for name in names]] = True
            fits &= named
        else:
            fits &= self._open
        if zone is not None:
            fits &= self._zones == zone
        taken = self._taken.setdefault(vm.anti_affinity_group, set()) if vm.anti_affinity_group else set()
        fits[list(taken)] = False
        if not fits.any():
            return None
        # vCPUs per core decide, memory among equals.
        share = self._vcpus / self._cores - 1e-3 * self._free_memory / self._memory
        node = int(np.argmin(np.where(fits, share, np.inf)))
        self._free_cores[node] -= cpu
        self._free_memory[node] -= memory
        self._free_pods[node] -= 1
        self._vcpus[node] += vm.vcpus
        taken.add(node)
        return self._names[node]


def _wanted(group: VmGroup) -> Iterator[tuple[str, ...]]:
    """For each VM of the group: the nodes it may start on; none named: any."""
    named: list[tuple[str, ...]] = []
    if isinstance(group.placement, dict):
        named = [(node,) for node, number in group.placement.items() for _ in range(number)]
    anywhere = group.placement if isinstance(group.placement, tuple) else ()
    for number in range(group.count):
        yield named[number] if number < len(named) else anywhere


def _no_room(name: str, group: VmGroup, number: int) -> Problem:
    where = "the nodes it may start on" if group.zone or not isinstance(group.placement, str) else "the nodes"
    rule = ", no two of a set on one node" if group.anti_affine_sets_of else ""
    size = f"{group.vcpus:g} vCPUs, {group.memory_gib:g} GiB{rule}"
    return Problem(
        f"vms.{name}",
        f"{number} of {group.count} VMs ({size}) fit on none of {where}",
        "VMs whose requests (a tenth of the vCPUs; memory + 0.4 GiB) fit, 249 to a node",
    )
