"""IDs mean the same to everybody, children lie within their root, a restart loses and doubles nothing."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.objects import PhaseTransition
from controller.telemetry.attempts import before_last_move, spans_of_attempt, stages
from controller.telemetry.spans import nanoseconds, span_id, trace_id
from tests.builders import START, vmim
from tests.controller.decision_builders import MINUTE, SECOND
from tests.controller.traced_cluster import TracedCluster, by_id

TEXTS = st.text(max_size=12)
PHASES = ("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "WaitingForSync")


# --- IDs ---


@given(st.uuids())
def test_a_uid_is_its_trace_id(uid: UUID) -> None:
    assert trace_id(str(uid)) == (uid.int or trace_id(str(uid)))
    assert 0 < trace_id(str(uid)) < 1 << 128


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.tuples(TEXTS, TEXTS, TEXTS))
def test_different_spans_have_different_ids(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert 0 < span_id(*one) < 1 << 64
    assert (span_id(*one) == span_id(*other)) == (one == other)


def test_ids_are_the_same_in_any_process() -> None:
    """Unlike Python's own hashes."""
    script = "from controller.telemetry.spans import *; print(trace_id('no UUID'), span_id('a', 'b', 'c'))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert done.stdout.split() == [str(trace_id("no UUID")), str(span_id("a", "b", "c"))]


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_nanoseconds_are_exact(at: datetime) -> None:
    micros = nanoseconds(at) // 1000
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros) == at


# --- what VMIMs tell ---


@given(
    noted=st.lists(st.tuples(st.sampled_from([*PHASES, "Odd"]), st.integers(-5, 60))),
    final=st.sampled_from(["", "Succeeded", "Failed"]),
    ended=st.integers(-5, 90),
    until=st.integers(-5, 90),
)
def test_stages_follow_each_other_whatever_the_clocks_say(
    noted: list[tuple[str, int]], final: str, ended: int, until: int
) -> None:
    transitions = [PhaseTransition(phase, START + at * SECOND) for phase, at in noted]
    if final:
        transitions.append(PhaseTransition(final, START + ended * SECOND))
    attempt = vmim(
        phase=final or "Running", created=START, phase_transition_timestamps=transitions, uid="vmim-1"
    )
    passed = stages(attempt, START + until * SECOND)
    assert len({stage.name for stage in passed}) == len(passed)
    assert all(stage.start <= stage.end for stage in passed)
    assert [stage.end for stage in passed[:-1]] == [stage.start for stage in passed[1:]]
    spans = list(spans_of_attempt("pod", 1, 1, attempt, START + until * SECOND))
    assert len({span.span_id for span in spans}) == len(passed)
    assert sum(bool(span.error) for span in spans) == (final != "Succeeded")


def test_a_kubevirt_that_notes_no_phases_still_tells_when_it_ran() -> None:
    cluster = TracedCluster()
    cluster.add_vm("vm-1")
    attempt = cluster.attempt("vm-1", "Running")
    assert [stage.name for stage in stages(attempt, cluster.clock.now())] == ["pending", "running"]
    assert stages(vmim(created=None, phase_transition_timestamps=[], migration_state=None), START) == []


def test_attempts_that_follow_each_other_at_once_belong_to_one_move() -> None:
    def made(uid: str, phase: str, begun: int, ended: int) -> object:
        times = [PhaseTransition(phase, START + ended * SECOND)]
        return vmim(uid=uid, phase=phase, created=START + begun * SECOND, phase_transition_timestamps=times)

    migrations = [
        made("long-ago", "Failed", 0, 10),
        made("first", "Failed", 500, 510),
        made("second", "Failed", 512, 530),
        made("third", "Succeeded", 531, 560),
        made("later", "Succeeded", 565, 580),
    ]
    assert before_last_move(migrations, "third") == {"long-ago"}
    assert before_last_move(migrations, "later") == {"long-ago", "first", "second", "third"}
    assert len(before_last_move(migrations, "has-gone")) == 5


# --- a restart in the middle ---

STEPS = ("mark", *PHASES[:3], "Failed", *PHASES[:6], "arrive", "settle")


def live_through(restart_after: frozenset[int], *, fails: bool) -> TracedCluster:
    """An eviction from its request to its end, with a new process after some of the steps."""
    cluster = TracedCluster("vm-1", "vm-2")
    cluster.pass_time(SECOND)
    number = 1
    for index, step in enumerate(STEPS):
        if step == "mark":
            cluster.mark("vm-1")
        elif step == "arrive":
            cluster.arrive("vm-1", number=number)
        elif step == "settle":
            cluster.pass_time(5 * MINUTE)
        elif fails or index > STEPS.index("Failed"):
            cluster.attempt("vm-1", step, number=number, target="node-9")
            number += step == "Failed"
        cluster.work()
        cluster.pass_time(SECOND)
        if index in restart_after and step != "settle":
            cluster.restart()
    return cluster


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, len(STEPS) - 2), max_size=4), st.booleans())
def test_a_restart_anywhere_gives_the_same_spans(restarts: set[int], fails: bool) -> None:
    whole = [
        s for s in live_through(frozenset(), fails=fails).evictions if s.trace_id == trace_id("pod-vm-1")
    ]
    told = [
        s
        for s in live_through(frozenset(restarts), fails=fails).evictions
        if s.trace_id == trace_id("pod-vm-1")
    ]
    assert len(by_id(told)) == len(set(map(repr, told))), "what is told twice is the same"
    assert by_id(told).keys() == by_id(whole).keys()
    for key, span in by_id(whole).items():
        again = by_id(told)[key]
        assert (again.name, again.parent, again.error) == (span.name, span.parent, span.error)
        if span.name.startswith("migration/"):
            assert again == span, "the times are KubeVirt's"


@settings(max_examples=20, deadline=None)
@given(st.booleans(), st.integers(-3, 3))
def test_children_lie_within_their_root(fails: bool, skew_s: int) -> None:
    """Even if KubeVirt's clock is not ours."""
    cluster = TracedCluster("vm-1")
    cluster.pass_time(SECOND)
    cluster.mark("vm-1")
    if fails:
        cluster.attempt("vm-1", "Failed")
        cluster.work()
    cluster.attempt("vm-1", "Running", number=2, begun=cluster.clock.now() + skew_s * SECOND)
    cluster.work()
    cluster.arrive("vm-1", number=2)
    cluster.pass_time(5 * MINUTE)
    (root,) = (s for s in cluster.evictions if not s.parent)
    children = [s for s in cluster.evictions if s.parent == root.span_id]
    assert len(children) >= 4
    for child in children:
        assert root.start <= child.start <= child.end <= root.end


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["cancelled", "gone", "lost", "done"]))
def test_every_open_trace_ends_whatever_happens(end: str) -> None:
    cluster = TracedCluster("vm-1")
    if end == "gone":
        cluster.stop("vm-1")
    elif end == "cancelled":
        cluster.mark("vm-1")
        cluster.work()
        cluster.unmark("vm-1")
    elif end == "done":
        cluster.migrate("vm-1")
    cluster.work()
    cluster.pass_time(10 * MINUTE)
    roots = [s for s in cluster.evictions if not s.parent]
    assert len(roots) == 1
    assert {s.parent for s in cluster.evictions} == {0, roots[0].span_id}
