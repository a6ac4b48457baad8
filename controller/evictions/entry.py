"""One VM on the move, as the ledger remembers it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from controller.utilization.reading import VmLoad

REQUEST_WITHIN = timedelta(seconds=15)
"""How long an eviction request may take: a little more than the 10 s that the API server gives a webhook."""


class VmKey(NamedTuple):
    """Names a VMI; another VMI may take the name later, so ``vmi_uid`` goes with it wherever identity matters."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Phase(StrEnum):
    """Where an entry stands. Only the last four are ends."""

    REQUESTED = "Requested"
    """Reserved; the request may be on its way, or was accepted and no sign of it has been seen yet."""
    UNKNOWN = "Unknown"
    """The request left and no answer came: it counts until the cluster shows what became of it."""
    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    PREPARING = "Preparing"
    RUNNING = "Running"
    RETRYING = "Retrying"
    """An attempt failed and KubeVirt tries again, since the mark stands."""
    STUCK = "Stuck"
    """Still on the move after ``migrationTimeout``: counts on its node only."""
    SETTLING = "Settling"
    """The VM is at its new node; the metrics do not show it yet."""
    DONE = "Done"
    CANCELLED = "Cancelled"
    GONE = "Gone"
    LOST = "Lost"


ENDED = frozenset({Phase.DONE, Phase.CANCELLED, Phase.GONE, Phase.LOST})
AWAITING_SIGN = frozenset({Phase.REQUESTED, Phase.UNKNOWN})
IN_FLIGHT = frozenset(Phase) - ENDED - {Phase.SETTLING}


@dataclass(frozen=True, slots=True)
class Entry:
    """Immutable; a transition makes a new one.

    ``pod_uid`` (the source pod's, or the VMIM's where that pod was not seen) identifies the entry. ``load`` is what
    the VM was measured to use when it was opened: it is charged to ``target`` and taken off ``source`` until the
    metrics show the move. ``None`` means unknown, and then the slot is held until the move has settled.
    """

    pod_uid: str
    pod: str
    vm: VmKey
    vmi_uid: str
    source: str
    phase: Phase
    opened_at: datetime
    changed_at: datetime
    target: str = ""
    load: VmLoad | None = None
    ours: bool = True
    vmim_uid: str = ""
    answered_at: datetime | None = None
    """When the request was answered, or given up. From then on the cluster should show a sign."""
    before: frozenset[str] = frozenset()
    """UIDs of the VM's VMIMs when the entry was opened: those are not ours. No clock is compared for that."""
    mark_seen: bool = False
    """Whether the mark on the VMI was seen. Until then a VMIM that failed does not tell that it is all over: the watch
    of VMIs may be behind that of VMIMs."""
    attempts_failed: int = 0
    ended_at: datetime | None = None
    """When the VM was seen at its new node."""

    @property
    def open(self) -> bool:
        return self.phase not in ENDED

    @property
    def in_flight(self) -> bool:
        return self.phase in IN_FLIGHT

    def holds_slot(self) -> bool:
        """Whether its source node may not send another VM yet."""
        return self.in_flight or (self.phase is Phase.SETTLING and self.load is None)

    def counts_cluster_wide(self) -> bool:
        """A stuck migration counts on its node only, so that it cannot stop the whole cluster."""
        return self.holds_slot() and self.phase is not Phase.STUCK
