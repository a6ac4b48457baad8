"""Informers: what handlers are told, and how an informer follows a source that fails it."""

import json
from datetime import timedelta

import pytest

from informers.errors import Garbled, Gone, NoAnswer, ServerError
from informers.informer import Informer
from informers.store import Change
from informers.testing import FakeSource, Follower, ManualClock, OldVersion
from informers.watchstate import Event, Page, Phase, advance, begin
from informers.workers import Workers
from informers.workqueue import WorkQueue
from tests.informers.builders import (
    Thing,
    by_color,
    decoded,
    manual_clock,
    recorded_answer,
    recorded_watch,
    stamp,
    thing,
)


def names(change: Change[Thing]) -> list[str]:
    obj = change.new or change.old
    return [obj.metadata.name] if obj else []


def followed(
    *objects: Thing, streaming: bool = True
) -> tuple[FakeSource[Thing], Informer[Thing], Follower[Thing]]:
    source = FakeSource(stamp, page_size=2)
    for obj in objects:
        source.put(obj)
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, manual_clock(), streaming=streaming)
    follower.catch_up()
    return source, informer, follower


def test_a_handler_finds_the_change_in_the_lister() -> None:
    informer = Informer("things", {"color": by_color})
    found: list[int] = []
    informer.add_handler(lambda change: [len(informer.lister)], found.append)
    informer.apply("ADDED", thing("a"))
    informer.apply("DELETED", thing("a"))
    assert found == [1, 0]


def test_keys_go_straight_into_workers() -> None:
    came: list[str] = []
    workers = Workers(WorkQueue[str](), came.append, manual_clock(), lambda key, error, delay: None)
    informer = Informer[Thing]("things")
    informer.add_handler(names, workers.add)
    informer.replace([thing("a"), thing("b")])
    informer.apply("MODIFIED", thing("a", version="2"))
    assert workers.work_ready() == 2
    assert came == ["a", "b"]


def test_a_relist_that_shows_nothing_new_tells_nobody() -> None:
    informer = Informer[Thing]("things")
    told: list[str] = []
    informer.add_handler(names, told.append)
    informer.replace([thing("a")])
    informer.replace([thing("a")])
    assert told == ["a"]


def test_a_late_handler_is_told_what_is_there() -> None:
    informer = Informer[Thing]("things")
    informer.replace([thing("a"), thing("b")])
    told: list[str] = []
    informer.add_handler(names, told.append)
    assert told == ["a", "b"]


def test_synced_means_that_a_whole_list_was_delivered() -> None:
    informer = Informer[Thing]("things")
    synced: list[bool] = []
    informer.add_handler(lambda change: [informer.has_synced], synced.append)
    informer.apply("ADDED", thing("a"))
    informer.replace([thing("b")])
    assert synced == [False, False, False]
    assert informer.has_synced


def test_an_empty_list_is_a_whole_list() -> None:
    informer = Informer[Thing]("things")
    informer.replace([])
    assert informer.has_synced


def test_a_handler_that_raises_keeps_nothing_from_the_others() -> None:
    informer = Informer[Thing]("things")
    told: list[str] = []

    def bad(change: Change[Thing]) -> list[str]:
        raise LookupError("no key")

    informer.add_handler(bad, told.append)
    informer.add_handler(names, told.append)
    with pytest.raises(ExceptionGroup, match="handlers of informer things failed") as caught:
        informer.replace([thing("a"), thing("b")])
    assert len(caught.value.exceptions) == 2
    assert told == ["a", "b"]
    assert informer.has_synced


def test_a_late_deletion_of_a_predecessor_spares_its_successor() -> None:
    informer = Informer[Thing]("things")
    informer.replace([thing("a", uid="uid-2")])
    informer.apply("DELETED", thing("a", uid="uid-1"))
    assert len(informer.lister) == 1


def test_only_events_with_objects_can_be_applied() -> None:
    informer = Informer[Thing]("things")
    with pytest.raises(ValueError, match="must be ADDED, MODIFIED or DELETED, found 'BOOKMARK'"):
        informer.apply("BOOKMARK", thing("a"))  # type: ignore[arg-type]


def test_statistics_count_lists_events_and_changes() -> None:
    informer = Informer[Thing]("things")
    informer.replace([thing("a"), thing("b")])
    informer.apply("MODIFIED", thing("a", version="1"))
    informer.apply("DELETED", thing("b"))
    statistics = informer.statistics()
    assert (statistics.name, statistics.has_synced, statistics.objects) == ("things", True, 1)
    assert (statistics.replaced, statistics.applied, statistics.changes) == (1, 2, 3)


def test_a_recorded_list_and_watch_fill_the_informer() -> None:
    nodes = Informer[Thing]("nodes")
    state, _ = begin(streaming=True)
    for arrived in recorded_watch("watch-nodes"):
        state, step = advance(state, arrived)
        nodes.carry_out(step, arrived)
    assert [node.metadata.name for node in nodes.lister.list()] == [f"node-{n:02}" for n in range(10)]
    assert nodes.has_synced


def test_a_recorded_page_alone_does_not_make_an_informer_synced() -> None:
    _, body, _ = recorded_answer("list-page")
    listed = json.loads(body)
    page = Page(
        tuple(decoded(item) for item in listed["items"]),
        listed["metadata"]["resourceVersion"],
        listed["metadata"]["continue"],
    )
    pods = Informer[Thing]("pods")
    _, step = advance(begin(streaming=False)[0], page)
    pods.carry_out(step, page)
    assert len(page.items) == 2
    assert not pods.has_synced
    assert len(pods.lister) == 0


