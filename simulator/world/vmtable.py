"""The VMs of the simulated world as columns of numbers."""

from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from simulator.specs import VmSpec

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_FIRST_CAPACITY = 64


def _ints() -> IntArray:
    return np.zeros(_FIRST_CAPACITY, dtype=np.intp)


def _floats() -> FloatArray:
    return np.zeros(_FIRST_CAPACITY)


@dataclass(slots=True)
class VmTable:
    """One slot per VM; a slot stays with its VM until that is removed, then the next VM may get it.

    Invariant: a free slot wants no CPU, holds no memory, and has uid 0 and node index 0, so that sums over
    all slots need no mask.
    """

    slots: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=lambda: list(range(_FIRST_CAPACITY - 1, -1, -1)))
    labels: list[dict[str, str]] = field(default_factory=lambda: [{} for _ in range(_FIRST_CAPACITY)])
    """Of the recorded series: ``namespace``, ``name``, ``node``. Replaced, never changed."""
    uid: IntArray = field(default_factory=_ints)
    node: IntArray = field(default_factory=_ints)
    vcpus: FloatArray = field(default_factory=_floats)
    guest_bytes: FloatArray = field(default_factory=_floats)
    dirty: FloatArray = field(default_factory=_floats)
    """Bytes per second."""
    demand_cores: FloatArray = field(default_factory=_floats)
    touched_bytes: FloatArray = field(default_factory=_floats)
    used_s: FloatArray = field(default_factory=_floats)
    delay_s: FloatArray = field(default_factory=_floats)
    used_origin_s: FloatArray = field(default_factory=_floats)
    """What ``used_s`` was when the series on the present node stood at zero; negative for an older VM."""
    delay_origin_s: FloatArray = field(default_factory=_floats)
    served_mark_s: FloatArray = field(default_factory=_floats)
    """The node's integral of the served share up to which ``used_s`` reaches."""
    unserved_mark_s: FloatArray = field(default_factory=_floats)

    def add(self, key: str, spec: VmSpec, uid: int) -> int:
        """The slot, without a node until ``place``."""
        if not self.free:
            self._grow()
        slot = self.free.pop()
        self.slots[key] = slot
        self.uid[slot] = uid
        self.vcpus[slot], self.guest_bytes[slot] = spec.vcpus, spec.guest_bytes
        self.dirty[slot] = spec.dirty_bytes_per_s
        self.demand_cores[slot] = spec.demand * spec.vcpus
        self.touched_bytes[slot] = spec.touched * spec.guest_bytes
        self.used_s[slot] = self.delay_s[slot] = 0.0
        self.used_origin_s[slot] = -spec.age_s * spec.demand * spec.vcpus
        # A vCPU waits now and then even on an idle host: a thousandth of its time.
        self.delay_origin_s[slot] = -spec.age_s * spec.vcpus / 1000
        return slot

    def place(self, key: str, slot: int, node: int, node_name: str) -> None:
        namespace, _, name = key.partition("/")
        self.node[slot] = node
        self.labels[slot] = {"namespace": namespace, "name": name, "node": node_name}

    def remove(self, key: str, slot: int) -> None:
        del self.slots[key]
        self.uid[slot] = self.node[slot] = 0
        self.demand_cores[slot] = self.touched_bytes[slot] = 0.0
        self.free.append(slot)

    def _grow(self) -> None:
        old = len(self.uid)
        for column in fields(self):
            array = getattr(self, column.name)
            if isinstance(array, np.ndarray):
                setattr(self, column.name, np.concatenate([array, np.zeros_like(array)]))
        self.labels.extend({} for _ in range(old))
        self.free.extend(range(2 * old - 1, old - 1, -1))
