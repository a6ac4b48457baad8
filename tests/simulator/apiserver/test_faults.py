"""What the control endpoint does on purpose: each fault as a client sees it, and its end."""

import http.client
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import urllib3

from informers.testing import ManualClock
from tests.simulator.apiserver.builders import (
    CONFIG_MAPS,
    MERGE,
    NODES,
    PODS,
    VMIS,
    asked,
    config_map,
    eviction,
)
from tests.simulator.apiserver.harness import START, Connected, Served, until

BROKEN = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


def change(api: Connected, number: int) -> None:
    body = {"metadata": {"labels": {"number": str(number)}}}
    assert api.ask("PATCH", f"{NODES}/node-00", body, content_type=MERGE).status == 200


@pytest.mark.parametrize(
    ("fault", "status", "body", "retry_after"),
    [
        (
            {"status": 503, "retry_after_s": 2},
            503,
            {"reason": "ServiceUnavailable", "details": {"retryAfterSeconds": 2}},
            "2",
        ),
        ({"status": 500}, 500, {"reason": "InternalError", "details": {}}, None),
        (
            {"status": 429, "body": "text", "retry_after_s": 1},
            429,
            "Too many requests, please try again later.\n",
            "1",
        ),
        ({"status": 502, "body": "html"}, 502, "<html>", None),
    ],
)
def test_errors_come_as_asked_for_and_stop_after_their_count(
    admin: Connected, fault: dict[str, Any], status: int, body: Any, retry_after: str | None
) -> None:
    admin.control("faults", kind="error", count=2, verbs=["list"], resources=["nodes"], **fault)
    for _ in range(2):
        answer = admin.ask("GET", NODES)
        assert (answer.status, answer.headers.get("Retry-After")) == (status, retry_after)
        if isinstance(body, dict):
            assert {name: answer.body[name] for name in body} == body
        else:
            assert answer.body.startswith(body)
        assert admin.ask("GET", f"{NODES}/node-00").status == 200, "another verb"
    assert admin.ask("GET", NODES).status == 200


def test_a_fault_ends_with_its_time(served: Served, admin: Connected) -> None:
    admin.control("faults", kind="error", status=500, seconds=10, resources=["nodes"])
    served.pass_time(9)
    assert admin.ask("GET", NODES).status == 500
    served.pass_time(2)
    assert admin.ask("GET", NODES).status == 200
    assert admin.get("/simulator/faults") == {}


def test_faults_can_be_listed_and_taken_away(admin: Connected) -> None:
    first = admin.control("faults", kind="error", status=500, resources=["nodes"])["number"]
    admin.control("faults", kind="cut", resources=["pods"])
    assert [fault["kind"] for fault in admin.get("/simulator/faults").values()] == ["error", "cut"]
    assert admin.ask("DELETE", f"/simulator/faults/{first}").status == 200
    assert admin.ask("GET", NODES).status == 200
    assert admin.ask("DELETE", "/simulator/faults").status == 200
    assert admin.ask("GET", PODS).status == 200


@pytest.mark.parametrize(("carried_out", "marked"), [(True, "node-00"), (False, None)])
def test_an_answer_can_be_lost_after_the_deed_or_before_it(
    admin: Connected, carried_out: bool, marked: str | None
) -> None:
    (pod,) = admin.get(PODS, labelSelector="vm.kubevirt.io/name=web-000")["items"]
    name = pod["metadata"]["name"]
    admin.control("faults", kind="cut", resources=["pods/eviction"], carried_out=carried_out, count=1)
    with pytest.raises(BROKEN):
        admin.ask("POST", f"{PODS}/{name}/eviction", eviction(name))
    assert admin.get(f"{VMIS}/web-000")["status"].get("evacuationNodeName") == marked


def test_a_page_of_a_list_can_be_cut_in_the_middle(admin: Connected) -> None:
    first = admin.get(NODES, limit=1)
    admin.control("faults", kind="cut", half=True, continued=True)
    with pytest.raises(BROKEN):
        admin.ask("GET", NODES, limit=1, **{"continue": first["metadata"]["continue"]})
    assert admin.ask("GET", NODES, limit=1).status == 200, "only pages that continue are hit"


@pytest.mark.parametrize("dry_run", [True, False])
def test_dry_runs_of_evictions_can_fare_otherwise_than_real_ones(admin: Connected, dry_run: bool) -> None:
    (pod,) = admin.get(PODS, labelSelector="vm.kubevirt.io/name=web-000")["items"]
    name = pod["metadata"]["name"]
    admin.control("faults", kind="error", status=503, resources=["pods/eviction"], dry_run=dry_run)
    answers = {
        way: admin.ask("POST", f"{PODS}/{name}/eviction", eviction(name, dry_run=way)).status
        for way in (True, False)
    }
    assert answers == {dry_run: 503, not dry_run: 429}


def test_an_answer_can_be_garbage(admin: Connected) -> None:
    admin.control("faults", kind="garbage", resources=["nodes"], count=1)
    with pytest.raises(json.JSONDecodeError):
        admin.ask("GET", NODES)
    assert admin.ask("GET", NODES).status == 200


