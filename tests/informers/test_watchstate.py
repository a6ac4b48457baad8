"""The path from list to watch and back, step by step, over each thing that goes wrong in the field."""

from datetime import timedelta

import pytest

from informers.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Garbled,
    Gone,
    Invalid,
    NoAnswer,
    NotFound,
    ResourceVersionTooLarge,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
    from_response,
)
from informers.watchstate import (
    BASE_DELAY_S,
    LONG_PATIENCE,
    MAX_DELAY_S,
    MAX_RETRY_AFTER_S,
    PATIENCE,
    Ended,
    Event,
    Failed,
    ListRequest,
    Objects,
    Page,
    Phase,
    Step,
    WatchRequest,
    WatchState,
    advance,
    begin,
)
from tests.informers.builders import Thing, recorded_answer, recorded_watch, thing

STREAMING_LIST = WatchRequest("", initial_events=True)
FRESH_LIST = ListRequest("")
BOOKMARK_AT_9 = Event[Thing]("BOOKMARK", None, "9")
INITIAL_EVENTS_END = Event[Thing]("BOOKMARK", None, "9", initial_events_end=True)
CHANGE_AT_10 = Event("MODIFIED", thing("a", version="10"), "10")


def watch_from(version: str) -> WatchRequest:
    return WatchRequest(version, initial_events=False)


def paging(token: str = "") -> WatchState:
    return WatchState(Phase.PAGING, streaming=False, continue_token=token)


def streaming() -> WatchState:
    return WatchState(Phase.STREAMING, streaming=True)


def watching(version: str = "9", *, opened_at: str = "9", failures: int = 0) -> WatchState:
    return WatchState(Phase.WATCHING, False, version, opened_at=opened_at, failures=failures)


def test_pages_are_collected_and_the_last_one_replaces_the_store() -> None:
    state, step = begin(streaming=False)
    assert step.request == FRESH_LIST
    state, step = advance(state, Page((thing("a"),), "9", "next"))
    assert step == Step(Objects.COLLECT, ListRequest("next"))
    state, step = advance(state, Page((thing("b"),), "9", ""))
    assert step == Step(Objects.REPLACE, watch_from("9"))
    assert state == watching()


def test_initial_events_are_collected_and_their_end_replaces_the_store_on_the_same_stream() -> None:
    state, step = begin(streaming=True)
    assert step.request == STREAMING_LIST
    state, step = advance(state, Event("ADDED", thing("a"), "3"))
    assert step == Step(Objects.COLLECT)
    state, step = advance(state, INITIAL_EVENTS_END)
    assert step == Step(Objects.REPLACE)
    assert (state.phase, state.resource_version) == (Phase.WATCHING, "9")
    state, step = advance(state, CHANGE_AT_10)
    assert step == Step(Objects.APPLY)


def test_an_ordinary_bookmark_does_not_end_the_initial_events() -> None:
    state, step = advance(streaming(), BOOKMARK_AT_9)
    assert (state, step) == (streaming(), Step(Objects.NONE))


def test_a_bookmark_moves_the_place_where_the_watch_resumes() -> None:
    state, step = advance(watching("5", opened_at="5"), BOOKMARK_AT_9)
    assert step == Step(Objects.NONE)
    assert advance(state, Ended(300.0))[1].request == watch_from("9")


def test_an_event_without_a_version_leaves_that_place_alone() -> None:
    state, step = advance(watching(), Event("MODIFIED", thing("a", version=""), ""))
    assert (state, step) == (watching(), Step(Objects.APPLY))


def test_a_watch_that_ends_in_good_order_goes_on_at_once() -> None:
    assert advance(watching(), Ended(300.0))[1] == Step(Objects.NONE, watch_from("9"))
    moved = advance(watching(), CHANGE_AT_10)[0]
    assert advance(moved, Ended(0.1))[1] == Step(Objects.NONE, watch_from("10"))


