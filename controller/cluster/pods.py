"""The inside of a pod's ``spec``: what it requests, and where it may run."""

from collections.abc import Mapping

import msgspec

from controller.cluster.quantity import NOTHING, ResourceList, Resources
from controller.cluster.selectors import LabelSelector, Requirement
from controller.cluster.wire import ApiStruct, Nullable, NullableStruct


class Taint(NullableStruct, frozen=True):
    """A taint of a node; two taints of a node differ in key or effect."""

    key: str
    value: Nullable[str] = ""
    effect: str = ""


class Toleration(ApiStruct, frozen=True):
    """A taint that a pod puts up with."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it covers this taint.

        No effect: all effects. ``Exists``: any value, without a key any taint. No operator: ``Equal``.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return (
            self.operator in (None, "", "Equal")
            and self.key == taint.key
            and (self.value or "") == taint.value
        )


class NodeSelectorTerm(NullableStruct, frozen=True):
    """Requirements on a node's labels and fields (``metadata.name`` is the only field); all must hold."""

    match_expressions: Nullable[tuple[Requirement, ...]] = ()
    match_fields: Nullable[tuple[Requirement, ...]] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of this name and these labels meets it; an empty term matches no node."""
        if not self.match_expressions and not self.match_fields:
            return False
        return all(requirement.matches(labels) for requirement in self.match_expressions) and all(
            requirement.matches({"metadata.name": name}) for requirement in self.match_fields
        )


class NodeSelector(NullableStruct, frozen=True):
    """Terms of which at least one must hold."""

    node_selector_terms: Nullable[tuple[NodeSelectorTerm, ...]] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of this name and these labels meets one of the terms."""
        return any(term.matches(name, labels) for term in self.node_selector_terms)


class PodAffinityTerm(NullableStruct, frozen=True):
    """Pods that a pod wants near or far, and how far a neighbourhood reaches (``topology_key``)."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: Nullable[tuple[str, ...]] = ()
    namespace_selector: LabelSelector | None = None

    def selects(self, owner_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term of a pod in ``owner_namespace`` means a pod in ``namespace`` with these labels.

        Without namespaces and namespace selector it means pods of its owner's namespace only; without a label
        selector none. What a namespace selector selects cannot be known without Namespace objects: it counts
        as selecting all.
        """
        if self.label_selector is None:
            return False
        if self.namespace_selector is None:
            in_reach = namespace in self.namespaces if self.namespaces else namespace == owner_namespace
            if not in_reach:
                return False
        return self.label_selector.matches(labels)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(ApiStruct, frozen=True):
    """Node affinity, as far as it is required; ``None``: any node."""

    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)


class PodAffinity(NullableStruct, frozen=True):
    """Pod affinity or anti-affinity, as far as it is required; all terms must hold."""

    required: Nullable[tuple[PodAffinityTerm, ...]] = msgspec.field(default=(), name=_REQUIRED)


class Affinity(NullableStruct, frozen=True):
    """What a pod requires of its node and of the pods around it; preferences are not decoded."""

    node_affinity: Nullable[NodeAffinity] = NodeAffinity()
    pod_affinity: Nullable[PodAffinity] = PodAffinity()
    pod_anti_affinity: Nullable[PodAffinity] = PodAffinity()


NO_AFFINITY = Affinity()


class ContainerResources(ApiStruct, frozen=True):
    """``resources`` of a container or of a whole pod."""

    requests: ResourceList | None = None


class Container(ApiStruct, frozen=True):
    """A container; among the init containers, ``restart_policy`` ``Always`` makes it a sidecar."""

    resources: ContainerResources | None = None
    restart_policy: str | None = None

    def requests(self) -> Resources:
        """What it requests; raises ``ValueError`` on a malformed quantity."""
        return _requests(self.resources)


class PlacedPodSpec(NullableStruct, frozen=True):
    """``spec`` of a pod of which we only want to know how much of which node it takes."""

    node_name: Nullable[str] = ""
    containers: Nullable[tuple[Container, ...]] = ()
    init_containers: Nullable[tuple[Container, ...]] = ()
    resources: ContainerResources | None = None
    overhead: ResourceList | None = None

    def requests(self) -> Resources:
        """What the pod requests.

        Kubernetes' rule (``k8s.io/component-helpers/resource``): containers run together; before them the
        init containers, one after the other, of which sidecars stay; requests of the pod as a whole replace
        their sum; the overhead comes on top. A resize under way is not looked at.

        Raises:
            ValueError: a quantity is malformed.
        """
        together = NOTHING
        for container in self.containers:
            together += container.requests()
        if self.init_containers:
            together = self._with_init_containers(together)
        if self.resources is not None:
            whole = _requests(self.resources)
            together = Resources(
                whole.cpu_cores or together.cpu_cores, whole.memory_bytes or together.memory_bytes
            )
        return together if self.overhead is None else together + self.overhead.resources()

    def _with_init_containers(self, together: Resources) -> Resources:
        sidecars, peak = NOTHING, NOTHING
        for container in self.init_containers:
            if container.restart_policy == "Always":
                sidecars += container.requests()
                peak = peak.at_least(sidecars)
            else:
                peak = peak.at_least(sidecars + container.requests())
        return (together + sidecars).at_least(peak)


class PodSpec(PlacedPodSpec, frozen=True):
    """``spec`` of a pod whose place matters to us."""

    priority: Nullable[int] = 0
    node_selector: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)
    affinity: Nullable[Affinity] = NO_AFFINITY
    tolerations: Nullable[tuple[Toleration, ...]] = ()


class PodStatus(ApiStruct, frozen=True):
    """``status`` of a pod."""

    phase: str | None = None


def _requests(resources: ContainerResources | None) -> Resources:
    if resources is None or resources.requests is None:
        return NOTHING
    return resources.requests.resources()
