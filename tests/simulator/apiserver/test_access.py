"""Who may do what: tokens, rendered RBAC, and the audit log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from informers.testing import ManualClock
from simulator.apiserver.rbac import AccessRules, read_manifests
from tests.simulator.apiserver.builders import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    PODS,
    asked,
    config_map,
    eviction,
    lease,
)
from tests.simulator.apiserver.harness import START, Connected, Served
from tests.simulator.apiserver.recordings import recorded

RULES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: descheduler}
rules:
  - {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: descheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: descheduler}
subjects: [{kind: ServiceAccount, name: descheduler, namespace: vm-rebalancer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: descheduler, namespace: vm-rebalancer}
rules:
  - {apiGroups: [""], resources: [configmaps], resourceNames: [policy], verbs: [get, list, watch]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [descheduler], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: descheduler, namespace: vm-rebalancer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: descheduler}
subjects: [{kind: ServiceAccount, name: descheduler, namespace: vm-rebalancer}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: descheduler, namespace: vm-rebalancer}
"""
USER = "system:serviceaccount:vm-rebalancer:descheduler"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    """A cluster whose service account ``descheduler`` has what RULES give it."""
    what = asked(
        tmp_path,
        manifests=read_manifests(RULES, "rules"),
        accounts={"descheduler": tmp_path / "descheduler"},
    )
    with Served(what, ManualClock(START)) as served:
        yield served


@pytest.fixture
def account(guarded: Served) -> Iterator[Connected]:
    client = guarded.client(guarded.what.accounts["descheduler"])
    yield client
    client.close()


@pytest.fixture
def master(guarded: Served) -> Iterator[Connected]:
    client = guarded.client()
    yield client
    client.close()


def test_a_request_without_permission_is_refused_as_recorded() -> None:
    from simulator.apiserver.accounts import User
    from simulator.apiserver.refusals import Refusal
    from simulator.apiserver.routing import parse_call

    transcript = recorded("eviction-forbidden")
    call = parse_call("POST", transcript["request"]["path"], {})
    with pytest.raises(Refusal) as caught:
        AccessRules(read_manifests(RULES, "rules")).authorize(User("system:kube-scheduler"), call)
    assert caught.value.body() == transcript["response"]["body"]


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", NODES, {}),
        ("GET", "/api/v1/pods", {"limit": "1"}),
        ("GET", f"{NODES}/node-00", {}),
        ("GET", CONFIG_MAPS, {"fieldSelector": "metadata.name=policy"}),
        ("GET", "/apis/kubevirt.io/v1", {}),
        ("GET", "/version", {}),
    ],
)
def test_what_is_granted_is_done(account: Connected, method: str, path: str, query: dict[str, str]) -> None:
    assert account.ask(method, path, **query).status == 200


@pytest.mark.parametrize(
    ("method", "path", "query", "message"),
    [
        (
            "PATCH",
            f"{NODES}/node-00",
            {},
            f'nodes "node-00" is forbidden: User "{USER}" cannot patch resource "nodes" in API group "" at the '
            "cluster scope",
        ),
        (
            "GET",
            CONFIG_MAPS,
            {},
            f'configmaps is forbidden: User "{USER}" cannot list resource "configmaps" in API group "" in the '
            'namespace "vm-rebalancer"',
        ),
        (
            "GET",
            CONFIG_MAPS,
            {"fieldSelector": "metadata.name=other"},
            f'configmaps "other" is forbidden: User "{USER}" cannot list resource "configmaps" in API group "" in '
            'the namespace "vm-rebalancer"',
        ),
        (
            "GET",
            LEASES.replace("vm-rebalancer", "default"),
            {"watch": "true"},
            f'leases.coordination.k8s.io is forbidden: User "{USER}" cannot watch resource "leases" in API group '
            '"coordination.k8s.io" in the namespace "default"',
        ),
        (
            "GET",
            f"{LEASES}/other",
            {},
            f'leases.coordination.k8s.io "other" is forbidden: User "{USER}" cannot get resource "leases" in API '
            'group "coordination.k8s.io" in the namespace "vm-rebalancer"',
        ),
    ],
)
def test_what_is_not_granted_is_refused(
    account: Connected, method: str, path: str, query: dict[str, str], message: str
) -> None:
    answer = account.ask(method, path, {}, **query)
    assert (answer.status, answer.body["reason"], answer.body["message"]) == (403, "Forbidden", message)


