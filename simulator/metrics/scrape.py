"""One scrape of the simulated cluster: what node-exporter and KubeVirt would report at one instant."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simulator.world.layout import Layout
from simulator.world.vmtable import FloatArray
from simulator.world.world import VmReadings, World

_UPTIME_S = 86_400.0
_STALLED_S = 600.0


class RawSample(NamedTuple):
    metric: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Scrape:
    """Node arrays in the layout's node order, VM arrays by slot. Never written to.

    A node has been up for a day when the run begins, with some pressure behind it: ``rate()`` takes counters
    near zero for newborn ones.
    """

    time_s: float
    layout: Layout
    cpu_idle_s: FloatArray
    """Per core: all cores of a node are equally busy."""
    cpu_waiting_s: FloatArray
    memory_waiting_s: FloatArray
    io_waiting_s: FloatArray
    memory_available_bytes: FloatArray
    vms: VmReadings

    @classmethod
    def of(cls, world: World, time_s: float) -> "Scrape":
        layout, counters = world.layout(), world.node_counters()
        return cls(
            time_s=time_s,
            layout=layout,
            cpu_idle_s=_UPTIME_S + time_s - counters.cpu_used_s / layout.cores,
            cpu_waiting_s=_STALLED_S + counters.cpu_waiting_s,
            memory_waiting_s=_STALLED_S + counters.memory_waiting_s,
            io_waiting_s=_STALLED_S + counters.io_waiting_s,
            memory_available_bytes=np.maximum(layout.memory_bytes - world.node_memory_bytes(), 0.0),
            vms=world.vm_readings(),
        )

    def earlier(self, world: World, back_s: float) -> "Scrape":
        """What a scrape ``back_s`` seconds ago would have read, had all been then as it is now."""
        got, missed = world.vm_rates()
        vms = self.vms
        return replace(
            self,
            time_s=self.time_s - back_s,
            cpu_idle_s=self.cpu_idle_s - back_s * (1.0 - world.node_used_cores() / self.layout.cores),
            cpu_waiting_s=self.cpu_waiting_s - back_s * world.node_cpu_pressure(),
            memory_waiting_s=self.memory_waiting_s - back_s * world.node_memory_pressure(),
            io_waiting_s=self.io_waiting_s - back_s * world.node_io_pressure(),
            vms=vms._replace(
                cpu_usage_s=np.maximum(vms.cpu_usage_s - back_s * got, 0.0),
                vcpu_delay_s=np.maximum(vms.vcpu_delay_s - back_s * missed, 0.0),
            ),
        )

    def raw_samples(self) -> Iterator[RawSample]:
        """Every sample, under its real name and labels; ``instance`` is the node's name, cores are whole."""
        layout = self.layout
        for index, labels in enumerate(layout.node_labels):
            for core in range(round(layout.cores[index])):
                idle = {**labels, "cpu": str(core), "mode": "idle"}
                yield RawSample("node_cpu_seconds_total", idle, float(self.cpu_idle_s[index]))
            for resource, waiting_s in (
                ("cpu", self.cpu_waiting_s),
                ("memory", self.memory_waiting_s),
                ("io", self.io_waiting_s),
            ):
                metric = f"node_pressure_{resource}_waiting_seconds_total"
                yield RawSample(metric, labels, float(waiting_s[index]))
            available = float(self.memory_available_bytes[index])
            yield RawSample("node_memory_MemAvailable_bytes", labels, available)
            yield RawSample("node_memory_MemTotal_bytes", labels, float(layout.memory_bytes[index]))
        for slot, labels in zip(layout.vm_slots.tolist(), layout.vm_labels, strict=True):
            for metric, values in (
                ("kubevirt_vmi_cpu_usage_seconds_total", self.vms.cpu_usage_s),
                ("kubevirt_vmi_vcpu_delay_seconds_total", self.vms.vcpu_delay_s),
                ("kubevirt_vmi_memory_resident_bytes", self.vms.resident_bytes),
                ("kubevirt_vmi_memory_domain_bytes", layout.guest_bytes),
                ("kubevirt_vmi_dirty_rate_bytes_per_second", self.vms.dirty_bytes_per_s),
            ):
                yield RawSample(metric, labels, float(values[slot]))
