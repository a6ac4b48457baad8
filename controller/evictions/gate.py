"""May a VM be evicted from this node now? A pure function of the ledger's view and of what else is on the move.

VMs on the move are counted by VMI UID: the ledger's entries that hold a slot, united with the unfinished VMIMs in
the cluster, whoever asked for them (drains, users, upgrades use the same slots of KubeVirt).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from controller.cluster.objects import KubeVirt, ObjectMeta
from controller.cluster.queries import Reason
from controller.evictions.entry import Phase
from controller.evictions.views import LedgerView
from controller.policy.model import Limits, Policy

CODES = frozenset({"ShutdownAlarm", "UnsettledArrivals", "NodeBreaker", "NodeLimit", "TotalLimit"})
"""Of the reasons here. With one of them, no look was taken at the node's VMs."""


class Movement(NamedTuple):
    """An unfinished migration as the cluster shows it. ``source`` may be empty if it is not known yet."""

    vmi_uid: str
    source: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Slots:
    """How many VMs are on the move, and how many may be."""

    node_used: int
    node_limit: int
    total_used: int
    total_limit: int


_DEFAULT = KubeVirt(metadata=ObjectMeta())
"""KubeVirt's own defaults, while the object is not to be seen."""


def effective_limits(limits: Limits, kubevirt: KubeVirt | None) -> Limits:
    """The policy's limits, but never more than KubeVirt itself runs in parallel."""
    known = kubevirt or _DEFAULT
    return Limits(
        node=min(limits.node, known.parallel_outbound_migrations_per_node),
        total=min(limits.total, known.parallel_migrations_per_cluster),
    )


def count_slots(
    node: str,
    view: LedgerView,
    movements: Iterable[Movement],
    limits: Limits,
    migration_timeout: timedelta,
    now: datetime,
) -> Slots:
    """Count by VMI UID. What is stuck, ours or foreign, counts on its node only."""
    here: set[str] = set()
    everywhere: set[str] = set()
    stuck: set[str] = set()
    for entry in view.entries:
        if entry.holds_slot():
            if entry.source == node:
                here.add(entry.vmi_uid)
            (everywhere if entry.counts_cluster_wide() else stuck).add(entry.vmi_uid)
    for movement in movements:
        if movement.source == node:
            here.add(movement.vmi_uid)
        if movement.vmi_uid not in stuck and now - movement.since < migration_timeout:
            everywhere.add(movement.vmi_uid)
    return Slots(len(here), limits.node, len(everywhere), limits.total)


def why_closed(node: str, slots: Slots, view: LedgerView, policy: Policy, now: datetime) -> Reason | None:
    """Why no VM may be evicted from ``node`` now; ``None`` if one may."""
    if (alarmed := stopped(view, policy)) is not None:
        return alarmed
    if arrivals := unsettled_arrivals(node, view):
        return Reason(
            "UnsettledArrivals", f"the metrics do not show yet what has come here: {_names(arrivals)}"
        )
    if until := view.node_resting_until(node, policy.evictions.breaker, now):
        return Reason(
            "NodeBreaker", f"migrations away from it keep failing; it rests until {until:%H:%M:%S} UTC"
        )
    if slots.node_used >= slots.node_limit:
        return Reason("NodeLimit", f"{slots.node_used} of {slots.node_limit} VMs are on the move from it")
    if slots.total_used >= slots.total_limit:
        return Reason(
            "TotalLimit", f"{slots.total_used} of {slots.total_limit} VMs are on the move in the cluster"
        )
    return None


def stopped(view: LedgerView, policy: Policy) -> Reason | None:
    """Why all evicting has stopped; ``None`` if it has not. An alarm holds while its policy is in force."""
    if view.alarm is None or view.alarm.policy_digest != policy.digest:
        return None
    return Reason("ShutdownAlarm", f"all evicting has stopped until the policy changes: {view.alarm.reason}")


def unsettled_arrivals(node: str, view: LedgerView) -> list[str]:
    """VMs that are on their way to the node, or there without the metrics showing it."""
    return [str(e.vm) for e in view.entries if e.target == node and e.phase is not Phase.STUCK]


def _names(vms: Sequence[str], most: int = 3) -> str:
    more = f" and {len(vms) - most} more" if len(vms) > most else ""
    return ", ".join(vms[:most]) + more
