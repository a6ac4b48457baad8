"""An entry's life, for any sight and any order in which the watches of VMIs and of VMIMs deliver."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.objects import MigrationState, Vmi, Vmim
from controller.evictions.entry import Entry, Phase
from controller.evictions.lifecycle import Evidence, Sighting, advance, arrived, lost, next_look
from controller.evictions.rebuild import found_in_flight
from tests.builders import START, vmi, vmim
from tests.controller.decision_builders import MINUTE, NO_EVIDENCE, entry, known, timing

TIMING = timing()
NOW = START + MINUTE
"""Early enough that nothing is overdue or stuck."""

PLAIN = vmi(node="node-1")
MARKED = vmi(node="node-1", evacuation_node_name="node-1")
SWITCHED = vmi(node="node-2", evacuation_node_name="node-1")
ARRIVED = vmi(node="node-2")
STOPPED = vmi(node="node-1", evacuation_node_name="node-1", phase="Succeeded")
ON_THE_WAY = ["", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"]


def attempt(number: int, phase: str) -> Vmim:
    return vmim(name=f"m-{number}", uid=f"vmim-{number}", phase=phase)


# --- two watches ---


@dataclass(frozen=True)
class Course:
    """What happens to one eviction: the states of the VMI and of its VMIMs, each in its own order."""

    vmi: Sequence[Vmi | None]
    migrations: Sequence[tuple[Vmim, ...]]
    end: Phase


def attempts(ends: Sequence[str], phases: int) -> list[tuple[Vmim, ...]]:
    """One VMIM after the other, each through some phases to its end; ``""``: a person deletes it."""
    states: list[tuple[Vmim, ...]] = [()]
    over: tuple[Vmim, ...] = ()
    for number, end in enumerate(ends):
        states += [(*over, attempt(number, phase)) for phase in ON_THE_WAY[-phases:]]
        over = (*over, attempt(number, end)) if end else over
        states.append(over)
    return states


failures = st.lists(st.sampled_from(["Failed", ""]), max_size=3)
phases = st.integers(1, len(ON_THE_WAY))


@st.composite
def successes(draw: st.DrawFn) -> Course:
    states = attempts([*draw(failures), "Succeeded"], draw(phases))
    if draw(st.booleans()):
        states.append(())  # garbage-collected
    seen: list[Vmi | None] = [PLAIN, MARKED, SWITCHED, ARRIVED]
    if draw(st.booleans()):
        seen.remove(SWITCHED)  # node and mark change at once
    return Course(seen, states, Phase.SETTLING)


@st.composite
def cancellations(draw: st.DrawFn) -> Course:
    ends = [*draw(failures), draw(st.sampled_from(["Failed", ""]))]
    return Course([PLAIN, MARKED, PLAIN], attempts(ends, draw(phases)), Phase.CANCELLED)


@st.composite
def departures(draw: st.DrawFn) -> Course:
    gone = draw(st.sampled_from([[None], [STOPPED], [STOPPED, None]]))
    ends = [*draw(failures), draw(st.sampled_from(["Failed", ""]))]
    return Course([PLAIN, MARKED, *gone], attempts(ends, draw(phases)), Phase.GONE)


courses = st.one_of(successes(), cancellations(), departures())


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Course, list[Sighting]]:
    """A course and what the stores show after each delivery of either watch."""
    course = draw(courses)
    left = ["vmi"] * (len(course.vmi) - 1) + ["vmim"] * (len(course.migrations) - 1)
    at = {"vmi": 0, "vmim": 0}
    shown = []
    for which in draw(st.permutations(left)):
        at[which] += 1
        shown.append(Sighting(course.vmi[at["vmi"]], course.migrations[at["vmim"]]))
    return course, shown


@given(deliveries())
def test_any_interleaving_of_the_watches_ends_in_the_same_phase(
    delivered: tuple[Course, list[Sighting]],
) -> None:
    course, shown = delivered
    now = entry()
    for seen in shown:
        now = advance(now, seen, NO_EVIDENCE, TIMING, NOW)
    assert now.phase is course.end
    assert now.target == "node-2"


@given(deliveries())
def test_the_slot_is_held_until_the_vm_has_arrived_or_it_is_over(
    delivered: tuple[Course, list[Sighting]],
) -> None:
    """Through failures, retries, and whatever one watch shows before the other."""
    _, shown = delivered
    now, cancelled = entry(), False
    for number, seen in enumerate(shown):
        marked_before = any(s.vmi is MARKED for s in shown[:number])
        cancelled = cancelled or (marked_before and seen.vmi is PLAIN and seen.unfinished is None)
        now = advance(now, seen, NO_EVIDENCE, TIMING, NOW)
        if not (seen.vmi is ARRIVED or seen.gone or cancelled):
            assert now.holds_slot()
            assert now.counts_cluster_wide()


@given(deliveries(), st.data())
def test_a_handler_that_runs_late_sees_less_and_ends_the_same(
    delivered: tuple[Course, list[Sighting]], data: st.DataObject
) -> None:
    """Several deliveries may go by between two looks; if no sign is left at all, the API is asked."""
    course, shown = delivered
    looks = data.draw(st.lists(st.booleans(), min_size=len(shown) - 1, max_size=len(shown) - 1))
    now = entry()
    for seen, looked in zip(shown, [*looks, True], strict=True):
        if looked:
            now = advance(now, seen, NO_EVIDENCE, TIMING, NOW)
    if now.open and now.phase is not Phase.SETTLING:
        now = lost(now, NOW)
    assert now.phase is course.end or (now.phase is Phase.LOST and course.end is Phase.CANCELLED)


# --- any sight whatever ---

vmis = st.one_of(
    st.none(),
    st.builds(
        vmi,
        node=st.sampled_from(["", "node-1", "node-2", "node-3"]),
        phase=st.sampled_from(["Running", "Running", "Running", "Scheduling", "Failed", "Succeeded"]),
        evacuation_node_name=st.sampled_from(["", "node-1", "node-2"]),
    ),
)
vmims = st.builds(attempt, st.integers(1, 3), st.sampled_from([*ON_THE_WAY, "Odd", "Succeeded", "Failed"]))
sightings = st.builds(
    Sighting, vmis, st.lists(vmims, max_size=3, unique_by=lambda m: m.metadata.uid).map(tuple)
)
minutes = st.integers(0, 60).map(lambda m: START + timedelta(minutes=m))
evidences = st.builds(
    Evidence,
    st.dictionaries(st.sampled_from(["node-1", "node-2", "node-3"]), minutes),
    st.one_of(st.none(), minutes),
)
entries = st.builds(
    entry,
    phase=st.sampled_from(list(Phase)),
    mark_seen=st.booleans(),
    attempts_failed=st.integers(0, 3),
    before=st.sets(st.sampled_from(["vmim-1", "vmim-2"])),
)


@given(entries, st.lists(st.tuples(sightings, evidences, minutes), max_size=8))
def test_whatever_is_seen_an_entry_only_goes_forward(
    before: Entry, looks: list[tuple[Sighting, Evidence, datetime]]
) -> None:
    for seen, evidence, now in looks:
        after = advance(before, seen, evidence, TIMING, now)
        assert after.attempts_failed >= before.attempts_failed
        assert (after.pod_uid, after.vmi_uid, after.source) == (before.pod_uid, before.vmi_uid, before.source)
        assert (after.opened_at, after.load, after.before) == (before.opened_at, before.load, before.before)
        if not before.open:
            assert after is before
        elif before.phase is Phase.SETTLING:
            assert after is before or after.phase is Phase.DONE
        elif after.phase is Phase.SETTLING:
            assert arrived(before, seen)
            assert (after.ended_at, after.target) == (now, seen.vmi and seen.vmi.node_name)
        elif after.phase is Phase.DONE:
            raise AssertionError("done without having settled")
        assert (
            (after.changed_at == now) or after.phase is before.phase or after.changed_at == before.changed_at
        )
        before = after


@given(entries, sightings, evidences, minutes)
def test_looking_twice_changes_nothing_more(
    before: Entry, seen: Sighting, evidence: Evidence, now: datetime
) -> None:
    once = advance(before, seen, Evidence({}), TIMING, now)
    assert advance(once, seen, Evidence({}), TIMING, now) is once


@given(entries, sightings, minutes, st.integers(0, 600))
def test_what_is_open_is_looked_at_again_or_waits_for_an_event(
    before: Entry, seen: Sighting, now: datetime, later_minutes: int
) -> None:
    """No entry is forgotten: it is over, has a next look, or waits for a snapshot or for KubeVirt."""
    after = advance(before, seen, Evidence({}), TIMING, now)
    wait = next_look(after, TIMING, now)
    if wait is None:
        assert not after.open or after.phase in (Phase.SETTLING, Phase.STUCK)
    else:
        assert wait >= timedelta(0)


annotated = st.sampled_from([{}, {"kubevirt.io/eviction-source": "descheduler"}])
states = st.one_of(
    st.none(),
    st.builds(
        MigrationState,
        source_node=st.sampled_from(["", "node-1", "node-2"]),
        target_node=st.sampled_from(["", "node-2", "node-3"]),
        migration_uid=st.sampled_from(["", "vmim-1", "vmim-2"]),
    ),
)
histories = st.lists(
    st.builds(
        lambda number, phase, at, state: vmim(
            name=f"m-{number}", uid=f"vmim-{number}", phase=phase, created=at, migration_state=state
        ),
        st.integers(1, 4),
        st.sampled_from([*ON_THE_WAY, "Odd", "Succeeded", "Failed"]),
        minutes,
        states,
    ),
    max_size=4,
    unique_by=lambda m: m.metadata.uid,
)


@given(vmis, annotated, histories, minutes)
def test_what_is_found_on_the_move_can_be_followed(
    seen: Vmi | None, annotations: dict[str, str], migrations: list[Vmim], now: datetime
) -> None:
    """After a restart nothing is taken up that is over, that leaves no node, or that the next look undoes."""
    if seen is None:
        return
    metadata = msgspec.structs.replace(seen.metadata, annotations=annotations)
    which = msgspec.structs.replace(seen, metadata=metadata)
    found = found_in_flight(known(which, *migrations), TIMING, now)
    if found is None:
        return
    assert found.open
    assert found.source
    assert found.opened_at <= max([now, *(m.metadata.creation_timestamp or now for m in migrations)])
    unfinished = [m.metadata.uid for m in migrations if not m.finished]
    assert len(unfinished) != 1 or unfinished[0] not in found.before
    assert advance(found, Sighting(which, migrations), NO_EVIDENCE, TIMING, now) is found


@given(entries, sightings, st.integers(31, 600))
def test_nothing_that_has_left_no_trace_lives_longer_than_the_migration_timeout(
    before: Entry, seen: Sighting, late_minutes: int
) -> None:
    """Neither mark nor VMIM: then it ends, or the API is asked, whatever was seen before."""
    now = START + timedelta(minutes=late_minutes)
    after = advance(before, Sighting(PLAIN, ()), Evidence({}, now), TIMING, now)
    assert not after.open or after.phase in (Phase.REQUESTED, Phase.UNKNOWN)
