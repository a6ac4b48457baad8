"""Which nodes are out of line: pure functions of the last snapshots and the policy.

The rules, in the words of the policy reference: a node is under-utilised when its value is at or below the lower
threshold in every query, over-utilised when it is above the upper one in any query, has been so in ``sustain``
snapshots in a row, and it hurts (its plain CPU or memory use, or its pressure, reaches ``floor``). A node without a
value is unknown and counts neither for nor against anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from math import fsum
from typing import NamedTuple

from controller.cluster.objects import Node
from controller.policy.model import Bounds, BoundsKind, Floor, Metrics, Thresholds
from controller.utilization.reading import NodeLoad, Snapshot


class NodeClass(IntEnum):
    """The numbers are those of the upstream ``…_node_classification`` metric; it has none for unknown."""

    UNKNOWN = -1
    UNDER = 0
    APPROPRIATE = 1
    OVER = 2


class Edges(NamedTuple):
    """Thresholds of one query as they apply to one snapshot: fractions of 1."""

    under: float
    over: float


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    node: str
    node_class: NodeClass
    reason: str
    values: Mapping[str, float] = field(default_factory=dict)
    excess: float = 0.0
    """How far above its upper threshold the worst query is; negative below it."""
    streak: int = 0
    """Snapshots in a row, newest first, in which the node was above a threshold and hurt."""
    last_seen: datetime | None = None
    """Sample time of the newest value in the history, however old."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Every eligible node's class. ``skipped`` says why nothing may be decided on it, else it is empty."""

    at: datetime
    nodes: Mapping[str, NodeVerdict]
    limits: Mapping[str, Edges] = field(default_factory=dict)
    coverage: float = 1.0
    skipped: str = ""

    def over_utilised(self) -> list[str]:
        """Names of over-utilised nodes, worst first."""
        over = [v for v in self.nodes.values() if v.node_class is NodeClass.OVER]
        return [v.node for v in sorted(over, key=lambda v: (-v.excess, v.node))]

    def class_of(self, node: str) -> NodeClass:
        verdict = self.nodes.get(node)
        return verdict.node_class if verdict is not None else NodeClass.UNKNOWN


def classify(
    history: Sequence[Snapshot],
    eligible: Sequence[Node],
    metrics: Metrics,
    thresholds: Thresholds,
    now: datetime,
) -> Classification:
    """Classify the eligible nodes by the newest snapshot, and by older ones for ``sustain``."""

    def look(snapshot: Snapshot) -> _Round:
        at = now if snapshot is history[-1] else snapshot.taken_at
        return _Round(snapshot, eligible, metrics, thresholds, at)

    rounds = _Rounds(history, look)
    newest = next(iter(rounds), None)
    if newest is None:
        verdicts = {n.name: _unknown(n.name, "no metrics yet", None) for n in eligible}
        return Classification(now, verdicts, coverage=0.0, skipped="no metrics yet")
    verdicts = {n.name: _judge(n.name, newest, rounds, metrics, thresholds) for n in eligible}
    known = sum(newest.complete(n.name) for n in eligible)
    coverage = known / len(eligible) if eligible else 0.0
    skipped = ""
    if not eligible:
        skipped = "no eligible nodes"
    elif coverage < metrics.min_coverage:
        skipped = f"only {known} of {len(eligible)} eligible nodes have a value (minCoverage {metrics.min_coverage:g})"
    return Classification(now, verdicts, newest.limits, coverage, skipped)


