"""Create, update, patch, delete: what is stored, what is refused, and in which words."""

from typing import Any

import pytest

from tests.simulator.apiserver.builders import (
    CONFIG_MAPS,
    CORE_EVENTS,
    EVENTS,
    JSON_PATCH,
    KUBEVIRT,
    LEASES,
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    VMIMS,
    VMIS,
    config_map,
    event,
    lease,
    migration,
)
from tests.simulator.apiserver.harness import Connected, Served

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def strategic(api: Connected, path: str, body: Any) -> Any:
    return api.ask("PATCH", path, body, content_type=STRATEGIC)


def test_an_object_comes_back_as_it_was_created(admin: Connected) -> None:
    answer = admin.ask("POST", CONFIG_MAPS, config_map("one", a="b"))
    assert answer.status == 201
    assert answer.body["metadata"]["creationTimestamp"] == "2026-12-01T12:00:00Z"
    assert admin.get(f"{CONFIG_MAPS}/one") == answer.body
    again = admin.ask("POST", CONFIG_MAPS, config_map("one"))
    assert (again.status, again.body["reason"], again.body["message"]) == (
        409,
        "AlreadyExists",
        'configmaps "one" already exists',
    )


def test_a_name_can_be_left_to_the_server(admin: Connected) -> None:
    body = {"metadata": {"generateName": "policy-"}}
    name = admin.ask("POST", CONFIG_MAPS, body).body["metadata"]["name"]
    assert name.startswith("policy-")
    assert len(name) == len("policy-") + 5


def test_of_two_updates_from_one_state_the_second_is_refused(admin: Connected) -> None:
    read = admin.ask("POST", LEASES, lease("leader")).body
    first = admin.ask("PUT", f"{LEASES}/leader", {**read, "spec": {"holderIdentity": "b"}})
    assert first.status == 200
    second = admin.ask("PUT", f"{LEASES}/leader", {**read, "spec": {"holderIdentity": "c"}})
    assert (second.status, second.body["reason"]) == (409, "Conflict")
    assert admin.get(f"{LEASES}/leader")["spec"] == {"holderIdentity": "b"}
    assert "generation" not in admin.get(f"{LEASES}/leader")["metadata"]


def test_a_lease_is_given_back_with_an_empty_holder(admin: Connected) -> None:
    read = admin.ask("POST", LEASES, lease("leader")).body
    answer = admin.ask(
        "PUT", f"{LEASES}/leader", {**read, "spec": {"holderIdentity": "", "leaseTransitions": 1}}
    )
    assert answer.body["spec"] == {"holderIdentity": "", "leaseTransitions": 1}


def test_a_lease_must_be_updated_from_a_known_state(admin: Connected) -> None:
    admin.ask("POST", LEASES, lease("leader"))
    answer = admin.ask("PUT", f"{LEASES}/leader", lease("leader", "b"))
    assert answer.status == 422
    assert answer.body["message"].endswith(
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )


def test_an_update_may_be_of_the_same_uid_only(admin: Connected) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("one"))
    body = config_map("one")
    body["metadata"]["uid"] = "another"
    answer = admin.ask("PUT", f"{CONFIG_MAPS}/one", body)
    assert answer.status == 409
    assert "Precondition failed: UID in precondition: another, UID in object meta: " in answer.body["message"]


def test_dry_runs_change_nothing(admin: Connected) -> None:
    version = admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"]
    assert admin.ask("POST", CONFIG_MAPS, config_map("one"), dryRun="All").status == 201
    node = {"spec": {"unschedulable": True}}
    answer = admin.ask("PATCH", f"{NODES}/node-00", node, content_type=MERGE, dryRun="All")
    assert answer.body["spec"]["unschedulable"] is True
    assert admin.ask("DELETE", f"{VMIS}/web-000", dryRun="All").status == 200
    assert admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"] == version


