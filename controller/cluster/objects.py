"""The Kubernetes and KubeVirt objects that the controller reads, reduced to the fields it reads.

Each decodes from real API JSON (:func:`decode`, :func:`decode_list`, ``msgspec.convert``) and is flat:
``spec`` and ``status`` are there for the decoder only and are ``None`` afterwards. Unknown fields are
skipped; missing ones and ``null`` take the defaults. CPU is in cores, memory in bytes, instants are aware
``datetime`` in UTC. Objects are immutable and may be shared between threads.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from controller.cluster.metadata import Identity, ObjectMeta, OwnerReference
from controller.cluster.pods import (
    NO_AFFINITY,
    Affinity,
    PlacedPodSpec,
    PodSpec,
    PodStatus,
    Taint,
    Toleration,
)
from controller.cluster.quantity import NOTHING, Resources, parse_quantity
from controller.cluster.specs import (
    KubeVirtSpec,
    MigrationState,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    PhaseTransition,
    VmimSpec,
    VmimStatus,
    VmiSpec,
    VmiStatus,
)
from controller.cluster.wire import ApiStruct, Nullable, NullableStruct, put

__all__ = [
    "Affinity",
    "Identity",
    "KubeVirt",
    "ListMeta",
    "MigrationState",
    "Node",
    "NodeAddress",
    "ObjectList",
    "ObjectMeta",
    "OwnerReference",
    "PhaseTransition",
    "PlacedPod",
    "Pod",
    "Resources",
    "Taint",
    "Toleration",
    "Vmi",
    "Vmim",
    "decode",
    "decode_list",
]

T = TypeVar("T")

LABEL_CREATED_BY = "kubevirt.io/created-by"
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_KUBEVIRT = "kubevirt.io"
LABEL_MIGRATION_UID = "kubevirt.io/migrationJobUID"
ANNOTATION_DOMAIN = "kubevirt.io/domain"
ANNOTATION_EVACUATION_MIGRATION = "kubevirt.io/evacuationMigration"
ANNOTATION_EVICTION_IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
ANNOTATION_EVICTION_SOURCE = "kubevirt.io/eviction-source"
ANNOTATION_PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"

FINISHED_POD_PHASES = frozenset({"Succeeded", "Failed"})
FINISHED_MIGRATION_PHASES = frozenset({"Succeeded", "Failed"})


class Node(ApiStruct, frozen=True, kw_only=True):
    """A node. ``allocatable`` is what its pods may request in all, ``max_pods`` how many it may have."""

    metadata: ObjectMeta
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = False
    allocatable: Resources = NOTHING
    max_pods: int = 0
    addresses: tuple[NodeAddress, ...] = ()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    def __post_init__(self) -> None:
        if (spec := self.spec) is not None:
            put(self, taints=spec.taints, unschedulable=spec.unschedulable, spec=None)
        if (status := self.status) is not None:
            try:
                put(self, allocatable=status.allocatable.resources(), max_pods=status.allocatable.pod_count())
            except ValueError as error:
                raise ValueError(f"node {self.name}: allocatable {error}") from None
            ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions)
            put(self, ready=ready, addresses=status.addresses, status=None)

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels


class PlacedPod(ApiStruct, frozen=True, kw_only=True):
    """A pod that is no virt-launcher: what it takes of which node (``""``: not scheduled yet)."""

    metadata: Identity
    node_name: str = ""
    phase: str = ""
    requests: Resources = NOTHING
    spec: PlacedPodSpec | None = None
    status: PodStatus | None = None

    def __post_init__(self) -> None:
        if (spec := self.spec) is not None:
            put(self, node_name=spec.node_name, requests=_requests(self.metadata, spec), spec=None)
        if self.status is not None:
            put(self, phase=self.status.phase or "", status=None)

    @property
    def finished(self) -> bool:
        """Whether it has ended and takes no room any more."""
        return self.phase in FINISHED_POD_PHASES


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A virt-launcher pod. ``node_name`` ``""``: not scheduled yet."""

    metadata: ObjectMeta
    node_name: str = ""
    phase: str = ""
    priority: int = 0
    requests: Resources = NOTHING
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = NO_AFFINITY
    tolerations: tuple[Toleration, ...] = ()
    spec: PodSpec | None = None
    status: PodStatus | None = None

    def __post_init__(self) -> None:
        if (spec := self.spec) is not None:
            put(
                self,
                node_name=spec.node_name,
                priority=spec.priority,
                requests=_requests(self.metadata, spec),
                node_selector=spec.node_selector,
                affinity=spec.affinity,
                tolerations=_shared(spec.tolerations),
                spec=None,
            )
        if self.status is not None:
            put(self, phase=self.status.phase or "", status=None)

    @property
    def finished(self) -> bool:
        """Whether it has ended and takes no room any more."""
        return self.phase in FINISHED_POD_PHASES

    @property
    def vmi_name(self) -> str:
        """Name of its VMI, in the same namespace."""
        return self.metadata.annotations.get(ANNOTATION_DOMAIN, "")

    @property
    def vmi_uid(self) -> str:
        """UID of its VMI."""
        return self.metadata.labels.get(LABEL_CREATED_BY, "")

    @property
    def migration_uid(self) -> str:
        """UID of the VMIM that it was created for as a target, ``""`` if it was not."""
        return self.metadata.labels.get(LABEL_MIGRATION_UID, "")


