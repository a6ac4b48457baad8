"""Where kube-scheduler would put the target pod of a migration.

Filters and scores are those of kube-scheduler 1.36 as far as they matter to virt-launcher pods; the source
pod stands for the target pod, which KubeVirt copies from it. Not looked at: extended resources (GPUs,
hugepages), volumes, topology spread, and pods other than launchers in pod (anti-)affinity. Of the scores,
NodeAffinity, InterPodAffinity, PodTopologySpread and ImageLocality are left out: launchers have no such
preferences by default, and then these are equal on all nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.cluster.objects import Node, PlacedPod, Pod, Resources, Taint
from controller.cluster.quantity import NOTHING
from controller.cluster.queries import Reason

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECT = "PreferNoSchedule"
TAINT_TOLERATION_WEIGHT = 3
MAX_NODE_SCORE = 100


class Misfit(StrEnum):
    """Codes of the reasons why a pod does not fit on a node."""

    SOURCE_NODE = "SourceNode"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    TAINT = "Taint"
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"
    TOO_MANY_PODS = "TooManyPods"
    INSUFFICIENT_CPU = "InsufficientCpu"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What the pods placed on a node, and those on their way to it, request."""

    requested: Resources = NOTHING
    pods: int = 0

    def plus(self, requests: Resources) -> "NodeRoom":
        """With one pod more."""
        return NodeRoom(self.requested + requests, self.pods + 1)

    def joined(self, other: "NodeRoom") -> "NodeRoom":
        """What both take together."""
        return NodeRoom(self.requested + other.requested, self.pods + other.pods)


def room_of(pods: Iterable[Pod | PlacedPod]) -> NodeRoom:
    """What these pods take; finished ones take nothing."""
    cpu_cores = memory_bytes = 0.0
    count = 0
    for pod in pods:
        if not pod.finished:
            cpu_cores += pod.requests.cpu_cores
            memory_bytes += pod.requests.memory_bytes
            count += 1
    return NodeRoom(Resources(cpu_cores, memory_bytes), count)


@dataclass(frozen=True, slots=True)
class Domains:
    """What required pod affinity and anti-affinity leave to a pod, in terms of topology domains.

    A domain is a node label. ``closed`` ones may not be entered; each has the pod that closes
    it. Of each key in ``demanded`` the node must have one of the values; ``None``: any value.
    """

    closed: Mapping[str, Mapping[str, str]]
    """Label key -> label value -> name of the pod that closes it."""
    demanded: Mapping[str, frozenset[str] | None]


ANYWHERE = Domains({}, {})


def affinity_domains(pod: Pod, neighbours: Iterable[tuple[Pod, Node]]) -> Domains:
    """The domains that required pod (anti-)affinity closes to ``pod`` or demands of it.

    ``neighbours`` are launchers with their nodes, at least all that a term of ``pod`` selects or that have a
    term selecting ``pod``. Its source counts like any other, as it does for kube-scheduler: it is there
    until the end of the migration. So KubeVirt's own term (never two launchers of a VMI on a node) closes
    the source node only.
    """
    closed: dict[str, dict[str, str]] = {}
    wanted = pod.affinity.pod_affinity.required
    found: dict[str, set[str]] = {term.topology_key: set() for term in wanted}
    for other, node in neighbours:
        if other.finished:
            continue
        for key in (*_repelled_keys(pod, other), *_repelled_keys(other, pod)):
            if (value := node.labels.get(key)) is not None:
                closed.setdefault(key, {}).setdefault(value, other.metadata.name)
        if wanted and _selected_by_affinity(pod, other):
            for key, values in found.items():
                if (value := node.labels.get(key)) is not None:
                    values.add(value)
    # kube-scheduler lets the first of a group in anywhere: its own terms select it, and no other pod.
    first_of_group = bool(wanted) and not any(found.values()) and _selected_by_affinity(pod, pod)
    return Domains(
        closed, {key: None if first_of_group else frozenset(values) for key, values in found.items()}
    )