def test_a_cordon_is_followed_by_its_taint_and_an_uncordon_takes_it_off(
    served: Served, admin: Connected
) -> None:
    """The scheduler and drains of the cluster see both."""
    for _ in range(2):
        assert strategic(admin, f"{NODES}/node-00", {"spec": {"unschedulable": True}}).status == 200
        served.pass_time(1)
        spec = admin.get(f"{NODES}/node-00")["spec"]
        assert spec["unschedulable"] is True
        assert [(taint["key"], taint["effect"]) for taint in spec["taints"]] == [
            (UNSCHEDULABLE, "NoSchedule")
        ]
        assert strategic(admin, f"{NODES}/node-00", {"spec": {"unschedulable": None}}).status == 200
        served.pass_time(1)
        assert admin.get(f"{NODES}/node-00")["spec"] == {}


def test_no_migration_goes_to_a_node_that_was_cordoned(served: Served, admin: Connected) -> None:
    strategic(admin, f"{NODES}/node-01", {"spec": {"unschedulable": True}})
    for number in range(4):
        admin.ask("POST", VMIMS, migration(f"m-{number}", f"web-00{number}"))
    served.pass_time(300)
    assert {
        vmi["status"]["nodeName"] for vmi in admin.get(VMIS, fieldSelector="metadata.name!=x")["items"][-4:]
    } == {"node-02"}


def test_taints_are_replaced_whole_by_a_strategic_patch(admin: Connected) -> None:
    taints = [{"key": "a/b", "effect": "NoSchedule"}, {"key": "c/d", "effect": "PreferNoSchedule"}]
    strategic(admin, f"{NODES}/node-00", {"spec": {"taints": taints}})
    answer = strategic(admin, f"{NODES}/node-00", {"spec": {"taints": taints[1:]}})
    assert answer.body["spec"]["taints"] == taints[1:]
    assert strategic(admin, f"{NODES}/node-00", {"spec": {"taints": []}}).body["spec"] == {}


def test_a_json_patch_guards_what_was_read(admin: Connected) -> None:
    version = admin.get(f"{NODES}/node-00")["metadata"]["resourceVersion"]
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/taints", "value": [{"key": "a/b", "effect": "PreferNoSchedule"}]},
    ]
    answers = [admin.ask("PATCH", f"{NODES}/node-00", patch, content_type=JSON_PATCH) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 422]


@pytest.mark.parametrize("what", ["status", "main"])
def test_the_status_of_a_migration_is_changed_by_its_subresource_only(admin: Connected, what: str) -> None:
    admin.ask("POST", VMIMS, migration("one", "web-000"))
    path = f"{VMIMS}/one/status" if what == "status" else f"{VMIMS}/one"
    body = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Odd"}}
    answer = admin.ask("PATCH", path, body, content_type=MERGE)
    assert answer.status == 200
    stored = admin.get(f"{VMIMS}/one")
    assert ("x" in stored["metadata"]["labels"], stored.get("status") == {"phase": "Odd"}) == (
        what == "main",
        what == "status",
    )


def test_a_persons_migration_moves_the_vm(served: Served, admin: Connected) -> None:
    answer = admin.ask("POST", VMIMS, migration("mine", "web-000"))
    assert (answer.status, answer.body["metadata"]["name"]) == (201, "mine")
    assert answer.body["metadata"]["labels"] == {"kubevirt.io/vmi-name": "web-000"}
    second = admin.ask("POST", VMIMS, migration("again", "web-000"))
    assert second.status == 403
    assert "in-flight migration detected" in second.body["message"]
    served.pass_time(120)
    assert admin.get(f"{VMIS}/web-000")["status"]["nodeName"] != "node-00"


@pytest.mark.parametrize(
    ("vmi", "message"),
    [
        ("fixed-000", "Cannot migrate VMI, Reason: DisksNotLiveMigratable"),
        ("nobody", 'the VMI "vms/nobody" does not exist'),
    ],
)
def test_kubevirt_refuses_migrations_that_cannot_be(api: Connected, vmi: str, message: str) -> None:
    answer = api.ask("POST", VMIMS, migration("bad", vmi))
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert message in answer.body["message"]


