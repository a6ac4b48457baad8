"""The kube-scheduler, as far as virt-launcher pods are concerned.

Filters (a node that fails one is counted under the first): unschedulable, hard taints, node selector and required node
affinity, resource requests and number of pods, required pod anti-affinity by host name. A node that is not ready has
taints, put there by the node controller.

Scores, each a whole number from 0 to 100, times the plugin's weight (Kubernetes' default profile):

- TaintToleration 3: 100 - 100 * n / max, n: ``PreferNoSchedule`` taints that the pod does not tolerate, max: the
  largest n of all feasible nodes;
- NodeAffinity 2: sum of the weights of the preferred terms that match, scaled so that the best node has 100;
- NodeResourcesFit, least allocated, 1: mean of (allocatable - requested) * 100 / allocatable over CPU and memory;
- NodeResourcesBalancedAllocation 1: (1 - |CPU fraction - memory fraction| / 2) * 100.

InterPodAffinity 2 (launchers have no preferred terms), PodTopologySpread 2 (its defaults hold for pods of Services and
ReplicaSets only) and ImageLocality 1 (virt-handler keeps the launcher's image on every node) give all nodes the same
for launcher pods, so they are not computed. Ties are broken at random.

In clusters of 100 nodes and more only a part is looked at, as in Kubernetes (``percentageOfNodesToScore`` unset):
(50 - nodes / 125) %, at least 5 % and at least 100 feasible nodes, each time starting where the last search ended.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.kubevirt.manifests import HOSTNAME
from simulator.kubevirt.objectstore import NODE, POD, Json, ObjectStore, WatchEvent, at
from simulator.kubevirt.quantities import parse_bytes, parse_cpu

_WEIGHT_TAINTS = 3
_WEIGHT_NODE_AFFINITY = 2
_LOOKS_AT_LEAST_AT = 100

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Requests(NamedTuple):
    cpu_millis: int
    memory_bytes: int
    pods: int = 1


class Placement(NamedTuple):
    node: str | None
    message: str
    """Why there is no node, in the scheduler's words; empty if there is one."""


class _Placed(NamedTuple):
    node: str
    requests: Requests
    labels: Mapping[str, str]


