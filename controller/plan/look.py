"""Takes a look: measures, classifies, reads the ledger off the cluster and plans, as the descheduler does.

The rules are the descheduler's own functions. What only its memory holds (refusals of the API, the alarm after a VM
went down) is not seen here.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from controller.cluster.view import ClusterView
from controller.evictions.entry import Entry
from controller.evictions.ledger import Ledger
from controller.evictions.lifecycle import advance
from controller.evictions.plan import Plan, entry_for, plan_node
from controller.evictions.select import Ground
from controller.evictions.views import LedgerView
from controller.following import read_off, timing_of
from controller.monitor import Monitor
from controller.plan.sources import Cluster
from controller.policy.model import Metrics, Policy
from controller.reporting import TREND_SNAPSHOTS
from controller.survey import Survey
from controller.utilization.classify import Classification
from controller.utilization.reading import Answer, MetricsError, Snapshot, read_snapshot

EARLIER = timedelta(minutes=2)
_LIMITS = frozenset({"NodeLimit", "TotalLimit"})


class Planned(NamedTuple):
    """A plan and what it was made on; ``afterwards`` is what it would be if only the limits allowed it."""

    plan: Plan
    ground: Ground
    afterwards: Plan | None


@dataclass(frozen=True)
class Look:
    """All there is to tell of one moment. ``policy`` asks for as many snapshots in a row as there were looks."""

    cluster: Cluster
    policy: Policy
    sustain: int
    """What the policy really asks for."""
    view: ClusterView
    survey: Survey
    classification: Classification
    snapshots: tuple[Snapshot, ...]
    """The last few, newest last; never empty."""
    ledger: LedgerView
    at: datetime
    notes: tuple[str, ...] = ()
    measured: bool = True

    @property
    def snapshot(self) -> Snapshot:
        return self.snapshots[-1]

    @cached_property
    def plans(self) -> Mapping[str, Planned]:
        """Over-utilised nodes, worst first, with what would be done. Each plan counts on the moves before it.

        So the descheduler goes about it: each choice reserves its slot before the next node is considered.
        """
        ledger, found = self.ledger, dict[str, Planned]()
        over = () if self.classification.skipped else self.classification.over_utilised()
        for node in over:
            ground = self.survey.ground(node, self.policy, ledger)
            if ground is None:
                continue
            verdict = self.classification.nodes[node]
            slots = self.survey.slots_of(node, ground.policy, ground.ledger)
            plan, afterwards = plan_node(verdict, slots, ground), None
            if plan.rest is not None and plan.rest.code in _LIMITS:
                afterwards = plan_node(verdict, replace(slots, node_used=0, total_used=0), ground)
            found[node] = Planned(plan, ground, afterwards)
            if plan.choice is not None:
                known = frozenset(m.metadata.uid for m in self.view.migrations_of(plan.choice.candidate.vmi))
                entry = entry_for(plan.choice, node, known, self.at)
                ledger = replace(ledger, version=ledger.version + 1, entries=(*ledger.entries, entry))
        return found

    def ground(self, node: str) -> Ground | None:
        """What a decision on this node is made on; ``None`` if there is no such node."""
        planned = self.plans.get(node)
        return planned.ground if planned is not None else self.survey.ground(node, self.policy, self.ledger)


class Looker:
    """Looks at one cluster, once or again and again: with each further look ``sustain`` can be judged better."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self._cluster = cluster
        self._policy = policy
        self._monitor = self._monitor_of(cluster)
        self._looks = 0
        self._seen: deque[Snapshot] = deque(maxlen=TREND_SNAPSHOTS)

    def look(self) -> Look:
        cluster, clock = self._cluster, self._cluster.clock
        monitor, notes = self._refreshed()
        looks = min(max(self._looks, 1), self._policy.thresholds.sustain)
        policy = replace(self._policy, thresholds=replace(self._policy.thresholds, sustain=looks))
        classification = monitor.reclassify(policy)
        view = ClusterView.over(cluster.caches)
        survey = Survey(view, monitor, clock)
        assert monitor.latest is not None, "refreshed just now, or with nothing in it"  # noqa: S101
        return Look(
            cluster=cluster,
            policy=policy,
            sustain=self._policy.thresholds.sustain,
            view=view,
            survey=survey,
            classification=classification,
            snapshots=tuple(self._seen) if monitor is self._monitor else (monitor.latest,),
            ledger=self._ledger(survey, view, policy),
            at=clock.now(),
            notes=(*cluster.notes(), *notes),
            measured=monitor is self._monitor,
        )

    def _refreshed(self) -> tuple[Monitor, list[str]]:
        """The monitor with a fresh snapshot, or with the last good one, or one that knows nothing; and why."""
        try:
            snapshot = self._monitor.refresh(self._policy)
        except MetricsError as error:
            note = f"no metrics: {error}"
            if self._monitor.latest is not None:
                return self._monitor, [f"{note}; shown is the last good answer"]
            unmeasured = self._monitor_of(replace(self._cluster, metrics=_NoMetrics()))
            unmeasured.refresh(self._policy)
            return unmeasured, [note]
        if not self._looks:
            self._seen.extend(self._earlier())
        self._looks += 1
        self._seen.append(snapshot)
        return self._monitor, [*map(str, snapshot.warnings), *_dropped(snapshot)]

    def _earlier(self) -> Iterator[Snapshot]:
        """The values of a little while ago, so that the first look knows a trend; nothing if they are not to be had."""
        metrics, at = self._policy.metrics, self._cluster.clock.now() - EARLIER
        queries = tuple(
            replace(query, expression=earlier(query.expression), recorded=False) for query in metrics.queries
        )
        try:
            answers = {
                query.expression: self._cluster.metrics.instant(query.expression, metrics)
                for query in queries
            }
        except MetricsError:
            return
        nodes = self._cluster.caches.nodes.lister.list()
        yield read_snapshot(answers, nodes, replace(metrics, queries=queries), sequence=0, now=at)

    @staticmethod
    def _monitor_of(cluster: Cluster) -> Monitor:
        return Monitor(cluster.metrics, cluster.caches.nodes.lister, cluster.clock, with_vms=True)

    def _ledger(self, survey: Survey, view: ClusterView, policy: Policy) -> LedgerView:
        """As the descheduler has it after a start, with every entry brought up to what the metrics show."""
        timing, now = timing_of(policy), self._cluster.clock.now()
        entries, finished = read_off(survey, timing, now)

        def today(entry: Entry) -> Entry:
            seen = survey.sighting(entry, view.vmi(entry.vm))
            return advance(entry, seen, survey.evidence(entry), timing, now)

        ledger = Ledger(self._cluster.clock)
        ledger.replace_all(map(today, entries), finished)
        return ledger.view()


def earlier(expression: str) -> str:
    """What the expression gave ``EARLIER``, whatever it is, a comment at its end included.

    A subquery can be shifted, an expression cannot.
    """
    return f"last_over_time(({expression}\n)[1m:15s] offset {EARLIER.total_seconds():.0f}s)"


class _NoMetrics:
    """In place of metrics that are not to be had: nothing is known of anything."""

    def instant(self, expression: str, metrics: Metrics) -> Answer:  # noqa: ARG002 - the port's signature
        return Answer(())


def _dropped(snapshot: Snapshot) -> list[str]:
    if not snapshot.dropped:
        return []
    first = snapshot.dropped[0]
    return [
        f"{len(snapshot.dropped)} samples were not used, among them of {first.query}: {first.subject}: {first.reason}"
    ]
