"""From bytes to pages and events: what is read, what is refused whole, and what is left out alone."""

import json
from typing import Any

import pytest

from informers.decoding import Decoder, Undecodable
from informers.errors import Garbled, Gone
from informers.watchstate import Event, Failed, Page
from tests.informers.served import Item, ItemMeta, line_of

OLD = Item(ItemMeta("a", "ns", "uid-1", "1"), size=1)


def decoder(reported: list[Undecodable] | None = None) -> Decoder[Item]:
    found = {("ns", "a"): OLD}
    return Decoder(Item, found.get, ([] if reported is None else reported).append)


def body_of(name: str = "a", *, size: object = 2, uid: str = "uid-1", version: str = "5") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version, "labels": {"x": "y"}}
    return {"metadata": metadata, "size": size, "spec": {"unknown": [1, 2]}}


def read(name: str = "a", *, size: int = 2) -> Item:
    return Item(ItemMeta(name, "ns", "uid-1", "5"), size)


def page_of(*items: dict[str, Any], **metadata: Any) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "9", **metadata}, "items": items}).encode()


def test_a_page_has_its_items_its_version_and_where_it_goes_on() -> None:
    page = decoder().page(page_of(body_of("a"), body_of("b"), **{"continue": "token"}))
    assert page == Page((read("a"), read("b")), "9", "token")


def test_null_is_how_go_writes_an_empty_list() -> None:
    text = b'{"metadata":{"resourceVersion":"9","continue":null},"items":null}'
    assert decoder().page(text) == Page((), "9", "")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>log in</html>",
        b"[]",
        b'{"kind":"Status","metadata":{}}',
        b'{"metadata":{"resourceVersion":"9"}}',
        b'{"metadata":{"resourceVersion":""},"items":[]}',
        b'{"metadata":{},"items":[]}',
        b'{"items":[]}',
        b'{"metadata":{"resourceVersion":"9"},"items":{}}',
        b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata"',
        b'{"metadata":{"resourceVersion":"\xff"},"items":[]}',
    ],
)
def test_what_is_no_list_is_garbled(text: bytes) -> None:
    """Taken for an empty one, it would empty the store."""
    with pytest.raises(Garbled):
        decoder().page(text)


def test_a_message_shows_only_how_a_garbled_answer_begins() -> None:
    with pytest.raises(Garbled) as caught:
        decoder().page(b"<html>" + b"x" * 100_000)
    assert "<html>xxx" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_has_its_object_and_that_ones_version(kind: Any) -> None:
    assert decoder().line(line_of(kind, body_of())) == Event(kind, read(), "5")


def test_a_bookmark_says_where_we_are_and_may_end_the_initial_events() -> None:
    plain = {"kind": "Item", "metadata": {"resourceVersion": "7"}, "spec": None}
    assert decoder().line(line_of("BOOKMARK", plain)) == Event("BOOKMARK", None, "7", False)
    end = {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}
    assert decoder().line(line_of("BOOKMARK", end)) == Event("BOOKMARK", None, "7", True)


def test_an_error_event_is_a_failure_of_its_type() -> None:
    failed = decoder().line(line_of("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Gone)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b"{}",
        b'{"type":"ADDED"}',
        b'{"object":{}}',
        b'{"type":"ADDED","object":{}',
        b'{"type":"RENAMED","object":{}}',
        b'{"type":"ERROR","object":[]}',
        b'{"type":"BOOKMARK","object":{}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"name":"x"}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}',
    ],
)
def test_what_is_no_event_is_garbled(line: bytes) -> None:
    with pytest.raises(Garbled):
        decoder().line(line)


def test_one_odd_object_of_a_page_is_reported_and_stays_what_it_was() -> None:
    reported: list[Undecodable] = []
    text = page_of(body_of("b"), body_of("a", size="large"), body_of("c", size=None), body_of("d"))
    assert decoder(reported).page(text).items == (read("b"), OLD, read("d"))
    assert [str(error).split(":")[0] for error in reported] == [
        "ns/a stays what it was",
        "ns/c stays what it was",
    ]


def test_an_odd_object_that_replaced_the_old_one_is_not_the_old_one() -> None:
    """Re-created under the same name: the old one is gone for good."""
    assert decoder().page(page_of(body_of("a", size="large", uid="uid-2"))).items == ()
    odd = decoder().line(line_of("DELETED", body_of("a", size="large", uid="uid-2")))
    assert odd == Event("DELETED", None, "5")


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_odd_event_is_about_the_object_as_it_was_and_moves_the_version(kind: Any) -> None:
    reported: list[Undecodable] = []
    assert decoder(reported).line(line_of(kind, body_of(size="large"))) == Event(kind, OLD, "5")
    assert len(reported) == 1


@pytest.mark.parametrize("body", [{}, [], 7, {"metadata": {"name": 7}}])
def test_an_object_without_legible_metadata_is_left_out(body: object) -> None:
    reported: list[Undecodable] = []
    assert decoder(reported).line(line_of("ADDED", body)) == Event("ADDED", None, "")
    assert "an object without a name" in str(reported[0])
