"""Several observers as one. What one of them does wrong must neither stop a decision nor keep it from the others.

It is said once an hour for each observer, method and type of error: some are told something many times a second.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Lock

from cachetools import TTLCache

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.ports import DescheduleObserver, Observer, TaintObserver
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from informers.clock import SystemClock

log = logging.getLogger("vm-rebalancer")

SAY_AGAIN_S = 3600.0
_FAULTS = 1000
_clock = SystemClock()  # of the one who reads the log, in simulated time too


class _Fanout:
    """What both programs tell."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = observers
        self._lock = Lock()  # guards what failed within the hour, and has been said
        self._said: TTLCache[tuple[str, type[Exception]], bool] = TTLCache(
            _FAULTS, SAY_AGAIN_S, _clock.monotonic
        )

    def _tell(self, hear: Callable[..., None], *what: object, **how: object) -> None:
        try:
            hear(*what, **how)
        except Exception as error:
            called = getattr(hear, "__qualname__", repr(hear))
            if self._is_news((called, type(error))):
                log.exception("an observer failed at %s", called)

    def _is_news(self, failed: tuple[str, type[Exception]]) -> bool:
        with self._lock:
            if failed in self._said:
                return False
            self._said[failed] = True
            return True

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

    def __init__(self, *observers: DescheduleObserver) -> None:
        super().__init__(observers)
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


class TaintFanout(_Fanout):
    """The soft-tainter's observers, told in this order."""

    def __init__(self, *observers: TaintObserver) -> None:
        super().__init__(observers)
        self._observers = observers

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        for each in self._observers:
            self._tell(each.tainting, node, keys)
