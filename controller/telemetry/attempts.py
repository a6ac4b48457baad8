"""What an eviction's VMIMs tell of it, one for each attempt to migrate: pure.

Times are those that KubeVirt has noted (whole seconds, by its clock), so they hold even if nobody watched.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import msgspec

from controller.cluster.objects import Vmi, Vmim
from controller.telemetry.spans import Attributes, AttributeValue, Event, Span, span_id, trace_id
from informers.errors import as_shown

_STAGES = {
    "": "pending",
    "Pending": "pending",
    "Scheduling": "scheduling",
    "Scheduled": "scheduling",
    "PreparingTarget": "preparing",
    "TargetReady": "preparing",
}
"""VMIM phase -> stage. Every other unfinished phase, known or not, is a migration under way."""
MOST_SAID = 1000
"""Characters of somebody else's text that a span repeats."""
_AT_ONCE = timedelta(seconds=90)
"""KubeVirt makes the next VMIM as soon as one has failed; one that failed longer before belongs to another eviction."""


class Stage(NamedTuple):
    """``pending``, ``scheduling``, ``preparing`` or ``running``."""

    name: str
    start: datetime
    end: datetime


def in_order(migrations: Iterable[Vmim]) -> list[Vmim]:
    """Oldest first; those without a creation time, which no API server hands out, are left out."""
    known = [(m.metadata.creation_timestamp, m.metadata.uid, m) for m in migrations]
    return [m for *_, m in sorted((at, uid, m) for at, uid, m in known if at is not None)]


def before_last_move(migrations: Iterable[Vmim], last: str) -> frozenset[str]:
    """UIDs of the VMIMs that are no attempts of the move which VMIM ``last`` has completed.

    Attempts of one eviction follow each other at once, and all but the last have failed.
    """
    ordered = in_order(migrations)
    uids = [m.metadata.uid for m in ordered]
    first = uids.index(last) if last in uids else len(uids)
    while 0 < first < len(uids) and _followed_at_once(ordered[first - 1], ordered[first]):
        first -= 1
    return frozenset(uids[:first])


def newest_attempt_from_pod(migrations: Iterable[Vmim], among: Set[str], vmi: Vmi | None) -> Vmim | None:
    """The newest VMIM of ``among`` that tried to move the VMI off the pod it runs in now; ``None`` if none has.

    Only success gives a VMI another pod, so those are the ones that failed since. Earlier VMIs of that name had
    VMIMs too.
    """
    born = vmi.metadata.creation_timestamp if vmi is not None else None
    newest = None
    for migration in in_order(m for m in migrations if m.metadata.uid in among):
        created = migration.metadata.creation_timestamp
        if migration.phase == "Succeeded" or (born is not None and created is not None and created < born):
            newest = None
        else:
            newest = migration
    return newest


def stages(attempt: Vmim, until: datetime) -> list[Stage]:
    """What the attempt went through, without gaps. One that is not over ends at ``until``."""
    began = list(_began(attempt))
    if not began:
        return []
    final = ended(attempt)
    end = max(final if final is not None else until, began[-1][1])
    ends = [at for _, at in began[1:]] + [end]
    return [Stage(name, at, to) for (name, at), to in zip(began, ends, strict=True)]


def spans_of_attempt(
    pod_uid: str, parent: int, number: int, attempt: Vmim, until: datetime
) -> Iterator[Span]:
    """One span for each stage. The one in which the attempt failed, or was given up, carries the error."""
    passed = stages(attempt, until)
    for stage in passed:
        last = stage is passed[-1]
        name = f"migration/{stage.name}"
        yield Span(
            trace_id(pod_uid),
            span_id(pod_uid, attempt.metadata.uid, name),
            name,
            stage.start,
            stage.end,
            parent,
            attributes=_attributes(attempt, number),
            error=failure(attempt) if last and attempt.phase != "Succeeded" else "",
        )


def retries(attempts: Sequence[Vmim]) -> list[Event]:
    """An event for each attempt but the first, at the time it was made."""
    return [
        Event(
            "retry",
            attempt.metadata.creation_timestamp,
            {"vm_rebalancer.attempt": number, "vm_rebalancer.failure": failure(failed)},
        )
        for number, (failed, attempt) in enumerate(pairwise(attempts), 2)
        if attempt.metadata.creation_timestamp is not None
    ]


def failure(attempt: Vmim) -> str:
    """Why it did not succeed, as KubeVirt says; bounded, and without secrets."""
    state = attempt.migration_state
    reason = as_shown(state.failure_reason, MOST_SAID) if state is not None else ""
    return reason or ("the migration failed" if attempt.finished else "given up before its end")


def ended(attempt: Vmim) -> datetime | None:
    """When it was over, by KubeVirt's clock; ``None`` if it is not, or nobody knows."""
    if not attempt.finished:
        return None
    for transition in attempt.phase_transition_timestamps:
        if transition.phase == attempt.phase and transition.phase_transition_timestamp is not None:
            return transition.phase_transition_timestamp
    state = attempt.migration_state
    return state.end_timestamp if state is not None else None


def with_state(attempt: Vmim, vmi: Vmi) -> Vmim:
    """With what the VMI knows of it: KubeVirt notes how it went there, and a little later on the VMIM."""
    state = vmi.migration_state
    if complete(attempt) or state is None or state.migration_uid != attempt.metadata.uid:
        return attempt
    return msgspec.structs.replace(attempt, migration_state=state)


def complete(attempt: Vmim) -> bool:
    """Whether it is over, and how it went has been noted."""
    state = attempt.migration_state
    return attempt.finished and state is not None and state.end_timestamp is not None


def _followed_at_once(earlier: Vmim, later: Vmim) -> bool:
    over, created = ended(earlier), later.metadata.creation_timestamp
    if earlier.phase != "Failed" or over is None or created is None:
        return False
    return created - over <= _AT_ONCE


def _attributes(attempt: Vmim, number: int) -> Attributes:
    state = attempt.migration_state
    found: dict[str, AttributeValue] = {
        "vm_rebalancer.attempt": number,
        "vm_rebalancer.vmim.name": attempt.metadata.name,
        "vm_rebalancer.vmim.uid": attempt.metadata.uid,
        "vm_rebalancer.target.node": state.target_node if state is not None else "",
        "vm_rebalancer.target.pod": state.target_pod if state is not None else "",
        "vm_rebalancer.migration.mode": state.mode if state is not None else "",
    }
    return {key: value for key, value in found.items() if value != ""}


def _began(attempt: Vmim) -> Iterator[tuple[str, datetime]]:
    """Each stage with its beginning. A stage that comes again, or in an odd order, goes on."""
    created, last = attempt.metadata.creation_timestamp, ""
    noted = [
        (t.phase_transition_timestamp, t.phase)
        for t in attempt.phase_transition_timestamps
        if t.phase_transition_timestamp is not None and t.phase not in ("Succeeded", "Failed")
    ]
    noted.sort(key=lambda each: each[0])  # several within one second stay in KubeVirt's order
    state = attempt.migration_state
    if not noted and state is not None and state.start_timestamp is not None:
        noted.append((state.start_timestamp, "Running"))  # a KubeVirt that notes no phases
    if created is not None:
        last = "pending"
        yield last, min([created, *(at for at, _ in noted)])
    seen = {last}
    for at, phase in noted:
        stage = _STAGES.get(phase, "running")
        if stage not in seen:
            seen.add(stage)
            yield stage, at
