"""The cluster as the stores show it: joins over the Listers of the informers.

Lookups go through the indexes below, which the informers must have been made with. Only ``all_vmis``
and ``node_names`` walk over all objects of a kind, and none walks over all pods, except for a pod affinity
that spans namespaces. Answers are as new as the stores; two of them may stem from
different moments. Safe to use from any thread.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol, Self

from controller.cluster.objects import (
    LABEL_CREATED_BY,
    LABEL_HOSTNAME,
    KubeVirt,
    Node,
    PlacedPod,
    Pod,
    Vmi,
    Vmim,
)
from controller.cluster.placement import (
    ANYWHERE,
    Domains,
    NodeRoom,
    Placement,
    affinity_domains,
    place,
    room_of,
)
from controller.cluster.pods import PodAffinityTerm
from informers.informer import Informer
from informers.store import Indexer, Lister

BY_NODE = "node"
BY_UID = "uid"
BY_VMI = "vmi"
BY_NAMESPACE = "namespace"
REPELLING = "repelling"
UNFINISHED = "unfinished"

ANY_LABEL = ("", "")
"""In the index ``REPELLING``: terms of which no label is known that all pods they select have."""


def _on_node(pod: Pod | PlacedPod) -> Iterable[Hashable]:
    return (pod.node_name,) if pod.node_name and not pod.finished else ()


def _repelled_labels(pod: Pod) -> Iterable[Hashable]:
    """Under which labels a pod has to look for this one, which may keep it away by required anti-affinity."""
    if not pod.finished:
        for term in pod.affinity.pod_anti_affinity.required:
            if term.label_selector is not None:
                yield term.label_selector.implied_label() or ANY_LABEL


LAUNCHER_INDEXES: Mapping[str, Indexer[Pod]] = {
    BY_NODE: _on_node,
    BY_UID: lambda pod: (pod.metadata.uid,),
    BY_VMI: lambda pod: (pod.vmi_uid,),
    BY_NAMESPACE: lambda pod: (pod.metadata.namespace,),
    REPELLING: _repelled_labels,
}
"""By node (finished pods are on none), own UID, UID of the VMI, namespace, and label (key, value) repelled."""

PLACED_INDEXES: Mapping[str, Indexer[PlacedPod]] = {BY_NODE: _on_node}
"""By node; finished pods are on none."""

VMI_INDEXES: Mapping[str, Indexer[Vmi]] = {BY_NODE: lambda vmi: (vmi.node_name,) if vmi.node_name else ()}
"""By node."""

VMIM_INDEXES: Mapping[str, Indexer[Vmim]] = {
    BY_VMI: lambda vmim: ((vmim.metadata.namespace, vmim.vmi_name),),
    UNFINISHED: lambda vmim: () if vmim.finished else (True,),
}
"""By (namespace, name) of the VMI; unfinished ones under ``True``."""


class Caches(Protocol):
    """The informers a view joins."""

    nodes: Informer[Node]
    launchers: Informer[Pod]
    placed: Informer[PlacedPod]
    vmis: Informer[Vmi]
    vmims: Informer[Vmim]
    kubevirts: Informer[KubeVirt]


class RunningVm(NamedTuple):
    """A VMI and its active launcher."""

    vmi: Vmi
    pod: Pod


class ClusterView:
    """See the module. Keeps nothing but sums of requests, for as long as no pod changes."""

    def __init__(
        self,
        nodes: Lister[Node],
        launchers: Lister[Pod],
        placed: Lister[PlacedPod],
        vmis: Lister[Vmi],
        vmims: Lister[Vmim],
        kubevirts: Lister[KubeVirt],
    ) -> None:
        self._nodes = nodes
        self._launchers = launchers
        self._placed = placed
        self._vmis = vmis
        self._vmims = vmims
        self._kubevirts = kubevirts
        # The versions of both pod stores, and rooms computed since they were read. Replaced whole; rooms are
        # only ever added, so threads may share it.
        self._rooms: tuple[tuple[int, int], dict[str, NodeRoom]] = ((-1, -1), {})

    @classmethod
    def over(cls, caches: Caches) -> Self:
        """The view of these caches."""
        return cls(
            caches.nodes.lister,
            caches.launchers.lister,
            caches.placed.lister,
            caches.vmis.lister,
            caches.vmims.lister,
            caches.kubevirts.lister,
        )

    # --- nodes ---

    def node(self, name: str) -> Node | None:
        return self._nodes.get("", name)

    def node_names(self) -> list[str]:
        return [node.name for node in self._nodes.list()]

    def room(self, node: str) -> NodeRoom:
        """What the pods on a node request, and how many they are."""
        versions = (self._launchers.version, self._placed.version)
        known_versions, rooms = self._rooms
        if versions != known_versions:
            rooms = {}
            self._rooms = (versions, rooms)
        if (room := rooms.get(node)) is None:
            room = room_of(self._launchers.by_index(BY_NODE, node))
            room = rooms[node] = room.joined(room_of(self._placed.by_index(BY_NODE, node)))
        return room

    # --- VMs ---

    def kubevirt(self) -> KubeVirt | None:
        """The cluster's KubeVirt; ``None`` while none is known."""
        return next(iter(self._kubevirts.list()), None)

    def vmi(self, key: tuple[str, str]) -> Vmi | None:
        """By (namespace, name)."""
        return self._vmis.get(*key)

    def all_vmis(self) -> list[Vmi]:
        return self._vmis.list()

    def vms_on(self, node: str) -> list[RunningVm]:
        """The VMIs on a node that have an active launcher there."""
        found = ((vmi, self.launcher_of(vmi)) for vmi in self._vmis.by_index(BY_NODE, node))
        return [RunningVm(vmi, pod) for vmi, pod in found if pod is not None]

    def launcher(self, uid: str) -> Pod | None:
        """By UID."""
        return next(iter(self._launchers.by_index(BY_UID, uid)), None)

    def launcher_of(self, vmi: Vmi) -> Pod | None:
        """The launcher the VMI runs in: unfinished, on its node.

        Of several (a restarted VM's old one may still be there) one that the VMI counts as active is
        preferred, then one that is not being deleted.
        """
        pods = [
            pod
            for pod in self._launchers.by_index(BY_VMI, vmi.uid)
            if pod.node_name and pod.node_name == vmi.node_name and not pod.finished
        ]
        return min(
            pods,
            key=lambda pod: (pod.metadata.uid not in vmi.active_pods, pod.metadata.being_deleted),
            default=None,
        )

    def launcher_on(self, vmi: Vmi, node: str) -> Pod | None:
        """The newest launcher of the VMI on this node, which may have finished: the VM has left then."""
        pods = [pod for pod in self._launchers.by_index(BY_VMI, vmi.uid) if node and pod.node_name == node]
        return max(pods, key=_newest, default=None)

    # --- migrations ---

    def migrations_of(self, vmi: Vmi) -> list[Vmim]:
        """All VMIMs of that name, finished ones and those of a former VMI of the same name too."""
        return self._vmims.by_index(BY_VMI, (vmi.namespace, vmi.name))

    def unfinished_migrations(self) -> list[tuple[Vmi, Vmim]]:
        """Migrations that wait or run, whoever asked for them; those of VMIs that are gone move nothing."""
        found = (
            (self._vmis.get(vmim.metadata.namespace, vmim.vmi_name), vmim)
            for vmim in self._vmims.by_index(UNFINISHED, True)
        )
        return [(vmi, vmim) for vmi, vmim in found if vmi is not None]

    def moving(self) -> dict[str, str]:
        """UID of each VMI with an unfinished migration -> node it leaves."""
        return {vmi.uid: source_node(vmi, vmim) for vmi, vmim in self.unfinished_migrations()}

    def migrating_uids(self) -> set[str]:
        """UIDs of the VMIs with an unfinished migration."""
        return set(self.moving())

    # --- placement ---

    def neighbours(self, pod: Pod) -> list[tuple[Pod, Node]]:
        """The launchers that required pod (anti-)affinity of either side may relate to ``pod``, and their nodes."""
        found: dict[str, Pod] = {}
        for label in (*pod.metadata.labels.items(), ANY_LABEL):
            found.update((other.metadata.uid, other) for other in self._launchers.by_index(REPELLING, label))
        for term in (*pod.affinity.pod_affinity.required, *pod.affinity.pod_anti_affinity.required):
            found.update(
                (other.metadata.uid, other) for other in self._selectable(term, pod.metadata.namespace)
            )
        return [(other, node) for other in found.values() if (node := self.node(other.node_name)) is not None]

    def placer(self, source: Node, arriving: Iterable[tuple[str, str]]) -> "Placer":
        """Tells where kube-scheduler would put launchers that leave ``source``.

        ``arriving`` are VMs on their way, as (UID of the source pod, target node): they count there already.
        """
        return Placer(self, source, list(arriving))

    def arrivals(self, arriving: Iterable[tuple[str, str]]) -> list[tuple[Pod, Node]]:
        """The source pods of VMs on their way whose target pods are not there yet, and the nodes they go to."""
        found: list[tuple[Pod, Node]] = []
        for uid, target in arriving:
            if (node := self.node(target)) is None:
                continue
            for pod in self._launchers.by_index(BY_UID, uid):
                copies = self._launchers.by_index(BY_VMI, pod.vmi_uid)
                if not pod.finished and all(copy.node_name != target for copy in copies):
                    found.append((pod, node))
        return found

    def _selectable(self, term: PodAffinityTerm, owner_namespace: str) -> list[Pod]:
        """At least the launchers that a term of a pod in this namespace selects."""
        if term.label_selector is None:
            return []
        label = term.label_selector.implied_label()
        if label is not None and label[0] == LABEL_CREATED_BY:
            return self._launchers.by_index(BY_VMI, label[1])
        if term.namespace_selector is not None:
            pods = self._launchers.list()
        else:
            namespaces = term.namespaces or (owner_namespace,)
            pods = [pod for name in namespaces for pod in self._launchers.by_index(BY_NAMESPACE, name)]
        if label is None:
            return pods
        key, value = label
        return [pod for pod in pods if pod.metadata.labels.get(key) == value]