def test_live_changes_among_the_initial_events_count() -> None:
    """A server may send them before the bookmark that ends the initial events."""
    informer = Informer[Thing]("things")
    changed = thing("b", version="4")
    state, _ = begin(streaming=True)
    for arrived in (
        Event("ADDED", thing("a", version="1"), "1"),
        Event("ADDED", thing("b", version="2"), "2"),
        Event("DELETED", thing("a", version="3"), "3"),
        Event("MODIFIED", changed, "4"),
        Event[Thing]("BOOKMARK", None, "4", initial_events_end=True),
    ):
        assert informer.lister.list() == []
        state, step = advance(state, arrived)
        informer.carry_out(step, arrived)
    assert informer.lister.list() == [changed]


@pytest.mark.parametrize("streaming", [True, False])
def test_changes_arrive_one_by_one(streaming: bool) -> None:
    source, informer, follower = followed(thing("a"), thing("b"), thing("c"), streaming=streaming)
    assert informer.lister.list() == source.objects()
    source.put(thing("a", colors=("red",)))
    source.put(thing("b", uid="uid-2"))
    source.remove("ns", "c")
    assert follower.catch_up() == 4
    assert informer.lister.list() == source.objects()
    assert informer.statistics().replaced == 1


@pytest.mark.parametrize("old_version", OldVersion)
def test_what_happened_behind_a_gap_shows_as_the_difference(old_version: OldVersion) -> None:
    """However the server says, or does not say, that the watch's version is gone."""
    clock = manual_clock()
    source = FakeSource(stamp)
    source.old_version = old_version
    for name in "abc":
        source.put(thing(name))
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, clock)
    follower.catch_up()
    changes: list[Change[Thing]] = []
    informer.add_handler(lambda change: [change], changes.append)
    changes.clear()
    source.drop()
    source.remove("ns", "a")
    source.put(thing("b", uid="uid-2"))
    source.compact()
    for _ in range(5):
        follower.catch_up()
        clock.set_monotonic(max(clock.monotonic(), follower.next_due()))
    assert informer.lister.list() == source.objects()
    assert [(names(change), change.old is None, change.new is None) for change in changes] == [
        (["a"], False, True),
        (["b"], False, True),
        (["b"], True, False),
    ]


def test_a_silent_stream_is_given_up_and_resumed() -> None:
    clock: ManualClock = manual_clock()
    source = FakeSource(stamp)
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, clock, silence=timedelta(minutes=1))
    follower.catch_up()
    source.stall()
    source.put(thing("a"))
    assert follower.catch_up() == 0
    clock.advance(timedelta(minutes=1))
    follower.catch_up()
    clock.set_monotonic(follower.next_due())
    follower.catch_up()
    assert informer.lister.list() == source.objects()
    assert informer.statistics().replaced == 1


def test_pages_show_one_moment_however_long_the_list_takes() -> None:
    source = FakeSource(stamp, page_size=2)
    for name in "abc":
        source.put(thing(name))
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, manual_clock(), streaming=False)
    follower.step()
    source.remove("ns", "a")
    source.put(thing("d"))
    follower.step()
    assert [obj.metadata.name for obj in informer.lister.list()] == ["a", "b", "c"]
    follower.catch_up()
    assert informer.lister.list() == source.objects()


def test_a_list_given_up_leaves_nothing_behind() -> None:
    """The first page shows an object that is gone when the list is made again."""
    source = FakeSource(stamp, page_size=1)
    source.put(thing("a"))
    source.put(thing("b"))
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, manual_clock(), streaming=False)
    follower.step()
    source.remove("ns", "a")
    source.compact()
    follower.catch_up()
    assert [obj.metadata.name for obj in informer.lister.list()] == ["b"]


def test_a_broken_page_is_asked_for_again_not_the_whole_list() -> None:
    clock = manual_clock()
    source = FakeSource(stamp, page_size=1)
    source.put(thing("a"))
    source.put(thing("b"))
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, clock, streaming=False)
    follower.step()
    source.fail_next(ServerError("etcd leader changed", status=500))
    follower.step()
    assert follower.state.continue_token
    clock.set_monotonic(follower.next_due())
    assert follower.catch_up() == 2
    assert informer.lister.list() == source.objects()


def test_a_stream_broken_by_an_error_event_goes_on() -> None:
    for error in (
        NoAnswer("no"),
        Garbled("not JSON"),
        ServerError("no", status=500),
        Gone("gone", status=410),
    ):
        clock = manual_clock()
        source = FakeSource(stamp)
        informer = Informer[Thing]("things")
        follower = Follower(source, informer, clock)
        follower.catch_up()
        source.put(thing("a"))
        source.break_off(error)
        source.put(thing("b"))
        follower.catch_up()
        clock.set_monotonic(max(clock.monotonic(), follower.next_due()))
        follower.catch_up()
        assert informer.lister.list() == source.objects()


def test_an_older_server_is_listed_in_pages() -> None:
    source = FakeSource(stamp)
    source.serves_streaming = False
    source.put(thing("a"))
    informer = Informer[Thing]("things")
    follower = Follower(source, informer, manual_clock())
    follower.catch_up()
    assert informer.lister.list() == source.objects()
    assert follower.state.phase is Phase.WATCHING
    assert not follower.state.streaming