class Vmi(ApiStruct, frozen=True, kw_only=True):
    """A VirtualMachineInstance.

    ``eviction_strategy`` is its own, ``None`` if it has none. ``live_migratable…`` tell the condition of that
    name. ``evacuation_node_name`` is the mark that an eviction leaves: the node of the evicted pod.
    ``active_pods`` are the nodes of its launchers by pod UID.
    """

    metadata: ObjectMeta
    node_name: str = ""
    phase: str = ""
    eviction_strategy: str | None = None
    live_migratable: bool = False
    live_migratable_reason: str = ""
    live_migratable_message: str = ""
    evacuation_node_name: str = ""
    migration_state: MigrationState | None = None
    active_pods: Mapping[str, str] = msgspec.field(default_factory=dict)
    spec: VmiSpec | None = None
    status: VmiStatus | None = None

    def __post_init__(self) -> None:
        if self.spec is not None:
            put(self, eviction_strategy=self.spec.eviction_strategy or None, spec=None)
        if (status := self.status) is not None:
            put(
                self,
                node_name=status.node_name,
                phase=status.phase,
                evacuation_node_name=status.evacuation_node_name,
                migration_state=status.migration_state,
                active_pods=status.active_pods,
                status=None,
            )
            for condition in status.conditions:
                if condition.type == "LiveMigratable":
                    put(
                        self,
                        live_migratable=condition.status == "True",
                        live_migratable_reason=condition.reason,
                        live_migratable_message=condition.message,
                    )

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """Its UID."""
        return self.metadata.uid


class Vmim(ApiStruct, frozen=True, kw_only=True):
    """A VirtualMachineInstanceMigration: one attempt to migrate a VMI of the same namespace."""

    metadata: ObjectMeta
    vmi_name: str = ""
    priority: str = ""
    phase: str = ""
    phase_transition_timestamps: tuple[PhaseTransition, ...] = ()
    migration_state: MigrationState | None = None
    spec: VmimSpec | None = None
    status: VmimStatus | None = None

    def __post_init__(self) -> None:
        if (spec := self.spec) is not None:
            put(self, vmi_name=spec.vmi_name, priority=spec.priority, spec=None)
        if (status := self.status) is not None:
            put(
                self,
                phase=status.phase,
                phase_transition_timestamps=status.phase_transition_timestamps,
                migration_state=status.migration_state,
                status=None,
            )

    @property
    def finished(self) -> bool:
        """Whether its phase is final; any other phase, known or not, is in progress."""
        return self.phase in FINISHED_MIGRATION_PHASES

    @property
    def evacuation_of(self) -> str:
        """The node it evacuates if an eviction caused it, else ``""``."""
        return self.metadata.annotations.get(ANNOTATION_EVACUATION_MIGRATION, "")


class KubeVirt(ApiStruct, frozen=True, kw_only=True):
    """The one KubeVirt of a cluster.

    ``eviction_strategy`` is for VMIs without one, ``None``: not set. ``bandwidth_per_migration`` is in bytes per
    second, 0: not limited.
    """

    metadata: ObjectMeta
    eviction_strategy: str | None = None
    parallel_migrations_per_cluster: int = 5
    parallel_outbound_migrations_per_node: int = 2
    bandwidth_per_migration: float = 0.0
    spec: KubeVirtSpec | None = None

    def __post_init__(self) -> None:
        if self.spec is not None:
            migrations = self.spec.configuration.migrations
            try:
                bandwidth = parse_quantity(migrations.bandwidth_per_migration)
            except ValueError as error:
                raise ValueError(f"kubevirt {self.metadata.name}: bandwidthPerMigration: {error}") from None
            put(
                self,
                eviction_strategy=self.spec.configuration.eviction_strategy or None,
                parallel_migrations_per_cluster=migrations.parallel_migrations_per_cluster,
                parallel_outbound_migrations_per_node=migrations.parallel_outbound_migrations_per_node,
                bandwidth_per_migration=bandwidth,
                spec=None,
            )


class ListMeta(ApiStruct, frozen=True):
    """Metadata of a list; ``continue_token`` ``""``: this was the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class ObjectList(NullableStruct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: Nullable[tuple[T, ...]] = ()


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode one object.

    Raises:
        msgspec.DecodeError: no JSON, or (``ValidationError``) JSON of another shape; the message says where.
    """
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]
    return decoder.decode(data)


def decode_list(data: bytes | str, kind: type[T]) -> ObjectList[T]:
    """Decode a list (a page of one) of objects of one kind; raises as :func:`decode` does."""
    decoder: msgspec.json.Decoder[ObjectList[T]] = _decoder(ObjectList[kind])  # type: ignore[valid-type]
    return decoder.decode(data)


@lru_cache(maxsize=1024)
def _shared(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """One tuple for all pods that tolerate the same, which most launchers do."""
    return tolerations


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _requests(metadata: Identity | ObjectMeta, spec: PlacedPodSpec) -> Resources:
    try:
        return spec.requests()
    except ValueError as error:
        raise ValueError(f"pod {metadata.namespace}/{metadata.name}: requests {error}") from None
