"""Whatever a server does, over real sockets: in the end the store holds what the server holds."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from informers import reflector
from informers.decoding import Undecodable
from informers.errors import (
    Garbled,
    Gone,
    NoAnswer,
    ServerError,
    Throttled,
    Unreachable,
)
from informers.reflector import Resource
from informers.testing import OldVersion
from tests.informers.api_server import Call, Connect, serving, status_body
from tests.informers.builders import recorded_answer
from tests.informers.following import STOP, eventually, following
from tests.informers.served import ITEMS, Item, Served, item, old_server

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "quick")


# In good order


def test_a_streaming_list_turns_into_the_watch(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.put(item("a", size=7), item("d"))
        served.remove("b")
        follower.catches_up_with(served)
        counts = follower.reflector.statistics()
    assert (counts.lists, counts.watches, counts.objects, counts.errors) == (1, 1, 3, {})
    assert counts.events == 3 + 1 + 3
    assert served.lists == []
    (asked,) = served.watches
    assert 120 <= int(asked.pop("timeoutSeconds")) < 240
    assert asked == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


def test_watches_that_end_at_once_are_reported(served: Served, connect: Connect) -> None:
    """Nobody else would see that the copy is kept by lists alone."""

    def end_at_once(call: Call) -> None:
        call.begin_stream()
        call.end_stream()

    served.instead.extend([None, *[end_at_once] * 3])
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: source.drop())
        eventually(lambda: follower.reflector.statistics().errors.get("NoAnswer", 0) >= 2)
        served.put(item("d"))
        follower.catches_up_with(served)
    assert {str(error) for error in follower.reported} == {"the watch ended at once and brought nothing new"}


@pytest.mark.parametrize("status", [400, 404, 422])
def test_an_old_server_is_asked_for_pages(status: int, connect: Connect) -> None:
    served = Served(page_size=2)
    served.put(*(item(name) for name in "abcde"))
    reason = {400: "BadRequest", 404: "NotFound", 422: "Invalid"}[status]
    served.instead.append(lambda call: call.answer_json(status, status_body(status, reason)))
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.put(item("f"))
        follower.catches_up_with(served)
        assert follower.reflector.statistics().lists == 1
    assert [asked.get("continue") for asked in served.lists] == [None, "6/3", "6/1"]
    assert {asked["limit"] for asked in served.lists} == {"500"}
    assert "resourceVersion" not in served.lists[0]
    assert served.watches[1]["resourceVersion"] == "6"
    assert [type(error).__name__ for error in follower.reported] == (["NotFound"] if status == 404 else [])


def test_selectors_go_along_with_every_request(connect: Connect) -> None:
    served = old_server(Served(page_size=1))
    served.put(item("a"), item("b"))
    selected = Resource(ITEMS.path, Item, "kubevirt.io!=virt-launcher", "status.phase!=Failed")
    with serving(served) as server, following(connect(server), resource=selected) as follower:
        follower.catches_up_with(served)
        eventually(lambda: len(served.watches) == 2)
    for asked in served.lists + served.watches:
        assert asked["labelSelector"] == "kubevirt.io!=virt-launcher"
        assert asked["fieldSelector"] == "status.phase!=Failed"


def test_objects_may_be_larger_than_any_read(served: Served, connect: Connect) -> None:
    served.put(item("huge", text="ä" * 3_000_000))
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.put(item("huge", text="€" * 2_000_000))
        follower.catches_up_with(served)


def test_reflectors_do_not_end_their_watches_at_the_same_time(served: Served, connect: Connect) -> None:
    with serving(served) as server:
        for seed in range(10):
            with following(connect(server), seed=seed) as follower:
                follower.catches_up_with(served)
    assert len({asked["timeoutSeconds"] for asked in served.watches}) > 5


# Broken watches


def test_a_watch_that_ends_goes_on_where_it_was(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.put(item("d"))
        follower.catches_up_with(served)
        served.change(lambda source: source.drop())
        served.put(item("e"))
        follower.catches_up_with(served)
        assert follower.reported == []
    assert served.watches[1]["resourceVersion"] == "5"
    assert served.lists == []


def test_a_bookmark_is_where_a_watch_goes_on(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: source.compact())
        served.change(lambda source: source.bookmark())
        eventually(lambda: follower.reflector.statistics().events == 5)
        served.change(lambda source: source.drop())
        eventually(lambda: len(served.watches) == 2)
    assert served.watches[1]["resourceVersion"] == "5"


def test_a_broken_connection_costs_no_list(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: source.break_off(NoAnswer("connection lost")))
        served.put(item("d"))
        follower.catches_up_with(served)
        follower.has_seen(NoAnswer)
        assert follower.reflector.statistics().lists == 1


def test_a_half_open_watch_is_noticed(
    served: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a network loss nothing arrives, and nothing ends (kubernetes-client/python#1148)."""
    monkeypatch.setattr(reflector, "WATCH_S", 1)
    monkeypatch.setattr(reflector, "GRACE", timedelta(seconds=-0.7))
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: source.stall())
        served.put(item("d"))
        follower.catches_up_with(served)
        follower.has_seen(NoAnswer)


