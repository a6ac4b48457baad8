"""What the programs need of the outside: each port has a real and a simulated implementation."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from controller.cluster.objects import Node, Pod, Taint, Vmi
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.policy.model import Metrics
from controller.utilization.classify import Classification
from controller.utilization.reading import Answer, Snapshot


class MetricsSource(Protocol):
    def instant(self, expression: str, metrics: Metrics) -> Answer:
        """Evaluate an instant query now, where and how ``metrics`` says. Raises ``MetricsError``."""


class EvictionApi(Protocol):
    def evict(self, pod: Pod, *, dry_run: bool) -> EvictionAnswer:
        """Ask for the eviction of exactly this pod (by UID). Never raises for an answer of the API server."""

    def read_vmi(self, vm: VmKey) -> Vmi | None:
        """The VMI as the API server has it now, not a cache's idea of it; ``None`` if there is none."""


class NodePatcher(Protocol):
    def replace_taints(self, node: Node, taints: Sequence[Taint]) -> bool:
        """Replace the list of taints if the node is still as it was read; False if it has changed or gone meanwhile."""


class Observer(Protocol):
    """Hears what a program sees and does. Must return at once and never raise."""

    def refreshing(self) -> None:
        """A refresh of the metrics begins; it ends with one of the next two. Never two at once."""

    def refreshed(self, snapshot: Snapshot) -> None: ...

    def metrics_failed(self, reason: str) -> None:
        """A refresh brought nothing; the last good snapshot serves until ``maxAge``."""

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        """Handling a key raised; it comes again after the delay."""


class DescheduleObserver(Observer, Protocol):
    def classified(self, classification: Classification) -> None: ...

    def planned(self, plan: Plan) -> None:
        """A node was considered: what was chosen, or why nothing was."""

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None: ...

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        """An entry was opened (no ``before``), moved on, or was released (no ``after``)."""

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        """The VM of this entry went down by our hand; all evicting has stopped until the policy changes."""

    def foreign_mark(self, vm: VmKey) -> None:
        """Somebody else has evicted this VM as a descheduler does."""


class TaintObserver(Observer, Protocol):
    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        """The node is about to carry exactly these keys of ours (in Predictive mode: would be)."""
