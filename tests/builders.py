"""Builders of the objects that the controller reads: keyword arguments with plain defaults, no logic.

A VM named ``vm-1`` has the VMI UID ``vmi-vm-1`` and the launcher ``virt-launcher-vm-1`` with the UID ``pod-vm-1``,
unless told otherwise, so that ``vmi("vm-1", node="a")`` and ``launcher("vm-1", node="a")`` belong together.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from controller.cluster.metadata import Identity, ObjectMeta, OwnerReference
from controller.cluster.objects import (
    ANNOTATION_DOMAIN,
    LABEL_CREATED_BY,
    LABEL_HOSTNAME,
    LABEL_KUBEVIRT,
    KubeVirt,
    MigrationState,
    Node,
    NodeAddress,
    PhaseTransition,
    PlacedPod,
    Pod,
    Resources,
    Taint,
    Toleration,
    Vmi,
    Vmim,
)
from controller.cluster.pods import NO_AFFINITY, Affinity

GIB = float(1 << 30)
START = datetime(2026, 1, 1, tzinfo=UTC)
NONE: Mapping[str, str] = MappingProxyType({})


def node(
    name: str = "node-1",
    *,
    labels: Mapping[str, str] = NONE,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
    ready: bool = True,
    cpu_cores: float = 64.0,
    memory_bytes: float = 256 * GIB,
    max_pods: int = 250,
    addresses: Sequence[NodeAddress] = (),
    uid: str = "",
    resource_version: str = "1",
) -> Node:
    """A ready, empty worker that can run VMs."""
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=uid or f"node-{name}",
            resource_version=resource_version,
            labels={LABEL_HOSTNAME: name, "kubevirt.io/schedulable": "true", **labels},
            creation_timestamp=START,
        ),
        taints=tuple(taints),
        unschedulable=unschedulable,
        ready=ready,
        allocatable=Resources(cpu_cores, memory_bytes),
        max_pods=max_pods,
        addresses=tuple(addresses),
    )


def launcher(
    vm: str = "vm-1",
    *,
    namespace: str = "vms",
    node: str = "node-1",
    name: str = "",
    uid: str = "",
    vmi_uid: str = "",
    phase: str = "Running",
    priority: int = 0,
    cpu_cores: float = 0.8,
    memory_bytes: float = 8 * GIB,
    labels: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    owner_references: Sequence[OwnerReference] = (),
    node_selector: Mapping[str, str] = NONE,
    affinity: Affinity = NO_AFFINITY,
    tolerations: Sequence[Toleration] = (),
    created: datetime | None = START,
    deleted: datetime | None = None,
    resource_version: str = "1",
) -> Pod:
    """A running virt-launcher pod."""
    return Pod(
        metadata=ObjectMeta(
            name=name or f"virt-launcher-{vm}",
            namespace=namespace,
            uid=uid or f"pod-{vm}",
            resource_version=resource_version,
            labels={LABEL_KUBEVIRT: "virt-launcher", LABEL_CREATED_BY: vmi_uid or f"vmi-{vm}", **labels},
            annotations={ANNOTATION_DOMAIN: vm, **annotations},
            owner_references=tuple(owner_references),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        node_name=node,
        phase=phase,
        priority=priority,
        requests=Resources(cpu_cores, memory_bytes),
        node_selector=dict(node_selector),
        affinity=affinity,
        tolerations=tuple(tolerations),
    )


def placed_pod(
    name: str = "pod-1",
    *,
    namespace: str = "default",
    node: str = "node-1",
    uid: str = "",
    phase: str = "Running",
    cpu_cores: float = 0.1,
    memory_bytes: float = 1 * GIB,
    resource_version: str = "1",
) -> PlacedPod:
    """A running pod that is no virt-launcher."""
    return PlacedPod(
        metadata=Identity(
            name=name, namespace=namespace, uid=uid or f"pod-{name}", resource_version=resource_version
        ),
        node_name=node,
        phase=phase,
        requests=Resources(cpu_cores, memory_bytes),
    )


def vmi(
    name: str = "vm-1",
    *,
    namespace: str = "vms",
    node: str = "node-1",
    uid: str = "",
    phase: str = "Running",
    eviction_strategy: str | None = "LiveMigrate",
    live_migratable: bool = True,
    live_migratable_reason: str = "",
    live_migratable_message: str = "",
    evacuation_node_name: str = "",
    migration_state: MigrationState | None = None,
    active_pods: Mapping[str, str] = NONE,
    labels: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    created: datetime | None = START,
    deleted: datetime | None = None,
    resource_version: str = "1",
) -> Vmi:
    """A running VMI that an eviction would live-migrate."""
    return Vmi(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"vmi-{name}",
            resource_version=resource_version,
            labels=dict(labels),
            annotations=dict(annotations),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        node_name=node,
        phase=phase,
        eviction_strategy=eviction_strategy,
        live_migratable=live_migratable,
        live_migratable_reason=live_migratable_reason,
        live_migratable_message=live_migratable_message,
        evacuation_node_name=evacuation_node_name,
        migration_state=migration_state,
        active_pods=dict(active_pods),
    )


def vmim(
    vm: str = "vm-1",
    *,
    namespace: str = "vms",
    name: str = "",
    uid: str = "",
    phase: str = "Running",
    priority: str = "system-maintenance",
    phase_transition_timestamps: Sequence[PhaseTransition] = (),
    migration_state: MigrationState | None = None,
    labels: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    created: datetime | None = START,
    deleted: datetime | None = None,
    resource_version: str = "1",
) -> Vmim:
    """A running migration of a VMI."""
    return Vmim(
        metadata=ObjectMeta(
            name=name or f"kubevirt-evacuation-{vm}",
            namespace=namespace,
            uid=uid or f"vmim-{vm}",
            resource_version=resource_version,
            labels=dict(labels),
            annotations=dict(annotations),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        vmi_name=vm,
        priority=priority,
        phase=phase,
        phase_transition_timestamps=tuple(phase_transition_timestamps),
        migration_state=migration_state,
    )


def kubevirt(
    *,
    eviction_strategy: str | None = None,
    parallel_migrations_per_cluster: int = 5,
    parallel_outbound_migrations_per_node: int = 2,
    bandwidth_per_migration: float = 0.0,
    resource_version: str = "1",
) -> KubeVirt:
    """The cluster's KubeVirt with its own defaults."""
    return KubeVirt(
        metadata=ObjectMeta(
            name="kubevirt", namespace="kubevirt", uid="kubevirt", resource_version=resource_version
        ),
        eviction_strategy=eviction_strategy,
        parallel_migrations_per_cluster=parallel_migrations_per_cluster,
        parallel_outbound_migrations_per_node=parallel_outbound_migrations_per_node,
        bandwidth_per_migration=bandwidth_per_migration,
    )
