"""Turns what the programs see and do into metrics and log lines: the real implementation of the observers.

A line is written when something changes, and again after an hour if it still holds; nothing is said of nothing.
"""

import logging
import math
from collections.abc import Callable, Hashable
from datetime import timedelta
from threading import Lock

from cachetools import TTLCache
from prometheus_client import Gauge

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import ENDED, Entry, Phase
from controller.evictions.gate import stopped
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm, LedgerView
from controller.lease import NotLeaderError
from controller.policy.model import Policy
from controller.telemetry.names import Metrics
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from informers.clock import Clock
from informers.errors import ApiError

log = logging.getLogger("vm-rebalancer")

SAY_AGAIN_S = 3600.0
_SUBJECTS = 20_000


class Emitter:
    """Observer of both programs; may be called from any thread."""

    def __init__(self, metrics: Metrics, clock: Clock, on_alarm: Callable[[Alarm], None]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._on_alarm = on_alarm
        # What was last said of a subject; forgotten after an hour, and then it is news again.
        self._said: TTLCache[Hashable, object] = TTLCache(_SUBJECTS, SAY_AGAIN_S, clock.monotonic)
        # Guards the above and the series that are shown: of the last classification and no other.
        self._lock = Lock()
        self._shown: set[tuple[Gauge, tuple[str, ...]]] = set()
        self._refreshed_s: float | None = None
        metrics.metrics_age.set_function(self._age_s)

    def _age_s(self) -> float:
        refreshed_s = self._refreshed_s
        return math.inf if refreshed_s is None else self._clock.monotonic() - refreshed_s

    def _is_news(self, subject: Hashable, said: object) -> bool:
        with self._lock:
            if self._said.get(subject) == said:
                return False
            self._said[subject] = said
            return True

    # --- both programs ---

    def refreshing(self) -> None:
        """Nothing to say yet."""

    def metrics_failed(self, reason: str) -> None:
        self._metrics.refresh_failures.inc()
        if self._is_news("metrics", reason):
            log.warning("no metrics: %s", reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        self._metrics.handler_errors.inc()
        if self._is_news(("failed", key), str(error)):
            happens = isinstance(error, ApiError | NotLeaderError)  # where it came from says nothing then
            log.log(
                logging.WARNING if happens else logging.ERROR,
                "%s failed, again in %.1f s: %s",
                key,
                retry_after.total_seconds(),
                error,
                exc_info=None if happens else error,
            )

    # --- descheduler ---

    def refreshed(self, snapshot: Snapshot) -> None:
        self._refreshed_s = self._clock.monotonic()
        self._is_news("metrics", "")
        for dropped in snapshot.dropped:
            self._metrics.samples_dropped.labels(dropped.query).inc()
            if self._is_news(("dropped", dropped.query, dropped.subject), dropped.reason):
                log.warning("sample of %s for %s not used: %s", *dropped)
        if snapshot.warnings and self._is_news("warnings", snapshot.warnings):
            log.warning("metrics are incomplete: %s", "; ".join(snapshot.warnings))

    def classified(self, classification: Classification) -> None:
        self._metrics.coverage.set(classification.coverage)
        self._show(classification)
        over = classification.over_utilised()
        if self._is_news("classification", (tuple(over), classification.skipped)):
            if classification.skipped:
                log.info("nothing is decided: %s", classification.skipped)
            else:
                log.info("over-utilised nodes: %s", ", ".join(over) or "none")

    def _show(self, classification: Classification) -> None:
        """Nodes that have gone, values that are missing now and queries of an older policy are shown no longer."""
        metrics = self._metrics
        series: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        for query, edges in classification.limits.items():
            series[metrics.node_threshold, (query, "under")] = edges.under
            series[metrics.node_threshold, (query, "over")] = edges.over
        for name, verdict in classification.nodes.items():
            series[metrics.node_class, (name,)] = verdict.node_class
            for query, value in verdict.values.items():
                series[metrics.node_value, (name, query)] = value
        with self._lock:
            for (gauge, labels), value in series.items():
                gauge.labels(*labels).set(value)
            for gauge, labels in self._shown - series.keys():
                gauge.remove(*labels)
            self._shown = set(series)

    def planned(self, plan: Plan) -> None:
        for passed in plan.passed_over:
            self._metrics.passed_over.labels(passed.reason.code).inc()
        if plan.rest is not None:
            self._metrics.at_rest.labels(plan.rest.code).inc()
            if self._is_news(("plan", plan.node), plan.rest.code):
                log.info("node %s sends nothing: %s", plan.node, plan.rest)
        elif plan.choice is not None and self._is_news(("plan", plan.node), plan.choice.candidate.key):
            log.info("node %s should send VM %s: %s", plan.node, plan.choice.candidate.key, plan.choice.why)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        counter = self._metrics.dry_runs if dry_run else self._metrics.evictions
        counter.labels(str(answer.verdict)).inc()
        level = logging.DEBUG if dry_run else logging.INFO
        what = "dry run of the eviction" if dry_run else "eviction"
        log.log(level, "%s of VM %s: %s: %s", what, entry.vm, answer.verdict, answer.message)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        if after is None or (before is not None and after.phase is before.phase):
            return
        if not after.open:
            self._metrics.ended.labels(str(after.phase)).inc()
        whose = "" if after.ours else " (not asked for by us)"
        log.info("VM %s from %s to %s: %s%s", after.vm, after.source, after.target or "?", after.phase, whose)

    def alarmed(self, alarm: Alarm) -> None:
        log.critical("all evicting has stopped until the policy changes: %s", alarm.reason)
        self._on_alarm(alarm)

    def show_ledger(
        self, ledger: Callable[[], LedgerView], current_policy: Callable[[], Policy | None]
    ) -> None:
        """Have what is on the move, and the alarm, read off the ledger whenever metrics are asked for.

        Counting transitions would miss what a restart has taken up.
        """

        def count(phase: Phase) -> Callable[[], float]:
            return lambda: float(sum(entry.phase is phase for entry in ledger().entries))

        def is_stopped() -> float:
            policy = current_policy()
            return float(policy is not None and stopped(ledger(), policy) is not None)

        for phase in Phase:
            if phase not in ENDED:
                self._metrics.in_flight.labels(str(phase)).set_function(count(phase))
        self._metrics.shutdown_alarm.set_function(is_stopped)

    # --- soft-tainter ---

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        self._metrics.taint_changes.inc()
        if self._is_news(("taints", node.name), keys):
            log.info("node %s should carry %s", node.name, ", ".join(sorted(keys)) or "no taint of ours")
