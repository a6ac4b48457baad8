"""The programs' metrics, by the names that dashboards and alerts use. Per node, never per VM."""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """All of them in one registry of our own; made once a program."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"vm_rebalancer_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"vm_rebalancer_{name}", text, labels, registry=registry)

        self.policy_valid = gauge("policy_valid", "1 if the policy that is there now is in force, else 0")
        self.is_leader = gauge("is_leader", "1 if this replica holds the lease and may write, else 0")
        self.metrics_age = gauge("metrics_age_seconds", "Age of the last good snapshot of metrics")
        self.coverage = gauge("metrics_coverage_ratio", "Share of the eligible nodes that have a value")
        self.coverage.set(math.nan)  # until there is a classification
        self.refresh_failures = counter("refresh_failures", "Refreshes of metrics that brought nothing")
        self.samples_dropped = counter("samples_dropped", "Samples that were not used", "query")
        self.node_value = gauge("node_value", "Value of a node in a query, 0 to 1", "node", "query")
        self.node_threshold = gauge("node_threshold", "Thresholds of a query", "query", "threshold")
        self.node_class = gauge(
            "node_class", "-1 unknown, 0 under-utilised, 1 appropriate, 2 over-utilised", "node"
        )
        self.evictions = counter("evictions", "Answers to real eviction requests", "result")
        self.dry_runs = counter("eviction_dry_runs", "Answers to dry runs of evictions", "result")
        self.in_flight = gauge("migrations_in_flight", "VMs on the move or settling, whoever asked", "phase")
        self.ended = counter("migrations_ended", "Followed migrations by their end", "result")
        self.passed_over = counter("vms_passed_over", "VMs that were considered and not moved", "reason")
        self.at_rest = counter("nodes_at_rest", "Over-utilised nodes that sent no VM", "reason")
        self.shutdown_alarm = gauge(
            "shutdown_alarm", "1 while all evicting has stopped by the shutdown alarm"
        )
        self.taint_changes = counter("taint_changes", "Nodes whose soft taints were to be changed")
        self.handler_errors = counter("handler_errors", "Handlers that raised; their keys come again")
        self.informer_errors = counter("informer_errors", "Things that went wrong in an informer", "resource")
        self.informer_age = gauge(
            "informer_last_contact_seconds", "Since the API server last told us something", "resource"
        )
        self.queue_depth = gauge("queue_depth", "Keys that are ready or delayed")