def test_a_streaming_list_that_stalls_gives_way_to_pages(
    served: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "LIST_SILENCE", timedelta(seconds=0.2))
    served.instead.append(Call.stall)
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
    assert len(served.lists) == 1


@pytest.mark.parametrize(
    "garbage",
    [b"<html>busy</html>", b'{"type":"ADDED","obj', b'{"type":"PATCHED","object":{}}', b'"\xff"', b"[]"],
)
def test_a_garbled_line_breaks_the_watch_not_the_reflector(
    garbage: bytes, served: Served, connect: Connect
) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.rewrite = lambda line: garbage
        served.put(item("d"))
        follower.has_seen(Garbled)
        served.rewrite = bytes
        follower.catches_up_with(served)


@pytest.mark.parametrize("answered_by", OldVersion)
def test_a_version_that_is_gone_leads_to_a_new_list(
    answered_by: OldVersion, served: Served, connect: Connect
) -> None:
    """However the server says so; what was deleted meanwhile goes, too."""
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.change(lambda source: setattr(source, "old_version", answered_by))
        served.change(lambda source: source.stall())
        served.remove("a")
        served.put(item("d"))
        served.change(lambda source: source.compact())
        server.drop_connections()
        follower.catches_up_with(served)
        if answered_by is not OldVersion.SILENCE:
            follower.has_seen(Gone)
        assert follower.reflector.statistics().lists == 2


# Refused and failing requests


def test_a_throttling_server_is_given_the_time_it_asks_for(served: Served, connect: Connect) -> None:
    busy = Throttled("busy", status=429, reason="TooManyRequests", retry_after=timedelta(seconds=1))
    served.fail_next(busy)
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        (error,) = follower.reported
    assert isinstance(error, Throttled)
    assert error.retry_after == busy.retry_after


def test_a_burst_of_server_errors_is_sat_out(served: Served, connect: Connect) -> None:
    burst = [ServerError("no", status=status) for status in (500, 503, 502, 500)]
    for error in burst:
        served.fail_next(error)
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        assert follower.reflector.statistics().errors == {"ServerError": 4}


def test_a_server_that_was_away_is_not_greeted_by_a_list(served: Served, connect: Connect) -> None:
    with serving(served) as server:
        client = connect(server)
        with following(client) as follower:
            follower.catches_up_with(served)
            port = server.port
            server.close()
            follower.has_seen(Unreachable)
            served.put(item("d"))
            with serving(served, port=port):
                follower.catches_up_with(served)
                assert follower.reflector.statistics().lists == 1


def test_a_page_that_is_lost_is_asked_for_again(connect: Connect) -> None:
    served = old_server(Served(page_size=2))
    served.put(*(item(name) for name in "abcde"))
    served.instead.extend([None, None, Call.drop])
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        follower.has_seen(NoAnswer)
    assert [asked.get("continue") for asked in served.lists] == [None, "6/3", "6/3", "6/1"]