def test_what_waits_is_carried_out_though_its_client_has_given_up(served: Served, admin: Connected) -> None:
    admin.control("faults", kind="latency", delay_s=0.3, verbs=["create"], resources=["configmaps"], count=1)
    impatient = urllib3.PoolManager(retries=False, timeout=0.1, cert_reqs="CERT_NONE", assert_hostname=False)
    with admin.watch(CONFIG_MAPS, resourceVersion="0") as events:
        with pytest.raises(BROKEN), pytest.warns(urllib3.exceptions.InsecureRequestWarning):
            impatient.request(
                "POST",
                admin.url + CONFIG_MAPS,
                body=json.dumps(config_map("late")),
                headers={"Authorization": f"Bearer {admin.token}", "Content-Type": "application/json"},
            )
        assert next(events)["object"]["metadata"]["name"] == "late"
    impatient.clear()


@pytest.mark.parametrize("do", ["break", "end"])
def test_open_watches_end_and_can_go_on_from_where_they_were(admin: Connected, do: str) -> None:
    other = admin.get(NODES)["metadata"]["resourceVersion"]
    with admin.watch(NODES, resourceVersion=other) as events:
        change(admin, 1)
        version = next(events)["object"]["metadata"]["resourceVersion"]
        assert admin.control("watches", do=do, resources=["nodes"])["watches"] == 1
        if do == "end":
            assert list(events) == []
        else:
            with pytest.raises(BROKEN):
                list(events)
    change(admin, 2)
    with admin.watch(NODES, resourceVersion=version) as events:
        assert next(events)["object"]["metadata"]["labels"]["number"] == "2"


def test_a_stalled_watch_is_silent_until_it_is_resumed(admin: Connected) -> None:
    with admin.watch(NODES, resourceVersion="0", timeoutSeconds="1") as events:
        assert len(list(islice(events, 3))) == 3
        admin.control("watches", do="stall")
        change(admin, 1)
        admin.control("watches", do="resume")
        assert next(events)["type"] == "MODIFIED"


def test_a_stalled_watch_that_breaks_has_lost_what_it_did_not_say(admin: Connected) -> None:
    with admin.watch(NODES, resourceVersion="0") as events:
        assert len(list(islice(events, 3))) == 3
        admin.control("watches", do="stall")
        change(admin, 1)
        admin.control("watches", do="break")
        with pytest.raises(BROKEN):
            next(events)


def test_a_garbled_watch_sends_a_line_that_is_no_json(admin: Connected) -> None:
    with admin.watch(NODES, resourceVersion="0") as events:
        list(islice(events, 3))
        admin.control("watches", do="garble", resources=["nodes"])
        change(admin, 1)
        with pytest.raises(ValueError, match=r"codec|Expecting|column"):
            next(events)


