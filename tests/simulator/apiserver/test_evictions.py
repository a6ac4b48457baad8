"""The eviction subresource over HTTP: every answer of KubeVirt's webhook, dry runs, what follows."""

from typing import Any

import pytest

from informers.testing import ManualClock
from tests.simulator.apiserver.builders import (
    DESCHEDULER,
    PODS,
    SCENARIO,
    SUBRESOURCES,
    VMIMS,
    VMIS,
    asked,
    eviction,
)
from tests.simulator.apiserver.harness import START, Answer, Connected, Served

DENIED = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '


def launcher(api: Connected, vmi: str) -> dict[str, Any]:
    """The first launcher of a VM."""
    found: dict[str, Any] = api.get(PODS, labelSelector=f"vm.kubevirt.io/name={vmi}")["items"][0]
    return found


def evict(api: Connected, vmi: str, *, query: dict[str, str] | None = None, **request: Any) -> Answer:
    pod = launcher(api, vmi)["metadata"]["name"]
    return api.ask("POST", f"{PODS}/{pod}/eviction", eviction(pod, **request), **(query or {}))


@pytest.mark.parametrize(
    ("vmi", "status", "message"),
    [
        ("web-000", 429, f'{DENIED}Eviction triggered evacuation of VMI "vms/web-000"'),
        (
            "fixed-000",
            429,
            f"{DENIED}VMI fixed-000 is configured with an eviction strategy but is not live-migratable",
        ),
        ("loose-000", 201, None),
        ("perhaps-000", 201, None),
    ],
)
def test_a_dry_run_tells_what_a_request_would_do_and_does_nothing(
    api: Connected, vmi: str, status: int, message: str | None
) -> None:
    version = api.get(PODS)["metadata"]["resourceVersion"]
    for answer in (evict(api, vmi, dry_run=True), evict(api, vmi, query={"dryRun": "All"})):
        assert (answer.status, answer.body.get("message")) == (status, message)
    assert api.get(PODS)["metadata"]["resourceVersion"] == version


def test_an_eviction_of_a_migratable_vm_moves_it(served: Served, admin: Connected) -> None:
    assert evict(admin, "web-000").status == 429
    vmi = admin.get(f"{VMIS}/web-000")
    assert vmi["status"]["evacuationNodeName"] == "node-00"
    assert vmi["metadata"]["annotations"]["kubevirt.io/eviction-source"] == "descheduler"
    served.pass_time(2)
    (vmim,) = admin.get(VMIMS)["items"]
    assert vmim["metadata"]["annotations"] == {"kubevirt.io/evacuationMigration": "node-00"}
    assert vmim["spec"]["priority"] == "system-maintenance"
    served.pass_time(118)
    assert admin.get(f"{VMIS}/web-000")["status"]["nodeName"] != "node-00"
    (migration,) = admin.get("/simulator/truth")["migrations"]
    assert (migration["outcome"], migration["asked_by"]) == ("Succeeded", "rebalancer")


def test_an_eviction_without_our_annotation_is_somebody_elses(served: Served, admin: Connected) -> None:
    evict(admin, "web-000", requested_by="")
    served.pass_time(2)
    assert "kubevirt.io/eviction-source" not in admin.get(f"{VMIS}/web-000")["metadata"]["annotations"]
    (migration,) = admin.get("/simulator/truth")["migrations"]
    assert migration["asked_by"] == "other"


def test_a_granted_eviction_takes_the_vm_down(served: Served, admin: Connected) -> None:
    answer = evict(admin, "loose-000")
    assert (answer.status, answer.body) == (
        201,
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
    )
    served.pass_time(10)
    (down,) = admin.get("/simulator/truth")["shutdowns"]
    assert (down["vm"], down["cause"]) == ("vms/loose-000", "rebalancer")


def test_a_precondition_keeps_another_pod_of_that_name_alive(api: Connected) -> None:
    uid = launcher(api, "loose-000")["metadata"]["uid"]
    answer = evict(api, "loose-000", uid="another")
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert f"UID in precondition: another, UID in object meta: {uid}" in answer.body["message"]


def test_a_webhook_that_cannot_be_reached_fails_the_request(served: Served, admin: Connected) -> None:
    admin.control("cluster", do="set_webhook_down", arguments={"is_down": True})
    answer = evict(admin, "loose-000")
    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    assert answer.body["message"].startswith("Internal error occurred: failed calling webhook ")
    admin.control("cluster", do="set_webhook_down", arguments={"is_down": False})
    assert evict(admin, "web-000").status == 429


def test_an_older_webhook_that_cannot_be_reached_leaves_the_disruption_budget(tmp_path: Any) -> None:
    text = SCENARIO.replace("kubevirt: {", "kubevirt: {webhook: older, webhook_down: true, ")
    with Served(asked(tmp_path, text), ManualClock(START)) as served:
        api = served.client()
        guarded, bare = evict(api, "web-000"), evict(api, "loose-000")
        budgets = api.get("/apis/policy/v1/namespaces/vms/poddisruptionbudgets")["items"]
        api.close()
    assert (guarded.status, guarded.body["reason"], guarded.body["message"]) == (
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
    assert bare.status == 201
    assert len(budgets) == 4


def test_throttling_is_plain_text_with_a_retry_after(tmp_path: Any) -> None:
    """It comes from in front of the API: no Status, no verdict on the pod."""
    text = SCENARIO.replace("kubevirt: {", "kubevirt: {throttle_probability: 1, ")
    with Served(asked(tmp_path, text), ManualClock(START)) as served:
        api = served.client()
        answer = evict(api, "web-000")
        api.close()
    assert (answer.status, answer.body, answer.headers["Retry-After"]) == (
        429,
        "Too many requests, please try again later.\n",
        "1",
    )


def test_evacuatecancel_empties_the_mark(served: Served, admin: Connected) -> None:
    evict(admin, "web-000")
    path = f"{SUBRESOURCES}/web-000/evacuatecancel"
    assert admin.ask("PUT", path, {"evacuationNodeName": "node-02"}).status == 500
    assert admin.ask("PUT", path, {"dryRun": ["All"]}).status == 200
    assert admin.get(f"{VMIS}/web-000")["status"]["evacuationNodeName"] == "node-00"
    assert admin.ask("PUT", path, {"evacuationNodeName": "node-00"}).status == 200
    vmi = admin.get(f"{VMIS}/web-000")
    assert "evacuationNodeName" not in vmi["status"]
    assert vmi["metadata"]["annotations"]["kubevirt.io/eviction-source"] == "descheduler"
    assert admin.ask("PUT", f"{SUBRESOURCES}/nobody/evacuatecancel").status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"apiVersion": "policy/v1beta1", "kind": "Eviction"}, 400),
        ({"metadata": {"name": "another"}}, 400),
        ({"deleteOptions": {"dryRun": ["Some"]}}, 422),
    ],
)
def test_refuses_a_bad_eviction(api: Connected, body: dict[str, Any], status: int) -> None:
    pod = launcher(api, "web-000")["metadata"]["name"]
    assert api.ask("POST", f"{PODS}/{pod}/eviction", body).status == status
    assert DESCHEDULER not in str(api.get(f"{VMIS}/web-000"))
