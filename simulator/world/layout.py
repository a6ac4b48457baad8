"""Who is where in the simulated world at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.specs import NodeSpec
from simulator.world.vmtable import FloatArray, IntArray, VmTable

BoolArray = npt.NDArray[np.bool_]

_ROLE = "node-role.kubernetes.io/"


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Frozen; arrays must not be written to.

    A uid is given once and never again, and later ones are greater, so node uids are sorted.
    """

    node_names: tuple[str, ...]
    node_uids: IntArray
    cores: FloatArray
    memory_bytes: FloatArray
    workers: BoolArray
    """Nodes that are not control plane; one that is both counts as worker."""
    vm_keys: tuple[str, ...]
    vm_slots: IntArray
    """Slot of each VM of ``vm_keys``."""
    slot_vm_uids: IntArray
    """By slot; 0: free."""
    slot_node_uids: IntArray
    """By slot: the node of its VM; 0: free."""
    guest_bytes: FloatArray
    """By slot."""
    node_labels: tuple[dict[str, str], ...]
    vm_labels: tuple[dict[str, str], ...]
    """Labels of recorded series; shared, not to be changed."""

    @classmethod
    def of(cls, specs: Sequence[NodeSpec], node_uids: Sequence[int], vms: VmTable) -> "Layout":
        names = tuple(spec.name for spec in specs)
        uids = np.array(node_uids, dtype=np.intp)
        slots = np.fromiter(vms.slots.values(), np.intp, len(vms.slots))
        slot_node_uids = np.zeros_like(vms.uid)
        slot_node_uids[slots] = uids[vms.node[slots]]
        return cls(
            node_names=names,
            node_uids=uids,
            cores=np.array([spec.cores for spec in specs], dtype=float),
            memory_bytes=np.array([spec.memory_bytes for spec in specs], dtype=float),
            workers=np.array([_is_worker(spec) for spec in specs], dtype=bool),
            vm_keys=tuple(vms.slots),
            vm_slots=slots,
            slot_vm_uids=vms.uid.copy(),
            slot_node_uids=slot_node_uids,
            guest_bytes=vms.guest_bytes.copy(),
            node_labels=tuple({"instance": name} for name in names),
            vm_labels=tuple(vms.labels[slot] for slot in vms.slots.values()),
        )


def _is_worker(spec: NodeSpec) -> bool:
    control_plane = _ROLE + "control-plane" in spec.labels or _ROLE + "master" in spec.labels
    return _ROLE + "worker" in spec.labels or not control_plane
