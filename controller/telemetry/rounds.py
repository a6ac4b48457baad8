"""The trace of a round: metrics are refreshed, nodes classified. Pure."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from controller.telemetry.spans import Attributes, AttributeValue, Link, Span, span_id, trace_id
from controller.utilization.classify import Classification, NodeClass
from controller.utilization.reading import Snapshot


@dataclass(frozen=True, slots=True)
class Round:
    """``name`` is unique to it. ``refreshed_at`` is ``None`` if nodes were classified without fresh metrics."""

    name: str
    begun_at: datetime
    refreshed_at: datetime | None = None
    snapshot: Snapshot | None = None
    failure: str = ""

    @property
    def link(self) -> Link:
        return Link(trace_id(self.name), span_id(self.name, "", "round"))


def spans_of_round(round_: Round, classification: Classification, now: datetime) -> list[Span]:
    """``round`` ▸ ``refresh`` · ``classify``, the root last."""
    trace, root = round_.link
    children = []
    if round_.refreshed_at is not None:
        children.append(
            Span(
                trace,
                span_id(round_.name, "", "refresh"),
                "refresh",
                round_.begun_at,
                round_.refreshed_at,
                root,
                attributes=_of_refresh(round_),
                error=round_.failure,
                calls=True,
            )
        )
    children.append(
        Span(
            trace,
            span_id(round_.name, "", "classify"),
            "classify",
            round_.refreshed_at or round_.begun_at,
            now,
            root,
            attributes=_of_classification(classification),
        )
    )
    fresh = {"vm_rebalancer.fresh_metrics": round_.snapshot is not None}
    error = round_.failure or classification.skipped
    return [*children, Span(trace, root, "round", round_.begun_at, now, attributes=fresh, error=error)]


def _of_refresh(round_: Round) -> Attributes:
    snapshot = round_.snapshot
    if snapshot is None:
        return {}
    return {
        "vm_rebalancer.snapshot.sequence": snapshot.sequence,
        "vm_rebalancer.snapshot.nodes": len(snapshot.loads),
        "vm_rebalancer.snapshot.vms": len(snapshot.vms),
        "vm_rebalancer.samples.dropped": len(snapshot.dropped),
        "vm_rebalancer.warnings": list(snapshot.warnings),
    }


def _of_classification(classification: Classification) -> Attributes:
    classes = Counter(verdict.node_class for verdict in classification.nodes.values())
    found: dict[str, AttributeValue] = {
        "vm_rebalancer.coverage": classification.coverage,
        "vm_rebalancer.over_utilised": classification.over_utilised(),
        **{f"vm_rebalancer.nodes.{each.name.lower()}": classes[each] for each in NodeClass},
    }
    for query, edges in classification.limits.items():
        found[f"vm_rebalancer.threshold.under.{query}"] = edges.under
        found[f"vm_rebalancer.threshold.over.{query}"] = edges.over
    return found
