"""What a scenario may say of its cluster and of what the VMs want: the first part of its YAML document.

Frozen structs. Field names carry their units. Memory is in GiB, dirty rates in MB/s (1e6 bytes), NICs in Gbit/s,
times in minutes since the start of the run; hours and days are those of the simulated clock, which starts on a Monday
at 00:00. Demand is CPU wanted as a fraction of a VM's vCPUs, touched the fraction of guest memory that is resident.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Fraction = Annotated[float, Meta(ge=0, le=1)]
AtLeast0 = Annotated[float, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]
Period = Annotated[float, Meta(ge=0.05)]
"""Minutes; shorter ones would only keep the simulator busy."""
Rate = Annotated[float, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
# Not tuple[low, high]: beside a number with limits, msgspec 0.23 corrupts memory on it.
Range = AtLeast0 | Annotated[tuple[AtLeast0, ...], Meta(min_length=2, max_length=2)]
"""A number, or ``[low, high]``: drawn uniformly, seeded. See `bounds`."""
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]
Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SomeNodes = Annotated[tuple[str, ...], Meta(min_length=1)]
EvictionStrategy = Literal["LiveMigrate", "LiveMigrateIfPossible", "None", "External"]


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: unknown keys are errors."""


class Taint(Strict, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeGroup(Strict, frozen=True, kw_only=True):
    """Equal nodes, named ``<group>-00``, ``<group>-01``, … ``other_*`` is what runs there besides VMs."""

    count: Count = 1
    cores: Above0
    memory_gib: Above0
    nic_gbit_per_s: Above0 = 10
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    zones: tuple[Name, ...] = ()
    """Label ``topology.kubernetes.io/zone``; the group's nodes take turns."""
    other_cpu_cores: AtLeast0 = 0
    other_memory_gib: AtLeast0 = 0
    other_requests_cpu_cores: AtLeast0 = 0
    other_requests_memory_gib: AtLeast0 = 0


class VmGroup(Strict, frozen=True, kw_only=True):
    """VMs of one kind, named ``<group>-000``, ``<group>-001``, … ``count: 0`` is a template for VMs that come
    later."""

    count: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    vcpus: Above0
    memory_gib: Above0
    dirty_mb_per_s: Range = 20
    """How fast a VM rewrites its pages while it runs; ``[low, high]``: each VM its own."""
    namespace: Name = "vms"
    labels: dict[str, str] = {}
    priority: int = 0
    eviction_strategy: EvictionStrategy | None = "LiveMigrate"
    """``null``: the VMI says nothing, the cluster's strategy holds."""
    migratable: bool = True
    opted_out: bool = False
    """Carries the annotation ``prefer-no-eviction``."""
    pinned: bool = False
    """Its node selector allows only the node on which it starts."""
    hotplug: bool = False
    """Has hotplugged volumes: a hotplug pod stands beside its launcher."""
    anti_affine_sets_of: Annotated[int, Meta(ge=0)] = 0
    """The group falls into sets of this many VMs, no two of which may share a node; 0: no such rule."""
    placement: Literal["even", "scheduler"] | tuple[str, ...] | dict[str, Count] = "even"
    """``even``: onto the nodes with the fewest vCPUs per core; names: only onto these; ``{node: count}``:
    that many there, the rest evenly; ``scheduler``: wherever the scheduler puts them at the start."""
    zone: Name | None = None
    """Starts on this zone's nodes."""
    demand: Fraction | None = None
    """Its own base demand instead of the scenario's."""
    touched: Fraction | None = None
    age_minutes: AtLeast0 = 1440
    """How long it has been running when the run begins."""


class NodePick(Strict, frozen=True, kw_only=True):
    """Nodes chosen by the world's truth. Exactly one field is given."""

    hottest: Count | None = None
    """The n nodes with the highest CPU demand per core, at that moment."""
    fullest: Count | None = None
    """The n nodes with the highest memory use, at that moment."""
    random: Count | None = None
    """Any n nodes that run VMs, anew each time."""
    most_committed_at_start: Count | None = None
    """The n nodes whose VMs have the most vCPUs per core when the run begins; the same VMs throughout."""


class Vms(Strict, frozen=True, kw_only=True):
    """Which VMs: those that meet all that is given; nothing given: all."""

    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] | NodePick = ()
    """Names: the VMs that *start* on these nodes, wherever they are later; or the VMs on nodes chosen by
    truth."""
    count: Count | None = None
    """At most so many of them, drawn at random (seeded)."""
    fraction: Fraction | None = None
    """This share of them, drawn at random (seeded)."""


