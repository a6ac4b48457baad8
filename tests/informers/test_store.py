"""The store, by example; what holds for all sequences is in tests/properties/test_store.py."""

import pytest

from informers.store import Change, ObjectKey, Writer
from tests.informers.builders import Thing, by_color, thing


def test_an_object_recreated_under_its_name_is_a_deletion_and_an_addition() -> None:
    writer = Writer[Thing]()
    old, new = thing("a", uid="uid-1"), thing("a", uid="uid-2")
    writer.upsert(old)
    assert writer.upsert(new) == [Change(old, None), Change(None, new)]
    assert writer.lister.version == 3


def test_a_late_deletion_of_the_predecessor_spares_the_successor() -> None:
    writer = Writer[Thing]()
    writer.upsert(thing("a", uid="uid-2"))
    assert writer.delete(ObjectKey("ns", "a"), uid="uid-1") == []
    assert writer.delete(ObjectKey("ns", "a")) != []
    assert writer.delete(ObjectKey("ns", "a")) == []


def test_an_object_that_has_not_changed_stays_the_very_same() -> None:
    writer = Writer[Thing]()
    first = thing("a", version="7")
    writer.upsert(first)
    assert writer.upsert(thing("a", version="7")) == []
    assert writer.lister.get("ns", "a") is first


def test_an_object_without_a_version_always_counts_as_changed() -> None:
    writer = Writer[Thing]()
    writer.upsert(thing("a", version=""))
    assert len(writer.upsert(thing("a", version=""))) == 1


def test_a_changed_object_keeps_its_place_and_a_recreated_one_goes_last() -> None:
    writer = Writer[Thing]({"color": by_color})
    for name in "abc":
        writer.upsert(thing(name, colors=("red",)))
    writer.upsert(thing("a", version="2", colors=("red", "blue")))
    assert [obj.metadata.name for obj in writer.lister.by_index("color", "red")] == ["a", "b", "c"]
    writer.upsert(thing("a", uid="uid-2", colors=("red",)))
    assert [obj.metadata.name for obj in writer.lister.by_index("color", "red")] == ["b", "c", "a"]
    assert [obj.metadata.name for obj in writer.lister.list()] == ["b", "c", "a"]


def test_what_a_lister_returns_is_the_callers_own() -> None:
    writer = Writer[Thing]({"color": by_color})
    writer.upsert(thing("a", colors=("red",)))
    writer.lister.list().clear()
    writer.lister.by_index("color", "red").clear()
    assert len(writer.lister) == 1
    assert len(writer.lister.by_index("color", "red")) == 1


def test_cluster_scoped_objects_have_no_namespace() -> None:
    writer = Writer[Thing]()
    node = thing("node-1", namespace="")
    writer.upsert(node)
    assert writer.lister.get("", "node-1") is node
    assert writer.lister.get("ns", "node-1") is None


def test_an_unknown_index_is_named_with_those_that_exist() -> None:
    writer = Writer[Thing]({"color": by_color})
    with pytest.raises(KeyError, match="no index 'colour'; there are: color"):
        writer.lister.by_index("colour", "red")
    with pytest.raises(KeyError, match="there are: none"):
        Writer[Thing]().lister.index_values("colour")


def test_an_indexer_that_raises_leaves_the_store_as_it_was() -> None:
    def fussy(obj: Thing) -> tuple[str, ...]:
        if "bad" in obj.colors:
            raise LookupError("bad color")
        return obj.colors

    writer = Writer[Thing]({"color": fussy})
    writer.upsert(thing("a", colors=("red",)))
    with pytest.raises(LookupError):
        writer.replace([thing("b"), thing("a", version="2", colors=("bad",))])
    assert [obj.metadata.name for obj in writer.lister.by_index("color", "red")] == ["a"]
    assert len(writer.lister) == writer.lister.version == 1


def test_statistics_count_objects_changes_and_index_values() -> None:
    writer = Writer[Thing]({"color": by_color})
    writer.replace([thing("a", colors=("red", "blue")), thing("b", colors=("red",))])
    statistics = writer.lister.statistics()
    assert (statistics.objects, statistics.version, statistics.values) == (2, 2, {"color": 2})
