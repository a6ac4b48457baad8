"""What a run leaves behind: the facts that scores and the report are made of.

Everything here is plain data (dataclasses, strings, numbers, numpy arrays), so that a record can be pickled
and handed over by a worker process. Times are seconds since the start of the run, on the world's clock, not
the controller's: a record tells what happened, not what somebody believed.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
Interval = tuple[float, float]
"""(start_s, end_s), start included, end not."""

Outcome = Literal["", "Succeeded", "Failed", "Cancelled"]
AskedBy = Literal["rebalancer", "baseline", "other"]

UNKNOWN, UNDER, APPROPRIATE, OVER = -1, 0, 1, 2
"""Values of ``Samples.node_class``: as in the metric ``…_node_classification``; -1: the node has no value."""


@dataclass(slots=True)
class MigrationRecord:
    """One VirtualMachineInstanceMigration, kept up to date until it ends. A retry is another one."""

    vm: str
    """namespace/name"""
    source: str
    target: str | None
    """``None`` until the target pod is scheduled."""
    created_s: float
    started_s: float | None = None
    """When copying began."""
    ended_s: float | None = None
    outcome: Outcome = ""
    """Empty while it is on its way."""
    asked_by: AskedBy = "rebalancer"
    """Who asked for it: ``other`` is everybody but the program that is judged (people, a drain)."""
    attempt: int = 1
    """1 for the migration that was asked for, 2 and up for KubeVirt's retries of it."""
    vmim_uid: str = ""
    vmi_uid: str = ""
    """A VM that was restarted is another VMI: what its former one went through is not held against a move."""
    failure: str = ""
    phases: list[tuple[float, str]] = field(default_factory=list)
    """(time_s, phase entered), in order. Empty if nobody looked."""


@dataclass(slots=True)
class FollowedRecord:
    """What the rebalancer noted of an eviction of its own, beside what the cluster shows of the migration."""

    vm: str
    requested_s: float
    vmim_uid: str = ""
    """Of the last attempt."""
    arrived_s: float | None = None
    """When it saw the VM at its new node."""
    settled_s: float | None = None
    """When the metrics showed the move."""


@dataclass(frozen=True, slots=True)
class ShutdownRecord:
    """A VM that went down because its launcher was evicted. A VM stopped by its owner is none."""

    time_s: float
    vm: str
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What the judged program decided about one node, and why."""

    time_s: float
    node: str
    vm: str | None
    """The VM chosen; ``None``: no VM was."""
    outcome: str
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """How often a reason kept something from moving, with one example in words."""

    count: int
    example: str


@dataclass(frozen=True, slots=True)
class NodeInfo:
    name: str
    cores: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class LimitsInfo:
    """How many VMs may be on the move at once: off one node, and in all."""

    node: int
    total: int


@dataclass(frozen=True, slots=True)
class CooldownInfo:
    """How long a VM is left alone after a migration: the policy's ``cooldown``."""

    base_s: float = 900.0
    max_s: float = 21_600.0
    window_s: float = 172_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The cluster, looked at every 15 to 30 s. Shapes: T = (times,), TxN = (times, nodes in record order).

    A node that is not in the cluster at a time has NaN (class -1, 0 taints) there. Raises ``ValueError`` if
    the shapes do not fit each other.
    """

    times_s: Floats
    utilization: Floats
    """TxN: CPU used / cores, all that runs on the node."""
    demand: Floats
    """TxN: CPU wanted / cores; above 1 when the node cannot give it."""
    cpu_pressure: Floats
    """TxN: share of time that something waited for CPU (PSI some), 0 to 1."""
    memory_utilization: Floats
    memory_pressure: Floats
    value: Floats
    """TxN: the score the controller classified by; NaN: it had none."""
    node_class: Integers
    """TxN: UNKNOWN, UNDER, APPROPRIATE or OVER, as the controller saw it."""
    taints: Integers
    """TxN: how many of our soft taints the node carries."""
    threshold_under: Floats
    """T, in units of ``value``; NaN: none was known."""
    threshold_over: Floats
    in_flight: Integers
    """T: VMs on the move, whoever asked."""

    def __post_init__(self) -> None:
        times, nodes = self.utilization.shape
        of_cluster = {"times_s", "threshold_under", "threshold_over", "in_flight"}
        for item in fields(self):
            shape = getattr(self, item.name).shape
            wanted = (times,) if item.name in of_cluster else (times, nodes)
            if shape != wanted:
                raise ValueError(f"samples.{item.name}: shape {shape}, needs {wanted}")


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One finished run of one scenario with one seed by one program (label)."""

    scenario: str
    description: str
    """What happens in the scenario, in a sentence or two."""
    expectation: str = ""
    """What a good rebalancer does in it."""
    label: str
    """``rebalancer``, ``baseline``, or the name of the policy file that was tried."""
    seed: int
    minutes: float
    policy_digest: str
    policy_yaml: str
    command: str
    """The command line that repeats the run."""
    trouble_start_s: float = 0.0
    """When the scenario's trouble begins; 0: it is there from the start, or there is none."""
    limits: LimitsInfo
    cooldown: CooldownInfo = field(default_factory=CooldownInfo)
    nodes: list[NodeInfo]
    """Every node that was ever in the cluster."""
    vm_count: int = 0
    samples: Samples
    migrations: list[MigrationRecord]
    followed: list[FollowedRecord] = field(default_factory=list)
    """Empty for a program that follows nothing."""
    shutdowns: list[ShutdownRecord] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)
    why_not: dict[str, WhyNot] = field(default_factory=dict)
    """Reason code -> how often. Counted over the whole run."""

    # Exact, from the world's own integrals between changes, not from the samples.
    overutilized_node_seconds: float
    """Node-seconds with demand above 80 % of the node's cores."""
    pressure_node_seconds: float
    """CPU pressure, integrated over time and summed over nodes."""
    starved_core_seconds: float
    """CPU wanted and not given."""
    utilization_stddev: float
    """Mean over time of the standard deviation over nodes of CPU used / cores."""
    over_intervals: dict[str, list[Interval]] = field(default_factory=dict)
    """Node -> when its demand was above 80 % of its cores, in order; nodes that never were may be missing.

    An interval that lasts until the end of the run ends there.
    """

    @property
    def end_s(self) -> float:
        return self.minutes * 60.0
