"""Metrics that are read off their owners whenever somebody asks: queues, informers, the lease, the cluster.

The owners know nothing of metrics; they give snapshots of what they have counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from controller.cluster.objects import Node
from controller.evictions.views import LedgerView
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
from informers.durations import BOUNDS_S, Durations
from informers.reflector import ReflectorStatistics
from informers.workers import WorkersStatistics

Reading = tuple[Family, tuple[str, ...], float | Durations]
"""A metric, the values of its labels, and its value."""


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


def of_rests(view: LedgerView, policy: Policy | None, now: datetime) -> Iterator[Reading]:
    """Nothing before there is a policy: it says for how long."""
    if policy is None:
        return
    evictions = policy.evictions
    rests = {
        "cooldown": sum(view.cooling_until(vm, evictions.cooldown, now) is not None for vm in view.finished),
        "breaker": sum(view.vm_resting_until(vm, evictions.breaker, now) is not None for vm in view.finished),
        "refused": sum(view.refusal(vm, now) is not None for vm in view.refusals),
    }
    for reason, count in rests.items():
        yield RESTING_VMS, (reason,), count
    nodes = sum(view.node_resting_until(node, evictions.breaker, now) is not None for node in view.failures)
    yield RESTING_NODES, (), nodes
