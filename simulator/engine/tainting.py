"""Demands that nodes carry the soft taints that the soft-tainter's last complete classification asks for."""

from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import msgspec

from controller.cluster.objects import Node
from controller.monitor import eligible_nodes
from controller.policy.model import Mode, Policy
from controller.ports import TaintObserver
from controller.taints.desired import desired_keys, may_still_be_over, our_keys
from controller.utilization.classify import Classification, classify
from controller.utilization.history import History
from controller.utilization.reading import Snapshot, expressions
from informers.clock import Clock
from informers.store import Lister
from simulator.kubevirt.objectstore import NODE, ObjectStore, WatchEvent

_QUIET_S = 5.0
"""So long after the last change of a node its taints are right: the watch has brought it, and a conflict was met."""
_BACK_OFF_S = 61.0
"""So long after trouble with the API: the longest until a handler that raised is called again."""


class Tainting:
    """An observer of one soft-tainter, from its start: classifies for itself what that has read.

    ``hindered_s`` says when the tainter last could not see or write; ``fail`` is called with what is wrong.
    """

    def __init__(
        self,
        inner: TaintObserver,
        nodes: Lister[Node],
        store: ObjectStore,
        clock: Clock,
        current_policy: Callable[[], Policy],
        hindered_s: Callable[[], float],
        fail: Callable[[str], NoReturn],
    ) -> None:
        self._inner = inner
        self._nodes = nodes
        self._store = store
        self._clock = clock
        self._current_policy = current_policy
        self._hindered_s = hindered_s
        self._fail = fail
        self._started_at = clock.now()
        self._history = History()
        self._asked: list[str] = []
        self._last: tuple[Policy, Classification] | None = None
        self._changed_s: dict[str, float] = {}
        """Node -> when its taints last changed, or it came."""

    def changed(self, event: WatchEvent) -> None:
        """A change in the store."""
        if event.kind == NODE:
            self._changed_s[event.object["metadata"]["name"]] = self._clock.monotonic()

    def refreshing(self) -> None:
        self._inner.refreshing()

    def refreshed(self, snapshot: Snapshot) -> None:
        self._look(snapshot)
        self._inner.refreshed(snapshot)

    def metrics_failed(self, reason: str) -> None:
        self._look()
        self._inner.metrics_failed(reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        self._inner.failed(key, error, retry_after)

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        self._inner.tainting(node, keys)

    def judge(self) -> None:
        """Compare what nodes carry with what the last classification asks for, where all has been quiet since."""
        policy, now_s = self._current_policy(), self._clock.monotonic()
        if self._last is None or self._last[0] is not policy or policy.mode is Mode.PREDICTIVE:
            return
        classification = self._last[1]
        age_s = (self._clock.now() - classification.at).total_seconds()
        if age_s < _QUIET_S or now_s - self._hindered_s() < _BACK_OFF_S:
            return
        for node in self._store.list(NODE):
            name = node["metadata"]["name"]
            if now_s - self._changed_s.get(name, float("-inf")) < _QUIET_S:
                continue
            seen = msgspec.convert(node, Node)
            if may_still_be_over(seen, classification, policy.soft_taints):
                continue
            wanted = desired_keys(
                name, classification, policy.soft_taints, policy.metrics.max_age, self._started_at
            )
            found = our_keys(seen.taints)
            if wanted is not None and found != wanted:
                self._fail(
                    f"node {name} carries {sorted(found)}, its classification asks for {sorted(wanted)}"
                )

    def _look(self, snapshot: Snapshot | None = None) -> None:
        """Judge what was there up to now, and classify anew."""
        self.judge()
        policy = self._current_policy()
        if (asked := expressions(policy.metrics, with_vms=False)) != self._asked:
            self._history.clear()
            self._asked = asked
        if snapshot is not None:
            self._history.append(snapshot, keep=2 * policy.thresholds.sustain + 6)
        nodes = eligible_nodes(self._nodes.list(), policy.node_selector)
        found = classify(self._history.snapshots, nodes, policy.metrics, policy.thresholds, self._clock.now())
        self._last = policy, found
