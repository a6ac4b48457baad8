"""The controller's ports on the simulated cluster: metrics, evictions, node patches, and the clock."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from controller.cluster.objects import Node, Pod, Taint, Vmi
from controller.evictions.answers import EvictionAnswer, interpret
from controller.evictions.entry import VmKey
from controller.policy.model import Metrics
from controller.utilization.reading import Answer, MetricsError, Sample
from simulator.agenda import EPOCH, Agenda
from simulator.engine.line import Line
from simulator.kubevirt.objectstore import VMI, NotFound
from simulator.metrics.recorded import NODE_SERIES, VM_SERIES, RecordedMetrics
from simulator.metrics.trouble import MetricsOutage, MetricTroubles

EPOCH_S = EPOCH.timestamp()
_TIMESTAMP = re.compile(r"timestamp\((.*)\)")


class BrokenInvariant(BaseException):  # says what broke
    """The controller did something that it must never do. The run ends here.

    Not an ``Exception``: workers take those for a handler's trouble and try again.
    """


_MOST_LOOKS = 200_000


class AgendaClock:
    """The controller's clock: the world's time.

    Workers look at it for each key. If they do so for ever while no time passes, handlers wake each other without
    end: that raises ``BrokenInvariant``.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._looks, self._looked_s = 0, 0.0

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._agenda.now_s)

    def monotonic(self) -> float:
        now_s = self._agenda.now_s
        self._looks, self._looked_s = (self._looks + 1 if now_s == self._looked_s else 0), now_s
        if self._looks > _MOST_LOOKS:
            raise BrokenInvariant(f"at {now_s:.1f} s: handlers go on and on while no time passes")
        return now_s


class SimulatedMetrics:
    """Answers instant queries for the recorded series, and ``timestamp()`` of them; it evaluates no PromQL.

    An answer later than ``metrics.timeout`` is none, as for a real client.
    """

    def __init__(self, metrics: RecordedMetrics, troubles: MetricTroubles, agenda: Agenda) -> None:
        self._metrics = metrics
        self._troubles = troubles
        self._agenda = agenda

    def instant(self, expression: str, metrics: Metrics) -> Answer:
        wrapped = _TIMESTAMP.fullmatch(expression)
        series = wrapped[1] if wrapped else expression
        try:
            samples = self._metrics.series(series)
        except KeyError:
            known = ", ".join([*NODE_SERIES, *VM_SERIES])
            raise MetricsError(
                f"the simulator knows only recorded series, not {expression!r}: {known}"
            ) from None
        deadline_s = metrics.timeout.total_seconds()
        if self._troubles.delay_s(series, self._agenda.now_s) > deadline_s:
            raise MetricsError(f"{expression}: no answer within {deadline_s:g} s")
        try:
            samples, warnings = self._troubles.apply(series, samples, self._agenda.now_s)
        except MetricsOutage as error:
            raise MetricsError(str(error)) from error
        asked = [Sample(labels, EPOCH_S + at_s if wrapped else value) for labels, value, at_s in samples]
        return Answer(asked, tuple(warnings))


class SimulatedEvictions:
    """The eviction subresource. ``check`` hears of every real request before it is sent."""

    def __init__(self, line: Line, check: Callable[[Pod], None]) -> None:
        self._line = line
        self._check = check

    def evict(self, pod: Pod, *, dry_run: bool) -> EvictionAnswer:
        if not dry_run:
            self._check(pod)
        metadata = pod.metadata
        answer = self._line.evict(metadata.namespace, metadata.name, metadata.uid, dry_run=dry_run)
        wait = timedelta(seconds=answer.retry_after_s) if answer.retry_after_s is not None else None
        return interpret(answer.status, answer.message, wait)

    def read_vmi(self, vm: VmKey) -> Vmi | None:
        found = self._line.get(VMI, vm.namespace, vm.name)
        return msgspec.convert(found, Vmi) if found is not None else None


class SimulatedPatcher:
    """Node patches, guarded by the resourceVersion that was read."""

    def __init__(self, line: Line, check: Callable[[Node], None]) -> None:
        self._line = line
        self._check = check

    def replace_taints(self, node: Node, taints: Sequence[Taint]) -> bool:
        self._check(node)
        wanted = [msgspec.to_builtins(taint) for taint in taints]
        try:
            return self._line.replace_taints(node.name, node.metadata.resource_version, wanted)
        except NotFound:
            return False
