"""Lists: pages of one consistent snapshot, versions, selectors, tables."""

import pytest

from tests.simulator.apiserver.builders import (
    CONFIG_MAPS,
    MERGE,
    NODES,
    PODS,
    TABLE,
    VMIS,
    config_map,
)
from tests.simulator.apiserver.harness import Connected, Served


def names(body: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_pages_show_the_snapshot_of_the_first_one(admin: Connected) -> None:
    """Otherwise a list would hold an object twice, or miss one that was there all the time."""
    for name in ("a", "b", "d", "e"):
        admin.ask("POST", CONFIG_MAPS, config_map(name, v="1"))
    first = admin.get(CONFIG_MAPS, limit=2)
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 2
    admin.ask("POST", CONFIG_MAPS, config_map("c"))
    admin.ask("DELETE", f"{CONFIG_MAPS}/e")
    admin.ask("PATCH", f"{CONFIG_MAPS}/d", {"data": {"v": "2"}}, content_type=MERGE)
    second = admin.get(CONFIG_MAPS, limit=2, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["d", "e"]
    assert second["items"][0]["data"] == {"v": "1"}
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


def test_an_expired_token_is_refused_with_one_that_goes_on_inconsistently(admin: Connected) -> None:
    for name in ("a", "b", "c"):
        admin.ask("POST", CONFIG_MAPS, config_map(name))
    first = admin.get(CONFIG_MAPS, limit=2)
    admin.ask("POST", CONFIG_MAPS, config_map("d"))
    admin.control("compact")
    answer = admin.ask("GET", CONFIG_MAPS, limit=2, **{"continue": first["metadata"]["continue"]})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    assert answer.body["message"].startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    rest = admin.get(CONFIG_MAPS, **{"continue": answer.body["metadata"]["continue"]})
    assert names(rest) == ["c", "d"]


def test_a_list_of_an_exact_version_is_of_that_version(admin: Connected) -> None:
    version = admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"]
    admin.ask("POST", CONFIG_MAPS, config_map("later"))
    exact = admin.get(CONFIG_MAPS, resourceVersion=version, resourceVersionMatch="Exact")
    assert (names(exact), exact["metadata"]["resourceVersion"]) == ([], version)
    newer = admin.get(CONFIG_MAPS, resourceVersion=version, resourceVersionMatch="NotOlderThan")
    assert names(newer) == ["later"]
    admin.control("compact")
    answer = admin.ask("GET", CONFIG_MAPS, resourceVersion=version, resourceVersionMatch="Exact")
    assert (answer.status, answer.body["message"]) == (
        410,
        "The resourceVersion for the provided list is too old.",
    )


def test_a_version_of_the_future_cannot_be_listed(api: Connected) -> None:
    answer = api.ask("GET", NODES, resourceVersion="999999999", resourceVersionMatch="NotOlderThan")
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["message"].startswith("Too large resource version: 999999999, current: ")
    assert answer.headers["Retry-After"] == "1"


def test_version_0_knows_no_pages(api: Connected) -> None:
    """So reflectors that list from the cache get everything at once."""
    assert len(api.get(NODES, limit=1, resourceVersion="0")["items"]) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden '
            "unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is '
            'forbidden for resourceVersion "0"',
        ),
        (
            {"sendInitialEvents": "true"},
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for '
            "list",
        ),
        (
            {"watch": "true", "sendInitialEvents": "true"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires '
            "setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"watch": "true", "resourceVersionMatch": "NotOlderThan"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden '
            "for watch unless sendInitialEvents is provided",
        ),
    ],
)
def test_refuses_options_that_do_not_go_together(api: Connected, query: dict[str, str], message: str) -> None:
    answer = api.ask("GET", NODES, **query)
    assert (answer.status, answer.body["reason"], answer.body["message"]) == (422, "Invalid", message)


def test_selects_by_labels_and_fields(api: Connected) -> None:
    launchers = "kubevirt.io=virt-launcher"
    on_node = api.get(PODS, labelSelector=launchers, fieldSelector="spec.nodeName=node-01")
    assert len(on_node["items"]) == 3
    assert len(api.get(PODS, fieldSelector="status.phase!=Running")["items"]) == 0
    assert (
        len(api.get(PODS, labelSelector=f"{launchers},vm.kubevirt.io/name in (web-000, web-001)")["items"])
        == 2
    )
    assert names(api.get(VMIS, fieldSelector="metadata.name=web-002")) == ["web-002"]
    assert len(api.get("/api/v1/pods", labelSelector="!kubevirt.io")["items"]) == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"fieldSelector": "spec.colour=red"}, "field label not supported: spec.colour"),
        (
            {"labelSelector": "a in x"},
            "unable to parse requirement: found 'x', expected: '(' in 'a in x'",
        ),
        (
            {"limit": "many"},
            'limit: Invalid value: "many": strconv.ParseUint: parsing "many": invalid syntax',
        ),
    ],
)
def test_refuses_what_it_cannot_read(api: Connected, query: dict[str, str], message: str) -> None:
    answer = api.ask("GET", PODS, **query)
    assert (answer.status, answer.body["reason"], answer.body["message"]) == (400, "BadRequest", message)


def test_items_of_custom_resources_say_what_they_are(api: Connected) -> None:
    assert api.get(VMIS)["items"][0]["kind"] == "VirtualMachineInstance"
    assert "kind" not in api.get(PODS)["items"][0]


def test_shows_metadata_alone_to_those_who_ask_for_it(api: Connected) -> None:
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    body = api.get(NODES, accept=accept)
    assert body["kind"] == "PartialObjectMetadataList"
    assert body["items"][0].keys() == {"metadata"}
    assert api.ask("GET", NODES, accept="application/vnd.kubernetes.protobuf").status == 406


def test_tables_say_what_people_look_for(shared: Served, api: Connected) -> None:
    def cells(path: str) -> dict[str, list[str]]:
        body = api.get(path, accept=TABLE)
        return {row["cells"][0]: row["cells"] for row in body["rows"]}

    shared.pass_time(600)
    assert cells(NODES)["node-00"][1:4] == ["Ready", "worker", "10m"]
    assert cells(VMIS)["web-000"][1:6] == ["24h", "Running", "", "node-00", "True"]
    (pod,) = (row for name, row in cells(PODS).items() if name.startswith("virt-launcher-web-001-"))
    assert pod[1:7] == ["1/1", "Running", "0", "24h", "<none>", "node-00"]
    assert cells("/api/v1/namespaces")["vms"][1] == "Active"
