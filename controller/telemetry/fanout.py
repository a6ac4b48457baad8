"""Several observers as one. What one of them does wrong must neither stop a decision nor keep it from the others.

It is said once an hour for each observer, method and type of error: some are told something many times a second.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.ports import DescheduleObserver, Observer, TaintObserver
from controller.telemetry.news import News
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from informers.clock import Clock

log = logging.getLogger("vm-rebalancer")


class _Fanout:
    """What both programs tell."""

    def __init__(self, clock: Clock, observers: Sequence[Observer]) -> None:
        self._all = observers
        self._news = News(clock)

    def _tell(self, hear: Callable[..., None], *what: object, **how: object) -> None:
        try:
            hear(*what, **how)
        except Exception as error:
            called = getattr(hear, "__qualname__", repr(hear))
            if self._news.is_news((called, type(error))):
                log.exception("an observer failed at %s", called)

    def refreshing(self) -> None:
        for each in self._all:
            self._tell(each.refreshing)

    def refreshed(self, snapshot: Snapshot) -> None:
        for each in self._all:
            self._tell(each.refreshed, snapshot)

    def metrics_failed(self, reason: str) -> None:
        for each in self._all:
            self._tell(each.metrics_failed, reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        for each in self._all:
            self._tell(each.failed, key, error, retry_after)


class DescheduleFanout(_Fanout):
    """The descheduler's observers, told in this order."""

    def __init__(self, clock: Clock, *observers: DescheduleObserver) -> None:
        super().__init__(clock, observers)
        self._observers = observers

    def classified(self, classification: Classification) -> None:
        for each in self._observers:
            self._tell(each.classified, classification)

    def planned(self, plan: Plan) -> None:
        for each in self._observers:
            self._tell(each.planned, plan)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        for each in self._observers:
            self._tell(each.answered, entry, answer, dry_run=dry_run)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        for each in self._observers:
            self._tell(each.transition, before, after)

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        for each in self._observers:
            self._tell(each.alarmed, alarm, entry)

    def foreign_mark(self, vm: VmKey) -> None:
        for each in self._observers:
            self._tell(each.foreign_mark, vm)


class TaintFanout(_Fanout):
    """The soft-tainter's observers, told in this order."""

    def __init__(self, clock: Clock, *observers: TaintObserver) -> None:
        super().__init__(clock, observers)
        self._observers = observers

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        for each in self._observers:
            self._tell(each.tainting, node, keys)
