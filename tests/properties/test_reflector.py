"""The guarantees of reading, whatever arrives in whatever pieces, and of following, whatever goes wrong."""

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from informers import connection, reflector, watchstate
from informers.decoding import Decoder, Undecodable
from informers.errors import NoAnswer, ServerError, Throttled
from informers.store import ObjectKey
from informers.testing import OldVersion
from informers.transport import Transport, split_lines
from tests.informers.api_server import ApiServer, Call, serving, write_kubeconfig
from tests.informers.following import following
from tests.informers.served import Item, ItemMeta, Served, item

texts = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)


@given(st.lists(texts, max_size=8), st.booleans(), st.lists(st.integers(0, 400), max_size=12))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(lines: list[str], ended: bool, cuts: list[int]) -> None:
    data = "\n".join(lines).encode() + (b"\n" if ended else b"")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[begin:end] for begin, end in pairwise(places)]
    assert [*split_lines(chunks)] == [line.encode() for line in lines if line]


sizes: st.SearchStrategy[object] = st.one_of(st.integers(0, 9), st.sampled_from(["large", None, {}, 1.5]))


@given(st.lists(st.tuples(st.integers(0, 20), sizes), max_size=10, unique_by=lambda one: one[0]))
def test_an_odd_object_never_costs_another_one(objects: list[tuple[int, object]]) -> None:
    """Those that can be decoded come as they are; those that cannot stay as they were, if they were there."""
    old = {f"n{number}": Item(ItemMeta(f"n{number}"), size=99) for number in range(10)}
    reported: list[Undecodable] = []

    def stored(key: ObjectKey) -> Item | None:
        return old.get(key.name)

    items = [{"metadata": {"name": f"n{number}"}, "size": size} for number, size in objects]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
    page = Decoder(Item, stored, reported.append).page(body)
    expected = {
        f"n{number}": size if isinstance(size, int) else 99
        for number, size in objects
        if isinstance(size, int) or number < 10
    }
    assert {obj.metadata.name: obj.size for obj in page.items} == expected
    assert len(reported) == sum(not isinstance(size, int) for _, size in objects)


Act = Callable[[Served, ApiServer], None]
names = st.sampled_from("abcd")


def put(name: str, size: int, uid: str) -> Act:
    return lambda served, server: served.put(item(name, size=size, uid=uid))


def remove(name: str) -> Act:
    return lambda served, server: served.remove(name)


def garble_the_next(served: Served, server: ApiServer) -> None:
    pieces = iter([b"<html>"])
    served.rewrite = lambda text: next(pieces, text)


def answer_once(answer: Callable[[Call], None]) -> Act:
    return lambda served, server: served.instead.append(answer)


def fail_next(error: ServerError | Throttled) -> Act:
    return lambda served, server: served.fail_next(error)


changes = st.one_of(
    st.builds(put, names, st.integers(0, 3), st.sampled_from(["uid-1", "uid-2"])), st.builds(remove, names)
)
troubles = st.sampled_from(
    [
        lambda served, server: served.change(lambda source: source.drop()),
        lambda served, server: served.change(lambda source: source.stall()),
        lambda served, server: served.change(lambda source: source.compact()),
        lambda served, server: served.change(lambda source: source.bookmark()),
        lambda served, server: served.change(lambda source: source.end_next_at_once()),
        lambda served, server: served.change(lambda source: source.break_off(NoAnswer("lost"))),
        lambda served, server: served.change(
            lambda source: source.break_off(ServerError("etcd is away", status=500))
        ),
        lambda served, server: server.drop_connections(),
        garble_the_next,
        answer_once(Call.drop),
        answer_once(Call.stall),
        answer_once(lambda call: call.answer(200, b"<html>log in</html>")),
        fail_next(ServerError("no", status=503)),
        fail_next(Throttled("busy", status=429)),
    ]
)


@settings(max_examples=30, deadline=None)
@given(st.booleans(), st.sampled_from(OldVersion), st.lists(st.one_of(changes, troubles), max_size=14))
def test_whatever_goes_wrong_on_the_wire_the_store_ends_up_right(
    streaming: bool, old_version: OldVersion, acts: list[Act]
) -> None:
    served = Served(page_size=2)
    served.put(item("a"), item("b"), item("c"))
    served.change(lambda source: setattr(source, "serves_streaming", streaming))
    served.change(lambda source: setattr(source, "old_version", old_version))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(watchstate, "BASE_DELAY_S", 0.005)
        patch.setattr(watchstate, "MAX_DELAY_S", 0.02)
        patch.setattr(reflector, "SPREAD_S", 0.005)
        patch.setattr(reflector, "LIST_SILENCE", timedelta(seconds=0.1))
        patch.setattr(reflector, "PAGE_WITHIN", timedelta(seconds=0.1))
        patch.setattr(reflector, "WATCH_S", 1)
        patch.setattr(reflector, "GRACE", timedelta(seconds=-0.9))
        patch.setattr(connection, "SLICE_S", 0.02)
        with serving(served) as server:
            client = Transport.from_kubeconfig(write_kubeconfig(Path(folder) / "kubeconfig", server.url))
            with following(client) as follower:
                for act in acts:
                    act(served, server)
                follower.catches_up_with(served)
            client.close()
