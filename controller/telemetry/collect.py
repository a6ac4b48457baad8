"""Metrics that are read off their owners whenever somebody asks: queues, informers, the lease, the cluster.

The owners know nothing of metrics; they give snapshots of what they have counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from controller.cluster.objects import Node
from controller.evictions.views import Finished, LedgerView
from controller.policy.model import Policy
from controller.taints.desired import APPROPRIATE, OVER, PREFIX, is_ours
from controller.telemetry.names import (
    INFORMER_EVENTS,
    INFORMER_LISTS,
    INFORMER_OBJECTS,
    INFORMER_WATCHES,
    LEASE_TRANSITIONS,
    QUEUE_ADDS,
    QUEUE_KEYS,
    QUEUE_LONGEST,
    QUEUE_RETRIES,
    QUEUE_WAITED,
    QUEUE_WORKED,
    RESTING_NODES,
    RESTING_VMS,
    TAINTED_NODES,
    Family,
    Kind,
)
from informers.clock import Clock
from informers.durations import BOUNDS_S, Durations
from informers.reflector import ReflectorStatistics
from informers.workers import WorkersStatistics

Reading = tuple[Family, tuple[str, ...], float | Durations]
"""A metric, the values of its labels, and its value."""
COUNT_AGAIN_S = 10.0
"""What only time changes."""


class Readings(Collector):
    """Asks ``read`` at each scrape; several families may come in any order."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        found: dict[Family, list[tuple[tuple[str, ...], float | Durations]]] = {}
        for family, labels, value in self._read():
            found.setdefault(family, []).append((labels, value))
        return (_metric(family, values) for family, values in found.items())


def _metric(family: Family, values: Sequence[tuple[tuple[str, ...], float | Durations]]) -> Metric:
    counter = CounterMetricFamily(family.name, family.text, labels=family.labels)
    gauge = GaugeMetricFamily(family.name, family.text, labels=family.labels)
    histogram = HistogramMetricFamily(family.name, family.text, labels=family.labels)
    for labels, value in values:
        if isinstance(value, Durations):
            bounds = (*map(floatToGoString, BOUNDS_S), "+Inf")
            histogram.add_metric(
                labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total_s
            )
        elif family.kind is Kind.COUNTER:
            counter.add_metric(labels, value)
        else:
            gauge.add_metric(labels, value)
    return {Kind.COUNTER: counter, Kind.GAUGE: gauge, Kind.HISTOGRAM: histogram}[family.kind]


def of_queue(name: str, statistics: WorkersStatistics) -> Iterator[Reading]:
    queue = statistics.queue
    states = {
        "ready": queue.ready,
        "working": queue.working,
        "again": queue.again,
        "delayed": queue.delayed,
        "failing": queue.failing,
    }
    for state, count in states.items():
        yield QUEUE_KEYS, (name, state), count
    yield QUEUE_ADDS, (name,), queue.added
    yield QUEUE_RETRIES, (name,), queue.rate_limited
    yield QUEUE_WAITED, (name,), queue.waited
    yield QUEUE_WORKED, (name,), statistics.worked
    yield QUEUE_LONGEST, (name,), statistics.longest_running_s


def of_informers(every: Iterable[ReflectorStatistics]) -> Iterator[Reading]:
    for statistics in every:
        resource = (statistics.name,)
        yield INFORMER_OBJECTS, resource, statistics.objects
        yield INFORMER_LISTS, resource, statistics.lists
        yield INFORMER_WATCHES, resource, statistics.watches
        yield INFORMER_EVENTS, resource, statistics.events


def of_lease(transitions: int) -> Iterator[Reading]:
    yield LEASE_TRANSITIONS, (), transitions


def of_taints(nodes: Iterable[Node]) -> Iterator[Reading]:
    """The two keys of every scheme but Graded, if only with a zero, and the levels that are there."""
    counts = Counter(dict.fromkeys((OVER, APPROPRIATE), 0))
    counts.update(taint.key for node in nodes for taint in node.taints if is_ours(taint))
    for key, count in counts.items():
        yield TAINTED_NODES, (key.removeprefix(f"{PREFIX}/"),), count


class Rests:
    """VMs and nodes that are left alone for a while, read off the ledger's memory, which may hold very many.

    They are counted anew when the memory or the policy has changed, and else as time goes by.
    """

    def __init__(
        self, ledger: Callable[[], LedgerView], current_policy: Callable[[], Policy | None], clock: Clock
    ) -> None:
        self._ledger = ledger
        self._current_policy = current_policy
        self._clock = clock
        self._last: _Counted | None = None  # replaced whole

    def read(self) -> tuple[Reading, ...]:
        """Nothing before there is a policy: it says for how long."""
        view, policy, at_s = self._ledger(), self._current_policy(), self._clock.monotonic()
        if policy is None:
            return ()
        last = self._last
        if last is None or not last.still_holds(view, policy, at_s):
            readings = tuple(of_rests(view, policy, self._clock.now()))
            last = self._last = _Counted(view, policy, at_s, readings)
        return last.readings


class _Counted(NamedTuple):
    view: LedgerView
    policy: Policy
    at_s: float
    readings: tuple[Reading, ...]

    def still_holds(self, view: LedgerView, policy: Policy, at_s: float) -> bool:
        """All parts of the memory are made anew when something is remembered."""
        return (
            view.finished is self.view.finished and policy is self.policy and at_s - self.at_s < COUNT_AGAIN_S
        )


def of_rests(view: LedgerView, policy: Policy, now: datetime) -> Iterator[Reading]:
    evictions = policy.evictions
    longest = max(evictions.cooldown.max, evictions.breaker.rest)
    # Most of what is remembered is long over: no rule has to be asked about it.
    vms = [vm for vm, moves in view.finished.items() if _may_rest(moves, longest, now)]
    rests = {
        "cooldown": sum(view.cooling_until(vm, evictions.cooldown, now) is not None for vm in vms),
        "breaker": sum(view.vm_resting_until(vm, evictions.breaker, now) is not None for vm in vms),
        "refused": sum(refusal.until > now for refusal in view.refusals.values()),
    }
    for reason, count in rests.items():
        yield RESTING_VMS, (reason,), count
    nodes = sum(view.node_resting_until(node, evictions.breaker, now) is not None for node in view.failures)
    yield RESTING_NODES, (), nodes


def _may_rest(moves: Sequence[Finished], longest: timedelta, now: datetime) -> bool:
    """False only if each is so long ago that no rest after it lasts until now: at least as long as it took."""
    return moves[-1].at + longest > now or any(move.at + move.took > now for move in moves)
