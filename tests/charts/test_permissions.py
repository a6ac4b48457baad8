"""Each account may do what its program does, and nothing else."""

import pytest

from e2e import privileges
from tests.charts.helm import NAMESPACE, RELEASE, Object, named, of_kind
from tests.charts.matrix import MATRIX, rendered

Grants = set[tuple[str, str, str, str]]
"""Scope (a namespace, or "" for all), resource with its group, name of the object or "", verb."""

LEASES = "leases.coordination.k8s.io"
VMIS = "virtualmachineinstances.kubevirt.io"


def own(program: str) -> Grants:
    """What both may do in their namespace: read the policy, hold the Lease."""
    name = f"{RELEASE}-{program}"
    return {
        *((NAMESPACE, "configmaps", f"{RELEASE}-policy", verb) for verb in ("list", "watch")),
        *((NAMESPACE, LEASES, name, verb) for verb in ("get", "update")),
        (NAMESPACE, LEASES, "", "create"),
    }


READS: Grants = {
    ("", resource, "", verb)
    for resource in (
        "nodes",
        "pods",
        VMIS,
        "virtualmachineinstancemigrations.kubevirt.io",
        "kubevirts.kubevirt.io",
    )
    for verb in ("list", "watch")
}
DESCHEDULER: Grants = {
    *READS,
    *own("descheduler"),
    ("", VMIS, "", "get"),
    ("", "pods/eviction", "", "create"),
    ("", "events", "", "create"),
    ("", "events", "", "patch"),
}
SOFT_TAINTER: Grants = {
    *own("soft-tainter"),
    *(("", "nodes", "", verb) for verb in ("list", "watch", "patch")),
}


OF_THE_CLUSTER = {("ClusterRole", "cluster-monitoring-view")}


def grants(objects: list[Object], account: str) -> Grants:
    """Of our own roles."""
    return {tuple(grant)[1:] for grant in privileges.grants(objects, {account: account})}


@pytest.mark.parametrize("name", ["openshift", "kubernetes"])
def test_the_descheduler_may_do_exactly_this(name: str) -> None:
    assert grants(rendered(name), f"{RELEASE}-descheduler") == DESCHEDULER


@pytest.mark.parametrize("name", ["openshift", "kubernetes"])
def test_the_soft_tainter_may_do_exactly_this(name: str) -> None:
    assert grants(rendered(name), f"{RELEASE}-soft-tainter") == SOFT_TAINTER


def test_read_only_writes_nothing_but_the_lease() -> None:
    objects = rendered("read-only")
    writes = {
        (scope, resource, verb)
        for program in ("descheduler", "soft-tainter")
        for scope, resource, _, verb in grants(objects, f"{RELEASE}-{program}")
        if verb not in ("get", "list", "watch")
    }
    assert writes == {(NAMESPACE, LEASES, "create"), (NAMESPACE, LEASES, "update")}
    assert of_kind(objects, "Job") == []


@pytest.mark.parametrize("name", MATRIX)
def test_nothing_is_granted_by_wildcard(name: str) -> None:
    for role in of_kind(rendered(name), "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            assert not any("*" in text for texts in rule.values() for text in texts)


@pytest.mark.parametrize("name", MATRIX)
def test_only_pods_carry_a_token(name: str) -> None:
    for account in of_kind(rendered(name), "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", MATRIX)
def test_every_role_that_is_bound_is_known(name: str) -> None:
    """What a role that is not rendered grants appears in no list here."""
    objects = rendered(name)
    known = {(o["kind"], o["metadata"]["name"]) for o in of_kind(objects, "Role", "ClusterRole")}
    bound = {
        (o["roleRef"]["kind"], o["roleRef"]["name"])
        for o in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    }
    assert bound - known <= OF_THE_CLUSTER


def test_on_openshift_both_accounts_may_ask_prometheus() -> None:
    binding = named(rendered("openshift"), "ClusterRoleBinding", "monitoring-view")
    assert binding["roleRef"]["name"] == "cluster-monitoring-view"
    assert [s["name"] for s in binding["subjects"]] == [f"{RELEASE}-descheduler", f"{RELEASE}-soft-tainter"]
