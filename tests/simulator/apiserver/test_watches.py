"""Watches: from which version, what a selector sees, bookmarks, ends."""

from itertools import islice
from typing import Any

import pytest

from tests.simulator.apiserver.builders import CONFIG_MAPS, MERGE, NODES, TABLE, VMIMS, config_map, migration
from tests.simulator.apiserver.harness import Connected, Served

STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def seen(events: Any, count: int) -> list[tuple[str, str]]:
    """(type, name) of the next events."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in islice(events, count)]


def label(api: Connected, name: str, value: str | None) -> None:
    body = {"metadata": {"labels": {"colour": value}}}
    assert api.ask("PATCH", f"{CONFIG_MAPS}/{name}", body, content_type=MERGE).status == 200


def test_goes_on_where_a_list_ended_and_misses_nothing(admin: Connected) -> None:
    version = admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"]
    admin.ask("POST", CONFIG_MAPS, config_map("before"))
    with admin.watch(CONFIG_MAPS, resourceVersion=version) as events:
        assert seen(events, 1) == [("ADDED", "before")]
        admin.ask("PATCH", f"{CONFIG_MAPS}/before", {"data": {"a": "b"}}, content_type=MERGE)
        admin.ask("DELETE", f"{CONFIG_MAPS}/before")
        assert seen(events, 2) == [("MODIFIED", "before"), ("DELETED", "before")]


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
def test_without_a_version_begins_with_all_there_is(api: Connected, version: dict[str, str]) -> None:
    with api.watch(NODES, **version) as events:
        assert seen(events, 3) == [("ADDED", "node-00"), ("ADDED", "node-01"), ("ADDED", "node-02")]


def test_a_streaming_list_ends_its_initial_events_with_a_marked_bookmark(admin: Connected) -> None:
    with admin.watch(NODES, **STREAMING) as events:
        assert len(seen(events, 3)) == 3
        bookmark = next(events)
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"] == {
            "resourceVersion": admin.get(NODES)["metadata"]["resourceVersion"],
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        admin.ask("PATCH", f"{NODES}/node-01", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
        assert seen(events, 1) == [("MODIFIED", "node-01")]


def test_objects_enter_and_leave_a_selectors_sight(admin: Connected) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("one"))
    with admin.watch(CONFIG_MAPS, labelSelector="colour=red", resourceVersion="0") as events:
        label(admin, "one", "red")
        label(admin, "one", "blue")
        label(admin, "one", "red")
        admin.ask("DELETE", f"{CONFIG_MAPS}/one")
        found = list(islice(events, 4))
    assert [event["type"] for event in found] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    left = found[1]["object"]["metadata"]
    assert left["labels"] == {"colour": "red"}, "the last state that the selector saw"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(set(versions))


def test_watches_one_object_by_its_name(admin: Connected) -> None:
    query = {"fieldSelector": "metadata.name=policy", "resourceVersion": "0"}
    with admin.watch(CONFIG_MAPS, **query) as events:
        admin.ask("POST", CONFIG_MAPS, config_map("other"))
        admin.ask("POST", CONFIG_MAPS, config_map("policy"))
        assert seen(events, 1) == [("ADDED", "policy")]


def test_gets_a_bookmark_before_its_time_is_over_and_then_ends(admin: Connected) -> None:
    version = admin.get(NODES)["metadata"]["resourceVersion"]
    admin.ask("POST", CONFIG_MAPS, config_map("elsewhere"))
    query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    with admin.watch(NODES, **query) as events:
        found = list(events)
    assert [event["type"] for event in found] == ["BOOKMARK"]
    assert int(found[0]["object"]["metadata"]["resourceVersion"]) > int(version)


def test_without_the_wish_there_are_no_bookmarks(admin: Connected) -> None:
    with admin.watch(NODES, resourceVersion="0", timeoutSeconds="1") as events:
        assert {event["type"] for event in events} == {"ADDED"}


def test_a_version_that_does_not_exist_yet_is_waited_for_in_silence(admin: Connected) -> None:
    """As after a restore from a backup: the client's version is ahead of the server's."""
    ahead = str(int(admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"]) + 2)
    with admin.watch(CONFIG_MAPS, resourceVersion=ahead) as events:
        for name in ("a", "b", "c"):
            admin.ask("POST", CONFIG_MAPS, config_map(name))
        assert seen(events, 1) == [("ADDED", "c")]


def test_events_reach_every_watch_in_the_order_of_their_versions(served: Served, admin: Connected) -> None:
    other = served.client()
    with admin.watch(VMIMS) as mine, other.watch(VMIMS) as theirs:
        admin.ask("POST", VMIMS, migration("one", "web-000"))
        served.pass_time(120)
        last = admin.get(f"{VMIMS}/one")
        assert last["status"]["phase"] == "Succeeded"
        streams = []
        for events in (mine, theirs):
            phases, versions = [], []
            for event in events:
                phases.append(event["object"].get("status", {}).get("phase", ""))
                versions.append(int(event["object"]["metadata"]["resourceVersion"]))
                if event["object"]["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]:
                    break
            streams.append((phases, versions))
    other.close()
    assert streams[0] == streams[1]
    assert streams[0][1] == sorted(streams[0][1])
    assert [phase for n, phase in enumerate(streams[0][0]) if phase not in streams[0][0][:n]] == [
        *("", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded")
    ]


def test_a_watched_table_repeats_no_columns(admin: Connected) -> None:
    with admin.watch(NODES, accept=TABLE) as events:
        first, second = islice(events, 2)
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "node-01"
