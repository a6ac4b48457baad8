"""Turns what the programs see and do into metrics: one of the observers."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import fsum
from threading import Lock

from prometheus_client import Gauge

from controller.cluster.objects import Node, Resources
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import ENDED, Entry, Phase, VmKey
from controller.evictions.gate import stopped
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm, LedgerView
from controller.policy.model import BoundsKind, Policy
from controller.telemetry.collect import Readings, Rests
from controller.telemetry.names import METRIC_RESOURCE, OTHERS, PROFILE, STRATEGY, US, Metrics, Resource
from controller.utilization.classify import Classification, NodeClass
from controller.utilization.reading import NodeLoad, Snapshot
from informers.clock import Clock
from informers.store import Lister

Series = dict[tuple[Gauge, tuple[str, ...]], float]
_Why = tuple[Gauge, str]
"""The gauge that counts it, and the reason's code."""


class Shown:
    """The series of gauges that are shown together: those of the last time, and no others."""

    def __init__(self) -> None:
        # Guards the series, and the gauges while they are changed.
        self._lock = Lock()
        self._shown: Series = {}

    def show(self, series: Series) -> None:
        """Only what has changed is touched: of thousands of nodes most are as they were."""
        with self._lock:
            before, self._shown = self._shown, series
            for (gauge, labels), value in series.items():
                if before.get((gauge, labels)) != value:
                    gauge.labels(*labels).set(value)
            for gauge, labels in before.keys() - series.keys():
                gauge.remove(*labels)


