"""What can differ between KubeVirt installations, and what can go wrong in them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Fraction = Annotated[float, Meta(ge=0, le=1)]
AtLeast0 = Annotated[float, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Range = tuple[AtLeast0, AtLeast0]
"""[low, high]: drawn uniformly, seeded."""


class KubeVirtOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the simulated KubeVirt; the defaults are KubeVirt's own, durations those of a healthy cluster.

    Limits, cluster strategy, time-outs and bandwidth only fill in the KubeVirt object; from then on that object holds.
    """

    webhook: Literal["newer", "older"] = "newer"
    """Generation of the eviction webhook: ``newer`` fails closed and has no PDBs, ``older`` is ignored when it cannot
    be reached and has a PDB for each VM that an eviction would migrate."""
    webhook_down: bool = False
    """The eviction webhook cannot be reached."""
    annotation: Literal["newer", "older"] = "newer"
    """The annotation eviction-in-progress stays over failed attempts (``newer``), or goes with each of them."""
    cluster_eviction_strategy: Literal["LiveMigrate", "LiveMigrateIfPossible", "None", "External"] | None = (
        None
    )
    """For VMIs that say nothing themselves."""
    parallel_migrations_per_cluster: Count = 5
    parallel_outbound_migrations_per_node: Count = 2
    completion_timeout_per_gib_s: Above0 = 150
    """A migration that has not ended after this time for each GiB of guest memory is aborted."""
    progress_timeout_s: Above0 = 150
    """A migration that makes no progress for so long is aborted."""
    bandwidth_per_migration_bytes_per_s: AtLeast0 = 0
    """0: only the NICs limit it."""

    failure_probability: Fraction = 0
    """Share of migrations that fail while they copy."""
    stuck_probability: Fraction = 0
    """Share of migrations that never end by themselves."""
    slow_factor: Above0 = 1
    """Copying takes this many times as long."""
    failed_target_stays_probability: Fraction = 0.1
    """Share of failed migrations whose completed target pod stays until the VM stops."""
    throttle_probability: Fraction = 0
    """Share of eviction requests that the API server turns away with a Retry-After."""

    cpu_overhead_cores: AtLeast0 = 1.5
    """CPU that each copying migration costs, on its source and on its target."""
    setup_bytes: AtLeast0 = float(2 << 30)
    """What a migration transfers besides the guest's resident memory."""

    reaction_s: Range = (0.05, 0.5)
    """Until a controller of KubeVirt has seen a change and written its own."""
    slot_poll_s: Range = (0.1, 5)
    """Until a waiting migration has noticed a free slot: KubeVirt looks again every 5 s."""
    pod_scheduling_s: Range = (0.5, 1.5)
    pod_start_s: Range = (4, 10)
    """From a launcher pod's placement until it is ready."""
    prepare_s: Range = (1, 2)
    """Phase PreparingTarget."""
    switch_over_s: Range = (0.2, 1)
    """From the moment when the guest runs on the target until the VMI says so."""
    source_linger_s: Range = (30, 90)
    """From a launcher's completion until its pod is deleted."""
    pod_shutdown_s: Range = (2, 5)
    """From a pod's deletion request until it is gone."""
    restart_s: Range = (45, 75)
    """From a VM's going down until its new VMI is created."""
