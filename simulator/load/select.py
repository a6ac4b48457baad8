"""Which VMs a load means: by group, by where they started, or by the world's truth at that moment."""

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.scenario.cluster_schema import NodePick, Vms
from simulator.specs import VmSpec
from simulator.world.vmtable import FloatArray, IntArray
from simulator.world.world import World


def matching(
    vms: Vms, specs: Sequence[VmSpec], started_on: Sequence[str], cores: Mapping[str, float]
) -> IntArray:
    """Positions of the VMs, there now or not, that meet what does not change: group and node of the start.

    ``cores``: of each node, in node order.
    """
    mask = np.ones(len(specs), dtype=bool)
    if vms.groups:
        mask &= np.fromiter((vm.group in vms.groups for vm in specs), bool, len(specs))
    names: Sequence[str] = ()
    if not isinstance(vms.nodes, NodePick):
        names = vms.nodes
    elif vms.nodes.most_committed_at_start is not None:
        committed = dict.fromkeys(cores, 0.0)
        for vm, node in zip(specs, started_on, strict=True):
            if node in committed:
                committed[node] += vm.vcpus / cores[node]
        names = sorted(committed, key=lambda node: -committed[node])[: vms.nodes.most_committed_at_start]
    if names:
        mask &= np.fromiter((node in names for node in started_on), bool, len(specs))
    return np.flatnonzero(mask)


def drawn(vms: Vms, candidates: IntArray, rng: np.random.Generator) -> IntArray:
    """The share or number of the candidates that the choice asks for, in order; all if it asks for none."""
    if vms.fraction is not None:
        number = round(len(candidates) * vms.fraction)
    elif vms.count is not None:
        number = min(vms.count, len(candidates))
    else:
        return candidates
    return np.sort(rng.choice(candidates, number, replace=False))


class Population:
    """All VMs that a run ever has, in a fixed order; loads speak of them by position.

    ``started_on``: key -> node of those that are there at the beginning.
    """

    def __init__(self, vms: Sequence[VmSpec], started_on: Mapping[str, str], world: World) -> None:
        self.vms = tuple(vms)
        self.keys = tuple(f"{vm.namespace}/{vm.name}" for vm in self.vms)
        self.position = {key: number for number, key in enumerate(self.keys)}
        self._world = world
        self._started_on = [started_on.get(key, "") for key in self.keys]
        layout = world.layout()
        self._cores = dict(zip(layout.node_names, layout.cores.tolist(), strict=True))

    def here(self) -> tuple[IntArray, IntArray]:
        """(positions, slots in the world) of the VMs that exist now; VMs that the scenario does not know are
        left out."""
        layout = self._world.layout()
        positions = np.array([self.position.get(key, -1) for key in layout.vm_keys], dtype=np.intp)
        known = positions >= 0
        return positions[known], layout.vm_slots[known]

    def existing(self, positions: IntArray) -> IntArray:
        """Those of the positions whose VMs exist now, in order."""
        return np.intersect1d(positions, self.here()[0])

    def matching(self, vms: Vms) -> IntArray:
        return matching(vms, self.vms, self._started_on, self._cores)

    def on_picked_nodes(self, pick: NodePick, rng: np.random.Generator) -> IntArray:
        """Positions of the VMs that run now on the nodes that the pick means."""
        layout = self._world.layout()
        positions, slots = self.here()
        node_uids = layout.slot_node_uids[slots]
        if pick.random is not None:
            with_vms = np.unique(node_uids)
            chosen = rng.choice(with_vms, min(pick.random, len(with_vms)), replace=False)
        else:
            number = pick.hottest if pick.hottest is not None else pick.fullest
            chosen = layout.node_uids[_greatest(self._share(pick), number or 0)]
        return np.sort(positions[np.isin(node_uids, chosen)])

    def _share(self, pick: NodePick) -> FloatArray:
        layout = self._world.layout()
        if pick.hottest is not None:
            return self._world.node_demand_cores() / layout.cores
        return self._world.node_memory_bytes() / layout.memory_bytes


class Selector:
    """One choice of VMs, made anew with each call."""

    def __init__(self, population: Population, vms: Vms, rng: np.random.Generator) -> None:
        self._population = population
        self._vms = vms
        self._rng = rng
        self._matching = population.matching(vms)

    def choose(self) -> IntArray:
        """Positions of the chosen VMs, in order. A share or number of them is drawn from those that exist
        now."""
        vms, found = self._vms, self._matching
        if isinstance(vms.nodes, NodePick) and vms.nodes.most_committed_at_start is None:
            found = np.intersect1d(found, self._population.on_picked_nodes(vms.nodes, self._rng))
        if vms.count is None and vms.fraction is None:
            return found
        return drawn(vms, self._population.existing(found), self._rng)


def _greatest(values: FloatArray, number: int) -> IntArray:
    """Positions of the greatest values; among equals the earlier."""
    return np.argsort(-values, kind="stable")[:number]
