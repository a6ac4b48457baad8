"""The ledger's content from what the cluster shows: pure. On start, and on winning the lease.

There is no private storage. A mark with our eviction source is an eviction of ours (or of another descheduler's,
which counts just the same); an unfinished VMIM is somebody's migration; a migration that ended lately may not show
in the metrics yet; finished VMIMs are what cool-downs and breakers remember. Ends are API times here: nobody watched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controller.cluster.objects import Pod, Vmi, Vmim
from controller.cluster.queries import eviction_source
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.lifecycle import Evidence, Sighting, Timing, advance
from controller.evictions.views import Finished
from controller.utilization.reading import VmLoad

OUR_SOURCE = "descheduler"
"""What KubeVirt notes as the eviction's source for requests by ``sigs.k8s.io/descheduler``."""

OUR_PRIORITY = "system-maintenance"
"""Of the migrations that KubeVirt makes for them."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of one VM at the moment of looking. ``source_pod`` is on the node of ``source_of``."""

    vmi: Vmi
    source_pod: Pod | None
    migrations: tuple[Vmim, ...]
    load: VmLoad | None


def found_in_flight(known: Known, timing: Timing, now: datetime) -> Entry | None:
    """An entry for a migration under way; ``None`` if there is none.

    A mark that is not ours (a drain's, or one for an outside controller) counts once a migration exists.
    """
    vmi = known.vmi
    migrations = [m for m in known.migrations if not _of_former_vmi(m, vmi)]
    running = next((m for m in migrations if not m.finished), None)
    if running is None and not (vmi.evacuation_node_name and _ours(vmi, None)):
        return None
    source = _source(vmi, running)
    attempts = _attempts(vmi, running, migrations, timing, now)
    pod_uid = known.source_pod.metadata.uid if known.source_pod is not None else ""
    entry = Entry(
        pod_uid=pod_uid or (running.metadata.uid if running is not None else vmi.uid),
        pod=known.source_pod.metadata.name if known.source_pod is not None else "",
        vm=VmKey(vmi.namespace, vmi.name),
        vmi_uid=vmi.uid,
        source=source,
        phase=Phase.PENDING,
        opened_at=min((_created(m) or now for m in attempts), default=now),
        changed_at=now,
        load=known.load,
        ours=_ours(vmi, running),
        before=frozenset(m.metadata.uid for m in known.migrations if m not in attempts),
        mark_seen=True,  # if there is none, none is to be waited for
    )
    after = advance(entry, Sighting(vmi, migrations), Evidence({}), timing, now)
    return after if source and after.open else None


def found_settling(known: Known, timing: Timing, now: datetime) -> Entry | None:
    """An entry for a migration that ended so lately that the metrics may not show it; ``None`` if there is none."""
    state = known.vmi.migration_state
    if state is None or not state.completed or state.failed or state.end_timestamp is None:
        return None
    if now - state.end_timestamp >= timing.settle * 2 or state.source_node in ("", known.vmi.node_name):
        return None  # long enough ago that any metric shows it
    pod_uid = known.source_pod.metadata.uid if known.source_pod is not None else state.migration_uid
    return Entry(
        pod_uid=pod_uid or known.vmi.uid,
        pod=known.source_pod.metadata.name if known.source_pod is not None else "",
        vm=VmKey(known.vmi.namespace, known.vmi.name),
        vmi_uid=known.vmi.uid,
        source=state.source_node,
        phase=Phase.SETTLING,
        opened_at=state.start_timestamp or state.end_timestamp,
        changed_at=now,
        target=known.vmi.node_name,
        load=known.load,
        ours=_ours(known.vmi, _with_uid(known.migrations, state.migration_uid)),
        vmim_uid=state.migration_uid,
        ended_at=state.end_timestamp,
    )


def finished_migrations(
    migrations: Iterable[Vmim], vmi: Vmi, observed_at: datetime | None = None
) -> list[Finished]:
    """What to remember of a VM's finished VMIMs. One of a former VMI of that name belongs to nobody any more."""
    own = [m for m in migrations if not _of_former_vmi(m, vmi)]
    found = [r for m in own if (r := finished_record(m, vmi.uid, observed_at)) is not None]
    last = _last_of(vmi, observed_at)
    # While its VMIM is there, that says when the migration has ended, which may be later than the VMI does.
    if last is not None and all(m.metadata.uid != last.vmim_uid for m in own):
        found.append(last)
    return found