def test_compaction_ends_watches_with_a_410(admin: Connected) -> None:
    with admin.watch(NODES, resourceVersion="0") as events:
        list(islice(events, 3))
        admin.control("compact", expire_watches=True)
        (last,) = events
    assert (last["type"], last["object"]["code"], last["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_new_watches_can_be_empty_or_expired(admin: Connected) -> None:
    """An empty stream that ends at once is what an old watch cache answers."""
    admin.control("faults", kind="watch", do="empty", count=1)
    with admin.watch(NODES, resourceVersion="0") as events:
        assert list(events) == []
    admin.control("faults", kind="watch", do="expire", count=1)
    with admin.watch(NODES, resourceVersion="0") as events:
        assert [event["object"]["code"] for event in events] == [410]
    admin.control("faults", kind="watch", do="expire-status", count=1)
    assert admin.ask("GET", NODES, watch="true", resourceVersion="1").status == 410
    with admin.watch(NODES, resourceVersion="0") as events:
        assert len(list(islice(events, 3))) == 3


def test_a_stalled_new_watch_never_says_anything(admin: Connected) -> None:
    admin.control("faults", kind="watch", do="stall", count=1)
    with admin.watch(NODES, resourceVersion="0") as events:
        assert admin.control("watches", do="resume")["watches"] == 1
        assert len(list(islice(events, 3))) == 3


def test_faults_hit_the_users_that_they_name(tmp_path: Path) -> None:
    what = asked(tmp_path, accounts={"a": tmp_path / "a", "b": tmp_path / "b"})
    with Served(what, ManualClock(START)) as served:
        admin, a, b = (served.client(path) for path in (what.kubeconfig, *what.accounts.values()))
        admin.control("faults", kind="error", status=500, users=["system:serviceaccount:*:a"])
        assert [client.ask("GET", NODES).status for client in (admin, a, b)] == [200, 500, 200]
        for client in (admin, a, b):
            client.close()


def restarted(served: Served, admin: Connected, **how: Any) -> None:
    """Restart, and wait until the server is back."""
    server = served.running.server
    before = server.times_started
    admin.control("restart", **how)
    until(lambda: served.do(lambda: server.times_started > before))


def test_a_restart_breaks_watches_and_keeps_all_objects(served: Served, admin: Connected) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("kept"))
    with admin.watch(CONFIG_MAPS) as events:
        next(events)
        restarted(served, admin, seconds=0.1)
        with pytest.raises(BROKEN):
            next(events)
    assert admin.get(f"{CONFIG_MAPS}/kept")["metadata"]["name"] == "kept"


def test_a_roll_back_makes_known_versions_ones_of_the_future(served: Served, admin: Connected) -> None:
    for number in range(20):
        change(admin, number)
    before = int(admin.get(NODES)["metadata"]["resourceVersion"])
    restarted(served, admin, seconds=0, roll_back=15)
    after = admin.get(NODES)
    assert int(after["metadata"]["resourceVersion"]) < before
    assert {int(node["metadata"]["resourceVersion"]) for node in after["items"]} <= set(range(before))
    answer = admin.ask("GET", NODES, resourceVersion=str(before), resourceVersionMatch="NotOlderThan")
    assert answer.status == 504
    with admin.watch(NODES, resourceVersion=after["metadata"]["resourceVersion"]) as events:
        change(admin, 100)
        assert next(events)["type"] == "MODIFIED"


def test_a_new_authority_is_trusted_after_its_file_was_read(served: Served, admin: Connected) -> None:
    restarted(served, admin, seconds=0, new_authority=True)
    with pytest.raises(urllib3.exceptions.SSLError):
        admin.ask("GET", NODES)
    again = served.client()
    assert again.ask("GET", NODES).status == 200
    again.close()


def test_the_clusters_clocks_can_be_wrong(admin: Connected) -> None:
    admin.control("clock", offset_s=600)
    created = admin.ask("POST", CONFIG_MAPS, config_map("one")).body
    assert created["metadata"]["creationTimestamp"] == "2026-12-01T12:10:00Z"


def test_the_page_of_metrics_can_be_away_late_or_somebody_elses(served: Served, admin: Connected) -> None:
    url = served.running.metrics_url
    pool = urllib3.PoolManager(retries=False, timeout=5)
    assert b"node_cpu_seconds_total" in pool.request("GET", url).data
    admin.control("exporter", answer="html")
    page = pool.request("GET", url)
    assert (page.status, page.data[:6]) == (502, b"<html>")
    admin.control("exporter", answer="down")
    with pytest.raises(BROKEN):
        pool.request("GET", url)
    admin.control("exporter", missing_nodes=["node-00"])
    assert b'instance="node-00"' not in pool.request("GET", url).data
    admin.control("exporter")
    assert b'instance="node-00"' in pool.request("GET", url).data
    pool.clear()


@pytest.mark.parametrize(
    ("what", "body", "message"),
    [
        (
            "faults",
            {"kind": "error", "status": 200},
            "/simulator/faults: Expected `int` >= 400 - at `$.status`",
        ),
        ("faults", {"kind": "rain"}, "/simulator/faults: Invalid value 'rain' - at `$.kind`"),
        ("cluster", {"do": "dance"}, "do: 'dance'; allowed: stop_vm"),
        ("cluster", {"do": "stop_vm", "arguments": {"namespace": "vms"}}, "arguments of stop_vm: "),
        ("tokens", {"account": "x", "do": "expire"}, "account: no 'x'; allowed: admin"),
    ],
)
def test_says_what_is_wrong_with_a_request(
    api: Connected, what: str, body: dict[str, Any], message: str
) -> None:
    answer = api.ask("POST", f"/simulator/{what}", body)
    assert answer.status == 400
    assert answer.body["message"].startswith(message)


def test_people_can_do_to_the_cluster_what_the_api_has_no_words_for(served: Served, admin: Connected) -> None:
    admin.control("cluster", do="lose_node", arguments={"name": "node-00"})
    served.pass_time(60)
    (ready,) = admin.get(f"{NODES}/node-00")["status"]["conditions"]
    assert ready["status"] == "Unknown"
    vm = {
        "namespace": "vms",
        "name": "new",
        "vcpus": 2,
        "guest_bytes": 1 << 30,
        "dirty_bytes_per_s": 0,
        "age_s": 0,
    }
    admin.control("cluster", do="create_vm", arguments={"spec": vm})
    node = {"name": "node-99", "cores": 64, "memory_bytes": 1 << 38, "nic_bytes_per_s": 1e9}
    admin.control("cluster", do="add_node", arguments={"spec": node})
    served.pass_time(60)
    assert admin.get(f"{VMIS}/new")["status"]["phase"] == "Running"
    assert "node-99" in admin.get("/simulator/truth")["nodes"]


def test_when_the_world_breaks_requests_fail_and_whoever_serves_hears_of_it(
    served: Served, admin: Connected
) -> None:
    def break_it() -> None:
        served.running.live.simulation.agenda.after(1.0, lambda: 1 / 0)  # type: ignore[arg-type]

    served.do(break_it)
    served.pass_time(2)
    answer = admin.ask("GET", NODES)
    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    error = served.do(served.running.server.failed.exception)
    assert isinstance(error, ZeroDivisionError)
