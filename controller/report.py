"""What a look finds, and what the running descheduler has decided, in the form in which it is shown and given out as
JSON: the documented structure.

Times are UTC, fractions are of a node's allocatable CPU or memory unless said otherwise, ``None`` is "not known".
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

API_VERSION = "vm-rebalancer.io/v1alpha1"


class Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the report; field names are camelCase in JSON."""


class Why(Shown, frozen=True, kw_only=True):
    """``code`` is short and stable, ``text`` is for people."""

    code: str
    text: str


class Load(Shown, frozen=True, kw_only=True):
    """Cores and bytes in use; CPU includes what is waited for. Of a node also as fractions of it."""

    cpu_cores: float
    memory_bytes: float
    cpu: float | None = None
    memory: float | None = None
    pressure: float | None = None
    """The greatest of the PSI "some" shares, 0..1; of nodes only."""


class Edge(Shown, frozen=True, kw_only=True):
    """Where under- and over-utilisation of one query begin."""

    under: float
    over: float


class Trend(Shown, frozen=True, kw_only=True):
    """How a node's worst value has changed over the last snapshots."""

    change: float
    over_s: float
    """Between the oldest and the newest sample looked at."""


class NodeRow(Shown, frozen=True, kw_only=True):
    """``node_class``: Over, Appropriate, Under, Unknown, or NotEligible."""

    name: str
    node_class: str = msgspec.field(name="class")
    reason: str
    values: Mapping[str, float]
    """Query name -> value in [0, 1]."""
    excess: float | None
    """How far above its upper threshold the worst query is; negative below it."""
    trend: Trend | None
    """``None`` as long as there is only one sample."""
    sampled_at: datetime | None
    load: Load | None
    cores: float
    memory_bytes: float
    vms: int
    taints: tuple[str, ...]
    """Keys of the soft-tainter's taints that are there."""
    leaving: int
    """VMs on the move from it, whoever asked."""
    leaving_limit: int


class OnTheMove(Shown, frozen=True, kw_only=True):
    """A migration that is under way, or that the metrics do not show yet (phase ``Settling``)."""

    vm: str
    source: str
    target: str
    phase: str
    since: datetime
    ours: bool
    """Whether a descheduler asked for it, as the VMI's note or the VMIM's priority tells."""


class Effect(Shown, frozen=True, kw_only=True):
    """Use of one node before and after a move."""

    node: str
    cpu_before: float
    cpu_after: float
    memory_before: float
    memory_after: float


class Move(Shown, frozen=True, kw_only=True):
    vm: str
    source: str
    target: str
    gain: float
    """How much lower the busier of source and target gets."""
    cost_s: float
    """Seconds of copying; 0 where the VM is not measured."""
    priority: int
    why: str
    effects: tuple[Effect, ...]
    """On source and target; empty where the VM is not measured."""


class PassedOver(Shown, frozen=True, kw_only=True):
    """The VMs of one node that one reason speaks against."""

    code: str
    count: int
    vms: tuple["PassedOverVm", ...]
    """All of them, or the first few where there may be many."""


class PassedOverVm(Shown, frozen=True, kw_only=True):
    vm: str
    text: str


class NodePlan(Shown, frozen=True, kw_only=True):
    """What would be done next about an over-utilised node.

    ``rest``: why nothing is moved now. Where only the limits are in the way, ``move`` is what would be next.
    """

    node: str
    at: datetime
    """When that was decided."""
    move: Move | None
    rest: Why | None
    passed_over: tuple[PassedOver, ...]
    """Most frequent reason first."""
    passed_over_at: datetime | None = None
    """When that was so, if nobody has looked at the VMs since."""


class Head(Shown, frozen=True, kw_only=True):
    """What was looked at, under which policy, and what has to be known to read the rest."""

    cluster: str
    taken_at: datetime
    metrics_at: datetime | None
    """When the metrics were asked for that all this rests on; ``None`` without any."""
    mode: str
    policy_digest: str
    sustain: int
    """Snapshots in a row that the policy asks for."""
    judged_by: int
    """Snapshots that were asked of a node here."""
    eligible: int
    coverage: float
    """Share of the eligible nodes that have a value."""
    thresholds: Mapping[str, Edge]
    """By query."""
    skipped: str
    """Why nothing is decided on this look; else empty."""
    notes: tuple[str, ...]


class PlanReport(Shown, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Plan"
    head: Head
    nodes: tuple[NodeRow, ...]
    """Worst first."""
    on_the_move: tuple[OnTheMove, ...]
    plans: tuple[NodePlan, ...]
    """Over-utilised nodes, worst first; each counts on the moves of those before it."""


class Ended(Shown, frozen=True, kw_only=True):
    """A move that is over. ``phase``: how it ended; ``Released`` where nothing came of the request."""

    vm: str
    source: str
    target: str
    phase: str
    at: datetime
    took_s: float
    """From the reservation until the VM was at its new node, or until it was over."""
    failed_attempts: int
    ours: bool
    answer: str
    """What the API said last, where that was no consent; else empty."""


class Decisions(Shown, frozen=True, kw_only=True):
    """The memory of the running descheduler, bounded."""

    api_version: str = API_VERSION
    kind: str = "Decisions"
    head: Head
    alarm: str
    """Why all evicting has stopped; else empty."""
    nodes: tuple[NodeRow, ...]
    """Worst first."""
    nodes_left_out: int
    on_the_move: tuple[OnTheMove, ...]
    plans: tuple[NodePlan, ...]
    """The last decision on each node that was over-utilised, latest first."""
    chosen: tuple[NodePlan, ...]
    """The last decisions to move a VM, latest first."""
    ended: tuple[Ended, ...]
    """Latest first."""


class StandBy(Shown, frozen=True, kw_only=True):
    """The answer of a replica that does not hold the lease."""

    api_version: str = API_VERSION
    kind: str = "StandBy"
    identity: str
    holder: str
    """Who holds the lease; empty if nobody does, or it is not known."""


class RuleVerdict(Shown, frozen=True, kw_only=True):
    """``holds``: ``None`` where it cannot be told."""

    claim: str
    holds: bool | None
    text: str


class ScoredNode(Shown, frozen=True, kw_only=True):
    node: str
    score: int
    """kube-scheduler's, as far as nodes differ in it; the highest one is taken, at random among equals."""


class Misfits(Shown, frozen=True, kw_only=True):
    """Nodes that it does not fit on, by reason."""

    code: str
    text: str
    """Of the first of them."""
    nodes: tuple[str, ...]


class PastMigration(Shown, frozen=True, kw_only=True):
    name: str
    source: str
    target: str
    phase: str
    created_at: datetime | None
    took_s: float | None
    failure: str


class VmStory(Shown, frozen=True, kw_only=True):
    """All that bears on whether one VM is moved."""

    api_version: str = API_VERSION
    kind: str = "VmStory"
    head: Head
    vm: str
    summary: str
    node: str
    phase: str
    pod: str
    priority: int | None
    created_at: datetime | None
    eviction_strategy: str | None
    """The one that applies: its own, or the cluster's."""
    load: Load | None
    dirty_bytes_per_s: float | None
    on_the_move: tuple[OnTheMove, ...]
    rules_of_node: tuple[RuleVerdict, ...]
    rules_of_vm: tuple[RuleVerdict, ...]
    move: Move | None
    """What moving it would bring, if it would bring anything."""
    fits_on: tuple[ScoredNode, ...]
    """Best first."""
    misfits: tuple[Misfits, ...]
    migrations: tuple[PastMigration, ...]
    """Latest first, as long as their VMIMs are there."""
    resting_until: datetime | None
