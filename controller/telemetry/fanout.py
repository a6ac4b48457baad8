"""Several observers as one. What one of them does wrong must neither stop a decision nor keep it from the others."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.ports import DescheduleObserver, Observer, TaintObserver
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot

log = logging.getLogger("vm-rebalancer")


class _Fanout:
    """What both programs tell."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = observers

    def refreshing(self) -> None:
        for each in self._all:
            _tell(each.refreshing)

    def refreshed(self, snapshot: Snapshot) -> None:
        for each in self._all:
            _tell(each.refreshed, snapshot)

    def metrics_failed(self, reason: str) -> None:
        for each in self._all:
            _tell(each.metrics_failed, reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        for each in self._all:
            _tell(each.failed, key, error, retry_after)


class DescheduleFanout(_Fanout):
    """The descheduler's observers, told in this order."""

    def __init__(self, *observers: DescheduleObserver) -> None:
        super().__init__(observers)
        self._observers = observers

    def classified(self, classification: Classification) -> None:
        for each in self._observers:
            _tell(each.classified, classification)

    def planned(self, plan: Plan) -> None:
        for each in self._observers:
            _tell(each.planned, plan)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        for each in self._observers:
            _tell(each.answered, entry, answer, dry_run=dry_run)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        for each in self._observers:
            _tell(each.transition, before, after)

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        for each in self._observers:
            _tell(each.alarmed, alarm, entry)


class TaintFanout(_Fanout):
    """The soft-tainter's observers, told in this order."""

    def __init__(self, *observers: TaintObserver) -> None:
        super().__init__(observers)
        self._observers = observers

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        for each in self._observers:
            _tell(each.tainting, node, keys)


def _tell(hear: Callable[..., None], *what: object, **how: object) -> None:
    try:
        hear(*what, **how)
    except Exception:
        log.exception("an observer failed at %s", getattr(hear, "__qualname__", hear))
