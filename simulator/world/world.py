"""Physical truth of the simulated cluster: CPU and memory of nodes and VMs, without any API object.

Everything is constant between two changes, so all integrals over time are exact. Per node:

CPU
    ``demand = VMs' demand + other + overhead``. While demand stays within the cores, everybody gets what it
    wants; above, everybody gets the share ``served = cores / demand`` of it. ``used = demand * served``.
    A VM is *starved* of ``its demand * (1 - served)``: that is its vCPU delay.
Memory
    ``used = other + Σ touched guest memory``; what is available is the rest, never less than nothing.
Pressure of CPU, memory and IO
    from demand / cores and used / memory, by the formulas of ``simulator/world/pressure.py``.

A node is *over* while its VMs alone want strictly more than 80 % of its cores.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.agenda import Agenda
from simulator.specs import NodeSpec, VmSpec
from simulator.world.layout import Layout
from simulator.world.over import Interval, OverIntervals
from simulator.world.pressure import cpu_pressure, io_pressure, memory_pressure
from simulator.world.vmtable import FloatArray, IntArray, VmTable

OVER_SHARE = 0.8

# Rows of the matrices of rates and of their integrals over time.
_USED, _CPU_PRESSURE, _MEMORY_PRESSURE, _IO_PRESSURE, _STARVED, _OVER, _SERVED, _UNSERVED = range(8)
_ROWS = 8


class NodeCounters(NamedTuple):
    """Integrals since a node was added; arrays in node order, or sums over all nodes there ever were."""

    cpu_used_s: FloatArray
    cpu_waiting_s: FloatArray
    memory_waiting_s: FloatArray
    io_waiting_s: FloatArray
    starved_core_s: FloatArray
    """Core-seconds that the node's VMs wanted and did not get."""
    over_s: FloatArray
    """Seconds during which the VMs wanted more than 80 % of the cores."""


class VmReadings(NamedTuple):
    """What KubeVirt reports of its VMs; arrays by slot (``Layout.vm_slots``), free slots mean nothing.

    The two counters start anew with each arrival on a node, as the new domain's do.
    """

    cpu_usage_s: FloatArray
    vcpu_delay_s: FloatArray
    resident_bytes: FloatArray
    dirty_bytes_per_s: FloatArray


