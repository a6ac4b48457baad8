"""One over-utilised node considered: may it send a VM, which one, and if none, why. Pure."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from controller.cluster.queries import Reason
from controller.evictions.entry import Entry, Phase
from controller.evictions.gate import CODES, Slots, why_closed
from controller.evictions.select import Choice, Ground, PassedOver, select
from controller.evictions.views import LedgerView
from controller.policy.model import Policy
from controller.utilization.classify import NodeVerdict


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided for a node and why; ``choice`` is ``None`` when nothing is to be evicted."""

    node: str
    at: datetime
    verdict: NodeVerdict
    slots: Slots
    choice: Choice | None = None
    rest: Reason | None = None
    """Why nothing is chosen."""
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def gate_closed(self) -> bool:
        """Whether no look was taken at the node's VMs."""
        return self.rest is not None and self.rest.code in CODES


def plan_node(verdict: NodeVerdict, slots: Slots, ground: Ground) -> Plan:
    """Gate first, then whether the node still hurts once the moves under way are charged, then selection."""
    source = ground.source
    if (closed := closed_gate(verdict, slots, ground.ledger, ground.policy, ground.now)) is not None:
        return closed
    plan = partial(Plan, source.name, ground.now, verdict, slots)
    if not ground.picture.hurts(source.name, source.allocatable, ground.policy.thresholds.floor):
        return plan(rest=Reason("Relieved", "with the moves under way it is below every floor"))
    selection = select(ground)
    if selection.choice is None:
        return plan(rest=Reason("NoUsefulMove", selection.note), passed_over=selection.passed_over)
    return plan(choice=selection.choice, passed_over=selection.passed_over)


def closed_gate(
    verdict: NodeVerdict, slots: Slots, ledger: LedgerView, policy: Policy, now: datetime
) -> Plan | None:
    """The plan for a node whose gate is closed, which takes no look at its VMs; ``None`` if it is open."""
    closed = why_closed(verdict.node, slots, ledger, policy, now)
    return Plan(verdict.node, now, verdict, slots, rest=closed) if closed is not None else None


def entry_for(choice: Choice, source: str, known_migrations: frozenset[str], now: datetime) -> Entry:
    """What the ledger reserves for a choice, before any request. ``known_migrations``: UIDs of the VM's VMIMs."""
    candidate = choice.candidate
    return Entry(
        pod_uid=candidate.pod.metadata.uid,
        pod=candidate.pod.metadata.name,
        vm=candidate.key,
        vmi_uid=candidate.vmi.uid,
        source=source,
        phase=Phase.REQUESTED,
        opened_at=now,
        changed_at=now,
        target=choice.target,
        load=candidate.load,
        before=known_migrations,
    )
