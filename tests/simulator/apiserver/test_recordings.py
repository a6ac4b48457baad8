"""The same requests as in the recordings get the same answers: status, body, and message word for word."""

from typing import Any

import pytest

from tests.simulator.apiserver.builders import LEASES, NODES, PODS, VMIMS, eviction, migration
from tests.simulator.apiserver.harness import Connected, Served
from tests.simulator.apiserver.recordings import paths, recorded, recorded_lines


def launcher(api: Connected, vmi: str) -> str:
    """The name of the VM's oldest launcher."""
    pods = api.get(PODS, labelSelector=f"vm.kubevirt.io/name={vmi}")["items"]
    oldest = min(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]))
    return str(oldest["metadata"]["name"])


def evict(api: Connected, pod: str, *, dry_run: bool = False) -> Any:
    return api.ask("POST", f"{PODS}/{pod}/eviction", eviction(pod, dry_run=dry_run))


@pytest.mark.parametrize(
    ("name", "their_pod", "their_vmi", "vmi"),
    [
        ("eviction-dryrun-triggered", "virt-launcher-vm-000-i59bw", "vm-000", "web-000"),
        ("eviction-dryrun-not-migratable", "virt-launcher-vm-006-aphj4", "vm-006", "fixed-000"),
        ("eviction-dryrun-granted", "virt-launcher-vm-013-iooug", "vm-013", "loose-000"),
    ],
)
def test_answers_a_dry_run_as_recorded(
    api: Connected, name: str, their_pod: str, their_vmi: str, vmi: str
) -> None:
    pod = launcher(api, vmi)
    expected = recorded(name, {their_pod: pod, their_vmi: vmi})["response"]
    answer = evict(api, pod, dry_run=True)
    assert (answer.status, answer.body) == (expected["status"], expected["body"])


def test_answers_evictions_of_a_vm_on_the_move_as_recorded(served: Served, admin: Connected) -> None:
    pod = launcher(admin, "web-000")
    renamed = {"virt-launcher-vm-000-i59bw": pod, "vm-000": "web-000"}
    for name in ("eviction-triggered", "eviction-again-at-once"):
        expected = recorded(name, renamed)["response"]
        answer = evict(admin, pod)
        assert (answer.status, answer.body) == (expected["status"], expected["body"])
    served.pass_time(8)
    target = next(
        p["metadata"]["name"] for p in admin.get(PODS, labelSelector="kubevirt.io/migrationJobUID")["items"]
    )
    expected = recorded("eviction-of-target", renamed | {"virt-launcher-vm-000-u9ab5": target})["response"]
    answer = evict(admin, target)
    assert (answer.status, answer.body) == (expected["status"], expected["body"])


def test_a_pod_that_is_gone_cannot_be_evicted(api: Connected) -> None:
    expected = recorded("eviction-notfound")["response"]
    answer = evict(api, "virt-launcher-gone-abcde")
    assert (answer.status, answer.body) == (expected["status"], expected["body"])


@pytest.mark.parametrize(
    ("name", "their_node", "node"),
    [
        ("jsonpatch-test-fails", "node-00003", "node-00"),
        ("mergepatch-conflict", "node-00007", "node-00"),
        ("taint-duplicate", "node-00006", "node-00"),
    ],
)
def test_refuses_a_node_patch_as_recorded(api: Connected, name: str, their_node: str, node: str) -> None:
    transcript = recorded(name, {their_node: node})
    request, expected = transcript["request"], transcript["response"]
    answer = api.ask("PATCH", f"{NODES}/{node}", request["body"], content_type=request["content_type"])
    assert (answer.status, answer.body) == (expected["status"], expected["body"])


@pytest.mark.parametrize(
    ("name", "node"), [("jsonpatch-replace-missing", "node-01"), ("jsonpatch-test-null", "node-02")]
)
def test_a_json_patch_may_replace_and_test_what_is_absent(api: Connected, name: str, node: str) -> None:
    transcript = recorded(name)
    request, expected = transcript["request"], transcript["response"]
    answer = api.ask("PATCH", f"{NODES}/{node}", request["body"], content_type=request["content_type"])
    assert answer.status == expected["status"]
    assert answer.body["spec"] == expected["body"]["spec"]