class Scheduler:
    """Places pods; follows nodes and pods of the store. Sums of requests are kept up to date pod by pod."""

    def __init__(self, store: ObjectStore, rng: random.Random) -> None:
        self._rng = rng
        self._nodes: list[Json] = []
        self._index: dict[str, int] = {}
        self._allocatable: Integers = np.zeros((0, 3), dtype=np.int64)
        self._requested: Integers = np.zeros((0, 3), dtype=np.int64)
        self._placed: dict[str, _Placed] = {}
        self._pods_on: dict[str, dict[str, None]] = {}
        self._by_label: dict[tuple[str, str], dict[str, None]] = {}
        self._masks: dict[Any, Any] = {}
        """What depends only on nodes, by what was asked; emptied when a node changes."""
        self._start = 0
        self.freed = 0
        """Grows whenever something happens that may make room for a pod that found none."""
        for kind in (NODE, POD):
            for obj in store.list(kind):
                self._observe(WatchEvent(kind, "ADDED", obj))
        store.subscribe(self._observe)

    def place(self, pod: Json) -> Placement:
        """The node for a pod that has none; nothing is reserved until the pod is bound in the store."""
        feasible, message = self._filter(pod)
        if not feasible.any():
            return Placement(None, message)
        candidates = self._sample(np.flatnonzero(feasible))
        total = self._scores(pod, candidates)
        best = candidates[total == total.max()]
        return Placement(self._nodes[self._rng.choice(best.tolist())]["metadata"]["name"], "")

    def requested(self, node: str) -> Requests:
        """Sum over the pods on a node that are not finished. Raises ``KeyError``."""
        cpu, memory, pods = self._requested[self._index[node]].tolist()
        return Requests(cpu, memory, pods)

    # Filters

    def _filter(self, pod: Json) -> tuple[Mask, str]:
        alive: Mask = np.ones(len(self._nodes), dtype=np.bool_)
        reasons: Counter[str] = Counter()
        hopeless = 0
        for failures in (self._unschedulable(), self._hard_taints(pod), self._not_selected(pod)):
            for reason, mask in failures.items():
                hit = alive & mask
                reasons[reason] += int(hit.sum())
                hopeless += int(hit.sum())
                alive = alive & ~mask
        for failures in (self._too_small(pod), self._too_near(pod)):
            survivors = alive
            for reason, mask in failures.items():
                reasons[reason] += int((survivors & mask).sum())
                alive = alive & ~mask
        return alive, "" if alive.any() else _no_nodes(len(alive), reasons, hopeless)

    def _unschedulable(self) -> dict[str, Mask]:
        if "unschedulable" not in self._masks:
            cordoned = [bool(at(node, "spec", "unschedulable")) for node in self._nodes]
            self._masks["unschedulable"] = np.array(cordoned, dtype=np.bool_)
        return {"node(s) were unschedulable": self._masks["unschedulable"]}

    def _hard_taints(self, pod: Json) -> dict[str, Mask]:
        """Nodes by their first taint that the pod does not tolerate."""
        tolerations = at(pod, "spec", "tolerations") or []
        key = ("hard", _frozen(tolerations))
        if key not in self._masks:
            failures: dict[str, Mask] = {}
            for position, node in enumerate(self._nodes):
                for taint in at(node, "spec", "taints") or ():
                    if taint["effect"] == "PreferNoSchedule" or _tolerated(taint, tolerations):
                        continue
                    reason = f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
                    failures.setdefault(reason, np.zeros(len(self._nodes), dtype=np.bool_))[position] = True
                    break
            self._masks[key] = failures
        found: dict[str, Mask] = self._masks[key]
        return found

    def _not_selected(self, pod: Json) -> dict[str, Mask]:
        selector = at(pod, "spec", "nodeSelector") or {}
        terms = at(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        key = ("selector", tuple(selector.items()), _frozen(terms))
        if key not in self._masks:
            wrong = [not _selected(_labels(node), selector, terms) for node in self._nodes]
            self._masks[key] = np.array(wrong, dtype=np.bool_)
        return {"node(s) didn't match Pod's node affinity/selector": self._masks[key]}

    def _too_small(self, pod: Json) -> dict[str, Mask]:
        short = self._requested + np.array(_requests(pod), dtype=np.int64) > self._allocatable
        return {
            "Insufficient cpu": short[:, 0],
            "Insufficient memory": short[:, 1],
            "Too many pods": short[:, 2],
        }

    def _too_near(self, pod: Json) -> dict[str, Mask]:
        """Nodes with a pod that a required anti-affinity term of this one names.

        Terms of the pods already there are not asked: KubeVirt's rule and anti-affinity groups hold both ways.
        """
        near = np.zeros(len(self._nodes), dtype=np.bool_)
        for term in at(pod, "spec", "affinity", "podAntiAffinity", _REQUIRED) or ():
            if term["topologyKey"] != HOSTNAME:
                continue
            for placed in self._holders(term["labelSelector"]["matchLabels"]):
                near[self._index[placed.node]] = True
        return {"node(s) didn't match pod anti-affinity rules": near}

    def _holders(self, labels: Mapping[str, str]) -> list[_Placed]:
        """Placed pods that carry all of the labels."""
        uids = min((self._by_label.get(pair, {}) for pair in labels.items()), key=len)
        pods = [self._placed[uid] for uid in uids]
        return [pod for pod in pods if pod.node in self._index and labels.items() <= pod.labels.items()]

    # Scores

    def _sample(self, feasible: Integers) -> Integers:
        """The feasible nodes that the scheduler finds before it has enough."""
        nodes = len(self._nodes)
        enough = max(_LOOKS_AT_LEAST_AT, nodes * max(5, 50 - nodes // 125) // 100)
        first = int(np.searchsorted(feasible, self._start % nodes))
        found = np.concatenate((feasible[first:], feasible[:first]))[:enough]
        if nodes >= _LOOKS_AT_LEAST_AT and len(found) == enough:
            self._start = int(found[-1]) + 1
        return found

    def _scores(self, pod: Json, candidates: Integers) -> Integers:
        allocatable = self._allocatable[candidates, :2]
        requested = self._requested[candidates, :2] + np.array(_requests(pod)[:2], dtype=np.int64)
        least = ((allocatable - requested) * 100 // np.maximum(allocatable, 1)).sum(axis=1) // 2
        fractions = np.minimum(requested / np.maximum(allocatable, 1), 1.0)
        balanced = ((1.0 - np.abs(fractions[:, 0] - fractions[:, 1]) / 2.0) * 100.0).astype(np.int64)
        soft = self._soft_taints(pod)[candidates]
        tolerated = 100 - soft * 100 // max(int(soft.max()), 1)
        liked = self._preferred(pod)[candidates]
        affine = liked * 100 // max(int(liked.max()), 1)
        total: Integers = _WEIGHT_TAINTS * tolerated + _WEIGHT_NODE_AFFINITY * affine + least + balanced
        return total

    def _soft_taints(self, pod: Json) -> Integers:
        tolerations = at(pod, "spec", "tolerations") or []
        key = ("soft", _frozen(tolerations))
        if key not in self._masks:
            counts = [
                sum(
                    taint["effect"] == "PreferNoSchedule" and not _tolerated(taint, tolerations)
                    for taint in at(node, "spec", "taints") or ()
                )
                for node in self._nodes
            ]
            self._masks[key] = np.array(counts, dtype=np.int64)
        counted: Integers = self._masks[key]
        return counted

    def _preferred(self, pod: Json) -> Integers:
        terms = (
            at(pod, "spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
            or []
        )
        key = ("preferred", _frozen(terms))
        if key not in self._masks:
            sums = [
                sum(t["weight"] for t in terms if _term_matches(_labels(node), t["preference"]))
                for node in self._nodes
            ]
            self._masks[key] = np.array(sums, dtype=np.int64)
        weights: Integers = self._masks[key]
        return weights

    # Following the store

    def _observe(self, event: WatchEvent) -> None:
        if event.kind == NODE:
            self._observe_node(event)
        elif event.kind == POD:
            self._observe_pod(event)

    def _observe_node(self, event: WatchEvent) -> None:
        node = event.object
        name = node["metadata"]["name"]
        self._masks.clear()
        self.freed += 1
        if event.type == "DELETED":
            position = self._index[name]
            del self._nodes[position]
            self._allocatable = np.delete(self._allocatable, position, axis=0)
            self._requested = np.delete(self._requested, position, axis=0)
            self._index = {n["metadata"]["name"]: i for i, n in enumerate(self._nodes)}
            return
        if name not in self._index:
            self._index[name] = len(self._nodes)
            self._nodes.append(node)
            on_it = [self._placed[uid].requests for uid in self._pods_on.get(name, ())]
            row = np.array([on_it or [Requests(0, 0, 0)]], dtype=np.int64).sum(axis=1)
            self._requested = np.concatenate((self._requested, row))
            self._allocatable = np.concatenate((self._allocatable, np.zeros((1, 3), dtype=np.int64)))
        position = self._index[name]
        self._nodes[position] = node
        has = node["status"]["allocatable"]
        self._allocatable[position] = (parse_cpu(has["cpu"]), parse_bytes(has["memory"]), int(has["pods"]))

    def _observe_pod(self, event: WatchEvent) -> None:
        pod = event.object
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        counts = (
            event.type != "DELETED"
            and node is not None
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        )
        before = self._placed.get(uid)
        if counts and before is None:
            placed = _Placed(node, _requests(pod), pod["metadata"].get("labels") or {})
            self._placed[uid] = placed
            self._pods_on.setdefault(node, {})[uid] = None
            for pair in placed.labels.items():
                self._by_label.setdefault(pair, {})[uid] = None
            if node in self._index:
                self._requested[self._index[node]] += placed.requests
        elif before is not None and not counts:
            del self._placed[uid]
            del self._pods_on[before.node][uid]
            for pair in before.labels.items():
                del self._by_label[pair][uid]
            self.freed += 1
            if before.node in self._index:
                self._requested[self._index[before.node]] -= before.requests


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _no_nodes(nodes: int, reasons: Counter[str], hopeless: int) -> str:
    """The message of the condition PodScheduled, as kube-scheduler words it."""
    head = f"0/{nodes} nodes are available"
    if not nodes:
        return "no nodes available to schedule pods"
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
    preemption = {
        "No preemption victims found for incoming pod": nodes - hopeless,
        "Preemption is not helpful for scheduling": hopeless,
    }
    helped = ", ".join(sorted(f"{count} {text}" for text, count in preemption.items() if count))
    return f"{head}: {counted}. preemption: {head}: {helped}."


def _requests(pod: Json) -> Requests:
    cpu = memory = 0
    for container in pod["spec"]["containers"]:
        requests = at(container, "resources", "requests") or {}
        cpu += parse_cpu(requests.get("cpu", "0"))
        memory += parse_bytes(requests.get("memory", "0"))
    return Requests(cpu, memory)


def _labels(node: Json) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _tolerated(taint: Mapping[str, str], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        toleration.get("effect", taint["effect"]) == taint["effect"]
        and toleration.get("key", taint["key"]) == taint["key"]
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in tolerations
    )


def _selected(labels: Mapping[str, str], selector: Mapping[str, str], required: Json | None) -> bool:
    if not selector.items() <= labels.items():
        return False
    return required is None or any(_term_matches(labels, term) for term in required["nodeSelectorTerms"])


def _term_matches(labels: Mapping[str, str], term: Json) -> bool:
    expressions = term.get("matchExpressions") or []
    return bool(expressions) and all(_expression_matches(labels, e) for e in expressions)


def _expression_matches(labels: Mapping[str, str], expression: Json) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(
        f"node affinity operator {expression['operator']!r}, allowed: In, NotIn, Exists, DoesNotExist"
    )


def _frozen(value: Any) -> Any:
    """A hashable form of JSON."""
    if isinstance(value, Mapping):
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value