def expired(call: Call) -> None:
    call.answer_json(410, status_body(410, "Expired"))


def unreadable_token(call: Call) -> None:
    status, body, _ = recorded_answer("list-continue-expired")
    call.answer(status, body)


@pytest.mark.parametrize("refusal", [expired, unreadable_token])
def test_a_list_whose_continue_token_has_expired_begins_anew(
    refusal: Callable[[Call], None], connect: Connect
) -> None:
    """Objects of the first, incomplete list that are gone by now must not come back."""
    served = old_server(Served(page_size=2))
    served.put(*(item(name) for name in "abcde"))

    def meanwhile(call: Call) -> None:
        served.remove("a")
        refusal(call)

    served.instead.extend([None, None, meanwhile])
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
    assert [asked.get("continue") for asked in served.lists] == [None, "6/3", None, "7/2"]


def without_items(body: bytes) -> bytes:
    return b'{"kind":"ItemList","metadata":{"resourceVersion":"9"}}'


@pytest.mark.parametrize(
    "spoil", [without_items, lambda body: b"<html>log in</html>", lambda body: body[:50]]
)
def test_a_page_that_is_none_never_empties_the_store(
    spoil: Callable[[bytes], bytes], served: Served, connect: Connect
) -> None:
    with serving(old_server(served)) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        before = follower.objects()
        served.rewrite = spoil
        served.change(lambda source: source.compact())
        served.change(lambda source: source.drop())
        follower.has_seen(Garbled)
        assert follower.objects() == before
        served.rewrite = bytes
        served.put(item("d"))
        follower.catches_up_with(served)


# Objects that cannot be decoded


def oddly(name: str) -> Callable[[bytes], bytes]:
    """The size of this object is no number any more."""

    def rewrite(text: bytes) -> bytes:
        body = msgspec.json.decode(text)
        objects = [body["object"]] if "object" in body else body["items"]
        for obj in objects:
            if obj["metadata"].get("name") == name:
                obj["size"] = "large"
        return msgspec.json.encode(body)

    return rewrite


@pytest.mark.parametrize("old", [False, True])
def test_one_odd_object_of_a_list_stays_what_it_was_and_all_others_come(
    old: bool, served: Served, connect: Connect
) -> None:
    if old:
        old_server(served)
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        eventually(lambda: follower.reflector.statistics().watches == 1)
        served.rewrite = oddly("b")
        served.change(lambda source: source.stall())
        served.put(item("b", size=5), item("c", size=6), item("d"))
        follower.reflector.resync(STOP)
        sizes = {name: obj.size for name, obj in follower.objects().items()}
        assert sizes == {"a": 0, "b": 0, "c": 6, "d": 0}
        (error,) = follower.reported
    assert isinstance(error, Undecodable)
    assert "ns/b stays what it was: Expected `int`, got `str` - at `$.size`" in str(error)


def test_an_odd_object_that_was_never_there_stays_away(served: Served, connect: Connect) -> None:
    served.rewrite = oddly("b")
    with serving(old_server(served)) as server, following(connect(server)) as follower:
        eventually(lambda: [*follower.objects()] == ["a", "c"])


def test_odd_changes_are_left_out_and_odd_deletions_are_deletions(served: Served, connect: Connect) -> None:
    with serving(served) as server, following(connect(server)) as follower:
        follower.catches_up_with(served)
        served.rewrite = oddly("b")
        served.put(item("b", size=5), item("c", size=6))
        eventually(
            lambda: {name: obj.size for name, obj in follower.objects().items()} == {"a": 0, "b": 0, "c": 6}
        )
        served.remove("b")
        follower.catches_up_with(served)
        assert follower.reflector.statistics().errors == {"Undecodable": 2}
        assert follower.reflector.statistics().watches == 1
