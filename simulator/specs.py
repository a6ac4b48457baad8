"""What a simulated cluster is made of, before anything has happened in it."""

import msgspec

GIB = float(1 << 30)
MIB = float(1 << 20)


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. ``other_*`` is what runs on it besides VMs (daemons, containers): it is used and requested."""

    name: str
    cores: float
    memory_bytes: float
    nic_bytes_per_s: float
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    other_cpu_cores: float = 0.0
    other_memory_bytes: float = 0.0
    other_requests_cpu_cores: float = 0.0
    other_requests_memory_bytes: float = 0.0


class VmSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual machine.

    ``demand`` is the CPU it wants, as a fraction of its vCPUs; ``touched`` the fraction of guest memory that is
    resident. ``dirty_bytes_per_s`` is how fast it rewrites pages while it runs.
    """

    namespace: str
    name: str
    vcpus: float
    guest_bytes: float
    dirty_bytes_per_s: float
    demand: float = 0.1
    touched: float = 0.65
    node: str | None = None
    """Where it starts; ``None``: wherever the scheduler puts it."""
    priority: int = 0
    eviction_strategy: str | None = "LiveMigrate"
    migratable: bool = True
    opted_out: bool = False
    pinned_to: str | None = None
    """The only node that its node selector allows."""
    anti_affinity_group: str | None = None
    """VMs of one group never share a node."""
    labels: dict[str, str] = {}
    age_s: float = 86_400.0
    group: str = ""
    """The scenario's name for the kind of VM it is; workloads refer to it."""
