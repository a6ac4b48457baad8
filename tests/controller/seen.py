"""What makes metrics and lines, everything that it may be told, and what comes out of it."""

from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.cluster.objects import Taint
from controller.cluster.queries import Reason
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.select import PassedOver
from controller.evictions.views import Alarm
from controller.taints.desired import EFFECT, OVER
from controller.telemetry.calls import note_calls
from controller.telemetry.collect import Readings, of_informers, of_lease, of_queue, of_taints
from controller.telemetry.emit import Emitter
from controller.telemetry.meter import Meter
from controller.telemetry.names import Metrics
from controller.utilization.classify import NodeClass
from controller.utilization.reading import Dropped
from informers.durations import Durations
from informers.reflector import ReflectorStatistics
from informers.testing import ManualClock
from informers.transport import Answered
from informers.workers import WorkersStatistics
from informers.workqueue import WorkQueueStatistics
from tests.builders import START, node
from tests.controller.decision_builders import (
    MINUTE,
    POLICY,
    QUERY,
    classification,
    entry,
    slots,
    snapshot,
    verdict,
    view,
)

SOME = Durations((1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 400.0)
QUEUE = WorkersStatistics(WorkQueueStatistics(1, 2, 0, 3, 1, 9, 8, 4, SOME), 4, 7, 1, SOME, 2.5)
INFORMER = ReflectorStatistics("nodes", True, True, 12, 2, 3, 40, {}, "", 1.0)


@dataclass
class Seen:
    """A meter and an emitter, and what comes out of them."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    alarms: list[Alarm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.registry)
        self.meter = Meter(self.metrics, self.clock)
        self.emitter = Emitter(self.clock, self.alarms.append)

    @property
    def page(self) -> str:
        return generate_latest(self.registry).decode()

    def series(self, name: str, prefix: str = "vm_rebalancer_") -> dict[tuple[str, ...], float]:
        """Values of labels -> value."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.page)
            for sample in family.samples
            if sample.name == f"{prefix}{name}"
        }

    def counted(self, name: str, prefix: str = "vm_rebalancer_") -> dict[tuple[str, ...], float]:
        """Those of a counter that have counted something."""
        return {labels: value for labels, value in self.series(name, prefix).items() if value}


def at_rest(name: str = "node-1", code: str = "NoUsefulMove") -> Plan:
    passed = (PassedOver("vms/vm-1", Reason("Cooling", "rests")),)
    return Plan(name, START, verdict(name), slots(), rest=Reason(code, "nothing helps"), passed_over=passed)


def say_everything(told: Meter | Emitter) -> None:
    """Everything that a program tells its observer, once."""
    told.metrics_failed("503")
    told.failed("key", ValueError("odd"), MINUTE)
    told.refreshed(
        replace(snapshot({"node-1": 0.7}), dropped=(Dropped(QUERY, "x", "NaN"),), warnings=("partial",))
    )
    told.classified(classification(verdict("node-1"), verdict('odd"\n\\name', NodeClass.UNDER)))
    told.planned(at_rest())
    for dry_run in (True, False):
        told.answered(entry(), EvictionAnswer(Verdict.TRIGGERED, "triggered"), dry_run=dry_run)
    told.transition(None, entry())
    told.transition(entry(phase=Phase.RUNNING), entry(phase=Phase.GONE))
    told.alarmed(Alarm("down", "digest-1"), entry())
    told.tainting(node("node-1"), frozenset({"a"}))
    told.foreign_mark(VmKey("vms", "vm-1"))


def show_everything(seen: Seen) -> None:
    """Everything that is read off its owners; what is said, too."""
    say_everything(seen.meter)
    seen.meter.informer_failed("nodes")
    seen.meter.policy_changed(POLICY, valid=True)
    seen.meter.show_ledger(lambda: view(entry()), lambda: POLICY)
    note_calls(seen.metrics, Answered("GET", "/api/v1/nodes", False, 200, 0.1))
    tainted = node("node-1", taints=(Taint(OVER, "", EFFECT),))
    readings = (*of_queue("decisions", QUEUE), *of_informers([INFORMER]), *of_lease(3), *of_taints([tainted]))
    seen.registry.register(Readings(lambda: readings))