def _last_of(vmi: Vmi, observed_at: datetime | None) -> Finished | None:
    """The migration that the VMI itself remembers: its VMIM may have been deleted."""
    state = vmi.migration_state
    if state is None or state.end_timestamp is None or not state.migration_uid:
        return None
    if not (state.completed or state.failed):
        return None
    took = state.end_timestamp - (state.start_timestamp or state.end_timestamp)
    return Finished(
        vmim_uid=state.migration_uid,
        vmi_uid=vmi.uid,
        source=state.source_node,
        succeeded=state.completed and not state.failed,
        at=observed_at or state.end_timestamp,
        took=max(took, timedelta(0)),
    )


def finished_record(migration: Vmim, vmi_uid: str, observed_at: datetime | None = None) -> Finished | None:
    """``None`` for an unfinished one. ``observed_at`` is when we saw it end; without it API times serve."""
    if not migration.finished:
        return None
    reached = {t.phase: t.phase_transition_timestamp for t in migration.phase_transition_timestamps}
    began = reached.get("Pending") or migration.metadata.creation_timestamp
    state = migration.migration_state
    ended = reached.get(migration.phase) or (state.end_timestamp if state is not None else None) or began
    at = observed_at or ended
    if at is None:
        return None
    took = (ended - began) if ended is not None and began is not None else timedelta(0)
    return Finished(
        vmim_uid=migration.metadata.uid,
        vmi_uid=vmi_uid,
        source=(state.source_node if state is not None else "") or migration.evacuation_of,
        succeeded=migration.phase == "Succeeded",
        at=at,
        took=max(took, timedelta(0)),
    )


def source_of(vmi: Vmi, migrations: Sequence[Vmim]) -> str:
    """The node that the VMI leaves, or has left by its last migration; its own if there was none."""
    running = next((m for m in migrations if not m.finished and not _of_former_vmi(m, vmi)), None)
    state = vmi.migration_state
    if running is None and not vmi.evacuation_node_name and state is not None and state.completed:
        return state.source_node or vmi.node_name
    return _source(vmi, running)


def asked_for_by_us(migration: Vmim) -> bool:
    """Whether it was made for an eviction by a descheduler: only those get the lowest priority."""
    return migration.priority == OUR_PRIORITY and bool(migration.evacuation_of)


def _ours(vmi: Vmi, migration: Vmim | None) -> bool:
    """The note on the VMI goes as soon as the VM has arrived."""
    return eviction_source(vmi) == OUR_SOURCE or (migration is not None and asked_for_by_us(migration))


def _with_uid(migrations: Iterable[Vmim], uid: str) -> Vmim | None:
    return next((m for m in migrations if m.metadata.uid == uid), None)


def _of_former_vmi(migration: Vmim, vmi: Vmi) -> bool:
    """Whether it was made for another VMI, which had the name before."""
    created, born = migration.metadata.creation_timestamp, vmi.metadata.creation_timestamp
    return created is not None and born is not None and created < born


def _source(vmi: Vmi, running: Vmim | None) -> str:
    """The node it leaves; the VMI may already be at its target, so its own node is the last resort."""
    if running is not None:
        for state in (running.migration_state, vmi.migration_state):
            if state is not None and state.source_node and state.migration_uid in ("", running.metadata.uid):
                return state.source_node
    return (running.evacuation_of if running is not None else "") or vmi.evacuation_node_name or vmi.node_name


def _attempts(
    vmi: Vmi, running: Vmim | None, migrations: Sequence[Vmim], timing: Timing, now: datetime
) -> list[Vmim]:
    """The VMIMs of the move that is under way: the unfinished one, and failed ones of the same eviction before it.

    While the mark stands KubeVirt makes the next VMIM as soon as one has failed, so a failure long before belongs to
    an eviction that was given up; without a mark it does not try again at all.
    """
    attempts = [running] if running is not None else []
    if not vmi.evacuation_node_name:
        return attempts
    next_began = (running is not None and _created(running)) or now
    finished = sorted(
        (m for m in migrations if m.finished), key=lambda m: (_created(m) or now, m.metadata.uid)
    )
    for migration in reversed(finished):
        record = finished_record(migration, vmi.uid)
        if record is None or record.succeeded or next_began - record.at > timing.acknowledge:
            break
        attempts.append(migration)
        next_began = _created(migration) or next_began
    return attempts


def _created(migration: Vmim) -> datetime | None:
    return migration.metadata.creation_timestamp
