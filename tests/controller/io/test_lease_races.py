"""Several candidates for one Lease, each request of theirs a step of its own, in any order."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.io.lease_world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_one_of_two_leads(world):
    world.join("a")
    world.join("b")
    world.pass_time(60)
    assert len(world.leaders()) == 1
    assert world.writers() == world.leaders()


def test_of_two_that_read_at_the_same_moment_one_writes_in_vain(world):
    a, b = world.join("a"), world.join("b")
    for _ in range(6):  # both read "none", both create
        a.move()
        b.move()
    assert len(world.leaders()) == 1
    assert "already exists" in (a.election.problem + b.election.problem)


def test_the_other_takes_over_from_a_frozen_leader_which_then_gives_up(world):
    a = world.join("a")
    world.pass_time(20)
    world.join("b")
    world.pass_time(60, frozen=a)
    assert world.writers() == ["b"]
    world.pass_time(5)
    assert world.writers() == ["b"]
    assert a.due_s is None, "its thread has ended, and the process ends with it"


def test_the_other_leads_soon_after_a_release_and_writes_after_a_lease_duration(world):
    a = world.join("a")
    world.pass_time(20)
    world.join("b")
    world.pass_time(5)
    a.set()
    world.pass_time(5)
    assert world.leaders() == ["b"]
    assert world.writers() == []
    world.pass_time(15)
    assert world.writers() == ["b"]


def test_a_lease_deleted_under_its_leader_never_makes_two_writers(world):
    a = world.join("a")
    world.pass_time(20)
    b = world.join("b")
    world.server.lease = None
    world.pass_time(9, frozen=a)
    assert a.election.writes_allowed()
    assert b.election.is_leader()
    assert not b.election.writes_allowed()
    world.pass_time(20, frozen=a)
    assert world.writers() == ["b"]


numbers = st.integers(0, 9)
durations = st.floats(0.1, 40.0)
actions = st.one_of(
    st.tuples(st.just("move"), numbers),
    st.tuples(st.just("move"), numbers),
    st.tuples(st.just("pass"), durations),
    st.tuples(st.just("freeze one"), numbers, durations),
    st.tuples(st.just("freeze all"), durations),
    st.tuples(st.just("fate"), numbers, st.sampled_from(["lost", "answer lost", "late"])),
    st.tuples(st.just("deliver late")),
    st.tuples(st.just("stop"), numbers),
    st.tuples(st.just("kill"), numbers),
    st.tuples(st.just("join"), st.sampled_from("abc"), st.floats(0.85, 1.15), st.floats(0, 1e6)),
    st.tuples(st.just("set wall clock"), numbers, st.floats(-1e5, 1e5)),
    st.tuples(st.just("delete")),
    st.tuples(st.just("empty")),
    st.tuples(st.just("annotate")),
)


def carry_out(world: World, action: tuple[Any, ...]) -> None:
    what, *arguments = action
    there = world.candidates
    chosen = there[arguments[0] % len(there)] if arguments and isinstance(arguments[0], int) else there[0]
    todo: dict[str, Callable[[], object]] = {
        "move": lambda: chosen.due_s is not None and chosen.due_s <= world.now_s and chosen.move(),
        "pass": lambda: world.pass_time(arguments[0]),
        "freeze one": lambda: world.pass_time(arguments[1], frozen=chosen),
        "freeze all": lambda: world.stand_still(arguments[0]),
        "fate": lambda: setattr(chosen, "fate", arguments[1]),
        "deliver late": world.deliver_late,
        "stop": chosen.set,
        "kill": chosen.kill,
        "join": lambda: len(there) < 6 and world.join(*arguments),
        "set wall clock": lambda: setattr(chosen.machine, "wall_offset", timedelta(seconds=arguments[1])),
        "delete": lambda: setattr(world.server, "lease", None),
        "empty": lambda: world.server.put({}),
        "annotate": lambda: world.server.lease is not None and world.server.annotate("n", str(world.now_s)),
    }
    todo[what]()
    world.check()


@settings(max_examples=120, deadline=None)
@example([("pass", 20.0), ("join", "b", 1.15, 0.0), ("freeze one", 0, 40.0), ("pass", 1.0)], (0.85, 1.15))
@example([("pass", 20.0), ("freeze one", 0, 12.0), ("pass", 40.0)], (0.96, 1.04))
@given(st.lists(actions, max_size=40), st.sampled_from([(0.85, 1.15), (0.96, 1.04)]))
def test_two_candidates_never_may_write_at_once_and_in_the_end_one_may(course, rates):
    """Whatever is frozen, killed, lost or late, however clocks are set or run (by less than a third apart)."""
    world = World()
    try:
        world.join("a", rate=rates[0])
        world.join("b", rate=rates[1], offset_s=1000.0)
        for action in course:
            carry_out(world, action)
        world.join("d")
        world.under_way.clear()
        world.pass_time(150)
        assert len(world.writers()) == 1
    finally:
        world.close()
