"""The outside of both programs, played in memory: each answers as it is told to and keeps what it was asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controller.cluster.objects import Node, Pod, Taint, Vmi
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.policy.model import Metrics
from controller.utilization.classify import Classification
from controller.utilization.reading import (
    NODE_CPU,
    NODE_MEMORY,
    NODE_PRESSURES,
    VM_CPU,
    VM_DIRTY_RATE,
    VM_MEMORY,
    Answer,
    MetricsError,
    NodeLoad,
    Sample,
    Snapshot,
    VmLoad,
)
from informers.clock import Clock
from tests.controller.decision_builders import SERIES


@dataclass
class FakeMetrics:
    """Samples are as old as ``lag``, or as ``lags`` says of a node; all may be changed at any time.

    Queries in ``failing`` raise.
    """

    clock: Clock
    values: dict[str, float] = field(default_factory=dict)
    loads: dict[str, NodeLoad] = field(default_factory=dict)
    vms: dict[tuple[str, str], VmLoad] = field(default_factory=dict)
    lag: timedelta = timedelta(0)
    lags: dict[str, timedelta] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)

    def instant(self, expression: str, metrics: Metrics) -> Answer:
        self.asked.append(expression)
        if expression in self.failing:
            raise MetricsError(f"{expression}: 503 no store is ready")
        if expression.startswith("timestamp("):
            series = self.instant(expression[10:-1], metrics)
            return Answer([Sample(labels, self._at(labels["instance"])) for labels, *_ in series.samples])
        return Answer(self._samples(expression))

    def _at(self, node: str) -> float:
        return (self.clock.now() - self.lags.get(node, self.lag)).timestamp()

    def _samples(self, series: str) -> list[Sample]:
        by_node: dict[str, Callable[[NodeLoad], float]] = {
            NODE_CPU: lambda load: load.cpu_cores,
            NODE_MEMORY: lambda load: load.memory_bytes,
            NODE_PRESSURES[0]: lambda load: load.pressure,
        }
        by_vm: dict[str, Callable[[VmLoad], float]] = {
            VM_CPU: lambda load: load.cpu_cores,
            VM_MEMORY: lambda load: load.memory_bytes,
            VM_DIRTY_RATE: lambda load: load.dirty_bytes_per_s,
        }
        if series == SERIES:
            return [Sample({"instance": node}, value) for node, value in self.values.items()]
        if (of_node := by_node.get(series)) is not None:
            return [Sample({"instance": node}, of_node(load)) for node, load in self.loads.items()]
        if (of_vm := by_vm.get(series)) is not None:
            return [
                Sample({"namespace": namespace, "name": name}, of_vm(load))
                for (namespace, name), load in self.vms.items()
            ]
        return []


@dataclass(frozen=True)
class Request:
    pod: str
    dry_run: bool
    at: datetime


TRIGGERED = EvictionAnswer(Verdict.TRIGGERED, 'Eviction triggered evacuation of VMI "…"')


@dataclass
class FakeEvictions:
    """``rehearsals`` and ``answers`` by pod name, for dry runs and real requests; evacuation is triggered by default.

    ``on_request`` is called before an answer is given, so that the cluster may change meanwhile. ``vmis`` is what the
    API server itself knows.
    """

    clock: Clock
    rehearsals: dict[str, EvictionAnswer] = field(default_factory=dict)
    answers: dict[str, EvictionAnswer] = field(default_factory=dict)
    vmis: dict[VmKey, Vmi] = field(default_factory=dict)
    on_request: Callable[[Request], None] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    looked_up: list[VmKey] = field(default_factory=list)
    unreachable: bool = False

    def evict(self, pod: Pod, *, dry_run: bool) -> EvictionAnswer:
        request = Request(pod.metadata.name, dry_run, self.clock.now())
        self.requests.append(request)
        self.on_request(request)
        return (self.rehearsals if dry_run else self.answers).get(pod.metadata.name, TRIGGERED)

    def read_vmi(self, vm: VmKey) -> Vmi | None:
        self.looked_up.append(vm)
        if self.unreachable:
            raise ConnectionError("no route to host")
        return self.vmis.get(vm)

    @property
    def evicted(self) -> list[str]:
        """Pods of real requests, in order."""
        return [r.pod for r in self.requests if not r.dry_run]

    @property
    def rehearsed(self) -> list[str]:
        """Pods of dry runs, in order."""
        return [r.pod for r in self.requests if r.dry_run]


@dataclass
class FakePatcher:
    """Hands the list to ``apply``, which shows it by the node watch, unless told to conflict or to fail."""

    apply: Callable[[Node, tuple[Taint, ...]], None]
    conflicts: int = 0
    failing: frozenset[str] = frozenset()
    patches: list[tuple[str, tuple[Taint, ...]]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def replace_taints(self, node: Node, taints: Sequence[Taint]) -> bool:
        self.tried.append(node.name)
        if node.name in self.failing:
            raise ConnectionError(f"patch of {node.name}: no route to host")
        if self.conflicts:
            self.conflicts -= 1
            return False
        self.patches.append((node.name, tuple(taints)))
        self.apply(node, tuple(taints))
        return True


@dataclass
class RecordingObserver:
    """Both programs' observer; keeps everything it hears, in order.

    ``on_planned`` is called first, so that the cluster may change between a plan and the act.
    """

    on_planned: Callable[[Plan], None] = lambda _: None
    refreshes: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    classifications: list[Classification] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    answers: list[tuple[str, Verdict, bool]] = field(default_factory=list)
    transitions: list[tuple[str, Phase | None, Phase | None]] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    foreign: list[VmKey] = field(default_factory=list)
    metric_failures: list[str] = field(default_factory=list)
    failures: list[tuple[object, Exception, timedelta]] = field(default_factory=list)
    wished: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def refreshing(self) -> None:
        self.refreshes += 1

    def refreshed(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def classified(self, classification: Classification) -> None:
        self.classifications.append(classification)

    def planned(self, plan: Plan) -> None:
        self.on_planned(plan)
        self.plans.append(plan)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        self.answers.append((entry.vm.name, answer.verdict, dry_run))

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        for entry in filter(None, [after or before]):
            self.transitions.append((entry.vm.name, before and before.phase, after and after.phase))

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        self.alarms.append(alarm)

    def foreign_mark(self, vm: VmKey) -> None:
        self.foreign.append(vm)

    def metrics_failed(self, reason: str) -> None:
        self.metric_failures.append(reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        self.failures.append((key, error, retry_after))

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        self.wished.append((node.name, keys))

    def phases_of(self, vm: str) -> list[Phase | None]:
        """What one VM's entries went through, without repetition."""
        phases = [after for name, before, after in self.transitions if name == vm and before is not after]
        return [
            phase for number, phase in enumerate(phases) if number == 0 or phases[number - 1] is not phase
        ]
