"""Builders of what decisions look at: policies, snapshots, classes, entries, grounds. No logic.

Names go with those of ``tests.builders``: the entry of ``vm-1`` has the pod UID ``pod-vm-1`` and the VMI UID
``vmi-vm-1``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

from controller.cluster.objects import KubeVirt, Node, Pod, Vmi, Vmim
from controller.cluster.placement import Placement
from controller.cluster.queries import Reason
from controller.cluster.selectors import LabelSelector, parse_selector
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.gate import Slots
from controller.evictions.lifecycle import Evidence, Sighting, Timing
from controller.evictions.picture import Picture
from controller.evictions.rebuild import Known
from controller.evictions.select import Candidate, Ground
from controller.evictions.views import Alarm, Finished, LedgerView, Refusal
from controller.policy.model import (
    Bounds,
    BoundsKind,
    Breaker,
    Cooldown,
    Evictions,
    Floor,
    Limits,
    Metrics,
    Mode,
    NamespaceFilter,
    Order,
    Policy,
    Query,
    SoftTaintMode,
    SoftTaints,
    TaintScale,
    TaintScheme,
    Thresholds,
)
from controller.utilization.classify import Classification, Edges, NodeClass, NodeVerdict
from controller.utilization.reading import NodeLoad, Snapshot, Value, VmLoad
from tests.builders import GIB, START, launcher, node, vmi

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
QUERY = "busy"
SERIES = "vm_rebalancer:busy"
FLOOR = Floor(cpu=0.6, memory=0.8, pressure=0.05)
STATIC = Bounds(BoundsKind.STATIC, under=0.2, over=0.5)
EDGES = Edges(under=0.2, over=0.5)
ONE_EACH = Limits(node=1, total=5)
BREAKER = Breaker(failures=3, within=10 * MINUTE, rest=HOUR)
COOLDOWN = Cooldown(base=15 * MINUTE, max=6 * HOUR, window=48 * HOUR)
EVERYTHING = parse_selector("")
NODE_1 = node("node-1")
NODE_2 = node("node-2")
A_VMI = vmi()
A_LAUNCHER = launcher()
SMALL = VmLoad(4.0, 8 * GIB)
"""A VM that uses 4 cores and 8 GiB."""


# --- policy ---


def deviation(under: float = 0.0, over: float = 0.1) -> Bounds:
    return Bounds(BoundsKind.DEVIATION, under, over)


def query(
    name: str = QUERY,
    *,
    expression: str = SERIES,
    recorded: bool = True,
    window: timedelta = MINUTE,
    thresholds: Bounds | None = None,
) -> Query:
    return Query(name, expression, recorded, window, thresholds)


A_QUERY = query()


def metrics(
    *,
    queries: Sequence[Query] = (A_QUERY,),
    node_label: str = "instance",
    refresh_interval: timedelta = 30 * SECOND,
    max_age: timedelta = 3 * MINUTE,
    min_coverage: float = 0.6,
) -> Metrics:
    return Metrics(
        url="https://prometheus.example",
        token_file="",
        ca_file="",
        queries=tuple(queries),
        profile="",
        node_label=node_label,
        refresh_interval=refresh_interval,
        timeout=10 * SECOND,
        max_age=max_age,
        min_coverage=min_coverage,
        allow_http=False,
        headers_file="",
    )


def thresholds(*, bounds: Bounds = STATIC, sustain: int = 1, floor: Floor = FLOOR) -> Thresholds:
    return Thresholds(bounds, sustain, floor)


def evictions(
    *,
    limits: Limits = ONE_EACH,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    label_selector: str = "",
    priority_threshold: int | None = None,
    min_vm_age: timedelta = 5 * MINUTE,
    order: Order = Order.BEST_FIT,
    min_gain: float = 0.01,
    settle: timedelta = 2 * MINUTE,
    acknowledge_timeout: timedelta = 90 * SECOND,
    breaker: Breaker = BREAKER,
    migration_timeout: timedelta = 30 * MINUTE,
    cooldown: Cooldown = COOLDOWN,
    allow_shutdown: bool = False,
) -> Evictions:
    return Evictions(
        limits=limits,
        namespaces=NamespaceFilter(include, exclude),
        label_selector=parse_selector(label_selector),
        priority_threshold=priority_threshold,
        min_vm_age=min_vm_age,
        order=order,
        min_gain=min_gain,
        settle=settle,
        acknowledge_timeout=acknowledge_timeout,
        breaker=breaker,
        migration_timeout=migration_timeout,
        cooldown=cooldown,
        allow_shutdown=allow_shutdown,
    )


def soft_taints(
    *,
    mode: SoftTaintMode = SoftTaintMode.ENABLED,
    scheme: TaintScheme = TaintScheme.TIERED,
    levels: int = 3,
    scale: TaintScale = TaintScale.LINEAR,
) -> SoftTaints:
    return SoftTaints(mode, scheme, levels, scale)


METRICS = metrics()
THRESHOLDS = thresholds()
EVICTIONS = evictions()
SOFT_TAINTS = soft_taints()


def policy(
    *,
    mode: Mode = Mode.AUTOMATIC,
    node_selector: LabelSelector = EVERYTHING,
    metrics: Metrics = METRICS,
    thresholds: Thresholds = THRESHOLDS,
    evictions: Evictions = EVICTIONS,
    soft_taints: SoftTaints = SOFT_TAINTS,
    digest: str = "digest-1",
) -> Policy:
    return Policy(mode, node_selector, metrics, thresholds, evictions, soft_taints, digest)


POLICY = policy()


# --- metrics ---


def load(
    cpu_cores: float = 0.0, memory_bytes: float = 0.0, pressure: float = 0.0, at: datetime = START
) -> NodeLoad:
    return NodeLoad(cpu_cores, memory_bytes, pressure, at)


HOT = load(cpu_cores=64.0, memory_bytes=128 * GIB)
"""All cores of a node of the default size, half of its memory."""


def snapshot(
    values: Mapping[str, float] = MappingProxyType({}),
    *,
    at: datetime = START,
    taken_at: datetime | None = None,
    sequence: int = 1,
    query: str = QUERY,
    loads: Mapping[str, NodeLoad] | None = None,
    vms: Mapping[tuple[str, str], VmLoad] = MappingProxyType({}),
) -> Snapshot:
    """``values`` of one query by node; every node with a value is hot unless ``loads`` says what there is."""
    return Snapshot(
        sequence=sequence,
        taken_at=taken_at or at,
        values={query: {name: Value(value, at) for name, value in values.items()}},
        loads={name: HOT._replace(at=at) for name in values} if loads is None else loads,
        vms=vms,
    )


def verdict(
    name: str = "node-1",
    node_class: NodeClass = NodeClass.OVER,
    *,
    values: Mapping[str, float] = MappingProxyType({QUERY: 0.7}),
    excess: float = 0.2,
    last_seen: datetime | None = START,
) -> NodeVerdict:
    return NodeVerdict(name, node_class, "so the test says", values, excess, last_seen=last_seen)


def classification(
    *verdicts: NodeVerdict, at: datetime = START, limits: Edges = EDGES, skipped: str = ""
) -> Classification:
    return Classification(at, {v.node: v for v in verdicts}, {QUERY: limits}, skipped=skipped)


# --- entries and memory ---


def entry(
    vm: str = "vm-1",
    *,
    namespace: str = "vms",
    pod_uid: str = "",
    vmi_uid: str = "",
    source: str = "node-1",
    target: str = "node-2",
    phase: Phase = Phase.REQUESTED,
    opened_at: datetime = START,
    changed_at: datetime = START,
    answered_at: datetime | None = START,
    load: VmLoad | None = SMALL,
    before: Iterable[str] = (),
    mark_seen: bool = False,
    attempts_failed: int = 0,
    ended_at: datetime | None = None,
) -> Entry:
    return Entry(
        pod_uid=pod_uid or f"pod-{vm}",
        pod=f"virt-launcher-{vm}",
        vm=VmKey(namespace, vm),
        vmi_uid=vmi_uid or f"vmi-{vm}",
        source=source,
        phase=phase,
        opened_at=opened_at,
        changed_at=changed_at,
        answered_at=answered_at,
        target=target,
        load=load,
        before=frozenset(before),
        mark_seen=mark_seen,
        attempts_failed=attempts_failed,
        ended_at=ended_at,
    )


def finished(
    vmim: str = "vmim-1",
    *,
    vm: str = "vm-1",
    source: str = "node-1",
    succeeded: bool = True,
    at: datetime = START,
    took: timedelta = MINUTE,
) -> Finished:
    return Finished(vmim, f"vmi-{vm}", source, succeeded, at, took)


def view(
    *entries: Entry,
    version: int = 1,
    finished: Mapping[str, tuple[Finished, ...]] = MappingProxyType({}),
    failures: Mapping[str, tuple[Finished, ...]] = MappingProxyType({}),
    refusals: Mapping[str, Refusal] = MappingProxyType({}),
    alarm: Alarm | None = None,
) -> LedgerView:
    return LedgerView(version, entries, finished, failures, refusals, alarm)


EMPTY = view()


def timing(
    *,
    acknowledge: timedelta = 90 * SECOND,
    migration: timedelta = 30 * MINUTE,
    settle: timedelta = 2 * MINUTE,
) -> Timing:
    return Timing(acknowledge, migration, settle)


def sighting(vmi: Vmi | None, *migrations: Vmim) -> Sighting:
    return Sighting(vmi, migrations)


NO_EVIDENCE = Evidence({})


def known(vmi: Vmi, *migrations: Vmim, source_pod: Pod | None = None, load: VmLoad | None = None) -> Known:
    return Known(vmi, source_pod, migrations, load)


# --- selection ---


def candidate(
    *,
    load: VmLoad | None = SMALL,
    vmi: Vmi = A_VMI,
    pod: Pod = A_LAUNCHER,
    migrating: bool = False,
    settling: bool = False,
) -> Candidate:
    return Candidate(vmi, pod, load, migrating, settling)


def vm(
    name: str = "vm-1",
    *,
    load: VmLoad | None = SMALL,
    priority: int = 0,
    cpu_cores: float = 0.8,
    memory_bytes: float = 8 * GIB,
    created: datetime | None = START,
) -> Candidate:
    """A VM that may be moved, on ``node-1``."""
    pod = launcher(name, priority=priority, cpu_cores=cpu_cores, memory_bytes=memory_bytes, created=created)
    return Candidate(vmi(name), pod, load)


def placement(*best: Node, misfits: Mapping[str, Reason] = MappingProxyType({})) -> Placement:
    """All nodes of ``best`` are equally likely."""
    return Placement(tuple((node, 500) for node in best), misfits)


HOT_AND_IDLE = MappingProxyType({"node-1": HOT, "node-2": load()})


def ground(
    *candidates: Candidate,
    source: Node = NODE_1,
    place: Callable[[Pod], Placement] = lambda _: placement(NODE_2),
    loads: Mapping[str, NodeLoad] = HOT_AND_IDLE,
    departing: Iterable[str] = (),
    kubevirt: KubeVirt | None = None,
    policy: Policy = POLICY,
    ledger: LedgerView = EMPTY,
    now: datetime = START + HOUR,
) -> Ground:
    """A hot ``node-1`` and an idle ``node-2``, an hour after everything was created."""
    return Ground(
        source, candidates, place, Picture(loads, frozenset(departing)), kubevirt, policy, ledger, now
    )


def slots(*, node_used: int = 0, node_limit: int = 1, total_used: int = 0, total_limit: int = 5) -> Slots:
    return Slots(node_used, node_limit, total_used, total_limit)