@pytest.mark.parametrize("transcript", ["list-continue-expired", "unauthorized"])
def test_an_expired_continue_token_restarts_the_list_other_failures_repeat_the_page(transcript: str) -> None:
    error = from_response(*recorded_answer(transcript))
    _, step = advance(paging("t"), Failed(error))
    if transcript == "list-continue-expired":
        assert step == Step(Objects.DISCARD, FRESH_LIST)
    else:
        assert step == Step(Objects.NONE, ListRequest("t"), BASE_DELAY_S)


def test_a_continue_token_that_is_gone_restarts_the_list_and_the_second_time_waits() -> None:
    state, step = advance(paging("t"), Failed(Gone("too old")))
    assert step == Step(Objects.DISCARD, FRESH_LIST)
    state, _ = advance(state, Page((), "9", "t2"))
    _, step = advance(state, Failed(Gone("too old")))
    assert step == Step(Objects.DISCARD, FRESH_LIST, 2 * BASE_DELAY_S)


def test_a_bad_request_without_a_continue_token_is_not_hurried() -> None:
    """A malformed selector, say: asking afresh at once would ask the same."""
    assert advance(paging(), Failed(BadRequest("no")))[1] == Step(Objects.NONE, FRESH_LIST, BASE_DELAY_S)


def test_410_lists_afresh_at_once_but_not_twice_in_a_row() -> None:
    """A server whose every list is followed by 410 must not be asked at full speed."""
    state, step = advance(watching(), Failed(Gone("too old")))
    assert step == Step(Objects.DISCARD, FRESH_LIST)
    state, step = advance(state, Page((), "20", ""))
    assert step.request == watch_from("20")
    state, step = advance(state, Failed(Gone("too old")))
    assert step == Step(Objects.DISCARD, FRESH_LIST, 2 * BASE_DELAY_S)


def test_the_recorded_410_inside_a_200_lists_afresh() -> None:
    (failed,) = recorded_watch("watch-too-old")
    assert isinstance(failed, Failed)
    assert advance(watching("100"), failed)[1] == Step(Objects.DISCARD, FRESH_LIST)


def test_a_server_with_streaming_lists_is_asked_for_one_again_after_410() -> None:
    state = watching()._replace(streaming=True)
    assert advance(state, Failed(Gone("too old")))[1].request == STREAMING_LIST


def test_instant_empty_streams_back_off_and_then_list_afresh() -> None:
    """kubernetes/kubernetes#104171: nothing says that the version is lost."""
    state, delays = watching(), list[float]()
    for _ in range(PATIENCE - 1):
        state, step = advance(state, Ended(0.01))
        assert step.request == watch_from("9")
        delays.append(step.delay_s)
    state, step = advance(state, Ended(0.01))
    assert step.request == FRESH_LIST
    assert [*delays, step.delay_s] == [BASE_DELAY_S * 2**n for n in range(PATIENCE)]


def test_an_instant_stream_that_repeats_its_bookmark_backs_off_too() -> None:
    state, step = advance(watching(), BOOKMARK_AT_9)
    state, step = advance(state, Ended(0.01))
    assert step.delay_s == BASE_DELAY_S


@pytest.mark.parametrize("error", [BadRequest("unknown parameter"), Invalid("forbidden for watch")])
def test_a_server_that_refuses_streaming_lists_is_asked_for_pages_from_then_on(error: ApiError) -> None:
    state, step = advance(streaming(), Failed(error))
    assert step == Step(Objects.DISCARD, FRESH_LIST)
    state, step = advance(state, Page((), "9", ""))
    assert advance(state, Failed(Gone("too old")))[1].request == FRESH_LIST


@pytest.mark.parametrize("arrived", [Ended(60.0), Failed(NoAnswer("silent")), Failed(Garbled("not JSON"))])
def test_a_streaming_list_that_never_ends_well_gives_way_to_pages(arrived: Ended | Failed) -> None:
    """A proxy may hold streams back. What was collected does not count; the next list may stream again."""
    state, step = advance(streaming(), arrived)
    assert step == Step(Objects.DISCARD, FRESH_LIST, BASE_DELAY_S)
    assert state.streaming


@pytest.mark.parametrize("error", [Unreachable("refused"), ServerError("no"), Throttled("busy")])
def test_a_streaming_list_that_fails_for_other_reasons_is_tried_again(error: ApiError) -> None:
    assert advance(streaming(), Failed(error))[1] == Step(Objects.DISCARD, STREAMING_LIST, BASE_DELAY_S)


