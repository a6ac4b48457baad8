"""A reflector as others see it: lists on demand, what it tells about itself, errors that are our own, and its end."""

from datetime import timedelta
from threading import Event, Thread

import pytest

from informers import reflector, watchstate
from informers.errors import Gone, NoAnswer, ServerError
from informers.reflector import NotStored
from tests.informers.api_server import Call, Connect, serving, status_body
from tests.informers.builders import manual_clock
from tests.informers.following import STOP, eventually, following
from tests.informers.served import Item, Served, item, old_server

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "quick")


# Errors that are our own


def test_a_handler_that_raises_is_reported_and_nothing_is_lost(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        follower.informer.add_handler(
            lambda change: [change.new.size and 1 // 0] if change.new else [], lambda key: None
        )
        served.put(item("a", size=1), item("d"))
        follower.catches_up_with(served)
        assert follower.reflector.statistics().errors == {"ZeroDivisionError": 1}
        assert follower.reflector.statistics().lists == 1


def test_what_could_not_be_stored_is_made_good_by_a_list(served: Served, connect: Connect) -> None:
    failures = iter([ZeroDivisionError("by zero")])

    def sizes(obj: Item) -> list[int]:
        if obj.size and (failure := next(failures, None)):
            raise failure
        return [obj.size]

    with serving(served) as server, following(connect(server), index=sizes) as follower:
        follower.catches_up_with(served)
        served.put(item("a", size=1))
        follower.catches_up_with(served)
        follower.has_seen(NotStored)
        assert follower.reflector.statistics().lists == 2


def test_a_failing_report_does_not_end_the_reflector(served: Served, connect: Connect) -> None:
    served.fail_next(ServerError("no", status=500))
    with serving(served) as server, following(connect(server)) as follower:
        follower.reported = None  # type: ignore[assignment]
        follower.catches_up_with(served)


# Lists on demand


def test_resync_brings_what_the_watch_has_missed(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: source.stall())
        served.remove("a")
        served.put(item("d"))
        follower.reflector.resync(STOP)
        assert follower.objects() == served.objects()
        served.put(item("e"))
        follower.catches_up_with(served)
        assert follower.reported == []


def test_resync_waits_for_a_list_that_began_after_it_was_asked_for(connect: Connect) -> None:
    """A list under way may show what was before."""
    served = old_server(Served(page_size=2))
    served.put(*(item(name) for name in "abcde"))
    served.instead.extend([None, None, Call.stall])
    with serving(served) as server, following(connect(server)) as follower:
        eventually(lambda: len(served.lists) == 2)
        served.remove("a")
        follower.reflector.resync(STOP)
        assert follower.objects() == served.objects()


def test_resync_overcomes_failures(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.fail_next(ServerError("no", status=500))
        served.change(lambda source: source.stall())
        served.put(item("d"))
        follower.reflector.resync(STOP)
        assert follower.objects() == served.objects()
        assert follower.reflector.statistics().errors == {"ServerError": 1}


def test_a_list_that_others_make_too_is_put_off_unless_it_is_asked_for(
    served: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage every informer of every program finds its version gone at the same instant."""
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        monkeypatch.setattr(reflector, "SPREAD_S", 3600.0)
        served.change(lambda source: source.compact())
        served.change(lambda source: source.drop())
        follower.has_seen(Gone)
        served.put(item("d"))
        with following(connect(server)) as another:  # lists for the first time, at once
            another.catches_up_with(served)
        assert follower.reflector.statistics().lists == 1
        follower.reflector.resync(STOP)
        assert follower.objects() == served.objects()


def test_a_list_that_is_being_stored_does_not_count_for_resync(served: Served, connect: Connect) -> None:
    storing, go_on = Event(), Event()

    def hold_up(change: object) -> list[int]:
        storing.set()
        go_on.wait(STOP.total_seconds())
        return []

    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        lists: list[int] = []

        def resync() -> None:
            follower.reflector.resync(STOP)
            lists.append(follower.reflector.statistics().lists)

        first, second = Thread(target=resync), Thread(target=resync)
        served.change(lambda source: source.stall())
        served.remove("a")
        follower.informer.add_handler(
            lambda change: hold_up(change) if change.new is None else [], lambda key: None
        )
        first.start()
        assert storing.wait(STOP.total_seconds())
        second.start()
        eventually(follower.reflector._interrupt.is_set)  # its demand is made
        go_on.set()
        for thread in (first, second):
            thread.join(STOP.total_seconds())
        assert lists[-1] == 3


def test_resync_fails_in_time_and_says_why(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        server.close()
        with pytest.raises(NoAnswer, match=r"items: no fresh list within 0.3 s; last error: cannot connect"):
            follower.reflector.resync(timedelta(seconds=0.3))
        assert follower.objects() == served.objects()


def test_resync_of_a_stopped_reflector_fails(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        assert follower.reflector.stop(STOP)
        with pytest.raises(NoAnswer, match="no fresh list any more"):
            follower.reflector.resync(STOP)


# Being watched, and the end


def test_the_age_of_the_last_contact_tells_a_dead_watch_from_a_quiet_one(
    served: Served, connect: Connect
) -> None:
    clock = manual_clock()
    with serving(served) as server, following(connect(server), clock=clock) as follower:
        follower.catches_up_with(served)
        eventually(lambda: follower.reflector.statistics().events == 4)
        clock.advance(timedelta(seconds=90))
        assert follower.reflector.age_of_last_contact() == 90.0
        served.change(lambda source: source.bookmark())
        eventually(lambda: follower.reflector.age_of_last_contact() == 0.0)
        clock.advance(timedelta(seconds=50))
        for _ in range(3):
            served.fail_next(ServerError("no", status=500))
        served.instead.extend([None, None, None, Call.stall])
        server.drop_connections()
        eventually(lambda: follower.reflector.statistics().errors.get("ServerError") == 3)
        assert follower.reflector.statistics().age_s == 50.0
        assert follower.reflector.statistics().last_error == "500: no"


@pytest.mark.parametrize(
    "state", ["waiting for events", "waiting for a page", "waiting for a head", "pausing"]
)
def test_it_stops_at_once_whatever_it_waits_for(
    state: str, served: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = status_body(422, "Invalid")
    if state == "waiting for a page":
        served.instead.extend([lambda call: call.answer_json(422, refused), Call.stall])
    elif state == "waiting for a head":
        served.instead.append(Call.stall)
    elif state == "pausing":
        monkeypatch.setattr(watchstate, "MAX_DELAY_S", 3600.0)
        monkeypatch.setattr(watchstate, "BASE_DELAY_S", 3600.0)
        served.fail_next(ServerError("no", status=500))
    with serving(served) as server, following(connect(server)) as follower:
        if state == "waiting for events":
            follower.catches_up_with(served)
        else:
            eventually(lambda: len(server.calls) == (2 if state == "waiting for a page" else 1))
        assert follower.reflector.stop(STOP)
        assert not follower.reflector.statistics().running
        assert follower.reported == [] or state == "pausing"
    assert len(server.calls) == (2 if state == "waiting for a page" else 1)