def why_not_fit(pod: Pod, node: Node, room: NodeRoom, domains: Domains = ANYWHERE) -> Reason | None:
    """Why kube-scheduler would not put the target of ``pod``'s migration on ``node``; ``None``: it may.

    ``room`` is what is on the node already, ``domains`` what :func:`affinity_domains` says of the pod.
    Cordoned nodes and nodes that are not ready are out in any case, whatever the pod tolerates. The first
    obstacle is told; cheap checks come first.
    """
    if node.name == pod.node_name:
        return Reason(Misfit.SOURCE_NODE, "it runs there")
    if node.unschedulable:
        return Reason(Misfit.CORDONED, "the node is cordoned")
    if not node.ready:
        return Reason(Misfit.NOT_READY, "the node is not ready")
    if reason := why_not_allowed(pod, node):
        return reason
    for taint in node.taints:
        if taint.effect in HARD_EFFECTS and not _tolerated(pod, taint):
            return Reason(Misfit.TAINT, f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated")
    return _why_no_room(pod, node, room) or _why_not_near(node, domains)


def why_not_allowed(pod: Pod, node: Node) -> Reason | None:
    """Why node selector or required node affinity keep ``pod`` off ``node``; ``None``: they do not."""
    labels = node.labels
    for key, value in pod.node_selector.items():
        if labels.get(key) != value:
            return Reason(Misfit.NODE_SELECTOR, f"node selector {key}={value} does not match")
    required = pod.affinity.node_affinity.required
    if required is not None and not required.matches(node.name, labels):
        return Reason(Misfit.NODE_AFFINITY, "required node affinity does not match")
    return None


def is_pinned(pod: Pod, nodes: Iterable[Node]) -> bool:
    """Whether node selector and node affinity leave ``pod`` none of ``nodes`` but the one it is on."""
    return all(node.name == pod.node_name or why_not_allowed(pod, node) is not None for node in nodes)


@dataclass(frozen=True, slots=True)
class Placement:
    """What kube-scheduler would make of a pod.

    ``scores`` are the nodes it fits on with their scores, in the order given; ``misfits`` says why not the
    others.
    """

    scores: tuple[tuple[Node, int], ...]
    misfits: Mapping[str, Reason]

    @property
    def best(self) -> tuple[Node, ...]:
        """The nodes with the highest score. kube-scheduler takes one of them at random."""
        highest = max((score for _, score in self.scores), default=0)
        return tuple(node for node, score in self.scores if score == highest)

    def why_none(self) -> str:
        """Why it does not fit on the nodes it does not fit on, most frequent reasons first, one example each."""
        groups: dict[str, list[Reason]] = {}
        for reason in self.misfits.values():
            groups.setdefault(reason.code, []).append(reason)
        by_size = sorted(groups.values(), key=len, reverse=True)
        return "; ".join(f"{len(group)} x {group[0].text}" for group in by_size) or "there is no other node"


def place(pod: Pod, nodes: Iterable[tuple[Node, NodeRoom]], domains: Domains = ANYWHERE) -> Placement:
    """Filter and score ``nodes`` for the target of ``pod``'s migration as kube-scheduler does."""
    fitting: list[tuple[Node, NodeRoom, int]] = []
    misfits: dict[str, Reason] = {}
    for node, room in nodes:
        if reason := why_not_fit(pod, node, room, domains):
            misfits[node.name] = reason
        else:
            fitting.append((node, room, _soft_taints(pod, node)))
    most = max((taints for _, _, taints in fitting), default=0)
    scores = tuple((node, scheduler_score(pod, node, room, taints, most)) for node, room, taints in fitting)
    return Placement(scores, misfits)


def scheduler_score(pod: Pod, node: Node, room: NodeRoom, soft_taints: int, most_soft_taints: int) -> int:
    """kube-scheduler's weighted score of ``node``, as far as nodes differ in it: 0 to 500.

    TaintToleration x 3 + NodeResourcesFit (LeastAllocated) + NodeResourcesBalancedAllocation.
    ``soft_taints`` are the node's ``PreferNoSchedule`` taints that the pod does not tolerate,
    ``most_soft_taints`` the greatest number of them on any node it fits on. Weights and formulas:
    ``pkg/scheduler`` of Kubernetes.
    """
    tainted = MAX_NODE_SCORE * soft_taints // most_soft_taints if most_soft_taints else 0
    after = room.requested + pod.requests
    cpu = _fraction(after.cpu_cores, node.allocatable.cpu_cores)
    memory = _fraction(after.memory_bytes, node.allocatable.memory_bytes)
    least_allocated = (_whole(1 - cpu) + _whole(1 - memory)) // 2
    # The standard deviation of two numbers is half their distance.
    balanced = _whole(1 - abs(cpu - memory) / 2)
    return TAINT_TOLERATION_WEIGHT * (MAX_NODE_SCORE - tainted) + least_allocated + balanced


def _why_no_room(pod: Pod, node: Node, room: NodeRoom) -> Reason | None:
    """Requests of zero always fit."""
    if room.pods >= node.max_pods:
        return Reason(Misfit.TOO_MANY_PODS, f"it has {room.pods} pods and takes {node.max_pods}")
    wanted, free = pod.requests, node.allocatable - room.requested
    if wanted.cpu_cores > max(free.cpu_cores + _CPU_GRAIN, 0.0):
        text = f"{wanted.cpu_cores:g} cores are requested, {free.cpu_cores:g} left"
        return Reason(Misfit.INSUFFICIENT_CPU, text)
    if wanted.memory_bytes > max(free.memory_bytes, 0.0):
        text = f"{wanted.memory_bytes / _GIB:.1f} GiB are requested, {free.memory_bytes / _GIB:.1f} left"
        return Reason(Misfit.INSUFFICIENT_MEMORY, text)
    return None


def _why_not_near(node: Node, domains: Domains) -> Reason | None:
    for key, values in domains.demanded.items():
        value = node.labels.get(key)
        if value is None or (values is not None and value not in values):
            return Reason(Misfit.POD_AFFINITY, f"required pod affinity: none of its pods has the same {key}")
    for key, pods in domains.closed.items():
        if (other := pods.get(node.labels.get(key, ""))) is not None:
            text = f"required pod anti-affinity: pod {other} has the same {key}"
            return Reason(Misfit.POD_ANTI_AFFINITY, text)
    return None


def _repelled_keys(owner: Pod, pod: Pod) -> Iterable[str]:
    """Topology keys of the anti-affinity terms of ``owner`` that select ``pod``."""
    return (
        term.topology_key
        for term in owner.affinity.pod_anti_affinity.required
        if term.selects(owner.metadata.namespace, pod.metadata.namespace, pod.metadata.labels)
    )


def _selected_by_affinity(owner: Pod, pod: Pod) -> bool:
    """Whether all affinity terms of ``owner`` select ``pod``; one pod has to meet them all."""
    return all(
        term.selects(owner.metadata.namespace, pod.metadata.namespace, pod.metadata.labels)
        for term in owner.affinity.pod_affinity.required
    )


def _tolerated(pod: Pod, taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in pod.tolerations)


def _soft_taints(pod: Pod, node: Node) -> int:
    return sum(taint.effect == SOFT_EFFECT and not _tolerated(pod, taint) for taint in node.taints)


def _fraction(requested: float, allocatable: float) -> float:
    return min(requested / allocatable, 1.0) if allocatable > 0 else 1.0


def _whole(fraction: float) -> int:
    """A score in whole points, cut off as integers are; what floats lose must not cost a point."""
    return int(fraction * MAX_NODE_SCORE + 1e-9)


_CPU_GRAIN = 1e-6  # cores; far below the millicore of requests, far above the error of adding them up
_GIB = float(1 << 30)