@pytest.mark.parametrize("error", [NoAnswer("silent"), ServerError("no"), Unauthorized("no"), Garbled("?")])
def test_a_broken_stream_resumes_where_it_was_after_a_pause(error: ApiError) -> None:
    assert advance(watching(), Failed(error))[1] == Step(Objects.NONE, watch_from("9"), BASE_DELAY_S)


@pytest.mark.parametrize("error", [ResourceVersionTooLarge("ahead"), BadRequest("bad"), Invalid("bad")])
def test_a_version_the_server_does_not_know_is_given_up(error: ApiError) -> None:
    """As after its data were restored from a backup."""
    assert advance(watching(), Failed(error))[1] == Step(Objects.DISCARD, FRESH_LIST, BASE_DELAY_S)


@pytest.mark.parametrize(
    ("error", "patience"),
    [
        (Garbled("?"), PATIENCE),
        (ServerError("no"), LONG_PATIENCE),
        (NoAnswer("silent"), LONG_PATIENCE),
        (Forbidden("no"), LONG_PATIENCE),
        (NotFound("no"), LONG_PATIENCE),
    ],
)
def test_a_watch_that_keeps_failing_gives_way_to_a_new_list(error: ApiError, patience: int) -> None:
    """One dead watch must not leave us blind until somebody restarts us."""
    assert advance(watching(failures=patience - 2), Failed(error))[1].request == watch_from("9")
    assert advance(watching(failures=patience - 1), Failed(error))[1].request == FRESH_LIST


@pytest.mark.parametrize("error", [Unreachable("refused"), Throttled("busy"), Unauthorized("no")])
def test_failures_that_say_nothing_about_the_watch_never_cost_a_list(error: ApiError) -> None:
    """A server that comes back after an hour must not be greeted by a full list for each informer."""
    assert advance(watching(failures=1000), Failed(error))[1].request == watch_from("9")


def test_delays_double_to_a_cap_and_progress_ends_them() -> None:
    state, delays = watching(), list[float]()
    for _ in range(8):
        state, step = advance(state, Failed(Unreachable("refused")))
        delays.append(step.delay_s)
    assert delays == [min(MAX_DELAY_S, BASE_DELAY_S * 2**n) for n in range(8)]
    state, _ = advance(state, CHANGE_AT_10)
    assert state.failures == 0


def test_a_retry_after_is_kept_to_within_reason() -> None:
    patient = Throttled("busy", retry_after=timedelta(seconds=60))
    assert advance(watching(), Failed(patient))[1].delay_s == 60.0
    absurd = Throttled("busy", retry_after=timedelta(days=1))
    assert advance(watching(), Failed(absurd))[1].delay_s == MAX_RETRY_AFTER_S
    gone = Gone("too old", retry_after=timedelta(seconds=5))
    assert advance(watching(), Failed(gone))[1].delay_s == 5.0


@pytest.mark.parametrize(
    ("state", "arrived"),
    [(paging(), BOOKMARK_AT_9), (paging(), Ended(1.0)), (watching(), Page((), "1", ""))],
)
def test_what_the_last_request_cannot_have_brought_is_an_error(
    state: WatchState, arrived: Event[Thing] | Ended | Page[Thing]
) -> None:
    with pytest.raises(ValueError, match="cannot arrive while"):
        advance(state, arrived)


@pytest.mark.parametrize(("transcript", "objects"), [("watch-nodes", 10), ("watch-vmims", 33)])
def test_recorded_streaming_lists_are_followed_to_their_last_bookmark(transcript: str, objects: int) -> None:
    state, _ = begin(streaming=True)
    steps = []
    last = ""
    for arrived in recorded_watch(transcript):
        state, step = advance(state, arrived)
        steps.append(step.objects)
        last = arrived.resource_version if isinstance(arrived, Event) else last
    bookmarks = len(steps) - objects - 1
    assert steps == [Objects.COLLECT] * objects + [Objects.REPLACE] + [Objects.NONE] * bookmarks
    assert state.resource_version == last