def test_the_control_endpoint_is_the_admins_alone(guarded: Served, account: Connected) -> None:
    assert account.ask("GET", "/simulator/truth").status == 403
    nobody = guarded.client(token="x")  # noqa: S106
    assert nobody.ask("GET", "/simulator/truth").status == 401
    nobody.close()


def test_without_a_token_only_health_and_version_are_open(guarded: Served) -> None:
    anonymous = guarded.client()
    anonymous.token = ""
    assert [anonymous.ask("GET", path).status for path in ("/readyz", "/version", "/api", NODES)] == [
        *(200, 200, 403, 403)
    ]
    anonymous.close()


def test_an_expired_token_is_refused_until_a_new_one_is_read_from_its_file(
    guarded: Served, account: Connected, master: Connected
) -> None:
    master.control("tokens", account="descheduler", do="expire")
    assert account.ask("GET", NODES).status == 401
    master.control("tokens", account="descheduler", do="rotate")
    assert account.ask("GET", NODES).status == 401
    again = guarded.client(guarded.what.accounts["descheduler"])
    assert again.ask("GET", NODES).status == 200
    master.control("tokens", account="descheduler", do="rotate", keep_old=True)
    assert again.ask("GET", NODES).status == 200
    again.close()


def test_files_with_secrets_are_their_owners_alone(guarded: Served, account: Connected) -> None:
    directory = guarded.what.kubeconfig.parent
    for name in ("kubeconfig", "descheduler", "descheduler.token"):
        assert (directory / name).stat().st_mode & 0o077 == 0, name
    user = yaml.safe_load((directory / "descheduler").read_text())["users"][0]["user"]
    assert user == {"tokenFile": str(directory / "descheduler.token")}


def test_the_audit_log_says_who_did_what(guarded: Served, account: Connected, master: Connected) -> None:
    (pod,) = account.get(PODS, labelSelector="vm.kubevirt.io/name=web-000")["items"]
    name = pod["metadata"]["name"]
    account.ask("POST", f"{PODS}/{name}/eviction", eviction(name, dry_run=True))
    account.ask("POST", f"{PODS}/{name}/eviction", eviction(name))
    account.ask("POST", LEASES, lease("descheduler"))
    account.ask("PATCH", f"{NODES}/node-00", {})
    with account.watch(CONFIG_MAPS, fieldSelector="metadata.name=policy") as events:
        master.ask("POST", CONFIG_MAPS, config_map("policy"))
        next(events)
    assert guarded.what.audit is not None
    entries = [json.loads(line) for line in guarded.what.audit.read_text().splitlines()]
    fields = ("verb", "apiGroup", "resource", "subresource", "namespace", "name", "dryRun", "status")
    assert [tuple(entry[field] for field in fields) for entry in entries if entry["user"] == USER] == [
        ("list", "", "pods", "", "vms", "", False, 200),
        ("create", "", "pods", "eviction", "vms", name, True, 429),
        ("create", "", "pods", "eviction", "vms", name, False, 429),
        ("create", "coordination.k8s.io", "leases", "", "vm-rebalancer", "", False, 201),
        ("patch", "", "nodes", "", "", "node-00", False, 403),
        ("watch", "", "configmaps", "", "vm-rebalancer", "policy", False, 200),
    ]
    said = [entry["message"] for entry in entries if entry["user"] == USER]
    assert [bool(message) for message in said] == [False, True, True, False, True, False]
    assert "Eviction triggered evacuation" in said[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "rules: not YAML: "),
        ("kind: Pod", "rules: no Role, ClusterRole, RoleBinding or ClusterRoleBinding in it"),
    ],
)
def test_refuses_files_without_rules(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_manifests(text, "rules")


def test_finds_rules_inside_lists_too() -> None:
    items: list[Any] = list(yaml.safe_load_all(RULES))
    found = read_manifests(yaml.safe_dump({"kind": "List", "items": items}), "rules")
    assert [obj["kind"] for obj in found] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
