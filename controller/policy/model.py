"""The effective policy: frozen, complete, presets expanded.

Fractions are of 1 (never percent), durations are ``timedelta``. ``docs/policy.md`` is the reference for every
field; names follow the OpenShift descheduler operator where it has one. Values of these classes come from
:func:`controller.policy.parse.parse_policy`, which checks them; the classes themselves check nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from controller.cluster.selectors import LabelSelector

API_VERSION = "vm-rebalancer.io/v1alpha1"
KIND = "RebalancePolicy"

LAG_BEHIND_WINDOW = timedelta(seconds=60)
"""How far a metric trails beyond its own window: one rule interval and one scrape interval, 30 s each."""


class Mode(StrEnum):
    PREDICTIVE = "Predictive"
    """Decides and reports; no write ever leaves it."""
    AUTOMATIC = "Automatic"


class BoundsKind(StrEnum):
    DEVIATION = "deviation"
    """Distances from the average of the eligible nodes that have a value: ``under`` below, ``over`` above."""
    STATIC = "static"
    """The thresholds themselves."""


class Order(StrEnum):
    BEST_FIT = "BestFit"
    LOWEST_PRIORITY = "LowestPriority"


class SoftTaintMode(StrEnum):
    ENABLED = "Enabled"
    DISABLED = "Disabled"
    CLEANUP_ONLY = "CleanupOnly"
    """Sets none; takes ours off."""


class TaintScheme(StrEnum):
    SINGLE = "Single"
    TIERED = "Tiered"
    GRADED = "Graded"


class TaintScale(StrEnum):
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where under- and over-utilisation begin; both are fractions of 1."""

    kind: BoundsKind
    under: float
    over: float


@dataclass(frozen=True, slots=True)
class Query:
    """An instant query that gives one value in [0, 1] per node; higher is busier."""

    name: str
    expression: str
    recorded: bool
    """It is the name of a recorded series, so ``timestamp(expression)`` is the true time of its samples."""
    window: timedelta
    """The range over which it averages."""
    thresholds: Bounds | None = None
    """Its own thresholds; ``None``: those of :class:`Thresholds`."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the values come from. An empty ``token_file``, ``ca_file`` or ``headers_file`` means none."""

    url: str
    token_file: str
    ca_file: str
    queries: tuple[Query, ...]
    """At least one, with distinct names."""
    profile: str
    """The preset that ``queries`` holds; empty if the policy brings its own queries."""
    node_label: str
    refresh_interval: timedelta
    timeout: timedelta
    max_age: timedelta
    min_coverage: float
    allow_http: bool
    headers_file: str


@dataclass(frozen=True, slots=True)
class Floor:
    """Below all of these a node is never over-utilised: of its cores, of its memory, of time (PSI)."""

    cpu: float
    memory: float
    pressure: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    bounds: Bounds
    sustain: int
    """Snapshots in a row that a node must be over, at least 1."""
    floor: Floor


@dataclass(frozen=True, slots=True)
class Limits:
    """VMs on the move at once, whoever asked: from one node, and in all. KubeVirt's own limits apply too."""

    node: int
    total: int


@dataclass(frozen=True, slots=True)
class NamespaceFilter:
    """Globs (``*``, ``?``) over namespace names. An empty ``include`` means all; ``exclude`` wins."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def allows(self, namespace: str) -> bool:
        if self.include and not _any_matches(self.include, namespace):
            return False
        return not _any_matches(self.exclude, namespace)


@dataclass(frozen=True, slots=True)
class Breaker:
    """After ``failures`` failed migrations ``within`` a time, a VM or a node is left alone for ``rest``."""

    failures: int
    within: timedelta
    rest: timedelta


@dataclass(frozen=True, slots=True)
class Cooldown:
    """``base`` doubles with each migration of the VM inside ``window``, up to ``max``."""

    base: timedelta
    max: timedelta
    window: timedelta


@dataclass(frozen=True, slots=True)
class Evictions:
    limits: Limits
    namespaces: NamespaceFilter
    label_selector: LabelSelector
    priority_threshold: int | None
    """Only VMs whose pod priority is below it; ``None``: all."""
    min_vm_age: timedelta
    order: Order
    min_gain: float
    """Fraction of a node's cores or memory."""
    settle: timedelta
    """As the policy states it; what applies is :attr:`Policy.effective_settle`."""
    acknowledge_timeout: timedelta
    breaker: Breaker
    migration_timeout: timedelta
    cooldown: Cooldown
    allow_shutdown: bool


@dataclass(frozen=True, slots=True)
class SoftTaints:
    mode: SoftTaintMode
    scheme: TaintScheme
    levels: int
    scale: TaintScale


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Mode
    node_selector: LabelSelector
    metrics: Metrics
    thresholds: Thresholds
    evictions: Evictions
    soft_taints: SoftTaints
    digest: str
    """First 12 hex digits of the SHA-256 of the canonical effective policy, however it was written."""

    @property
    def effective_settle(self) -> timedelta:
        """How long after a migration's end a sample must have been taken for it to show the migration.

        ``evictions.settle``, but with queries of one's own at least the longest declared window plus
        :data:`LAG_BEHIND_WINDOW`: a longer average shows a move later. Presets leave ``settle`` as it is.
        """
        own = (query.window + LAG_BEHIND_WINDOW for query in _own_queries(self.metrics))
        return max((self.evictions.settle, *own))


def _own_queries(metrics: Metrics) -> Iterator[Query]:
    return (query for query in metrics.queries if not query.recorded)


def _any_matches(globs: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
