"""The trace of an eviction, from what is known of it: pure.

    eviction ▸ decide · request · migration/pending … migration/running (for each attempt) · settle

``decide`` and ``request`` are known only to the controller that asked; they are told as soon as the answer is there.
An attempt is told when it is over, the rest at the end, by whoever sees that: it can be read off the cluster then. Who
takes over in between tells again what may not have been told: it has the same IDs, and the same content.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime

from controller.cluster.objects import Vmim
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Entry, Phase
from controller.evictions.plan import Plan
from controller.telemetry.attempts import MOST_SAID, failure, in_order, retries, spans_of_attempt
from controller.telemetry.spans import Attributes, AttributeValue, Event, Link, Span, span_id, trace_id
from controller.utilization.classify import Edges
from informers.errors import as_shown

# OpenTelemetry's semantic conventions for Kubernetes.
NAMESPACE = "k8s.namespace.name"
POD = "k8s.pod.name"
POD_UID = "k8s.pod.uid"
NODE = "k8s.node.name"
"""The node that the pod is on: the one the VM leaves."""
FIRST = ""
"""Tells the first eviction of a pod from later ones, which are told apart by the last VMIM before them."""
REFUSED = "Refused"
"""How an eviction ends whose request was refused, or not sent after all."""
_ENDS_BADLY = {
    Phase.CANCELLED: "the eviction was taken back before the VM had moved",
    Phase.GONE: "the VM went away before it had moved",
    Phase.LOST: "no sign of the eviction was seen",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What the controller decided, on which thresholds, and in which round of metrics."""

    plan: Plan
    limits: Mapping[str, Edges] = field(default_factory=dict)
    round: Link | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    answer: EvictionAnswer
    dry_run: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Eviction:
    """All that is known of one eviction; replaced whole when more is heard.

    ``which`` tells it from other evictions of the same pod. ``after`` are those others, oldest first. ``decision`` is
    ``None`` if another controller decided.
    """

    entry: Entry
    which: str
    after: tuple[str, ...] = ()
    decision: Decision | None = None
    answers: tuple[Answered, ...] = ()
    attempts: Mapping[str, Vmim] = field(default_factory=dict)
    """By UID, as last seen."""
    stuck_at: datetime | None = None

    @property
    def root_id(self) -> int:
        return span_id(self.entry.pod_uid, self.which, "eviction")


def opening(eviction: Eviction) -> list[Span]:
    """``decide`` and ``request``; nothing if another controller did that."""
    if eviction.decision is None:
        return []
    return [_decide(eviction, eviction.decision), _request(eviction)]


def migrating(eviction: Eviction, until: datetime) -> dict[str, list[Span]]:
    """VMIM's UID -> spans of that attempt; one that is not over ends at ``until``."""
    entry = eviction.entry
    return {
        attempt.metadata.uid: list(spans_of_attempt(entry.pod_uid, eviction.root_id, number, attempt, until))
        for number, attempt in enumerate(in_order(eviction.attempts.values()), 1)
    }


def closing(eviction: Eviction, ended: datetime, told: Set[str] = frozenset()) -> list[Span]:
    """Everything else, the root last, which spans all the others. ``ended`` is when the end was seen.

    ``told``: UIDs of the VMIMs whose attempts have been told.
    """
    entry, attempts = eviction.entry, in_order(eviction.attempts.values())
    by_attempt = migrating(eviction, entry.ended_at or ended)
    children = [span for spans in by_attempt.values() for span in spans]
    if entry.ended_at is not None:
        children.append(_settle(eviction, entry.ended_at, ended))
    known = {span.span_id for uid in told for span in by_attempt.get(uid, ())}
    begun = eviction.decision.plan.at if eviction.decision is not None else entry.opened_at
    within = [*opening(eviction), *children]
    root = Span(
        trace_id(entry.pod_uid),
        eviction.root_id,
        "eviction",
        min([begun, *(span.start for span in within)]),
        max([begun, ended, *(span.end for span in within)]),
        attributes=_of_eviction(eviction, attempts),
        events=_events(eviction, attempts),
        links=_earlier(eviction),
        error=_why_bad(eviction, attempts),
    )
    return [*(span for span in children if span.span_id not in known), root]


def refused(eviction: Eviction, ended: datetime) -> list[Span]:
    """The whole trace of one that moved nothing: no other controller will go on with it."""
    return [*opening(eviction), *closing(eviction, ended)]


def _child(
    eviction: Eviction,
    name: str,
    start: datetime,
    end: datetime,
    attributes: Attributes,
    *,
    events: tuple[Event, ...] = (),
    links: tuple[Link, ...] = (),
    error: str = "",
    calls: bool = False,
) -> Span:
    uid = eviction.entry.pod_uid
    return Span(
        trace_id(uid),
        span_id(uid, eviction.which, name),
        name,
        start,
        max(start, end),
        eviction.root_id,
        attributes,
        events,
        links,
        error,
        calls,
    )


def _decide(eviction: Eviction, decision: Decision) -> Span:
    links = (decision.round,) if decision.round is not None else ()
    return _child(
        eviction,
        "decide",
        decision.plan.at,
        eviction.entry.opened_at,
        _of_decision(decision),
        links=links,
    )