class World:
    """Nodes, the VMs on them, and what they have used, waited for and missed.

    Invariant: the integrals reach up to ``_time_s``; each setter first carries them on to the agenda's now,
    so a change never acts on the past. What derives from loads is recomputed only when read or integrated.
    A VM's key is ``namespace/name``. Unknown names raise ``KeyError``, impossible values ``ValueError``.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._start_s = self._time_s = agenda.now_s
        self._specs: list[NodeSpec] = []
        self._index: dict[str, int] = {}
        self._node_uids: list[int] = []
        self._next_uid = 1
        self._overhead_cores = np.zeros(0)
        self._integrals = np.zeros((_ROWS, 0))
        self._gone = np.zeros(_ROWS)  # what removed nodes had gathered
        self._stddev_integral = 0.0
        self._over = OverIntervals()
        self._vms = VmTable()
        self._layout: Layout | None = None
        self._index_nodes()
        self._refresh()

    # Nodes

    def add_node(self, spec: NodeSpec) -> None:
        """Add a node at the end of the node order, with counters at zero."""
        if spec.name in self._index:
            raise ValueError(f"node {spec.name!r} exists already")
        if not (spec.cores > 0 and spec.memory_bytes > 0):
            raise ValueError(
                f"node {spec.name!r} has {spec.cores} cores and {spec.memory_bytes} bytes; both must be > 0"
            )
        self.advance()
        self._specs.append(spec)
        self._node_uids.append(self._next_uid)
        self._next_uid += 1
        self._overhead_cores = np.append(self._overhead_cores, 0.0)
        self._integrals = np.append(self._integrals, np.zeros((_ROWS, 1)), axis=1)
        self._index_nodes()

    def remove_node(self, name: str) -> None:
        """Take away a node that holds no VM any more; the totals keep what it gathered."""
        index = self._index[name]
        left = [
            key for key, slot in self._vms.slots.items() if self._vms.node[slot] == index
        ]  # rare, so slow
        if left:
            raise ValueError(
                f"node {name!r} still holds {len(left)} VMs, {left[0]!r} for one; remove or move them first"
            )
        self.advance()
        self._over.close(name, self._time_s)
        self._gone += self._integrals[:, index]
        del self._specs[index], self._node_uids[index]
        self._overhead_cores = np.delete(self._overhead_cores, index)
        self._integrals = np.delete(self._integrals, index, axis=1)
        self._vms.node[self._vms.node > index] -= 1
        self._index_nodes()

    def set_overhead_cores(self, node: str, cores: float) -> None:
        """The CPU that migrations cost on this node now, in cores; replaces the value before."""
        if not cores >= 0:
            raise ValueError(f"overhead of node {node!r} is {cores} cores; it must be >= 0")
        index = self._index[node]
        self.advance()
        self._overhead_cores[index] = cores
        self._dirty = True

    def _index_nodes(self) -> None:
        self._index = {spec.name: index for index, spec in enumerate(self._specs)}
        self._cores = np.array([spec.cores for spec in self._specs], dtype=float)
        self._memory = np.array([spec.memory_bytes for spec in self._specs], dtype=float)
        self._other_cores = np.array([spec.other_cpu_cores for spec in self._specs], dtype=float)
        self._other_memory = np.array([spec.other_memory_bytes for spec in self._specs], dtype=float)
        self._layout, self._dirty = None, True

    # VMs

    def add_vm(self, key: str, spec: VmSpec, node: str) -> None:
        """Start a VM on a node. Its counters are as if it had run with this demand for ``spec.age_s``."""
        if key in self._vms.slots:
            raise ValueError(f"VM {key!r} runs already, on node {self.node_of(key)!r}")
        index = self._index[node]
        _check_fractions(np.array([spec.demand, spec.touched]), key)
        self.advance()
        slot = self._vms.add(key, spec, self._next_uid)
        self._vms.place(key, slot, index, node)
        self._next_uid += 1
        self._mark(slot)
        self._layout, self._dirty = None, True

    def remove_vm(self, key: str) -> None:
        slot = self._vms.slots[key]
        self.advance()
        self._vms.remove(key, slot)
        self._layout, self._dirty = None, True

    def move_vm(self, key: str, node: str) -> None:
        """From now on the VM runs on this node, and its series there start at zero."""
        slot, index = self._vms.slots[key], self._index[node]
        self.advance()
        self._settle(slot)
        self._vms.place(key, slot, index, node)
        self._vms.used_origin_s[slot] = self._vms.used_s[slot]
        self._vms.delay_origin_s[slot] = self._vms.delay_s[slot]
        self._mark(slot)
        self._layout, self._dirty = None, True

    def slots(self, keys: Iterable[str]) -> IntArray:
        """Positions of VMs for the ``…_at`` setters; good until one of these VMs is removed."""
        return np.array([self._vms.slots[key] for key in keys], dtype=np.intp)

    def set_demand(self, key: str, fraction_of_vcpus: float) -> None:
        self.set_demands_at(self.slots((key,)), np.array([fraction_of_vcpus]))

    def set_demands(self, fractions: Mapping[str, float]) -> None:
        self.set_demands_at(self.slots(fractions), np.fromiter(fractions.values(), float, len(fractions)))

    def set_demands_at(self, slots: IntArray, fractions: FloatArray) -> None:
        """CPU that VMs want, as fractions (0..1) of their vCPUs, one for each slot."""
        _check_fractions(fractions, "demand")
        self.advance()
        self._settle(slots)
        self._vms.demand_cores[slots] = fractions * self._vms.vcpus[slots]
        self._dirty = True

    def set_touched(self, key: str, fraction: float) -> None:
        self.set_touched_at(self.slots((key,)), np.array([fraction]))

    def set_touched_at(self, slots: IntArray, fractions: FloatArray) -> None:
        """Resident memory of VMs, as fractions (0..1) of their guest memory, one for each slot."""
        _check_fractions(fractions, "touched memory")
        self.advance()
        self._vms.touched_bytes[slots] = fractions * self._vms.guest_bytes[slots]
        self._dirty = True

    def node_of(self, key: str) -> str:
        return self._specs[int(self._vms.node[self._vms.slots[key]])].name

    def vm_demand_cores(self, key: str) -> float:
        return float(self._vms.demand_cores[self._vms.slots[key]])

    def vm_touched_bytes(self, key: str) -> float:
        return float(self._vms.touched_bytes[self._vms.slots[key]])

    # Time

    def advance(self) -> None:
        """Carry all integrals on to the agenda's now."""
        elapsed_s = self._agenda.now_s - self._time_s
        if elapsed_s <= 0:
            return
        if self._dirty:
            self._refresh()
        self._over.note(self._time_s, self._names_over)
        self._integrals += self._rates * elapsed_s
        self._stddev_integral += self._stddev * elapsed_s
        self._time_s = self._agenda.now_s

    def _refresh(self) -> None:
        nodes, vms = len(self._specs), self._vms
        self._vm_demand = _sums(vms.node, vms.demand_cores, nodes)
        self._demand: FloatArray = self._vm_demand + self._other_cores + self._overhead_cores
        load = self._demand / self._cores
        served = 1.0 / np.maximum(load, 1.0)
        self._memory_used = self._other_memory + _sums(vms.node, vms.touched_bytes, nodes)
        rates = np.empty((_ROWS, nodes))
        rates[_USED] = np.minimum(self._demand, self._cores)
        rates[_CPU_PRESSURE] = cpu_pressure(load)
        rates[_MEMORY_PRESSURE] = memory_pressure(self._memory_used / self._memory)
        rates[_IO_PRESSURE] = io_pressure(rates[_MEMORY_PRESSURE])
        rates[_SERVED] = served
        rates[_UNSERVED] = 1.0 - served
        rates[_STARVED] = self._vm_demand * rates[_UNSERVED]
        rates[_OVER] = self._vm_demand > OVER_SHARE * self._cores
        self._rates: FloatArray = rates
        self._names_over = {self._specs[index].name for index in np.flatnonzero(rates[_OVER]).tolist()}
        self._stddev = float((rates[_USED] / self._cores).std()) if nodes else 0.0
        self._dirty = False

    def _settle(self, slots: IntArray | int | slice) -> None:
        """Book what VMs got and missed since their marks; needed before their demand or node changes."""
        vms = self._vms
        demand, node = vms.demand_cores[slots], vms.node[slots]
        vms.used_s[slots] += demand * (self._integrals[_SERVED, node] - vms.served_mark_s[slots])
        vms.delay_s[slots] += demand * (self._integrals[_UNSERVED, node] - vms.unserved_mark_s[slots])
        self._mark(slots)

    def _mark(self, slots: IntArray | int | slice) -> None:
        node = self._vms.node[slots]
        self._vms.served_mark_s[slots] = self._integrals[_SERVED, node]
        self._vms.unserved_mark_s[slots] = self._integrals[_UNSERVED, node]

    # Now (arrays in node order; copies)

    def node_names(self) -> tuple[str, ...]:
        return self.layout().node_names

    def node_specs(self) -> tuple[NodeSpec, ...]:
        return tuple(self._specs)

    def vm_keys(self) -> tuple[str, ...]:
        """In the order of the VM arrays."""
        return self.layout().vm_keys

    def node_demand_cores(self) -> FloatArray:
        """What VMs, other things and migrations want, in cores; may exceed the node's cores."""
        self._clean()
        return self._demand.copy()

    def node_vm_demand_cores(self) -> FloatArray:
        """What the VMs alone want, in cores: the measure of "over 80 %"."""
        self._clean()
        return self._vm_demand.copy()

    def node_used_cores(self) -> FloatArray:
        return self._rate(_USED)

    def node_cpu_pressure(self) -> FloatArray:
        return self._rate(_CPU_PRESSURE)

    def node_memory_pressure(self) -> FloatArray:
        return self._rate(_MEMORY_PRESSURE)

    def node_io_pressure(self) -> FloatArray:
        return self._rate(_IO_PRESSURE)

    def node_memory_bytes(self) -> FloatArray:
        """Memory in use; may exceed the node's memory."""
        self._clean()
        return self._memory_used.copy()

    def _rate(self, row: int) -> FloatArray:
        self._clean()
        now: FloatArray = self._rates[row].copy()
        return now

    def _clean(self) -> None:
        self.advance()
        if self._dirty:
            self._refresh()

    # Since the start

    def node_counters(self) -> NodeCounters:
        """Per node, in node order; copies."""
        self.advance()
        return NodeCounters(*self._integrals[: _OVER + 1].copy())

    def totals(self) -> NodeCounters:
        """Sums over nodes, those that have gone included; arrays without dimension."""
        self.advance()
        return NodeCounters(*(self._integrals.sum(axis=1) + self._gone)[: _OVER + 1])

    def vm_cpu_used_s(self) -> FloatArray:
        """CPU seconds that each VM got since it started, in VM order."""
        return self._settled(self._vms.used_s)

    def vm_vcpu_delay_s(self) -> FloatArray:
        """CPU seconds that each VM wanted and did not get since it started, in VM order."""
        return self._settled(self._vms.delay_s)

    def _settled(self, counter: FloatArray) -> FloatArray:
        self.advance()
        self._settle_all()
        counters: FloatArray = counter[self.layout().vm_slots]
        return counters

    def _settle_all(self) -> None:
        if self._specs:
            self._settle(slice(None))

    def utilization_stddev(self) -> float:
        """Mean over time of the population standard deviation over nodes of used / cores; 0 at the start."""
        self.advance()
        elapsed_s = self._time_s - self._start_s
        return self._stddev_integral / elapsed_s if elapsed_s > 0 else 0.0

    def over_intervals(self) -> dict[str, list[Interval]]:
        """By node, also one that has gone: periods [start, end) in seconds during which it was over 80 %.

        In order of time; one that still goes on ends now. Nodes that never were over are missing.
        """
        self.advance()
        return self._over.by_node(self._time_s)

    def any_over_intervals(self) -> list[Interval]:
        """Periods during which at least one node was over 80 %, in order of time."""
        self.advance()
        return self._over.of_any(self._time_s)

    # For whoever scrapes

    def layout(self) -> Layout:
        """Who is where; the same object until something comes, goes or moves."""
        if self._layout is None:
            self._layout = Layout.of(self._specs, self._node_uids, self._vms)
        return self._layout

    def vm_rates(self) -> tuple[FloatArray, FloatArray]:
        """By slot: the cores that each VM gets now, and those that it misses."""
        self._clean()
        demand, node = self._vms.demand_cores, self._vms.node
        if not self._specs:
            return np.zeros_like(demand), np.zeros_like(demand)
        return demand * self._rates[_SERVED, node], demand * self._rates[_UNSERVED, node]

    def vm_readings(self) -> VmReadings:
        self.advance()
        self._settle_all()
        vms = self._vms
        return VmReadings(
            vms.used_s - vms.used_origin_s,
            vms.delay_s - vms.delay_origin_s,
            vms.touched_bytes.copy(),
            vms.dirty.copy(),
        )


def _sums(index: IntArray, weights: FloatArray, size: int) -> FloatArray:
    return np.asarray(np.bincount(index, weights, size)[:size], dtype=float)


def _check_fractions(fractions: FloatArray, what: str) -> None:
    if fractions.size and not (fractions.min() >= 0.0 and fractions.max() <= 1.0):
        wrong = fractions[~((fractions >= 0.0) & (fractions <= 1.0))][0]
        raise ValueError(f"{what}: found the fraction {wrong}, allowed are 0 to 1")