def test_deleting_a_migration_cancels_it(served: Served, admin: Connected) -> None:
    admin.ask("POST", VMIMS, migration("mine", "web-000"))
    served.pass_time(12)
    answer = admin.ask("DELETE", f"{VMIMS}/mine")
    assert "deletionTimestamp" in answer.body["metadata"]
    served.pass_time(10)
    assert admin.ask("GET", f"{VMIMS}/mine").status == 404
    assert admin.get(f"{VMIS}/web-000")["status"]["nodeName"] == "node-00"


def test_deleting_a_vmi_restarts_its_vm(served: Served, admin: Connected) -> None:
    uid = admin.get(f"{VMIS}/web-000")["metadata"]["uid"]
    assert admin.ask("DELETE", f"{VMIS}/web-000").status == 200
    served.pass_time(60)
    vmi = admin.get(f"{VMIS}/web-000")
    assert vmi["metadata"]["uid"] != uid
    assert vmi["status"]["phase"] == "Running"
    assert admin.get("/simulator/truth")["shutdowns"] == []


def test_deleting_a_launcher_takes_its_vm_down(served: Served, admin: Connected) -> None:
    (pod,) = admin.get(PODS, labelSelector="vm.kubevirt.io/name=web-000")["items"]
    assert admin.ask("DELETE", f"{PODS}/{pod['metadata']['name']}").status == 200
    served.pass_time(10)
    (down,) = admin.get("/simulator/truth")["shutdowns"]
    assert (down["vm"], down["cause"]) == ("vms/web-000", "other")


def test_a_machine_goes_with_its_node(admin: Connected) -> None:
    assert admin.ask("DELETE", f"{NODES}/node-02").body["status"] == "Success"
    assert len(admin.get(NODES)["items"]) == 2


def test_a_finalizer_delays_deletion(admin: Connected) -> None:
    body = config_map("held")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    admin.ask("POST", CONFIG_MAPS, body)
    answer = admin.ask("DELETE", f"{CONFIG_MAPS}/held")
    assert answer.body["metadata"]["deletionTimestamp"] == "2026-12-01T12:00:00Z"
    admin.ask("PATCH", f"{CONFIG_MAPS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert admin.ask("GET", f"{CONFIG_MAPS}/held").status == 404


def test_a_precondition_guards_a_deletion(admin: Connected) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("one"))
    answer = admin.ask("DELETE", f"{CONFIG_MAPS}/one", {"preconditions": {"uid": "another"}})
    assert answer.status == 409
    deleted = admin.ask("DELETE", f"{CONFIG_MAPS}/one")
    assert deleted.body["status"] == "Success"
    assert deleted.body["details"].keys() == {"name", "kind", "uid"}


def test_a_collection_is_deleted_by_selector(admin: Connected) -> None:
    for name, colour in (("a", "red"), ("b", "blue")):
        body = config_map(name)
        body["metadata"]["labels"] = {"colour": colour}
        admin.ask("POST", CONFIG_MAPS, body)
    admin.ask("DELETE", CONFIG_MAPS, labelSelector="colour=red")
    assert [item["metadata"]["name"] for item in admin.get(CONFIG_MAPS)["items"]] == ["b"]


def test_one_event_is_seen_in_both_versions(admin: Connected) -> None:
    assert admin.ask("POST", EVENTS, event("e1")).status == 201
    old = admin.get(f"{CORE_EVENTS}/e1")
    assert (old["message"], old["involvedObject"]["name"]) == ("moved", "web-000")
    assert admin.get(f"{EVENTS}/e1")["note"] == "moved"
    admin.ask("PATCH", f"{EVENTS}/e1", {"series": {"count": 2}}, content_type=MERGE)
    assert admin.get(f"{CORE_EVENTS}/e1")["series"] == {"count": 2}
    for path, selector in ((CORE_EVENTS, "involvedObject.name"), (EVENTS, "regarding.name")):
        assert len(admin.get(path, fieldSelector=f"{selector}=web-000")["items"]) == 1
        assert len(admin.get(path, fieldSelector=f"{selector}=web-001")["items"]) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": ""}, "action: Required value"),
        ({"eventTime": None}, "eventTime: Required value"),
        (
            {"regarding": {"kind": "Node", "name": "a"}},
            'involvedObject.namespace: Invalid value: "": does not match',
        ),
        ({"note": "x" * 1025}, "message: Invalid value: can have at most 1024 characters"),
    ],
)
def test_an_event_that_a_real_server_refuses_is_refused(api: Connected, changes: Any, message: str) -> None:
    answer = api.ask("POST", EVENTS, event("bad", **changes))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert message in answer.body["message"]


