"""One look at the metrics: what to ask Prometheus, and how its answers become a ``Snapshot``.

Values are matched to nodes by a configurable label: the node's name, its host name, or one of its addresses with
the port stripped. Everything that does not fit (NaN, far out of range, duplicate, unknown node) is dropped with a
reason and never becomes a zero.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from controller.cluster.objects import Node
from controller.policy.model import Metrics, Query

NODE_CPU = "vm_rebalancer:node_cpu_demand_cores:avg2m"
NODE_MEMORY = "vm_rebalancer:node_memory_usage_bytes:avg2m"
NODE_PRESSURES = (
    "vm_rebalancer:node_cpu_pressure:rate1m",
    "vm_rebalancer:node_memory_pressure:rate1m",
    "vm_rebalancer:node_io_pressure:rate1m",
)
VM_CPU = "vm_rebalancer:vmi_cpu_demand_cores:avg2m"
VM_MEMORY = "vm_rebalancer:vmi_memory_usage_bytes:avg2m"
VM_DIRTY_RATE = "vm_rebalancer:vmi_dirty_rate_bytes:avg2m"

TOLERANCE = 0.05
"""How far outside [0, 1] a value may lie and still be clamped: a saturated PSI counter rates to a little over 1."""


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one instant query; ``warnings`` are Prometheus' own (partial answers)."""

    samples: Sequence[Sample]
    """``Sample``s, or plain tuples of the same form."""
    warnings: tuple[str, ...] = ()


class MetricsError(Exception):
    """No usable answer came: unreachable, refused, not Prometheus. The text says which query and why."""


class Value(NamedTuple):
    """A node's value of one query; ``at`` is the time the sample speaks of, not the time of asking."""

    value: float
    at: datetime


class NodeLoad(NamedTuple):
    """Plain load of a node. CPU includes what its VMs waited for, so that saturation does not hide it."""

    cpu_cores: float
    memory_bytes: float
    pressure: float
    """The greatest of the CPU, memory and I/O PSI "some" shares, 0..1; 0 where the node has none."""
    at: datetime


class VmLoad(NamedTuple):
    """Plain load of a VM. CPU is demand: used plus waited for."""

    cpu_cores: float
    memory_bytes: float
    dirty_bytes_per_s: float = 0.0


class Dropped(NamedTuple):
    """A sample that was not used, and why."""

    query: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one refresh showed. Never changed once made."""

    sequence: int
    taken_at: datetime
    values: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Query name -> node name -> value in [0, 1]."""
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    vms: Mapping[tuple[str, str], VmLoad] = field(default_factory=dict)
    """(namespace, name) of the VMI -> load; empty where per-VM metrics are not to be had."""
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()

    def sample_time(self, node: str) -> datetime | None:
        """The oldest sample time among all that is known of a node; ``None`` if nothing is."""
        times = [by_node[node].at for by_node in self.values.values() if node in by_node]
        if node in self.loads:
            times.append(self.loads[node].at)
        return min(times, default=None)


def expressions(metrics: Metrics, *, with_vms: bool) -> list[str]:
    """Every expression one refresh asks, without repetition; values and, for recorded series, sample times."""
    asked: dict[str, None] = {}
    for query in metrics.queries:
        asked[query.expression] = None
        if query.recorded:
            asked[_timestamp(query.expression)] = None
    of_vms = (VM_CPU, VM_MEMORY, VM_DIRTY_RATE) if with_vms else ()
    return list(
        asked | dict.fromkeys((NODE_CPU, _timestamp(NODE_CPU), NODE_MEMORY, *NODE_PRESSURES, *of_vms))
    )


def read_snapshot(
    answers: Mapping[str, Answer],
    nodes: Iterable[Node],
    metrics: Metrics,
    *,
    sequence: int,
    now: datetime,
) -> Snapshot:
    """Make a snapshot of the answers to ``expressions(metrics)``; one absent from ``answers`` counts as empty."""
    reader = _Reader(answers, _aliases(nodes), metrics.node_label, now)
    values = {query.name: reader.values(query) for query in metrics.queries}
    return Snapshot(
        sequence=sequence,
        taken_at=now,
        values=values,
        loads=reader.loads(),
        vms=reader.vms(),
        dropped=tuple(reader.dropped),
        warnings=tuple(dict.fromkeys(w for answer in answers.values() for w in answer.warnings)),
    )


def _timestamp(expression: str) -> str:
    return f"timestamp({expression})"


def _aliases(nodes: Iterable[Node]) -> dict[str, str]:
    """Every name that metrics may use for a node -> its name; a name that two nodes claim belongs to neither."""
    names: dict[str, str] = {}
    aliases: dict[str, set[str]] = {}
    for node in nodes:
        names[node.name] = node.name
        for alias in (address.address for address in node.addresses):
            aliases.setdefault(alias, set()).add(node.name)
        if host := node.labels.get("kubernetes.io/hostname"):
            aliases.setdefault(host, set()).add(node.name)
    unambiguous = {alias: next(iter(owners)) for alias, owners in aliases.items() if len(owners) == 1}
    return unambiguous | names


