"""The programs' metrics, by the names that dashboards and alerts use. Per node, never per VM.

What dashboards of other deschedulers read is here too, under the names, labels and values of the upstream one.
"""

import math
import platform
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.evictions.answers import Verdict
from controller.evictions.entry import ENDED

OURS = "vm_rebalancer_"
UPSTREAM = "descheduler_"
STRATEGY = "LowNodeUtilization"
"""The upstream plugin whose work this is; its dashboards select by it."""
PROFILE = "vm-rebalancer"
US = "us"
OTHERS = "others"
METRIC_RESOURCE = "MetricResource"
"""What upstream calls that which a Prometheus query measures."""

_QUICK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW_S = (10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Resource(StrEnum):
    """What load is of."""

    CPU = "cpu"
    MEMORY = "memory"


class Family(NamedTuple):
    """One metric as it is asked for: a counter's ``name`` ends in ``_total``, a histogram's has no suffix."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


def _collected(name: str, kind: Kind, text: str, *labels: str) -> Family:
    return Family(f"{OURS}{name}", kind, text, labels)


QUEUE_KEYS = _collected(
    "workqueue_keys", Kind.GAUGE, "Keys of a work queue, by their state", "queue", "state"
)
QUEUE_ADDS = _collected("workqueue_adds_total", Kind.COUNTER, "Keys put into a work queue", "queue")
QUEUE_RETRIES = _collected(
    "workqueue_retries_total", Kind.COUNTER, "Keys put back because their handler raised", "queue"
)
QUEUE_WAITED = _collected(
    "workqueue_queue_duration_seconds", Kind.HISTOGRAM, "How long keys waited for a worker", "queue"
)
QUEUE_WORKED = _collected(
    "workqueue_work_duration_seconds", Kind.HISTOGRAM, "How long handlers took", "queue"
)
QUEUE_LONGEST = _collected(
    "workqueue_longest_running_seconds", Kind.GAUGE, "Age of the oldest handler under way", "queue"
)
INFORMER_OBJECTS = _collected("informer_objects", Kind.GAUGE, "Objects in an informer's cache", "resource")
INFORMER_LISTS = _collected("informer_lists_total", Kind.COUNTER, "Complete lists of a resource", "resource")
INFORMER_WATCHES = _collected("informer_watches_total", Kind.COUNTER, "Watches opened", "resource")
INFORMER_EVENTS = _collected(
    "informer_events_total", Kind.COUNTER, "Events of watches, bookmarks included", "resource"
)
LEASE_TRANSITIONS = _collected(
    "lease_transitions_total", Kind.COUNTER, "How often the lease has changed hands, as it says itself"
)
TAINTED_NODES = _collected(
    "tainted_nodes", Kind.GAUGE, "Nodes that carry a soft taint of ours, by its key", "taint"
)
RESTING_VMS = _collected("resting_vms", Kind.GAUGE, "VMs that are left alone for a while, by why", "reason")
RESTING_NODES = _collected(
    "resting_nodes", Kind.GAUGE, "Nodes left alone because migrations away from them keep failing"
)

COLLECTED = (
    QUEUE_KEYS,
    QUEUE_ADDS,
    QUEUE_RETRIES,
    QUEUE_WAITED,
    QUEUE_WORKED,
    QUEUE_LONGEST,
    INFORMER_OBJECTS,
    INFORMER_LISTS,
    INFORMER_WATCHES,
    INFORMER_EVENTS,
    LEASE_TRANSITIONS,
    TAINTED_NODES,
    RESTING_VMS,
    RESTING_NODES,
)
"""Read off their owners whenever somebody asks: :mod:`controller.telemetry.collect`."""
OF_THE_LEDGER = frozenset({RESTING_VMS, RESTING_NODES})
"""Of those."""


class Metrics:
    """All of them in one registry of our own; made once a program. ``families`` lists them, collected ones too.

    ``evicts``: whether it is the descheduler. Another program's zeros would say of evictions that there are none, so
    there they are not shown, and may be set all the same.
    """

    def __init__(self, registry: CollectorRegistry, *, evicts: bool = True) -> None:
        self.registry = registry
        self.families = [family for family in COLLECTED if evicts or family not in OF_THE_LEDGER]
        self._shown_in: CollectorRegistry | None = registry
        self._of_the_program()
        self._of_refreshes()
        self._shown_in = registry if evicts else None
        self._of_what_it_tells()
        self._of_nodes()
        self._of_evictions()
        self._of_upstream()

    def _of_the_program(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.build_info = gauge("build_info", "1; which version this is", "version", "python")
        self.build_info.labels(_version(), platform.python_version()).set(1)
        self.policy_valid = gauge("policy_valid", "1 if the policy that is there now is in force, else 0")
        self.policy_info = gauge("policy_info", "1; which policy is in force", "digest", "mode")
        self.is_leader = gauge("is_leader", "1 if this replica holds the lease and may write, else 0")
        self.handler_errors = counter("handler_errors", "Handlers that raised; their keys come again")
        self.informer_errors = counter("informer_errors", "Things that went wrong in an informer", "resource")
        self.informer_age = gauge(
            "informer_last_contact_seconds", "Since the API server last told us something", "resource"
        )
        self.api_requests = counter(
            "api_requests", "Requests to the API server by their answer", "verb", "resource", "code"
        )
        self.api_duration = self._histogram(
            "api_request_duration_seconds", "Until the answer began", _QUICK_S, "verb", "resource"
        )

    def _of_what_it_tells(self) -> None:
        self.events_dropped = self._counter(
            "events_dropped", "Kubernetes Events that were not sent", "reason"
        )
        self.spans_dropped = self._counter("spans_dropped", "Spans of traces that were not exported")

    def _of_refreshes(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.metrics_age = gauge("metrics_age_seconds", "Age of the last good snapshot of metrics")
        self.refresh_failures = counter("refresh_failures", "Refreshes of metrics that brought nothing")
        self.refresh_duration = self._histogram(
            "refresh_duration_seconds", "All queries of one refresh together", _QUICK_S, "result"
        )
        self.samples_dropped = counter("samples_dropped", "Samples that were not used", "query")
        self.taint_changes = counter("taint_changes", "Nodes whose soft taints were to be changed")

    def _of_nodes(self) -> None:
        gauge = self._gauge
        self.coverage = gauge("metrics_coverage_ratio", "Share of the eligible nodes that have a value")
        self.coverage.set(math.nan)  # until there is a classification
        self.node_value = gauge("node_value", "Value of a node in a query, 0 to 1", "node", "query")
        self.node_threshold = gauge("node_threshold", "Thresholds of a query", "query", "threshold")
        self.node_class = gauge(
            "node_class", "-1 unknown, 0 under-utilised, 1 appropriate, 2 over-utilised", "node"
        )
        self.nodes = gauge("nodes", "Eligible nodes by their class", "class")
        self.misplaced = gauge(
            "load_misplaced_nodes", "The imbalance: load above the average, in nodes' worth of it", "resource"
        )

    def _of_evictions(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.evictions = counter("evictions", "Answers to real eviction requests", "result")
        self.dry_runs = counter("eviction_dry_runs", "Answers to dry runs of evictions", "result")
        self.in_flight = gauge("migrations_in_flight", "VMs on the move or settling, whoever asked", "phase")
        self.ended = counter(
            "migrations_ended", "Followed migrations by their end and who asked", "result", "asked_by"
        )
        self.failed_attempts = counter("migration_attempts_failed", "Attempts at migrations that failed")
        self.migration_duration = self._histogram(
            "migration_duration_seconds", "From asking to the arrival of the VM", _SLOW_S, "asked_by"
        )
        self.settle_duration = self._histogram(
            "settle_duration_seconds", "From the arrival until the metrics showed it", _SLOW_S
        )
        self.moved = counter("load_moved_nodes", "Load that our moves took away, in nodes' worth", "resource")
        # Those whose labels are known are there from the start: the first one, too, must be an increase.
        for resource in Resource:
            self.moved.labels(resource)
        for verdict in Verdict:
            self.evictions.labels(verdict)
            self.dry_runs.labels(verdict)
        for end in sorted(ENDED):
            for asked_by in (US, OTHERS):
                self.ended.labels(end, asked_by)
        self.passed_over = counter("vms_passed_over", "VMs that were considered and not moved", "reason")
        self.at_rest = counter("nodes_at_rest", "Over-utilised nodes that sent no VM", "reason")
        self.why_not_vms = gauge("why_not_vms", "VMs of over-utilised nodes passed over last time", "reason")
        self.why_not_nodes = gauge("why_not_nodes", "Over-utilised nodes that sent none last time", "reason")
        self.foreign_marks = counter(
            "foreign_descheduler_marks", "VMs marked in a descheduler's name, but not by us"
        )
        self.shutdown_alarm = gauge(
            "shutdown_alarm", "1 while all evicting has stopped by the shutdown alarm"
        )

    def _of_upstream(self) -> None:
        """As ``metrics/metrics.go`` and ``nodeutilization/metrics.go`` of kubernetes-sigs/descheduler have them."""
        low = f"{UPSTREAM}lownodeutilization_"
        self.pods_evicted = self._counter(
            "pods_evicted",
            "Evictions by their result: success (the VM migrates) or error",
            *("result", "strategy", "profile", "namespace", "node"),
            prefix=UPSTREAM,
        )
        self.upstream_value = self._gauge(
            "node_utilization_value", "Value of a node, 0 to 1", "node", "resource", prefix=low
        )
        self.upstream_threshold = self._gauge(
            "node_utilization_threshold",
            "Thresholds of a node, 0 to 1, low and high",
            *("node", "resource", "threshold_type"),
            prefix=low,
        )
        self.upstream_class = self._gauge(
            "node_classification", "0 under-utilised, 1 appropriate, 2 over-utilised", "node", prefix=low
        )
        self.upstream_mode = self._gauge(
            "threshold_mode", "0 static thresholds, 1 deviations from the average", prefix=low
        )
        self.upstream_mode.set(math.nan)  # until there is a policy

    def _counter(self, name: str, text: str, *labels: str, prefix: str = OURS) -> Counter:
        self._list(Family(f"{prefix}{name}_total", Kind.COUNTER, text, labels))
        return Counter(f"{prefix}{name}", text, labels, registry=self._shown_in)

    def _gauge(self, name: str, text: str, *labels: str, prefix: str = OURS) -> Gauge:
        self._list(Family(f"{prefix}{name}", Kind.GAUGE, text, labels))
        return Gauge(f"{prefix}{name}", text, labels, registry=self._shown_in)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self._list(Family(f"{OURS}{name}", Kind.HISTOGRAM, text, labels))
        return Histogram(f"{OURS}{name}", text, labels, registry=self._shown_in, buckets=buckets)

    def _list(self, family: Family) -> None:
        if self._shown_in is not None:
            self.families.append(family)


@cache
def _version() -> str:
    try:
        return version("vm-rebalancer")
    except PackageNotFoundError:
        return "unknown"