def _of_decision(decision: Decision) -> Attributes:
    plan, choice = decision.plan, decision.plan.choice
    found: dict[str, AttributeValue] = {
        NODE: plan.node,
        "vm_rebalancer.source.node": plan.node,
        "vm_rebalancer.source.why": plan.verdict.reason,
        "vm_rebalancer.slots.node.used": plan.slots.node_used,
        "vm_rebalancer.slots.node.limit": plan.slots.node_limit,
        "vm_rebalancer.slots.total.used": plan.slots.total_used,
        "vm_rebalancer.slots.total.limit": plan.slots.total_limit,
        "vm_rebalancer.candidates": len(plan.passed_over) + (choice is not None),
    }
    if choice is not None:
        found |= {
            "vm_rebalancer.target.node": choice.target,
            "vm_rebalancer.vm": str(choice.candidate.key),
            "vm_rebalancer.gain": choice.gain,
            "vm_rebalancer.cost_s": choice.cost_s,
            "vm_rebalancer.why": choice.why,
        }
    for code, count in sorted(Counter(passed.reason.code for passed in plan.passed_over).items()):
        found[f"vm_rebalancer.rejected.{code}"] = count
    for query, value in plan.verdict.values.items():
        found[f"vm_rebalancer.value.{query}"] = value
    for query, edges in decision.limits.items():
        found[f"vm_rebalancer.threshold.under.{query}"] = edges.under
        found[f"vm_rebalancer.threshold.over.{query}"] = edges.over
    return found


def _request(eviction: Eviction) -> Span:
    entry, answers = eviction.entry, eviction.answers
    events = tuple(
        Event(
            "dry run answered" if each.dry_run else "answered",
            each.at,
            {
                "vm_rebalancer.verdict": str(each.answer.verdict),
                "vm_rebalancer.message": as_shown(each.answer.message, MOST_SAID),
            },
        )
        for each in answers
    )
    last = answers[-1] if answers else None
    attributes: dict[str, AttributeValue] = {
        NAMESPACE: entry.vm.namespace,
        POD: entry.pod,
        POD_UID: entry.pod_uid,
        "vm_rebalancer.sent": any(not each.dry_run for each in answers),
    }
    if last is not None:
        attributes["vm_rebalancer.verdict"] = str(last.answer.verdict)
    return _child(
        eviction,
        "request",
        entry.opened_at,
        last.at if last is not None else entry.opened_at,
        attributes,
        events=events,
        error=_why_not_accepted(eviction),
        calls=True,
    )


def _why_not_accepted(eviction: Eviction) -> str:
    """Only ``Triggered`` to the real request is what was wanted."""
    last = eviction.answers[-1] if eviction.answers else None
    if last is None or (last.dry_run and last.answer.verdict is Verdict.TRIGGERED):
        # Else the end was seen before the answer.
        return "not sent: the plan no longer held" if eviction.entry.open else ""
    if last.answer.verdict is Verdict.TRIGGERED:
        return ""
    text = as_shown(last.answer.message, MOST_SAID)
    return f"{last.answer.verdict}: {text}" if text else str(last.answer.verdict)


def _settle(eviction: Eviction, arrived: datetime, ended: datetime) -> Span:
    attributes = {"vm_rebalancer.target.node": eviction.entry.target}
    return _child(eviction, "settle", arrived, ended, attributes)


def _of_eviction(eviction: Eviction, attempts: list[Vmim]) -> Attributes:
    entry = eviction.entry
    found: dict[str, AttributeValue] = {
        NAMESPACE: entry.vm.namespace,
        POD: entry.pod,
        POD_UID: entry.pod_uid,
        NODE: entry.source,
        "vm_rebalancer.vm": str(entry.vm),
        "vm_rebalancer.vmi.uid": entry.vmi_uid,
        "vm_rebalancer.source.node": entry.source,
        "vm_rebalancer.target.node": entry.target,
        "vm_rebalancer.result": _result(eviction),
        "vm_rebalancer.attempts": len(attempts),
        "vm_rebalancer.attempts.failed": sum(attempt.phase == "Failed" for attempt in attempts),
        "vm_rebalancer.decided_elsewhere": eviction.decision is None,
    }
    if entry.load is not None:
        found["vm_rebalancer.vm.cpu_cores"] = entry.load.cpu_cores
        found["vm_rebalancer.vm.memory_bytes"] = entry.load.memory_bytes
    return found


def _result(eviction: Eviction) -> str:
    return REFUSED if eviction.entry.open else str(eviction.entry.phase)


def _events(eviction: Eviction, attempts: list[Vmim]) -> tuple[Event, ...]:
    events = retries(attempts)
    if eviction.stuck_at is not None:
        events.append(Event("stuck", eviction.stuck_at))
    return tuple(sorted(events, key=lambda event: event.at))


def _why_bad(eviction: Eviction, attempts: list[Vmim]) -> str:
    """Empty if the VM has arrived in time."""
    phase = eviction.entry.phase
    if eviction.entry.open:
        return _why_not_accepted(eviction)
    if phase in _ENDS_BADLY:
        last = attempts[-1] if attempts else None
        why = f": {failure(last)}" if last is not None and last.phase == "Failed" else ""
        return _ENDS_BADLY[phase] + why
    return "stuck: it took longer than migrationTimeout" if eviction.stuck_at is not None else ""


def _earlier(eviction: Eviction) -> tuple[Link, ...]:
    """To the first eviction of the same pod."""
    uid = eviction.entry.pod_uid
    return tuple(Link(trace_id(uid), span_id(uid, which, "eviction")) for which in eviction.after[:1])