def _strip_port(instance: str) -> str:
    host, separator, port = instance.rpartition(":")
    if separator and port.isdigit() and (":" not in host or host.startswith("[")):
        return host.strip("[]")
    return instance


class _Reader:
    """Collects one refresh; ``dropped`` grows while it reads."""

    def __init__(
        self, answers: Mapping[str, Answer], aliases: Mapping[str, str], label: str, now: datetime
    ) -> None:
        self._answers = answers
        self._aliases = aliases
        self._label = label
        self._now = now
        self.dropped: list[Dropped] = []

    def _samples(self, expression: str) -> Sequence[Sample]:
        answer = self._answers.get(expression)
        return answer.samples if answer is not None else ()

    def _by_node(self, expression: str, name: str) -> Iterator[tuple[str, float]]:
        """Finite values by node. A node with several series keeps none: nobody can say which one is right."""
        found: dict[str, float] = {}
        ambiguous: set[str] = set()
        for labels, value in self._samples(expression):
            subject = labels.get(self._label, "")
            node = self._aliases.get(subject) or self._aliases.get(_strip_port(subject))
            if node is None:
                what = f"no node is called {subject!r}" if subject else f"no label {self._label!r}"
                self.dropped.append(Dropped(name, subject or str(dict(labels)), what))
            elif not math.isfinite(value):
                self.dropped.append(Dropped(name, node, f"value is {value}"))
            elif node in found:
                ambiguous.add(node)
            else:
                found[node] = value
        for node in sorted(ambiguous):
            del found[node]
            self.dropped.append(Dropped(name, node, "several series for one node"))
        yield from found.items()

    def _times(self, expression: str, name: str) -> dict[str, datetime]:
        """By the server's clock, but never later than now: else it would show what has not been measured yet."""
        return {
            node: min(datetime.fromtimestamp(seconds, UTC), self._now)
            for node, seconds in self._by_node(_timestamp(expression), name)
            if 0 < seconds < 1e11
        }

    def values(self, query: Query) -> dict[str, Value]:
        times = self._times(query.expression, query.name) if query.recorded else None
        result: dict[str, Value] = {}
        for node, value in self._shares(query.expression, query.name).items():
            at = self._now if times is None else times.get(node)
            if at is None:
                self.dropped.append(Dropped(query.name, node, "sample time unknown"))
            else:
                result[node] = Value(value, at)
        return result

    def loads(self) -> dict[str, NodeLoad]:
        times = self._times(NODE_CPU, NODE_CPU)
        memory = self._amounts(NODE_MEMORY)
        pressures = [self._shares(series, series) for series in NODE_PRESSURES]
        return {
            node: NodeLoad(cpu, memory[node], max(p.get(node, 0.0) for p in pressures), times[node])
            for node, cpu in self._amounts(NODE_CPU).items()
            if node in memory and node in times
        }

    def _amounts(self, series: str) -> dict[str, float]:
        """Cores or bytes by node."""
        found = dict(self._by_node(series, series))
        for node in [node for node, amount in found.items() if amount < 0]:
            self.dropped.append(Dropped(series, node, f"value {found.pop(node):g} is negative"))
        return found

    def _shares(self, expression: str, name: str) -> dict[str, float]:
        """Values in [0, 1] by node."""
        found: dict[str, float] = {}
        for node, value in self._by_node(expression, name):
            if -TOLERANCE <= value <= 1 + TOLERANCE:
                found[node] = min(max(value, 0.0), 1.0)
            else:
                self.dropped.append(Dropped(name, node, f"value {value:g} is not within [0, 1]"))
        return found

    def vms(self) -> dict[tuple[str, str], VmLoad]:
        memory, dirty = self._by_vm(VM_MEMORY), self._by_vm(VM_DIRTY_RATE)
        return {
            vm: VmLoad(cpu, memory[vm], dirty.get(vm, 0.0))
            for vm, cpu in self._by_vm(VM_CPU).items()
            if vm in memory
        }

    def _by_vm(self, series: str) -> dict[tuple[str, str], float]:
        """Usable values by VM; as with nodes, one with several series keeps none."""
        found: dict[tuple[str, str], float] = {}
        ambiguous: set[tuple[str, str]] = set()
        for labels, value in self._samples(series):
            vm = (labels.get("namespace", ""), labels.get("name", ""))
            if math.isfinite(value) and value >= 0:
                if vm in found:
                    ambiguous.add(vm)
                found[vm] = value
        for vm in sorted(ambiguous):
            del found[vm]
            self.dropped.append(Dropped(series, "/".join(vm), "several series for one VM"))
        return found
