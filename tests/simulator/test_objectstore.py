"""The store behind the simulated API: versions, order, and objects that never change."""

import copy
import random

import pytest

from simulator.agenda import Agenda
from simulator.kubevirt.objectstore import (
    NODE,
    POD,
    REMOVE,
    VMI,
    AlreadyExists,
    Conflict,
    Json,
    NotFound,
    ObjectStore,
    WatchEvent,
    edited,
)


def new_store(seed: int = 1) -> ObjectStore:
    return ObjectStore(Agenda(), random.Random(seed))


def pod(name: str = "a") -> Json:
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": {"x": "1"}},
        "spec": {},
        "status": {"phase": "Pending"},
    }


def test_one_counter_serves_all_kinds() -> None:
    store = new_store()
    versions = [
        store.create(POD, pod("a")),
        store.create(NODE, {"metadata": {"name": "n"}, "spec": {}}),
        store.update(POD, "ns", "a", {("status", "phase"): "Running"}),
        store.delete(POD, "ns", "a"),
    ]
    assert [obj["metadata"]["resourceVersion"] for obj in versions] == ["1", "2", "3", "4"]


def test_fills_in_what_the_api_server_fills_in() -> None:
    agenda = Agenda()
    store = ObjectStore(agenda, random.Random(1))
    agenda.run_until(61.9)
    made = store.create(POD, {"metadata": {"generateName": "p-", "namespace": "ns"}, "spec": {}})["metadata"]
    assert made["name"].startswith("p-")
    assert len(made["name"]) == 7
    assert made["creationTimestamp"] == "2026-01-05T00:01:01Z"
    assert made["generation"] == 1
    assert len(made["uid"].split("-")) == 5
    assert "generation" not in store.create(NODE, {"metadata": {"name": "n"}})["metadata"]


def test_the_same_seed_gives_the_same_uids() -> None:
    assert (
        new_store(7).create(POD, pod())["metadata"]["uid"]
        == new_store(7).create(POD, pod())["metadata"]["uid"]
    )


def test_an_object_handed_out_never_changes() -> None:
    store = new_store()
    first = store.create(POD, pod())
    before = copy.deepcopy(first)
    second = store.update(POD, "ns", "a", {("metadata", "labels", "y"): "2", ("status", "phase"): "Running"})
    store.delete(POD, "ns", "a")
    assert first == before
    assert second["metadata"]["labels"] == {"x": "1", "y": "2"}


def test_a_change_copies_only_its_path() -> None:
    old = {"a": {"b": {"c": 1}}, "other": {"big": [1, 2, 3]}}
    new = edited(old, {("a", "b", "c"): 2, ("a", "n", "m"): 3, ("missing", "key"): REMOVE})
    assert new == {"a": {"b": {"c": 2}, "n": {"m": 3}}, "other": {"big": [1, 2, 3]}}
    assert new["other"] is old["other"]
    assert edited(new, {("a", "b", "c"): REMOVE})["a"]["b"] == {}


def test_subscribers_hear_changes_in_order_even_if_they_cause_some() -> None:
    store = new_store()
    heard: list[tuple[str, str]] = []

    def reacts(event: WatchEvent) -> None:
        if event.type == "ADDED" and event.object["metadata"]["name"] == "a":
            store.create(POD, pod("b"))

    store.subscribe(reacts)
    store.subscribe(lambda event: heard.append((event.type, event.object["metadata"]["name"])))
    store.create(POD, pod("a"))
    assert heard == [("ADDED", "a"), ("ADDED", "b")]


def test_a_change_that_changes_nothing_is_none() -> None:
    store = new_store()
    store.create(POD, pod())
    store.update(POD, "ns", "a", {("status", "phase"): "Pending", ("metadata", "annotations", "no"): REMOVE})
    assert store.resource_version == 1


def test_a_stale_writer_gets_a_conflict() -> None:
    store = new_store()
    read = store.create(NODE, {"metadata": {"name": "node-00007"}, "spec": {}})
    store.update(NODE, "", "node-00007", {("spec", "unschedulable"): True})
    with pytest.raises(Conflict) as refused:
        store.replace(NODE, read)
    assert refused.value.status == 409
    assert refused.value.message == (
        'Operation cannot be fulfilled on nodes "node-00007": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )


def test_another_objects_uid_is_a_conflict_too() -> None:
    """An object re-created under the same name is not the one that was read."""
    store = new_store()
    read = store.create(POD, pod())
    store.delete(POD, "ns", "a")
    store.create(POD, pod())
    with pytest.raises(Conflict):
        store.replace(POD, edited(read, {("metadata", "resourceVersion"): REMOVE}))


def test_missing_and_doubled_objects_are_refused() -> None:
    store = new_store()
    store.create(POD, pod())
    with pytest.raises(AlreadyExists):
        store.create(POD, pod())
    with pytest.raises(NotFound, match='pods "z" not found'):
        store.update(POD, "ns", "z", {})
    with pytest.raises(NotFound):
        store.delete(POD, "ns", "z")
    assert store.get(POD, "ns", "z") is None


def test_generation_counts_specs_and_for_vmis_status_too() -> None:
    """VMIs have no status subresource: their generation grows with each change of status, pods' does not."""
    store = new_store()
    store.create(POD, pod())
    store.create(VMI, pod())
    for kind in (POD, VMI):
        store.update(kind, "ns", "a", {("metadata", "labels", "y"): "1"})
        store.update(kind, "ns", "a", {("status", "phase"): "Running"})
    generations = [obj["metadata"]["generation"] for kind in (POD, VMI) for obj in store.list(kind)]
    assert generations == [1, 2]


def test_the_deletion_has_a_version_of_its_own_and_stays_in_the_log() -> None:
    store = new_store()
    store.create(POD, pod())
    store.delete(POD, "ns", "a")
    assert [(event.type, event.object["metadata"]["resourceVersion"]) for event in store.events] == [
        ("ADDED", "1"),
        ("DELETED", "2"),
    ]
