"""The guarantees of informers.watchstate, whatever a server does, and whatever happens to the connection."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from informers import errors
from informers.errors import ApiError
from informers.informer import Informer
from informers.store import Change, ObjectKey, key_of
from informers.testing import FakeSource, Follower, OldVersion
from informers.watchstate import (
    BASE_DELAY_S,
    MAX_DELAY_S,
    MAX_RETRY_AFTER_S,
    Ended,
    Event,
    Failed,
    Input,
    ListRequest,
    Objects,
    Page,
    Phase,
    WatchRequest,
    WatchState,
    advance,
    begin,
)
from tests.informers.builders import Thing, manual_clock, stamp, thing

error_types = st.sampled_from(
    [
        errors.ApiError,
        errors.BadRequest,
        errors.Forbidden,
        errors.Garbled,
        errors.Gone,
        errors.Invalid,
        errors.NoAnswer,
        errors.NotFound,
        errors.ResourceVersionTooLarge,
        errors.ServerError,
        errors.Throttled,
        errors.Unauthorized,
        errors.Unreachable,
    ]
)
waits = st.none() | st.integers(1, 1000).map(lambda seconds: timedelta(seconds=seconds))
failures = st.builds(lambda kind, wait: Failed(kind("no", retry_after=wait)), error_types, waits)
versions = st.sampled_from(["5", "6", "7", ""])
pages = st.builds(Page[Thing], st.just(()), versions, st.sampled_from(["", "t"]))
events = st.builds(
    lambda kind, version: Event(kind, thing("a", version=version), version),
    st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
    versions,
)
bookmarks = st.builds(lambda version, end: Event("BOOKMARK", None, version, end), versions, st.booleans())
ends = st.builds(Ended, st.sampled_from([0.0, 0.5, 1.0, 300.0]))
arrivals = st.lists(st.one_of(failures, failures, pages, events, bookmarks, ends), max_size=60)


def can_arrive(state: WatchState, arrived: Input[Thing]) -> bool:
    if isinstance(arrived, Failed):
        return True
    return isinstance(arrived, Page) == (state.phase is Phase.PAGING)


@given(st.booleans(), arrivals)
def test_the_store_is_replaced_only_by_a_whole_list_and_changed_only_after_one(
    streaming: bool, sequence: list[Input[Thing]]
) -> None:
    state, step = begin(streaming=streaming)
    listed = False
    for arrived in sequence:
        if not can_arrive(state, arrived):
            continue
        before = state
        state, step = advance(state, arrived)
        if step.objects is Objects.REPLACE:
            whole_pages = isinstance(arrived, Page) and not arrived.continue_token
            whole_stream = isinstance(arrived, Event) and arrived.initial_events_end
            assert whole_pages or whole_stream
            listed = True
        if step.objects is Objects.DISCARD:
            listed = False
            assert step.request in (ListRequest(""), WatchRequest("", initial_events=True))
        if step.objects is Objects.APPLY:
            assert listed
            assert before.phase is Phase.WATCHING
        assert (state.phase is Phase.WATCHING) == listed


@given(st.booleans(), arrivals)
def test_there_is_always_something_to_do_next(streaming: bool, sequence: list[Input[Thing]]) -> None:
    """A request, or an open stream to read on; and a request follows every failure and every end."""
    state, step = begin(streaming=streaming)
    assert step.request is not None
    for arrived in sequence:
        if not can_arrive(state, arrived):
            continue
        state, step = advance(state, arrived)
        if isinstance(arrived, Event):
            assert step.request is None
            assert state.phase is not Phase.PAGING
        else:
            assert step.request is not None
            assert isinstance(step.request, ListRequest) == (state.phase is Phase.PAGING)
        assert 0.0 <= step.delay_s <= MAX_RETRY_AFTER_S


@given(st.booleans(), arrivals)
def test_whatever_the_server_does_there_is_no_busy_loop(
    streaming: bool, sequence: list[Input[Thing]]
) -> None:
    """Between two moves of a watch, at most two failures go without a pause: the first 410 or expired token, and
    the one refusal of streaming lists. The n-th failure in a row waits as long as its number demands.
    """
    state, _ = begin(streaming=streaming)
    unpaused = 0
    for arrived in sequence:
        if not can_arrive(state, arrived):
            continue
        before = state
        state, step = advance(state, arrived)
        if state.failures == 0:
            unpaused = 0
        elif isinstance(arrived, Failed | Ended):
            assert state.failures == before.failures + 1
            if step.delay_s == 0.0:
                unpaused += 1
            else:
                assert step.delay_s >= min(MAX_DELAY_S, BASE_DELAY_S * 2 ** (state.failures - 1))
        assert unpaused <= 2


@given(st.booleans(), arrivals)
def test_a_watch_resumes_where_its_last_event_left_it(streaming: bool, sequence: list[Input[Thing]]) -> None:
    state, _ = begin(streaming=streaming)
    at = ""
    for arrived in sequence:
        if not can_arrive(state, arrived):
            continue
        state, step = advance(state, arrived)
        if state.phase is not Phase.WATCHING:
            assert state.resource_version == ""
            continue
        if isinstance(arrived, Page | Event):
            starts_here = step.objects is Objects.REPLACE
            at = arrived.resource_version if starts_here else arrived.resource_version or at
        assert state.resource_version == at
        if step.request is not None:
            assert not isinstance(step.request, ListRequest)
            assert (step.request.resource_version, step.request.initial_events) == (at, False)


Deed = Callable[[FakeSource[Thing]], object]
names = st.sampled_from("abcdef")
puts = st.builds(
    lambda name, uid, color: lambda source: source.put(thing(name, uid=uid, colors=(color,))),
    names,
    st.sampled_from(["uid-1", "uid-2"]),
    st.sampled_from(["red", "blue"]),
)
removals = st.builds(lambda name: lambda source: source.remove("ns", name), names)
failing = st.builds(
    lambda kind: lambda source: source.fail_next(kind("no")),
    error_types.filter(lambda kind: kind is not ApiError),
)
breaks = st.builds(lambda kind: lambda source: source.break_off(kind("no")), error_types)
misdeeds: st.SearchStrategy[Deed] = st.sampled_from(
    [
        FakeSource.drop,
        FakeSource.stall,
        FakeSource.bookmark,
        FakeSource.compact,
        FakeSource.end_next_at_once,
    ]
)
deeds = st.lists(
    st.tuples(st.one_of(puts, puts, removals, failing, breaks, misdeeds), st.integers(0, 6)), max_size=40
)


@given(st.booleans(), st.booleans(), st.sampled_from(OldVersion), deeds)
def test_over_all_that_goes_wrong_the_copy_comes_to_agree_with_the_source(
    streaming: bool, serves_streaming: bool, old_version: OldVersion, sequence: list[tuple[Deed, int]]
) -> None:
    """And handlers have seen exactly the differences: their copy agrees, too, at every moment."""
    clock = manual_clock()
    source = FakeSource(stamp, page_size=2)
    source.serves_streaming, source.old_version = serves_streaming, old_version
    informer = Informer[Thing]("things")
    copy: dict[ObjectKey, Thing] = {}

    def keys(change: Change[Thing]) -> Iterator[ObjectKey]:
        if change.old is not None:
            assert copy.pop(key_of(change.old)) is change.old
        if change.new is not None:
            assert key_of(change.new) not in copy
            copy[key_of(change.new)] = change.new
            yield key_of(change.new)

    touched: list[ObjectKey] = []
    informer.add_handler(keys, touched.append)
    follower = Follower(source, informer, clock, streaming=streaming, silence=timedelta(minutes=2))
    for deed, steps in sequence:
        deed(source)
        for _ in range(steps):
            if not follower.step():
                clock.advance(timedelta(seconds=1))
        assert copy == {key_of(obj): obj for obj in informer.lister.list()}
    # The fault is over. Within a few silences the copy is whole again.
    end_s = clock.monotonic() + 3600.0
    while clock.monotonic() < end_s:
        follower.catch_up()
        clock.set_monotonic(follower.next_due())
    assert informer.has_synced
    assert {key_of(obj): obj for obj in source.objects()} == copy