class Placer:
    """Where kube-scheduler would put launchers that leave a node, for the span of one decision.

    Room is added up when first asked for; what changes in the stores after that is not seen.
    """

    def __init__(self, view: ClusterView, source: Node, arriving: list[tuple[str, str]]) -> None:
        self._view = view
        self._source = source
        self._arriving = arriving
        self._known: dict[Hashable, Placement] = {}

    def __call__(self, pod: Pod) -> Placement:
        """Fit and score all nodes but the source for ``pod``; the same object for pods that are alike to it."""
        domains = self._domains(pod)
        if domains is not ANYWHERE:
            return place(pod, self._rooms, domains)
        shape = _shape(pod)
        if shape not in self._known:
            self._known[shape] = place(pod, self._rooms)
        return self._known[shape]

    def _domains(self, pod: Pod) -> Domains:
        domains = affinity_domains(pod, [*self._view.neighbours(pod), *self._arrivals])
        here = (LABEL_HOSTNAME, self._source.labels.get(LABEL_HOSTNAME))
        return ANYWHERE if not domains.demanded and domains.closed.keys() <= {here} else domains

    @cached_property
    def _arrivals(self) -> list[tuple[Pod, Node]]:
        return self._view.arrivals(self._arriving)

    @cached_property
    def _rooms(self) -> list[tuple[Node, NodeRoom]]:
        names = (name for name in self._view.node_names() if name != self._source.name)
        nodes = [node for name in names if (node := self._view.node(name)) is not None]
        rooms = {node.name: self._view.room(node.name) for node in nodes}
        for pod, node in self._arrivals:
            if node.name in rooms:
                rooms[node.name] = rooms[node.name].plus(pod.requests)
        return [(node, rooms[node.name]) for node in nodes]


def _shape(pod: Pod) -> Hashable:
    """All that filters and scores look at, but for affinity to other pods."""
    selector = frozenset(pod.node_selector.items())
    return (pod.node_name, pod.requests, selector, pod.affinity.node_affinity, pod.tolerations)


def _newest(pod: Pod) -> tuple[bool, float]:
    created = pod.metadata.creation_timestamp
    return (not pod.finished, created.timestamp() if created is not None else 0.0)


def source_node(vmi: Vmi, vmim: Vmim) -> str:
    """The node that an unfinished migration leaves; the VMI may already be at its target."""
    for state in (vmim.migration_state, vmi.migration_state):
        if state is not None and state.source_node and state.migration_uid in ("", vmim.metadata.uid):
            return state.source_node
    return vmim.evacuation_of or vmi.node_name
