"""The classic descheduling loop, to compare with: wake up, look at one moment, evict by priority, forget it.

It does what the upstream descheduler's LowNodeUtilization does with the OpenShift operator's profile for VMs:

- each node's score in whole percent, cut off; one node without a value, or a value outside 0..1, and nothing is done;
- deviations 0:10 from the average; nothing unless some node is under-utilised;
- worst node first, on it lowest priority first, at random among equals; pods that carry ``prefer-no-eviction`` stay;
- at most two evictions per node and five in all. Those in the background count: launchers marked as being evicted,
  and every pod whose eviction was answered so, for ten minutes or more, even if nothing came of it;
- no estimate of what is left on a node: a score says nothing about single pods.

It looks at pods only: not at the VMI, not at what a VM uses, not at whether it fits anywhere, not at what its last
cycle changed. Its tainter is as simple: two taints on over-utilised nodes, one on appropriate ones, each cycle anew.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.manifests import APP, IN_PROGRESS, LAUNCHER, PREFER_NO_EVICTION
from simulator.kubevirt.objectstore import NODE, POD, Json, ObjectStore, at
from simulator.metrics.recorded import Sample
from simulator.metrics.trouble import MetricsOutage

SERIES = "vm_rebalancer:node_cpu_memory_combined:score"
PREFIX = "nodeutilization.descheduler.openshift.io"
OVER_TAINTS = (f"{PREFIX}/appropriate", f"{PREFIX}/overutilized")
PER_NODE, IN_ALL = 2, 5
UNDER_DEVIATION, OVER_DEVIATION = 0, 10
_FORGOTTEN_AFTER_S = 600.0
"""How old a request must be to be forgotten at the next clean-up, and how long it is from one to the next."""
_NOT_A_NUMBER = -(2**63)
"""What becomes of NaN as a whole number on amd64."""

Read = Callable[[], Sequence[Sample]]
"""Asks for `SERIES`. May raise `MetricsOutage`."""


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
        read: Read,
        rng: random.Random,
        *,
        soft_tainter: bool,
    ) -> None:
        self._control_plane = control_plane
        self._store = store
        self._read = read
        self._rng = rng
        self._soft_tainter = soft_tainter
        self._background = _Background()
        self.last: Cycle | None = None

    def cycle(self, now_s: float) -> None:
        """Look and act; ``now_s`` only decides what it has forgotten."""
        nodes = [n for n in self._store.list(NODE) if _takes_part(n)]
        looked = self._look([n["metadata"]["name"] for n in nodes])
        if looked is None:
            return
        self.last = looked
        if self._soft_tainter:
            for node in nodes:
                self._taint(node, looked)
        if looked.under():
            self._evict(looked, now_s)

    def _look(self, names: Sequence[str]) -> Cycle | None:
        """``None``: one node without a metric, or one impossible value, stops the whole loop."""
        try:
            scores = {labels.get("instance", ""): value for labels, value, _ in self._read()}
        except MetricsOutage:
            return None
        if any(score < 0 or score > 1 for score in scores.values()):
            return None
        if not names or any(name not in scores for name in names):
            return None
        values = {name: _percent(scores[name]) for name in names}
        average = sum(values.values()) / len(values)
        under, over = (
            min(max(int(x), 0), 100) for x in (average - UNDER_DEVIATION, average + OVER_DEVIATION)
        )
        return Cycle(values, under, over)

    def _evict(self, cycle: Cycle, now_s: float) -> None:
        pods = self._launchers()
        self._background.look(pods, now_s)
        known = self._background.knows
        total = sum(map(known, pods))
        for node in cycle.over():
            if total >= IN_ALL:
                return
            on_node = [pod for pod in pods if pod["spec"]["nodeName"] == node]
            evicted = sum(map(known, on_node))
            for pod in sorted(on_node, key=lambda p: (at(p, "spec", "priority") or 0, self._rng.random())):
                if evicted >= PER_NODE or total >= IN_ALL:
                    break
                if not known(pod) and not _stays(pod) and self._goes(pod, now_s):
                    evicted, total = evicted + 1, total + 1

    def _goes(self, pod: Json, now_s: float) -> bool:
        """Ask for an eviction; whether it counts as one."""
        metadata = pod["metadata"]
        answer = self._control_plane.evict(
            metadata["namespace"],
            metadata["name"],
            dry_run=False,
            requested_by="sigs.k8s.io/descheduler",
            asked_by="baseline",
        )
        in_background = "Eviction triggered evacuation" in answer.message
        if in_background:
            self._background.remember(pod, now_s)
        return in_background or answer.status < 300

    def _launchers(self) -> list[Json]:
        return [
            pod
            for pod in self._store.list(POD)
            if (at(pod, "metadata", "labels") or {}).get(APP) == LAUNCHER
            and at(pod, "status", "phase") == "Running"
        ]

    def _taint(self, node: Json, cycle: Cycle) -> None:
        metadata = node["metadata"]
        keys = {2: OVER_TAINTS, 1: OVER_TAINTS[:1], 0: ()}[cycle.class_of(metadata["name"])]
        present = at(node, "spec", "taints") or []
        foreign = [t for t in present if not t["key"].startswith(f"{PREFIX}/")]
        wanted = [*foreign, *({"key": k, "value": "true", "effect": "PreferNoSchedule"} for k in keys)]
        if wanted != present:
            self._control_plane.replace_taints(metadata["name"], metadata["resourceVersion"], wanted)


class _Background:
    """Evictions that go on in the background, by pod UID, as upstream's cache of requests holds them.

    A migration's target pod gets the same answer as the VM's launcher, so it is remembered too, and its node has one
    slot less until that is forgotten.
    """

    def __init__(self) -> None:
        self._asked_s: dict[str, float] = {}
        self._marked: set[str] = set()

    def look(self, pods: Iterable[Json], now_s: float) -> None:
        """Before each cycle, with all launchers that run: forget what is over."""
        marked, running = set(), set()
        for pod in pods:
            running.add(pod["metadata"]["uid"])
            if IN_PROGRESS in (at(pod, "metadata", "annotations") or {}):
                marked.add(pod["metadata"]["uid"])
        cleaned_up_s = now_s // _FORGOTTEN_AFTER_S * _FORGOTTEN_AFTER_S
        no_more_marked = self._marked - marked
        self._asked_s = {
            uid: asked_s
            for uid, asked_s in self._asked_s.items()
            if uid in running and uid not in no_more_marked and cleaned_up_s - asked_s <= _FORGOTTEN_AFTER_S
        }
        self._marked = marked

    def remember(self, pod: Json, now_s: float) -> None:
        self._asked_s[pod["metadata"]["uid"]] = now_s

    def knows(self, pod: Json) -> bool:
        uid = pod["metadata"]["uid"]
        return uid in self._marked or uid in self._asked_s


def _percent(score: float) -> int:
    return _NOT_A_NUMBER if math.isnan(score) else int(score * 100)


def _takes_part(node: Json) -> bool:
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in at(node, "status", "conditions") or ()
    )
    return ready and not at(node, "spec", "unschedulable")


def _stays(pod: Json) -> bool:
    return PREFER_NO_EVICTION in (at(pod, "metadata", "annotations") or {})