def test_events_are_forgotten_after_an_hour(served: Served, admin: Connected) -> None:
    admin.ask("POST", EVENTS, event("e1"))
    served.pass_time(3700)
    assert admin.get(EVENTS)["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", CONFIG_MAPS, {"metadata": {}}, 422, "name or generateName is required"),
        (
            "POST",
            CONFIG_MAPS,
            {"kind": "Pod", "metadata": {"name": "x"}},
            400,
            "does not match the expected kind",
        ),
        (
            "POST",
            CONFIG_MAPS,
            {"metadata": {"name": "x"}, "data": {"a": 1}},
            400,
            "cannot be handled as a ConfigMap",
        ),
        ("POST", CONFIG_MAPS, b"{", 400, "json parse error"),
        (
            "POST",
            "/api/v1/namespaces/nowhere/configmaps",
            config_map("x"),
            404,
            'namespaces "nowhere" not found',
        ),
        (
            "POST",
            CONFIG_MAPS,
            {"metadata": {"name": "x", "namespace": "y"}},
            400,
            "does not match the namespace sent",
        ),
        ("PUT", f"{CONFIG_MAPS}/nobody", config_map("nobody"), 404, 'configmaps "nobody" not found'),
        ("POST", NODES, {"metadata": {"name": "x"}}, 405, "does not allow this method"),
        (
            "POST",
            LEASES,
            {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}},
            422,
            "greater than 0",
        ),
    ],
)
def test_refuses_in_the_api_servers_words(
    api: Connected, method: str, path: str, body: Any, status: int, message: str
) -> None:
    answer = api.ask(method, path, body)
    assert answer.status == status
    assert message in answer.body["message"]


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [(f"{VMIS}/web-000", STRATEGIC, 415), (f"{CONFIG_MAPS}/x", "application/apply-patch+yaml", 415)],
)
def test_refuses_kinds_of_patches_that_it_does_not_know(
    api: Connected, path: str, kind: str, status: int
) -> None:
    assert api.ask("PATCH", path, {}, content_type=kind).status == status


@pytest.mark.parametrize("path", [f"{VMIS}/web-000", f"{VMIMS}/locked"])
def test_kubevirt_lets_nobody_change_a_spec(served: Served, admin: Connected, path: str) -> None:
    admin.ask("POST", VMIMS, migration("locked", "web-001"))
    answer = admin.ask("PATCH", path, {"spec": {"x": "y"}}, content_type=MERGE)
    assert answer.status == 403
    assert answer.body["message"].startswith("admission webhook ")


def test_a_vmi_can_be_opted_out_by_annotation(admin: Connected) -> None:
    body = {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}}}
    assert admin.ask("PATCH", f"{VMIS}/web-000", body, content_type=MERGE).status == 200


def test_kubevirts_limits_hold_from_the_moment_they_are_changed(served: Served, admin: Connected) -> None:
    body = {"spec": {"configuration": {"migrations": {"parallelMigrationsPerCluster": 1}}}}
    assert admin.ask("PATCH", KUBEVIRT, body, content_type=MERGE).status == 200
    for number in range(3):
        admin.ask("POST", VMIMS, migration(f"m-{number}", f"web-00{number}"))
    served.pass_time(9)
    phases = [vmim["status"]["phase"] for vmim in admin.get(VMIMS)["items"]]
    assert sorted(phases)[:2] == ["Pending", "Pending"]
    assert sorted(phases)[2] != "Pending"
