"""``spec`` and ``status`` of nodes, VMIs, VMIMs and KubeVirts as the API sends them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from controller.cluster.pods import Taint
from controller.cluster.quantity import ResourceList
from controller.cluster.wire import ApiStruct, Nullable, NullableStruct


class Condition(ApiStruct, frozen=True):
    """An entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeAddress(ApiStruct, frozen=True):
    """An address of a node; ``type`` is ``InternalIP``, ``ExternalIP``, ``Hostname`` …"""

    type: str = ""
    address: str = ""


class NodeSpec(NullableStruct, frozen=True):
    """``spec`` of a node."""

    unschedulable: Nullable[bool] = False
    taints: Nullable[tuple[Taint, ...]] = ()


class NodeStatus(NullableStruct, frozen=True):
    """``status`` of a node."""

    allocatable: Nullable[ResourceList] = ResourceList()
    conditions: Nullable[tuple[Condition, ...]] = ()
    addresses: Nullable[tuple[NodeAddress, ...]] = ()


class MigrationState(NullableStruct, frozen=True):
    """``status.migrationState`` of a VMI or VMIM: its last migration, running or over."""

    start_timestamp: datetime | None = None
    end_timestamp: datetime | None = None
    source_node: Nullable[str] = ""
    target_node: Nullable[str] = ""
    target_pod: Nullable[str] = ""
    completed: Nullable[bool] = False
    failed: Nullable[bool] = False
    failure_reason: Nullable[str] = ""
    abort_status: Nullable[str] = ""
    migration_uid: Nullable[str] = ""
    mode: Nullable[str] = ""


class VmiSpec(ApiStruct, frozen=True):
    """``spec`` of a VMI."""

    eviction_strategy: str | None = None


class VmiStatus(NullableStruct, frozen=True):
    """``status`` of a VMI."""

    node_name: Nullable[str] = ""
    phase: Nullable[str] = ""
    conditions: Nullable[tuple[Condition, ...]] = ()
    evacuation_node_name: Nullable[str] = ""
    migration_state: MigrationState | None = None
    active_pods: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)


class PhaseTransition(ApiStruct, frozen=True):
    """When a VMIM entered a phase."""

    phase: str = ""
    phase_transition_timestamp: datetime | None = None


class VmimSpec(NullableStruct, frozen=True):
    """``spec`` of a VMIM."""

    vmi_name: Nullable[str] = ""
    priority: Nullable[str] = ""


class VmimStatus(NullableStruct, frozen=True):
    """``status`` of a VMIM."""

    phase: Nullable[str] = ""
    phase_transition_timestamps: Nullable[tuple[PhaseTransition, ...]] = ()
    migration_state: MigrationState | None = None


class MigrationConfiguration(NullableStruct, frozen=True):
    """``spec.configuration.migrations`` of a KubeVirt; the defaults are KubeVirt's."""

    parallel_migrations_per_cluster: Nullable[int] = 5
    parallel_outbound_migrations_per_node: Nullable[int] = 2
    bandwidth_per_migration: Nullable[str | float] = 0.0


class KubeVirtConfiguration(NullableStruct, frozen=True):
    """``spec.configuration`` of a KubeVirt."""

    eviction_strategy: str | None = None
    migrations: Nullable[MigrationConfiguration] = MigrationConfiguration()


class KubeVirtSpec(NullableStruct, frozen=True):
    """``spec`` of a KubeVirt."""

    configuration: Nullable[KubeVirtConfiguration] = KubeVirtConfiguration()
