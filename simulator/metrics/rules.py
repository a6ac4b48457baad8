"""The chart's recording rules, evaluated over scrapes of the simulated cluster.

Same arithmetic, name by name, as ``charts/vm-rebalancer/files/recording-rules.yaml``.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from simulator.metrics.scrape import Scrape
from simulator.metrics.windows import average_over_time, rate
from simulator.world.layout import BoolArray, Layout
from simulator.world.vmtable import FloatArray, IntArray

SHORT_S = 60.0
LONG_S = 120.0

Pick = Callable[[Scrape], FloatArray]
T = TypeVar("T", bound=np.generic)
OverTime = Callable[[FloatArray, FloatArray, float, float], FloatArray]


class Window:
    """The scrapes of the last ``length_s`` before an evaluation, brought into the shape of the newest one."""

    def __init__(self, scrapes: Sequence[Scrape], now_s: float, length_s: float) -> None:
        self._start_s, self._end_s = now_s - length_s, now_s
        newest = scrapes[-1]
        inside = (scrape for scrape in scrapes if scrape.time_s >= self._start_s)
        self._scrapes = [scrape for scrape in inside if scrape.layout.node_names or scrape is newest]
        self._times_s = np.array([scrape.time_s for scrape in self._scrapes])

    def nodes(self, over_time: OverTime, pick: Pick) -> FloatArray:
        """For each node of the newest scrape; NaN where a node has too few samples."""
        return self._columns(over_time, [pick(s)[at] for s, at in self._node_rows], self._node_counts)

    def vm_series(
        self, over_time: OverTime, pick: Pick, combine: Callable[[list[float]], float]
    ) -> FloatArray:
        """For each VM of the newest scrape; one that moved has a series for each node: they are combined."""
        layout, size = self._scrapes[-1].layout, len(self._scrapes[-1].layout.slot_vm_uids)
        rows = [_padded(pick(scrape), size) for scrape in self._scrapes]
        result = self._columns(over_time, rows, self._vm_counts)
        for slot, series in self._moved:
            values = [self._one(over_time, rows, slot, samples) for samples in series]
            known = [value for value in values if value == value]
            result[slot] = combine(known) if known else np.nan
        ordered: FloatArray = result[layout.vm_slots]
        return ordered

    def vm_sums_by_node(self, over_time: OverTime, pick: Pick) -> FloatArray:
        """For each node of the newest scrape, the sum over the series that VMs have there now."""
        layout, size = self._scrapes[-1].layout, len(self._scrapes[-1].layout.slot_vm_uids)
        rows = [_padded(pick(scrape), size) for scrape in self._scrapes]
        values = self._columns(over_time, rows, self._vm_counts)
        for slot, series in self._moved:  # one that came back continues its old series there
            values[slot] = next(self._one(over_time, rows, slot, s) for s in series if s[-1] == len(rows) - 1)
        here = np.nan_to_num(values)[layout.vm_slots]
        at = np.searchsorted(layout.node_uids, layout.slot_node_uids[layout.vm_slots])
        sums: FloatArray = np.bincount(at, weights=here, minlength=len(layout.node_uids)).astype(float)
        return sums

    def _columns(self, over_time: OverTime, rows: list[FloatArray], counts: IntArray) -> FloatArray:
        """Columns with as many last samples as ``counts`` says go through the function together."""
        values = np.stack(rows)
        whole = len(rows)
        if (counts == whole).all():
            return over_time(self._times_s, values, self._start_s, self._end_s)
        result = np.full(values.shape[1], np.nan)
        for count in range(1, whole + 1):
            columns = np.flatnonzero(counts == count)
            if len(columns):
                result[columns] = over_time(
                    self._times_s[-count:], values[-count:, columns], self._start_s, self._end_s
                )
        return result

    def _one(self, over_time: OverTime, rows: list[FloatArray], slot: int, samples: list[int]) -> float:
        values = np.array([[rows[row][slot]] for row in samples])
        return float(over_time(self._times_s[samples], values, self._start_s, self._end_s)[0])

    @cached_property
    def _node_rows(self) -> list[tuple[Scrape, IntArray | slice]]:
        newest = self._scrapes[-1].layout.node_uids
        same = slice(None)
        return [
            (s, same if s.layout.node_uids is newest else _positions(newest, s.layout.node_uids))
            for s in self._scrapes
        ]

    @cached_property
    def _node_counts(self) -> IntArray:
        newest = self._scrapes[-1].layout.node_uids
        present = [newest == s.layout.node_uids[at] for s, at in self._node_rows]
        counts: IntArray = np.sum(present, axis=0, dtype=np.intp)
        return counts

    @cached_property
    def _vm_rows(self) -> tuple[list[BoolArray], list[BoolArray]]:
        """By scrape and slot: the newest scrape's VM was there; and it was on the same node."""
        newest = self._scrapes[-1].layout
        size = len(newest.slot_vm_uids)
        there: list[BoolArray] = []
        in_place: list[BoolArray] = []
        for scrape in self._scrapes:
            layout = scrape.layout
            known = (newest.slot_vm_uids == _padded(layout.slot_vm_uids, size)) & (newest.slot_vm_uids > 0)
            there.append(known)
            in_place.append(known & (newest.slot_node_uids == _padded(layout.slot_node_uids, size)))
        return there, in_place

    @cached_property
    def _vm_counts(self) -> IntArray:
        counts: IntArray = np.sum(self._vm_rows[1], axis=0, dtype=np.intp)
        return counts

    @cached_property
    def _moved(self) -> list[tuple[int, list[list[int]]]]:
        """Slots whose VM was on several nodes, and for each node the numbers of its scrapes."""
        there, _ = self._vm_rows
        moved = np.flatnonzero(np.sum(there, axis=0) != self._vm_counts)
        result = []
        for slot in moved.tolist():
            by_node: dict[int, list[int]] = {}
            for row, scrape in enumerate(self._scrapes):
                if there[row][slot]:
                    by_node.setdefault(int(scrape.layout.slot_node_uids[slot]), []).append(row)
            result.append((slot, list(by_node.values())))
        return result


