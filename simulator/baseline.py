"""The classic descheduling loop, to compare with: wake up, look at one moment, evict by priority, forget it.

It does what the upstream descheduler's LowNodeUtilization does with the OpenShift operator's defaults: the combined
score in whole percent, deviations 0:10 from the average, nothing unless some node is under-utilised, at most two
evictions per node and five in all per cycle, evictions in the background counted. It looks at pods only: not at the
VMI, not at what a VM uses, not at whether it fits anywhere, not at what its last cycle changed. Its tainter is as
simple: two taints on over-utilised nodes, one on appropriate ones, each cycle anew.
"""

import random
from collections.abc import Mapping
from typing import NamedTuple

from simulator.kubevirt import ControlPlane
from simulator.metrics import RecordedMetrics
from simulator.objectstore import NODE, POD, Json, ObjectStore, at

SERIES = "vm_rebalancer:node_cpu_memory_combined:score"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
PREFIX = "nodeutilization.descheduler.openshift.io"
OVER_TAINTS = (f"{PREFIX}/appropriate", f"{PREFIX}/overutilized")
PER_NODE, IN_ALL = 2, 5
UNDER_DEVIATION, OVER_DEVIATION = 0, 10


class Cycle(NamedTuple):
    """What one look showed: whole percent, and thresholds."""

    values: Mapping[str, int]
    under_at: int
    over_above: int

    def under(self) -> list[str]:
        return [n for n, v in self.values.items() if v <= self.under_at]

    def over(self) -> list[str]:
        """Worst first."""
        return sorted(
            (n for n, v in self.values.items() if v > self.over_above), key=lambda n: -self.values[n]
        )

    def class_of(self, node: str) -> int:
        value = self.values[node]
        return 0 if value <= self.under_at else 2 if value > self.over_above else 1


class Baseline:
    """Runs one cycle each time ``cycle`` is called."""

    def __init__(
        self,
        control_plane: ControlPlane,
        store: ObjectStore,
        metrics: RecordedMetrics,
        rng: random.Random,
        *,
        soft_tainter: bool,
    ) -> None:
        self._control_plane = control_plane
        self._store = store
        self._metrics = metrics
        self._rng = rng
        self._soft_tainter = soft_tainter
        self.last: Cycle | None = None

    def cycle(self) -> None:
        nodes = [n for n in self._store.list(NODE) if _takes_part(n)]
        scores = {labels["instance"]: value for labels, value, _ in self._metrics.series(SERIES)}
        names = [n["metadata"]["name"] for n in nodes]
        if not names or any(name not in scores for name in names):
            return  # one node without a metric stops the whole loop
        self.last = _look({name: scores[name] for name in names})
        if self._soft_tainter:
            for node in nodes:
                self._taint(node, self.last)
        if self.last.under():
            self._evict(self.last)

    def _evict(self, cycle: Cycle) -> None:
        pods = self._launchers()
        background = sum(_in_progress(p) for on_node in pods.values() for p in on_node)
        total = background
        for node in cycle.over():
            evicted = sum(_in_progress(p) for p in pods.get(node, ()))
            for pod in sorted(
                pods.get(node, ()), key=lambda p: (at(p, "spec", "priority") or 0, self._rng.random())
            ):
                if evicted >= PER_NODE or total >= IN_ALL:
                    break
                if _in_progress(pod):
                    continue
                metadata = pod["metadata"]
                answer = self._control_plane.evict(
                    metadata["namespace"],
                    metadata["name"],
                    dry_run=False,
                    requested_by="sigs.k8s.io/descheduler",
                    asked_by="baseline",
                )
                if answer.status < 300 or "Eviction triggered evacuation" in answer.message:
                    evicted, total = evicted + 1, total + 1

    def _launchers(self) -> dict[str, list[Json]]:
        by_node: dict[str, list[Json]] = {}
        for pod in self._store.list(POD):
            labels = at(pod, "metadata", "labels") or {}
            if labels.get("kubevirt.io") == "virt-launcher" and at(pod, "status", "phase") == "Running":
                by_node.setdefault(at(pod, "spec", "nodeName") or "", []).append(pod)
        return by_node

    def _taint(self, node: Json, cycle: Cycle) -> None:
        metadata = node["metadata"]
        keys = {2: OVER_TAINTS, 1: OVER_TAINTS[:1], 0: ()}[cycle.class_of(metadata["name"])]
        present = at(node, "spec", "taints") or []
        foreign = [t for t in present if not t["key"].startswith(f"{PREFIX}/")]
        wanted = [*foreign, *({"key": k, "value": "true", "effect": "PreferNoSchedule"} for k in keys)]
        if wanted != present:
            self._control_plane.replace_taints(metadata["name"], metadata["resourceVersion"], wanted)


def _look(scores: Mapping[str, float]) -> Cycle:
    values = {name: int(score * 100) for name, score in scores.items()}
    average = sum(values.values()) / len(values)
    return Cycle(values, int(average - UNDER_DEVIATION), int(average + OVER_DEVIATION))


def _takes_part(node: Json) -> bool:
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in at(node, "status", "conditions") or ()
    )
    return ready and not at(node, "spec", "unschedulable")


def _in_progress(pod: Json) -> bool:
    return IN_PROGRESS in (at(pod, "metadata", "annotations") or {})