class Immovable(Strict, frozen=True, kw_only=True):
    """VMs among those chosen that cannot or must not be migrated; the ways take turns."""

    vms: Vms = Vms()
    ways: Annotated[
        tuple[
            Literal["not-migratable", "not-migratable-if-possible", "strategy-none", "pinned", "opted-out"],
            ...,
        ],
        Meta(min_length=1),
    ] = ("not-migratable", "not-migratable-if-possible", "strategy-none", "pinned", "opted-out")
    """``not-migratable``: strategy LiveMigrate, but not LiveMigratable; ``not-migratable-if-possible``: the
    same with LiveMigrateIfPossible (an eviction shuts it down); ``strategy-none``: an eviction shuts it
    down."""


class When(Strict, frozen=True, kw_only=True):
    """When something holds.

    Without ``every_minutes``: once, from ``start_minute`` for ``for_minutes`` (or until ``end_minute``). With
    it: again and again, each time for ``for_minutes`` (default: until the next). ``hours`` (22 to 6: over
    midnight) and ``days`` (of the window's beginning) restrict both to windows of the simulated clock.
    """

    start_minute: AtLeast0 = 0
    end_minute: Above0 | None = None
    every_minutes: Period | None = None
    for_minutes: Above0 | None = None
    hours: tuple[Annotated[float, Meta(ge=0, le=24)], Annotated[float, Meta(ge=0, le=24)]] | None = None
    days: tuple[Day, ...] = ()


class Constant(Strict, frozen=True, kw_only=True):
    """A level of its own for some VMs, all along."""

    vms: Vms = Vms()
    demand: Fraction | None = None
    touched: Fraction | None = None


class Hotspot(When, frozen=True, kw_only=True):
    """Some VMs want more for a while. VMs are chosen anew at each beginning; their load goes with them.

    Business peaks, work that chases the hottest node, batches that touch memory, bursts over the whole
    cluster.
    """

    vms: Vms = Vms()
    demand: Fraction | None = None
    """At least this level."""
    factor: Above0 | None = None
    """This many times what they would want otherwise."""
    touched: Fraction | None = None
    """At least this fraction of guest memory."""


class Daily(Strict, frozen=True, kw_only=True):
    """A curve over the day: hour -> demand, linear in between, over midnight too."""

    vms: Vms = Vms()
    demand: Annotated[dict[Annotated[float, Meta(ge=0, lt=24)], Fraction], Meta(min_length=1)]
    days: tuple[Day, ...] = ()


class Noise(Strict, frozen=True, kw_only=True):
    """Autocorrelated noise (AR(1)) added to demand; ``sets``: how many sets of VMs share one course, 0: each
    its own."""

    vms: Vms = Vms()
    std: Fraction
    """Standard deviation of demand, a fraction of the vCPUs."""
    correlation_minutes: Above0 = 2
    """After this time the correlation has fallen to 1/e."""
    sets: Annotated[int, Meta(ge=0)] = 0


class Spikes(Strict, frozen=True, kw_only=True):
    """Short bursts of single VMs, at random times (Poisson)."""

    vms: Vms = Vms()
    per_minute: Rate
    for_minutes: Range = (0.5, 1.5)
    demand: Fraction = 1
    start_minute: AtLeast0 = 0
    end_minute: Above0 | None = None


class Replay(Strict, frozen=True, kw_only=True):
    """Recorded series: a CSV (or Parquet, with pyarrow) of ``time,vm,cpu_cores,memory_bytes``."""

    file: str
    """A relative path is relative to the scenario's file."""


class Loads(Strict, frozen=True, kw_only=True):
    """What the VMs want. Applied in the order of the fields; at the end demand is cut to [0, 1]."""

    demand: Fraction = 0.1
    touched: Fraction = 0.65
    constant: tuple[Constant, ...] = ()
    daily: tuple[Daily, ...] = ()
    replay: Replay | None = None
    hotspots: tuple[Hotspot, ...] = ()
    noise: tuple[Noise, ...] = ()
    spikes: tuple[Spikes, ...] = ()
    tick_seconds: Annotated[float, Meta(ge=1)] = 15
    """How often noise and daily curves move on."""


def bounds(value: float | tuple[float, ...]) -> tuple[float, float]:
    """Lowest and highest of a `Range`."""
    return (value[0], value[1]) if isinstance(value, tuple) else (value, value)