class Evaluation:
    """One evaluation of all rules; each is computed when it is first asked for.

    ``scrapes``: the newest few, oldest first, at least one; all at or before ``time_s``. Values are in the
    node or VM order of the newest layout; NaN: the rule has no result for that one.
    """

    def __init__(self, scrapes: Sequence[Scrape], time_s: float) -> None:
        self.time_s = time_s
        self.layout: Layout = scrapes[-1].layout
        self._short = Window(scrapes, time_s, SHORT_S)
        self._long = Window(scrapes, time_s, LONG_S)

    # Nodes

    @cached_property
    def cpu_utilization(self) -> FloatArray:
        return np.clip(1.0 - self._short.nodes(rate, lambda s: s.cpu_idle_s), 0.0, 1.0)

    @cached_property
    def memory_utilization(self) -> FloatArray:
        available = self._short.nodes(average_over_time, lambda s: s.memory_available_bytes)
        return np.clip(1.0 - available / self.layout.memory_bytes, 0.0, 1.0)

    @cached_property
    def cpu_pressure(self) -> FloatArray:
        return np.minimum(self._short.nodes(rate, lambda s: s.cpu_waiting_s), 1.0)

    @cached_property
    def memory_pressure(self) -> FloatArray:
        return np.minimum(self._short.nodes(rate, lambda s: s.memory_waiting_s), 1.0)

    @cached_property
    def io_pressure(self) -> FloatArray:
        return np.minimum(self._short.nodes(rate, lambda s: s.io_waiting_s), 1.0)

    @cached_property
    def cpu_pressure_by_utilization(self) -> FloatArray:
        return self.cpu_pressure * (self.cpu_utilization > 0.7)

    @cached_property
    def memory_pressure_by_utilization(self) -> FloatArray:
        return self.memory_pressure * (self.memory_utilization > 0.7)

    @cached_property
    def cpu_combined(self) -> FloatArray:
        average = self._workers_average(self.cpu_utilization)
        chosen = self.cpu_utilization if average < 0.8 else self.cpu_pressure_by_utilization
        return np.where(self.layout.workers, chosen, np.nan)

    @cached_property
    def cpu_memory_combined(self) -> FloatArray:
        squares = np.zeros(len(self.layout.node_names))
        for dimension in (
            self.cpu_utilization,
            self.memory_utilization,
            self.cpu_pressure_by_utilization,
            self.memory_pressure_by_utilization,
        ):
            squares += np.maximum(dimension - self._workers_average(dimension), 0.0) ** 2
        return np.where(self.layout.workers, np.minimum(3.0 * np.sqrt(squares), 1.0), np.nan)

    @cached_property
    def cpu_usage_cores(self) -> FloatArray:
        return np.maximum(self.layout.cores * (1.0 - self._long.nodes(rate, lambda s: s.cpu_idle_s)), 0.0)

    @cached_property
    def cpu_demand_cores(self) -> FloatArray:
        return self.cpu_usage_cores + self._long.vm_sums_by_node(rate, lambda s: s.vms.vcpu_delay_s)

    @cached_property
    def memory_usage_bytes(self) -> FloatArray:
        available = self._long.nodes(average_over_time, lambda s: s.memory_available_bytes)
        return self.layout.memory_bytes - available

    def _workers_average(self, values: FloatArray) -> float:
        known = values[self.layout.workers & ~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    # VMs

    @cached_property
    def vmi_cpu_demand_cores(self) -> FloatArray:
        return self._long.vm_series(rate, lambda s: s.vms.cpu_usage_s, sum) + self._long.vm_series(
            rate, lambda s: s.vms.vcpu_delay_s, sum
        )

    @cached_property
    def vmi_memory_usage_bytes(self) -> FloatArray:
        return self._long.vm_series(average_over_time, lambda s: s.vms.resident_bytes, _mean)

    @cached_property
    def vmi_dirty_rate_bytes(self) -> FloatArray:
        return self._long.vm_series(average_over_time, lambda s: s.vms.dirty_bytes_per_s, _mean)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _positions(wanted: IntArray, present: IntArray) -> IntArray:
    """Where wanted uids are among those present; any valid place for one that is missing."""
    return np.minimum(np.searchsorted(present, wanted), max(len(present) - 1, 0))


def _padded(values: npt.NDArray[T], size: int) -> npt.NDArray[T]:
    """Slots grow; an older scrape has fewer, and nothing in those it lacks."""
    return (
        values
        if len(values) == size
        else np.concatenate([values, np.zeros(size - len(values), values.dtype)])
    )
