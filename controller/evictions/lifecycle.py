"""What became of an eviction: pure transitions of an entry, from what the stores show now.

Level-triggered: nothing here depends on which event came, or on the order in which the watches of VMIs and of
VMIMs deliver. Facts about KubeVirt's order of changes: an accepted eviction marks the VMI
(``status.evacuationNodeName``), the evacuation controller creates a VMIM, on success ``status.nodeName`` changes
first, then the mark goes and the VMIM says Succeeded; after a failure the mark stays and a new VMIM appears.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller.cluster.objects import Vmi, Vmim
from controller.evictions.entry import AWAITING_SIGN, REQUEST_WITHIN, Entry, Phase

_PHASES = {
    "": Phase.PENDING,
    "Pending": Phase.PENDING,
    "Scheduling": Phase.SCHEDULING,
    "Scheduled": Phase.SCHEDULING,
    "PreparingTarget": Phase.PREPARING,
    "TargetReady": Phase.PREPARING,
}
"""VMIM phase -> ours. Every other unfinished phase, known or not, is a migration under way."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the stores show of one VM: the VMI (``None`` if there is none of that UID) and all its VMIMs."""

    vmi: Vmi | None
    migrations: Sequence[Vmim] = ()

    @property
    def unfinished(self) -> Vmim | None:
        return next((m for m in self.migrations if not m.finished), None)

    @property
    def gone(self) -> bool:
        return self.vmi is None or self.vmi.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Timing:
    """The policy's durations that transitions depend on."""

    acknowledge: timedelta
    migration: timedelta
    settle: timedelta


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the newest snapshot speaks of: node -> sample time. A node that has gone or lost its metric is absent."""

    sample_times: Mapping[str, datetime]
    as_of: datetime | None = None
    """When that snapshot was taken; ``None`` before the first one."""

    def shows(self, node: str, since: datetime) -> bool:
        """Whether the metrics of ``node`` show what was so at ``since``, or will never show it."""
        if self.as_of is None:
            return False
        sampled = self.sample_times.get(node)
        return sampled >= since if sampled is not None else self.as_of >= since


def advance(entry: Entry, seen: Sighting, evidence: Evidence, timing: Timing, now: datetime) -> Entry:
    """The entry as it should be now; the same object if nothing has changed. An ended entry stays as it is."""
    if not entry.open:
        return entry
    if entry.phase is Phase.SETTLING:
        return _settle(entry, seen, evidence, timing, now)
    entry = _with_target(entry, seen)
    return _moved_to(entry, _phase_of(entry, seen, timing, now), now)


def next_look(entry: Entry, timing: Timing, now: datetime) -> timedelta | None:
    """When time alone may change the entry; ``None`` if only an event or a snapshot can."""
    if entry.phase in AWAITING_SIGN:
        due = _sign_due(entry, timing)
    elif entry.in_flight and entry.phase is not Phase.STUCK:
        due = entry.opened_at + timing.migration
    else:
        return None
    return max(due - now, timedelta(0))


def overdue(entry: Entry, timing: Timing, now: datetime) -> bool:
    """No sign for so long that the VMI must be read from the API itself."""
    return entry.phase in AWAITING_SIGN and now >= _sign_due(entry, timing)


def _sign_due(entry: Entry, timing: Timing) -> datetime:
    """Counted from the answer; while there is none, dry run and request may still be under way."""
    return (entry.answered_at or entry.opened_at + 2 * REQUEST_WITHIN) + timing.acknowledge


def lost(entry: Entry, now: datetime) -> Entry:
    """The VMI itself shows no sign of the eviction: it never took effect, or it is over without success."""
    return _moved_to(entry, Phase.CANCELLED if entry.attempts_failed else Phase.LOST, now)


def under_way(entry: Entry, now: datetime) -> Entry:
    """The VMI itself has moved, and the caches do not show yet whether its migration is final."""
    return _moved_to(entry, Phase.RUNNING, now)


def _phase_of(entry: Entry, seen: Sighting, timing: Timing, now: datetime) -> Phase:
    if seen.gone:
        return Phase.GONE
    if arrived(entry, seen):
        return Phase.SETTLING
    phase = _flight_phase(entry, seen)
    late = now - entry.opened_at >= timing.migration
    if phase is None and succeeded_since(entry, seen) and not late:
        return Phase.RUNNING  # the VMIM is final, the VMI does not show its new node yet
    if phase is None:
        # No mark and nothing under way: either no sign has come yet, or the request was taken back.
        if entry.mark_seen:
            return Phase.CANCELLED
        return entry.phase if entry.phase in AWAITING_SIGN else Phase.UNKNOWN
    return Phase.STUCK if late else phase


def arrived(entry: Entry, seen: Sighting) -> bool:
    """The VM is at its new node and no migration of it is under way: only that is completion."""
    vmi = seen.vmi
    if vmi is None or seen.unfinished is not None or vmi.node_name in ("", entry.source):
        return False
    return not vmi.evacuation_node_name or vmi.evacuation_node_name == vmi.node_name


def _flight_phase(entry: Entry, seen: Sighting) -> Phase | None:
    """Where the migration stands; ``None`` if there is neither a VMIM under way nor a mark."""
    vmi, running = seen.vmi, seen.unfinished
    failed = failed_attempts(entry, seen)
    if running is not None:
        phase = _PHASES.get(running.phase, Phase.RUNNING)
        return Phase.RETRYING if phase is Phase.PENDING and failed else phase
    if vmi is not None and vmi.evacuation_node_name:
        if succeeded_since(entry, seen):
            return Phase.RUNNING  # the VMI is behind: it loses its mark when it is seen at its new node
        return Phase.RETRYING if failed else Phase.PENDING
    return None


def failed_attempts(entry: Entry, seen: Sighting) -> int:
    """Attempts of this eviction that failed, as far as the VMIMs still tell; never fewer than already counted."""
    failed = sum(m.phase == "Failed" and m.metadata.uid not in entry.before for m in seen.migrations)
    return max(failed, entry.attempts_failed)


def succeeded_since(entry: Entry, seen: Sighting) -> bool:
    """Whether a VMIM that was not there when the entry was opened has succeeded."""
    return any(m.phase == "Succeeded" and m.metadata.uid not in entry.before for m in seen.migrations)


def _with_target(entry: Entry, seen: Sighting) -> Entry:
    """Take over what became known of the way: the mark, the VMIM, the real destination, failed attempts."""
    running = seen.unfinished
    attempts = failed_attempts(entry, seen)
    mark_seen = entry.mark_seen or (seen.vmi is not None and seen.vmi.evacuation_node_name != "")
    vmim_uid = running.metadata.uid if running is not None else entry.vmim_uid
    target = entry.target
    if arrived(entry, seen) and seen.vmi is not None:
        target = seen.vmi.node_name
    elif running is not None and seen.vmi is not None:
        state = running.migration_state or seen.vmi.migration_state
        if state is not None and state.migration_uid == running.metadata.uid and state.target_node:
            target = state.target_node
    after = replace(entry, vmim_uid=vmim_uid, target=target, mark_seen=mark_seen, attempts_failed=attempts)
    return entry if after == entry else after


def _moved_to(entry: Entry, phase: Phase, now: datetime) -> Entry:
    if phase is entry.phase:
        return entry
    ended_at = now if phase is Phase.SETTLING else entry.ended_at
    return replace(entry, phase=phase, changed_at=now, ended_at=ended_at)


def _settle(entry: Entry, seen: Sighting, evidence: Evidence, timing: Timing, now: datetime) -> Entry:
    since = (entry.ended_at or entry.changed_at) + timing.settle
    if not evidence.shows(entry.source, since):
        return entry
    # Stopped where it arrived: there is nothing to be seen there, but its source had to show that it has left.
    if seen.gone or evidence.shows(entry.target, since):
        return _moved_to(entry, Phase.DONE, now)
    return entry