class _Round:
    """One snapshot seen with today's eligible nodes: usable values, thresholds, who is above them.

    ``at`` is the moment at which its values must not be older than ``maxAge``.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        eligible: Sequence[Node],
        metrics: Metrics,
        thresholds: Thresholds,
        at: datetime,
    ) -> None:
        self.snapshot = snapshot
        self._sizes = {node.name: node.allocatable for node in eligible}
        self._floor = thresholds.floor
        self.values: dict[str, dict[str, float]] = {}
        self.limits: dict[str, Edges] = {}
        self._oldest = at - metrics.max_age
        for query in metrics.queries:
            found = snapshot.values.get(query.name, {})
            known = {n: found[n].value for n in self._sizes if n in found and found[n].at >= self._oldest}
            self.values[query.name] = known
            self.limits[query.name] = resolve(query.thresholds or thresholds.bounds, list(known.values()))

    def of(self, node: str) -> dict[str, float]:
        return {query: known[node] for query, known in self.values.items() if node in known}

    def complete(self, node: str) -> bool:
        return all(node in known for known in self.values.values())

    def last_seen(self, node: str) -> datetime | None:
        return max((found[node].at for found in self.snapshot.values.values() if node in found), default=None)

    def excess(self, node: str) -> float:
        return max(value - self.limits[query].over for query, value in self.of(node).items())

    def under(self, node: str) -> bool:
        return all(value <= self.limits[query].under for query, value in self.of(node).items())

    def hurts(self, node: str) -> bool:
        load, size = self.snapshot.loads.get(node), self._sizes[node]
        if load is None or load.at < self._oldest:
            return False
        return reaches(self._floor, load, size.cpu_cores, size.memory_bytes)


class _Rounds:
    """Newest first; older ones are looked at only when a node needs them."""

    def __init__(self, history: Sequence[Snapshot], look: Callable[[Snapshot], _Round]) -> None:
        self._history = history
        self._look = look
        self._known: list[_Round] = []

    def __iter__(self) -> Iterator[_Round]:
        for age in range(len(self._history)):
            if age == len(self._known):
                self._known.append(self._look(self._history[-1 - age]))
            yield self._known[age]


def reaches(floor: Floor, load: NodeLoad, cores: float, memory_bytes: float) -> bool:
    """Whether a node of this size feels its load: CPU, memory or pressure is at or above the floor."""
    return (
        load.cpu_cores >= floor.cpu * cores
        or load.memory_bytes >= floor.memory * memory_bytes
        or load.pressure >= floor.pressure
    )


def resolve(bounds: Bounds, values: Sequence[float]) -> Edges:
    """Thresholds as numbers. Deviations count from the average of the eligible nodes that have a value."""
    if bounds.kind is BoundsKind.STATIC:
        return Edges(bounds.under, bounds.over)
    # Exactly rounded and never outside of the values: in any order the same, and equal values are their own average.
    average = min(max(fsum(values) / len(values), min(values)), max(values)) if values else 0.0
    return Edges(max(average - bounds.under, 0.0), min(average + bounds.over, 1.0))


def _judge(
    node: str, newest: _Round, rounds: Iterable[_Round], metrics: Metrics, thresholds: Thresholds
) -> NodeVerdict:
    values = newest.of(node)
    last_seen = next((t for r in rounds if (t := r.last_seen(node)) is not None), None)
    if not values:
        return _unknown(node, f"no value younger than {metrics.max_age}", last_seen)
    excess = newest.excess(node)
    streak = _streak(node, rounds, thresholds.sustain, metrics.max_age + metrics.refresh_interval)
    if excess <= 0 and not newest.complete(node):
        missing = ", ".join(sorted(q for q in newest.values if q not in values))
        return NodeVerdict(node, NodeClass.UNKNOWN, f"no value of {missing}", values, excess, 0, last_seen)
    if excess > 0 and streak >= thresholds.sustain:
        node_class, reason = NodeClass.OVER, f"above its threshold by {excess:.3f}"
    elif newest.under(node):
        node_class, reason = NodeClass.UNDER, "at or below the lower threshold"
    elif excess <= 0:
        node_class, reason = NodeClass.APPROPRIATE, "between the thresholds"
    elif not newest.hurts(node):
        node_class, reason = NodeClass.APPROPRIATE, "above its threshold, but below every floor"
    else:
        node_class, reason = (
            NodeClass.APPROPRIATE,
            f"above its threshold {streak} of {thresholds.sustain} times in a row",
        )
    return NodeVerdict(node, node_class, reason, values, excess, streak, last_seen)


def _unknown(node: str, reason: str, last_seen: datetime | None) -> NodeVerdict:
    return NodeVerdict(node, NodeClass.UNKNOWN, reason, last_seen=last_seen)


def _streak(node: str, rounds: Iterable[_Round], enough: int, longest_gap: timedelta) -> int:
    """Count from the newest back. The same sample seen twice counts once; a round without a value is skipped.

    What lies behind a gap in which every value has become too old is not "in a row" with what came after it.
    """
    streak = 0
    counted: datetime | None = None
    for r in rounds:
        if streak >= enough:
            break
        at = r.snapshot.sample_time(node)
        if not r.of(node) or at is None or at == counted:
            continue
        if counted is not None and counted - at > longest_gap:
            break
        if r.excess(node) <= 0 or not r.hurts(node):
            break
        streak, counted = streak + 1, at
    return streak
