"""Whatever happens to the store, a list and the changes after it give the state of any later version."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.agenda import Agenda
from simulator.apiserver.history import Gone, History, key_of
from simulator.kubevirt.objectstore import CONFIG_MAP, Json, ObjectStore

OPERATIONS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["put", "delete"])), max_size=40)


def carry_out(store: ObjectStore, name: str, what: str, number: int) -> None:
    obj: dict[str, Any] = {"metadata": {"namespace": "n", "name": name}, "data": {"number": str(number)}}
    exists = store.get(CONFIG_MAP, "n", name) is not None
    if what == "put":
        (store.replace if exists else store.create)(CONFIG_MAP, obj)
    elif exists:
        store.delete(CONFIG_MAP, "n", name)


def state(objects: list[Json]) -> dict[str, Json]:
    return {key_of(obj): obj for obj in objects}


@given(OPERATIONS, st.integers(1, 60))
def test_a_snapshot_and_the_changes_since_give_the_present(
    operations: list[tuple[str, str]], kept: int
) -> None:
    store = ObjectStore(Agenda(), random.Random(1))
    history = History(store, kept)
    states: dict[int, dict[str, Json]] = {0: {}}
    for number, (name, what) in enumerate(operations):
        carry_out(store, name, what, number)
        states[store.resource_version] = state(store.list(CONFIG_MAP))
    versions = sorted(states)
    oldest = versions[-kept - 1] if len(versions) > kept else 0
    for version, expected in states.items():
        if version < oldest:
            with pytest.raises(Gone):
                history.snapshot(CONFIG_MAP, version)
            continue
        snapshot = history.snapshot(CONFIG_MAP, version)
        assert list(snapshot.keys) == sorted(snapshot.keys)
        assert state(list(snapshot.objects)) == expected
        replayed = dict(expected)
        for change in history.since(CONFIG_MAP, version):
            if change.type == "DELETED":
                assert replayed.pop(key_of(change.new))["metadata"]["uid"] == change.new["metadata"]["uid"]
            else:
                assert (change.type == "MODIFIED") is (key_of(change.new) in replayed)
                replayed[key_of(change.new)] = change.new
        assert replayed == state(store.list(CONFIG_MAP))


@given(OPERATIONS)
def test_nothing_older_is_known_after_a_compaction(operations: list[tuple[str, str]]) -> None:
    store = ObjectStore(Agenda(), random.Random(1))
    history = History(store)
    for number, (name, what) in enumerate(operations):
        carry_out(store, name, what, number)
    history.compact()
    assert history.since(CONFIG_MAP, store.resource_version) == []
    with pytest.raises(Gone) as caught:
        history.snapshot(CONFIG_MAP, store.resource_version - 1)
    assert caught.value.oldest == store.resource_version