class _WhyNot:
    """Why over-utilised nodes sent nothing, and why their VMs were passed over, at the last look at each.

    Two gauges that are sums over the nodes: of hundreds of them each look changes one.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # Guards all below, and the gauges while they are changed: they must not show what is older.
        self._lock = Lock()
        self._over: frozenset[str] = frozenset()
        self._by_node: dict[str, Counter[_Why]] = {}
        self._totals: Counter[_Why] = Counter()

    def look_only_at(self, over: frozenset[str]) -> None:
        with self._lock:
            self._over = over
            for node in self._by_node.keys() - over:
                self._replace(self._by_node.pop(node), Counter())

    def note(self, plan: Plan) -> None:
        with self._lock:
            if plan.node not in self._over:
                return
            before = self._by_node.get(plan.node, Counter())
            gauge = self._metrics.why_not_vms
            if plan.gate_closed:  # most of the time: else nobody would ever see why a VM stays
                after = Counter({why: count for why, count in before.items() if why[0] is gauge})
            else:
                after = Counter((gauge, passed.reason.code) for passed in plan.passed_over)
            if plan.rest is not None:
                after[self._metrics.why_not_nodes, plan.rest.code] = 1
            self._by_node[plan.node] = after
            self._replace(before, after)

    def _replace(self, before: Counter[_Why], after: Counter[_Why]) -> None:
        """Called with the lock held."""
        for why in before.keys() | after.keys():
            if not (change := after[why] - before[why]):
                continue
            self._totals[why] += change
            gauge, reason = why
            if total := self._totals[why]:
                gauge.labels(reason).set(float(total))
            else:
                del self._totals[why]
                gauge.remove(reason)


class Meter:
    """Observer of both programs; may be called from any thread."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._nodes: Lister[Node] | None = None
        self._refreshing_s = clock.monotonic()
        self._refreshed_s: float | None = None
        # The newest ones, replaced whole.
        self._loads: Mapping[str, NodeLoad] = {}
        self._why_not = _WhyNot(metrics)
        self._of_classes, self._of_policy = Shown(), Shown()
        metrics.metrics_age.set_function(self._age_s)

    def show_nodes(self, nodes: Lister[Node]) -> None:
        """Have the sizes of nodes to compare loads with."""
        self._nodes = nodes

    def show_ledger(
        self, ledger: Callable[[], LedgerView], current_policy: Callable[[], Policy | None]
    ) -> None:
        """Have what is on the move, what rests and the alarm read off the ledger whenever metrics are asked for.

        Counting transitions would miss what a restart has taken up.
        """

        def count(phase: Phase) -> Callable[[], float]:
            return lambda: float(sum(entry.phase is phase for entry in ledger().entries))

        def is_stopped() -> float:
            policy = current_policy()
            return float(policy is not None and stopped(ledger(), policy) is not None)

        for phase in Phase:
            if phase not in ENDED:
                self._metrics.in_flight.labels(phase).set_function(count(phase))
        self._metrics.shutdown_alarm.set_function(is_stopped)
        rests = Rests(ledger, current_policy, self._clock)
        self._metrics.registry.register(Readings(rests.read))

    def policy_changed(self, policy: Policy | None, *, valid: bool) -> None:
        metrics = self._metrics
        metrics.policy_valid.set(float(valid))
        if policy is None:
            return
        self._of_policy.show({(metrics.policy_info, (policy.digest, str(policy.mode))): 1.0})
        bounds = [query.thresholds or policy.thresholds.bounds for query in policy.metrics.queries]
        metrics.upstream_mode.set(float(any(b.kind is BoundsKind.DEVIATION for b in bounds)))

    def informer_failed(self, name: str) -> None:
        """Something went wrong in an informer, which tries again."""
        self._metrics.informer_errors.labels(name).inc()

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:  # noqa: ARG002
        self._metrics.handler_errors.inc()

    # --- refreshing and classifying ---

    def _age_s(self) -> float:
        refreshed_s = self._refreshed_s
        return math.inf if refreshed_s is None else self._clock.monotonic() - refreshed_s

    def refreshing(self) -> None:
        self._refreshing_s = self._clock.monotonic()

    def metrics_failed(self, reason: str) -> None:  # noqa: ARG002 - it is counted only
        self._metrics.refresh_failures.inc()
        self._note_refresh("failed")

    def refreshed(self, snapshot: Snapshot) -> None:
        self._note_refresh("answered")
        self._refreshed_s = self._clock.monotonic()
        self._loads = snapshot.loads
        for dropped in snapshot.dropped:
            self._metrics.samples_dropped.labels(dropped.query).inc()

    def _note_refresh(self, result: str) -> None:
        took_s = self._clock.monotonic() - self._refreshing_s
        self._metrics.refresh_duration.labels(result).observe(took_s)

    def classified(self, classification: Classification) -> None:
        """Nodes that have gone, values that are missing now and queries of an older policy are shown no longer."""
        self._metrics.coverage.set(classification.coverage)
        classes = Counter(verdict.node_class for verdict in classification.nodes.values())
        series: Series = {
            (self._metrics.nodes, (node_class.name.lower(),)): float(classes[node_class])
            for node_class in NodeClass
        }
        self._of_classes.show(
            series | self._own_series(classification) | self._upstream_series(classification)
        )
        self._why_not.look_only_at(frozenset(classification.over_utilised()))

    def _own_series(self, classification: Classification) -> Series:
        metrics = self._metrics
        series: Series = {}
        for query, edges in classification.limits.items():
            series[metrics.node_threshold, (query, "under")] = edges.under
            series[metrics.node_threshold, (query, "over")] = edges.over
        for name, verdict in classification.nodes.items():
            series[metrics.node_class, (name,)] = verdict.node_class
            for query, value in verdict.values.items():
                series[metrics.node_value, (name, query)] = value
        for resource, uses in self._uses(classification.nodes).items():
            series[metrics.misplaced, (resource,)] = misplaced(uses)
        return series

    def _upstream_series(self, classification: Classification) -> Series:
        metrics = self._metrics
        series: Series = {}
        alone = len(classification.limits) == 1
        for name, verdict in classification.nodes.items():
            if verdict.node_class is not NodeClass.UNKNOWN:
                series[metrics.upstream_class, (name,)] = verdict.node_class
            for query, value in verdict.values.items():
                resource = METRIC_RESOURCE if alone else query
                series[metrics.upstream_value, (name, resource)] = value
                if (edges := classification.limits.get(query)) is not None:
                    series[metrics.upstream_threshold, (name, resource, "low")] = edges.under
                    series[metrics.upstream_threshold, (name, resource, "high")] = edges.over
        return series

    def _uses(self, nodes: Iterable[str]) -> dict[Resource, list[float]]:
        """Of nodes whose load and size are known; nothing before that."""
        loads = self._loads
        sized = [(loads[name], size) for name in nodes if name in loads and (size := self._size_of(name))]
        return {
            resource: [use for load, size in sized if (use := _use(resource, load, size)) is not None]
            for resource in Resource
            if sized
        }

    def _size_of(self, node: str) -> Resources | None:
        found = self._nodes.get("", node) if self._nodes is not None else None
        return found.allocatable if found is not None else None

    # --- deciding ---

    def planned(self, plan: Plan) -> None:
        reasons = Counter(passed.reason.code for passed in plan.passed_over)
        for reason, count in reasons.items():
            self._metrics.passed_over.labels(reason).inc(count)
        if plan.rest is not None:
            self._metrics.at_rest.labels(plan.rest.code).inc()
        self._why_not.note(plan)

    # --- evicting and following ---

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        counter = self._metrics.dry_runs if dry_run else self._metrics.evictions
        counter.labels(answer.verdict).inc()
        if not dry_run:
            result = "success" if answer.verdict in (Verdict.TRIGGERED, Verdict.GRANTED) else "error"
            self._metrics.pods_evicted.labels(
                result, STRATEGY, PROFILE, entry.vm.namespace, entry.source
            ).inc()

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        """What an entry has been through when it is taken up has been counted by whoever saw it happen."""
        if after is None:
            return
        if before is not None:
            self._metrics.failed_attempts.inc(max(0, after.attempts_failed - before.attempts_failed))
            if after.phase is before.phase:
                return
        asked_by = US if after.ours else OTHERS
        if after.phase is Phase.SETTLING and (before is not None or after.ended_at == after.changed_at):
            self._arrived(after, asked_by)  # the VM has just been seen to arrive
        if not after.open:
            self._metrics.ended.labels(after.phase, asked_by).inc()
        if after.phase is Phase.DONE and after.ended_at is not None:
            self._metrics.settle_duration.observe(_seconds(after.changed_at - after.ended_at))

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        """It is read off the ledger."""

    def foreign_mark(self, vm: VmKey) -> None:  # noqa: ARG002 - metrics are never per VM
        self._metrics.foreign_marks.inc()

    def tainting(self, node: Node, keys: frozenset[str]) -> None:  # noqa: ARG002
        self._metrics.taint_changes.inc()

    def _arrived(self, entry: Entry, asked_by: str) -> None:
        if entry.ended_at is not None:
            took_s = _seconds(entry.ended_at - entry.opened_at)
            self._metrics.migration_duration.labels(asked_by).observe(took_s)
        load, size, source = entry.load, self._size_of(entry.source), self._loads.get(entry.source)
        if not entry.ours or load is None or size is None or source is None:
            return
        # What the source has most of is what it was to be relieved of; that the move took other things along says
        # nothing about whether it helped.
        uses = {resource: _use(resource, source, size) or 0.0 for resource in Resource}
        most = max(uses, key=lambda resource: uses[resource])
        amount = load.cpu_cores if most is Resource.CPU else load.memory_bytes
        of = size.cpu_cores if most is Resource.CPU else size.memory_bytes
        if of > 0:
            self._metrics.moved.labels(most).inc(max(0.0, amount / of))


def misplaced(uses: Iterable[float]) -> float:
    """How much lies above the average, in all: what would have to move for all nodes to be alike.

    ``uses`` are shares of nodes. A move from above the average to below it takes off what it carries.
    """
    known = list(uses)
    average = fsum(known) / len(known) if known else 0.0
    return fsum(max(0.0, use - average) for use in known)


def _use(resource: Resource, load: NodeLoad, size: Resources) -> float | None:
    amount, of = (
        (load.cpu_cores, size.cpu_cores)
        if resource is Resource.CPU
        else (load.memory_bytes, size.memory_bytes)
    )
    return amount / of if of > 0 else None


def _seconds(duration: timedelta) -> float:
    return max(0.0, duration.total_seconds())
