"""Refreshing and classifying: what the descheduler and the soft-tainter both do, each for itself."""

from threading import Lock

from controller.cluster.objects import Node
from controller.cluster.selectors import LabelSelector
from controller.policy.model import Policy
from controller.ports import MetricsSource
from controller.utilization.classify import Classification, classify
from controller.utilization.history import History
from controller.utilization.reading import Snapshot, expressions, read_snapshot
from informers.clock import Clock
from informers.store import Lister


class Monitor:
    """Owns the history of snapshots and the classification made of it.

    ``refresh`` is for the handler of one key, on which the work queue never works twice at once. Results are replaced
    whole and may be read from any thread.
    """

    def __init__(self, source: MetricsSource, nodes: Lister[Node], clock: Clock, *, with_vms: bool) -> None:
        self._source = source
        self._nodes = nodes
        self._clock = clock
        self._with_vms = with_vms
        self._history = History()
        self._asked: list[str] = []
        # Held while classifying, so that of two at once the later one sees, and leaves, the newer history.
        self._lock = Lock()
        self._classified: tuple[Policy, Classification] | None = None

    @property
    def latest(self) -> Snapshot | None:
        return self._history.latest

    def refresh(self, policy: Policy) -> Snapshot:
        """Ask for fresh metrics and add them to the history.

        Raises ``MetricsError`` if any query cannot be answered; the history then stays as it is. A snapshot with a
        part missing would be worse than the last whole one: without the VMs' load it would decide blindly.
        """
        asked = expressions(policy.metrics, with_vms=self._with_vms)
        if asked != self._asked:
            self._history.clear()  # old answers to other questions say nothing about new thresholds
            self._asked = asked
        sequence = self._history.next_sequence()
        answers = {expression: self._source.instant(expression, policy.metrics) for expression in asked}
        snapshot = read_snapshot(
            answers, self._nodes.list(), policy.metrics, sequence=sequence, now=self._clock.now()
        )
        self._history.append(snapshot, keep=2 * policy.thresholds.sustain + 6)
        return snapshot

    def reclassify(self, policy: Policy) -> Classification:
        with self._lock:
            nodes = eligible_nodes(self._nodes.list(), policy.node_selector)
            classification = classify(
                self._history.snapshots, nodes, policy.metrics, policy.thresholds, self._clock.now()
            )
            self._classified = policy, classification
            return classification

    def classification(self, policy: Policy) -> Classification | None:
        """The newest one under this policy; ``None`` if there is none yet."""
        classified = self._classified
        return classified[1] if classified is not None and classified[0] is policy else None


def eligible_nodes(nodes: list[Node], selector: LabelSelector) -> list[Node]:
    """Nodes that take part: they match the selector, are Ready and schedulable."""
    return [n for n in nodes if n.ready and not n.unschedulable and selector.matches(n.labels)]
