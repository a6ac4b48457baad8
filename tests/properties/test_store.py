"""The guarantees of informers.store and informers.informer, for all sequences of events and relists."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from informers.informer import Informer
from informers.store import Change, ObjectKey, Writer, key_of
from tests.informers.builders import Thing, by_color, thing

things = st.builds(
    thing,
    st.sampled_from("abcdef"),
    uid=st.sampled_from(["uid-1", "uid-2"]),
    version=st.sampled_from(["1", "2", "3"]),
    colors=st.lists(st.sampled_from(["red", "green", "blue"]), max_size=3).map(tuple),
    namespace=st.sampled_from(["ns-1", "ns-2"]),
)
upserts = st.tuples(st.just("upsert"), things)
deletes = st.tuples(st.just("delete"), things)
relists = st.tuples(st.just("replace"), st.lists(things, max_size=8))
operations = st.lists(st.one_of(upserts, deletes, relists), max_size=30)
Operations = list[tuple[str, Thing] | tuple[str, list[Thing]]]


def carry_out(writer: Writer[Thing], operation: str, operand: Thing | list[Thing]) -> list[Change[Thing]]:
    if isinstance(operand, list):
        return writer.replace(operand)
    if operation == "upsert":
        return writer.upsert(operand)
    return writer.delete(key_of(operand), operand.metadata.uid)


def replay(objects: dict[ObjectKey, Thing], change: Change[Thing]) -> None:
    """Apply a change to a copy of the store; it must start where the copy is."""
    assert change.old is not None or change.new is not None
    if change.old is not None:
        assert objects[key_of(change.old)] is change.old
        if change.new is None:
            del objects[key_of(change.old)]
    if change.new is not None:
        if change.old is None:
            assert key_of(change.new) not in objects
        else:
            assert change.old.metadata.uid == change.new.metadata.uid
            assert change.old.metadata.resource_version != change.new.metadata.resource_version
        objects[key_of(change.new)] = change.new


def identities(objects: list[Thing]) -> list[tuple[ObjectKey, str, str]]:
    return [(key_of(obj), obj.metadata.uid, obj.metadata.resource_version) for obj in objects]


@given(operations)
def test_changes_are_exactly_the_difference(sequence: Operations) -> None:
    """Whoever follows the changes has what the store has, in the same order; each change counts once."""
    writer = Writer({"color": by_color})
    copy: dict[ObjectKey, Thing] = {}
    count = 0
    for operation, operand in sequence:
        changes = carry_out(writer, operation, operand)
        count += len(changes)
        for change in changes:
            replay(copy, change)
        assert [*copy.values()] == writer.lister.list()
        assert writer.lister.version == count


@given(st.lists(things, max_size=12), st.lists(things, max_size=12))
def test_a_relist_delivers_exactly_the_difference(before: list[Thing], after: list[Thing]) -> None:
    """Deletions included, and both halves of a re-creation."""
    writer = Writer[Thing]()
    writer.replace(before)
    had = {key_of(obj): obj for obj in before}
    wanted = {key_of(obj): obj for obj in after}
    changes = writer.replace(after)
    assert sorted(identities(writer.lister.list())) == sorted(identities([*wanted.values()]))
    gone = [
        key for key, obj in had.items() if key not in wanted or wanted[key].metadata.uid != obj.metadata.uid
    ]
    came = [key for key, obj in wanted.items() if key not in had or had[key].metadata.uid != obj.metadata.uid]
    assert sorted(key_of(change.old) for change in changes if change.old and not change.new) == sorted(gone)
    assert sorted(key_of(change.new) for change in changes if change.new and not change.old) == sorted(came)
    assert writer.replace(after) == []


@given(operations)
def test_indexes_always_agree_with_the_objects(sequence: Operations) -> None:
    writer = Writer({"color": by_color})
    for operation, operand in sequence:
        carry_out(writer, operation, operand)
        lister = writer.lister
        expected = {color for obj in lister.list() for color in obj.colors}
        assert Counter(lister.index_values("color")) == Counter(expected)
        for color in (*expected, "black"):
            indexed = identities(lister.by_index("color", color))
            assert Counter(indexed) == Counter(
                identities([obj for obj in lister.list() if color in obj.colors])
            )
        for obj in lister.list():
            assert lister.get(*key_of(obj)) is obj


@given(operations)
def test_the_same_operations_give_the_same_order(sequence: Operations) -> None:
    first, second = Writer({"color": by_color}), Writer({"color": by_color})
    for operation, operand in sequence:
        assert carry_out(first, operation, operand) == carry_out(second, operation, operand)
    assert first.lister.list() == second.lister.list()
    for color in first.lister.index_values("color"):
        assert first.lister.by_index("color", color) == second.lister.by_index("color", color)


@given(operations, st.integers(0, 30))
def test_every_handler_sees_an_unbroken_chain_from_whenever_it_joined(
    sequence: Operations, joins: int
) -> None:
    informer = Informer[Thing]("things")
    copies: list[dict[ObjectKey, Thing]] = [{}, {}]
    seen: list[ObjectKey] = []

    def join(copy: dict[ObjectKey, Thing]) -> None:
        def keys(change: Change[Thing]) -> list[ObjectKey]:
            replay(copy, change)
            obj = change.new or change.old
            assert obj is not None
            return [key_of(obj)]

        informer.add_handler(keys, seen.append)

    join(copies[0])
    for number, (operation, operand) in enumerate(sequence):
        if number == joins:
            join(copies[1])
        if isinstance(operand, list):
            informer.replace(operand)
        else:
            informer.apply("MODIFIED" if operation == "upsert" else "DELETED", operand)
        assert copies[0] == {key_of(obj): obj for obj in informer.lister.list()}
    if joins < len(sequence):
        assert [*copies[1].values()] == informer.lister.list()


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("restless_threads")
def test_readers_never_see_the_middle_of_a_relist() -> None:
    """With a real reader thread: whatever it lists is of one relist, by name and by index."""
    writer = Writer({"color": by_color})
    relists = [
        [thing(f"t{number}", version=version, colors=("red",)) for number in range(100)] for version in "12"
    ]
    torn: list[set[str]] = []
    ready, stop = threading.Barrier(2), threading.Event()

    def read() -> None:
        ready.wait(timeout=30)
        while not stop.is_set():
            for objects in (writer.lister.list(), writer.lister.by_index("color", "red")):
                versions = {obj.metadata.resource_version for obj in objects}
                if len(versions) > 1 or len(objects) not in (0, 100):
                    torn.append(versions)

    reader = threading.Thread(target=read)
    reader.start()
    ready.wait(timeout=30)
    for _ in range(50):
        for objects in relists:
            writer.replace(objects)
    stop.set()
    reader.join(timeout=30)
    assert not torn