def test_leases_are_created_refused_and_kept_from_stale_updates_as_recorded(api: Connected) -> None:
    path = LEASES.replace("vm-rebalancer", "default")
    for name, method, where in (
        ("lease-create", "POST", path),
        ("lease-exists", "POST", path),
        ("lease-conflict", "PUT", f"{path}/t1"),
    ):
        transcript = recorded(name)
        answer = api.ask(method, where, transcript["request"]["body"])
        expected = transcript["response"]
        assert answer.status == expected["status"]
        if answer.status == 201:
            assert set(paths(answer.body)) == set(paths(expected["body"]))
        else:
            assert answer.body == expected["body"]


def test_a_bad_continue_token_is_refused_as_recorded(api: Connected) -> None:
    transcript = recorded("list-continue-expired")
    answer = api.ask("GET", transcript["request"]["path"])
    assert (answer.status, answer.body) == (transcript["response"]["status"], transcript["response"]["body"])


def test_an_unknown_token_is_refused_as_recorded(shared: Served) -> None:
    stranger = shared.client(token="wrong")  # noqa: S106
    transcript = recorded("unauthorized")
    answer = stranger.ask("GET", transcript["request"]["path"])
    stranger.close()
    assert (answer.status, answer.body) == (transcript["response"]["status"], transcript["response"]["body"])


def test_a_page_has_the_recorded_shape(api: Connected) -> None:
    expected = recorded("list-page")["response"]["body"]
    body = api.get(PODS, limit=2, labelSelector="kubevirt.io=virt-launcher")
    assert [body["kind"], body["apiVersion"]] == [expected["kind"], expected["apiVersion"]]
    assert body["metadata"].keys() == expected["metadata"].keys()
    assert [item.keys() for item in body["items"]] == [item.keys() for item in expected["items"]]


def test_a_table_of_nodes_has_the_recorded_columns_and_cells(api: Connected) -> None:
    transcript = recorded("list-nodes-table")
    expected = transcript["response"]["body"]
    body = api.get(NODES, limit=2, accept=transcript["request"]["accept"])
    assert body["metadata"].keys() == expected["metadata"].keys()
    columns = ("name", "type", "format", "priority")
    for ours, theirs in zip(body["columnDefinitions"], expected["columnDefinitions"], strict=True):
        assert [ours[name] for name in columns] == [theirs[name] for name in columns]
    for row in body["rows"]:
        assert row.keys() == expected["rows"][0].keys()
        assert row["object"].keys() == expected["rows"][0]["object"].keys()
        assert row["cells"][1:3] == expected["rows"][0]["cells"][1:3]


def test_a_table_of_migrations_has_the_recorded_form(served: Served, admin: Connected) -> None:
    for number in range(4):
        assert admin.ask("POST", VMIMS, migration(f"m-{number}", f"web-00{number}")).status == 201
    served.pass_time(79)
    transcript = recorded("list-table")
    expected = transcript["response"]["body"]
    body = admin.get(VMIMS, limit=3, accept=transcript["request"]["accept"])
    assert body["metadata"].keys() == expected["metadata"].keys()
    assert [row["cells"][0] for row in body["rows"]] == ["m-0", "m-1", "m-2"]
    assert body["rows"][0]["object"].keys() == expected["rows"][0]["object"].keys()


def test_a_streaming_list_has_the_recorded_events(api: Connected) -> None:
    lines = recorded_lines("watch-nodes")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with api.watch(NODES, **query) as events:
        ours = [next(events) for _ in range(4)]
    assert [event["type"] for event in ours] == ["ADDED", "ADDED", "ADDED", "BOOKMARK"]
    bookmark = next(line for line in lines if line["type"] == "BOOKMARK")
    assert set(paths(ours[-1])) == set(paths(bookmark))
    assert ours[-1]["object"]["metadata"]["annotations"] == bookmark["object"]["metadata"]["annotations"]
    assert ours[0].keys() == lines[0].keys()
    assert ours[0]["object"].keys() == lines[0]["object"].keys()


def test_a_watch_from_too_old_a_version_gets_the_recorded_error(api: Connected) -> None:
    (line,) = recorded_lines("watch-too-old")
    api.control("compact")
    oldest = api.get(NODES)["metadata"]["resourceVersion"]
    with api.watch(NODES, resourceVersion="3") as events:
        ours = list(events)
    line["object"]["message"] = f"too old resource version: 3 ({oldest})"
    assert ours == [line]
