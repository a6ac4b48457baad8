"""A ``/metrics`` page with what node-exporter, kube-state-metrics and KubeVirt would report of the simulated cluster.

Names and labels are the real ones; ``instance`` is the node's name, so whoever scrapes has to honour labels. Counters
of seconds count seconds of the reader's clock: with a cluster that runs six times as fast, a core that idles still
gains one second in one second.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
import numpy as np

from simulator.agenda import Agenda
from simulator.kubevirt.objectstore import NODE, Json, ObjectStore, at
from simulator.kubevirt.quantities import parse_bytes, parse_cpu
from simulator.metrics.scrape import Scrape
from simulator.world.layout import Layout
from simulator.world.vmtable import FloatArray
from simulator.world.world import World

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ROLE = "node-role.kubernetes.io/"


class ExporterTrouble(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with the page: it does not come, late, as something else, or lacks nodes or metrics (globs)."""

    answer: Literal["ok", "down", "html"] = "ok"
    delay_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    missing_nodes: tuple[str, ...] = ()
    missing_metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Beginnings of all lines of one layout: name and labels, up to the value."""

    layout: Layout
    idle: tuple[tuple[str, ...], ...]
    """For each node, a line for each core."""
    nodes: tuple[str, ...]
    """``{instance="…"}``"""
    vms: tuple[str, ...]


class Exporter:
    """Makes pages. What depends only on who is where is put together once, until that changes."""

    def __init__(self, world: World, store: ObjectStore, agenda: Agenda, speed: float) -> None:
        self._world = world
        self._store = store
        self._agenda = agenda
        self._speed = speed
        self._lines: _Lines | None = None
        self._idle_s: dict[int, float] = {}
        """Node uid -> what its cores' idle counters showed last."""
        self.trouble = ExporterTrouble()

    def page(self) -> bytes:
        """The page of this moment; the world must have been brought up to now."""
        scrape = self._scrape()
        lines = self._lines
        if lines is None or lines.layout is not scrape.layout:
            lines = self._lines = _beginnings(scrape.layout)
        names = scrape.layout.node_names
        present = [n for n, name in enumerate(names) if not _any_match(self.trouble.missing_nodes, name)]
        families = [
            *_node_families(scrape, lines, present, self._speed),
            *_vm_families(scrape, lines, present, self._speed),
            *_cluster_families(self._store.list(NODE)),
        ]
        missing = self.trouble.missing_metrics
        return "".join(
            f"# TYPE {name} {kind}\n{text}" for name, kind, text in families if not _any_match(missing, name)
        ).encode()

    def _scrape(self) -> Scrape:
        """A scrape whose idle counters have not fallen.

        They are a difference of two sums, whose last digits may say that a busy core has gone back a little; to
        Prometheus that would be a counter that has restarted.
        """
        scrape = Scrape.of(self._world, self._agenda.now_s)
        uids = scrape.layout.node_uids.tolist()
        shown = [self._idle_s.get(uid, 0.0) for uid in uids]
        scrape = replace(scrape, cpu_idle_s=np.maximum(scrape.cpu_idle_s, shown))
        self._idle_s = dict(zip(uids, scrape.cpu_idle_s.tolist(), strict=True))
        return scrape


Family = tuple[str, str, str]
"""(metric, type, lines)"""


def _beginnings(layout: Layout) -> _Lines:
    cores = [round(count) for count in layout.cores]
    idle = tuple(
        tuple(
            f'node_cpu_seconds_total{{cpu="{core}",instance="{name}",mode="idle"}} '
            for core in range(cores[number])
        )
        for number, name in enumerate(layout.node_names)
    )
    nodes = tuple(_labels({"instance": name}) for name in layout.node_names)
    return _Lines(layout, idle, nodes, tuple(_labels(labels) for labels in layout.vm_labels))


def _node_families(scrape: Scrape, lines: _Lines, present: Sequence[int], speed: float) -> Iterator[Family]:
    """``present``: numbers of the nodes that report."""
    idle = (
        "".join(f"{line}{value}\n" for line in lines.idle[number])
        for number in present
        for value in (repr(float(scrape.cpu_idle_s[number] / speed)),)
    )
    yield "node_cpu_seconds_total", "counter", "".join(idle)

    def family(name: str, kind: str, values: FloatArray) -> Family:
        text = "".join(f"{name}{lines.nodes[number]} {float(values[number])!r}\n" for number in present)
        return name, kind, text

    yield family("node_pressure_cpu_waiting_seconds_total", "counter", scrape.cpu_waiting_s / speed)
    yield family("node_pressure_memory_waiting_seconds_total", "counter", scrape.memory_waiting_s / speed)
    yield family("node_pressure_io_waiting_seconds_total", "counter", scrape.io_waiting_s / speed)
    yield family("node_memory_MemAvailable_bytes", "gauge", scrape.memory_available_bytes)
    yield family("node_memory_MemTotal_bytes", "gauge", scrape.layout.memory_bytes)


def _vm_families(scrape: Scrape, lines: _Lines, present: Sequence[int], speed: float) -> Iterator[Family]:
    layout, vms = scrape.layout, scrape.vms
    reporting = {int(layout.node_uids[number]) for number in present}
    slots = [
        (slot, labels)
        for slot, labels in zip(layout.vm_slots.tolist(), lines.vms, strict=True)
        if int(layout.slot_node_uids[slot]) in reporting
    ]
    for name, kind, values in (
        ("kubevirt_vmi_cpu_usage_seconds_total", "counter", vms.cpu_usage_s / speed),
        ("kubevirt_vmi_vcpu_delay_seconds_total", "counter", vms.vcpu_delay_s / speed),
        ("kubevirt_vmi_memory_resident_bytes", "gauge", vms.resident_bytes),
        ("kubevirt_vmi_memory_domain_bytes", "gauge", layout.guest_bytes),
        ("kubevirt_vmi_dirty_rate_bytes_per_second", "gauge", vms.dirty_bytes_per_s),
    ):
        yield name, kind, "".join(f"{name}{labels} {float(values[slot])!r}\n" for slot, labels in slots)


def _cluster_families(nodes: Sequence[Json]) -> Iterator[Family]:
    """What kube-state-metrics says of Node objects; it knows them whether their exporters answer or not."""
    info, roles, allocatable = [], [], []
    for node in nodes:
        name = node["metadata"]["name"]
        addresses = at(node, "status", "addresses") or ()
        internal = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "")
        info.append(f"kube_node_info{_labels({'internal_ip': internal, 'node': name})} 1\n")
        for label in at(node, "metadata", "labels") or ():
            if label.startswith(_ROLE):
                role = label.removeprefix(_ROLE)
                roles.append(f"kube_node_role{_labels({'node': name, 'role': role})} 1\n")
        for resource, unit, read in _RESOURCES:
            labels = _labels({"node": name, "resource": resource, "unit": unit})
            quantity = at(node, "status", "allocatable", resource)
            if quantity is not None:
                allocatable.append(f"kube_node_status_allocatable{labels} {float(read(quantity))!r}\n")
    yield "kube_node_info", "gauge", "".join(info)
    yield "kube_node_role", "gauge", "".join(roles)
    yield "kube_node_status_allocatable", "gauge", "".join(allocatable)


_RESOURCES: Sequence[tuple[str, str, Callable[[str], float]]] = (
    ("cpu", "core", lambda text: parse_cpu(text) / 1000),
    ("memory", "byte", parse_bytes),
    ("pods", "integer", float),
)


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _any_match(globs: tuple[str, ...], text: str) -> bool:
    return any(fnmatchcase(text, glob) for glob in globs)
