"""The soft-tainter: puts ``PreferNoSchedule`` taints on over-utilised nodes and takes them off again.

It classifies for itself, from the same metrics and policy as the descheduler, and talks to nothing but Prometheus and
the nodes. A taint of ours that somebody removes or alters comes back by the node watch, not at the next refresh.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from controller.cluster.objects import Node
from controller.monitor import Monitor
from controller.policy.model import Mode, Policy
from controller.ports import MetricsSource, NodePatcher, TaintObserver
from controller.taints.desired import desired_keys, may_still_be_over, merged
from controller.utilization.reading import MetricsError
from informers.clock import Clock
from informers.informer import Informer
from informers.store import Change
from informers.workers import Again, Workers
from informers.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class Refresh:
    """Ask for fresh metrics and classify; comes again after each ``refreshInterval``."""


@dataclass(frozen=True, slots=True)
class Taint:
    """See whether this node carries the taints it should."""

    node: str


Key = Refresh | Taint

WAIT_FOR_POLICY = timedelta(seconds=5)


AFTER_CONFLICT = timedelta(milliseconds=200)
"""The node has changed since it was read; by then the watch should have brought the change."""


class SoftTainter:
    """Handlers of the queue keys. ``start`` is called once, when the node cache has synced."""

    def __init__(
        self,
        nodes: Informer[Node],
        metrics: MetricsSource,
        patcher: NodePatcher,
        observer: TaintObserver,
        current_policy: Callable[[], Policy | None],
        clock: Clock,
    ) -> None:
        self._nodes = nodes.lister
        self._patcher = patcher
        self._observer = observer
        self._current_policy = current_policy
        self._clock = clock
        self._started_at = clock.now()
        self._monitor = Monitor(metrics, nodes.lister, clock, with_vms=False)
        self.workers: Workers[Key] = Workers(WorkQueue(), self.handle, clock, observer.failed)
        nodes.add_handler(_keys_of_node, self.workers.add)

    def start(self) -> None:
        self._started_at = self._clock.now()
        self.workers.add(Refresh())

    def handle(self, key: Key) -> Again | None:
        policy = self._current_policy()
        match key:
            case Refresh():
                return self._refresh(policy)
            case Taint(node):
                return self._taint(node, policy) if policy is not None else None

    def _refresh(self, policy: Policy | None) -> Again:
        if policy is None:
            return Again(WAIT_FOR_POLICY)
        self._observer.refreshing()
        try:
            self._observer.refreshed(self._monitor.refresh(policy))
        except MetricsError as error:
            self._observer.metrics_failed(str(error))
        self._monitor.reclassify(policy)
        for node in self._nodes.list():
            if self._change(node, policy) is not None:
                self.workers.add(Taint(node.name))
        return Again(policy.metrics.refresh_interval)

    def _change(self, node: Node, policy: Policy) -> frozenset[str] | None:
        """The keys the node should carry instead of those it does; ``None`` if nothing is to be done."""
        classification = self._monitor.classification(policy)
        if may_still_be_over(node, classification, policy.soft_taints):
            return None
        wanted = desired_keys(
            node.name,
            classification,
            policy.soft_taints,
            policy.metrics.max_age,
            self._started_at,
        )
        return wanted if wanted is not None and merged(node.taints, wanted) != list(node.taints) else None

    def _taint(self, name: str, policy: Policy) -> Again | None:
        node = self._nodes.get("", name)
        if node is None or (wanted := self._change(node, policy)) is None:
            return None
        self._observer.tainting(node, wanted)
        if policy.mode is Mode.PREDICTIVE or self._patcher.replace_taints(node, merged(node.taints, wanted)):
            return None
        return Again(AFTER_CONFLICT)


def _keys_of_node(change: Change[Node]) -> list[Key]:
    new, old = change.new, change.old
    if new is None or (old is not None and old.taints == new.taints):
        return []
    return [Taint(new.name)]
