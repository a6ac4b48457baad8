"""The judge of privileges: what it lets pass, and what it does not."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from e2e import chart, privileges
from e2e.privileges import Note, never_used, not_granted
from e2e.truth import Request

NAMESPACE = chart.NAMESPACE
EVICTION = Request(
    datetime(2026, 1, 1, tzinfo=UTC),
    f"system:serviceaccount:{NAMESPACE}:descheduler-1",
    "create",
    "pods",
    "eviction",
    "vms",
    "virt-launcher-a",
    False,
    429,
)
LEASE = msgspec.structs.replace(
    EVICTION,
    verb="update",
    resource="leases",
    subresource="",
    namespace=NAMESPACE,
    name="vm-rebalancer-descheduler",
    status=200,
    api_group="coordination.k8s.io",
)
RULES = [
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["vm-rebalancer-descheduler"],
        "verbs": ["update"],
    },
]


def rendered(scope: str = "") -> chart.Chart:
    """Two rules for the descheduler's account, in one namespace or everywhere."""
    kind = "Role" if scope else "ClusterRole"
    where = {"namespace": scope} if scope else {}
    subject = {"kind": "ServiceAccount", "name": "vm-rebalancer-descheduler", "namespace": NAMESPACE}
    return chart.Chart(
        [
            {"kind": kind, "metadata": {"name": "r", **where}, "rules": RULES},
            {
                "kind": f"{kind}Binding",
                "metadata": {"name": "r", **where},
                "roleRef": {"kind": kind, "name": "r"},
                "subjects": [subject],
            },
        ]
    )


def notes(directory: Path, requests: Iterable[Request], *, scope: str = "") -> list[Note]:
    privileges.write_note(directory, "e2e/test_a.py::test_b[c/d]", rendered(scope), requests)
    return privileges.read_notes(directory)


def test_calls_that_are_granted_and_all_of_them_used_are_no_fault(tmp_path: Path) -> None:
    found = notes(tmp_path, [EVICTION, LEASE])
    assert (not_granted(found), never_used(found)) == ([], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"verb": "delete", "subresource": ""},
        {"verb": "get"},
        {"resource": "leases", "subresource": "", "api_group": "coordination.k8s.io", "verb": "update"},
        {"api_group": "policy"},
        {"user": f"system:serviceaccount:{NAMESPACE}:soft-tainter-0"},
        {"resource": "", "subresource": "", "path": "/metrics"},
    ],
)
def test_a_call_that_is_not_granted_is_a_fault_even_if_it_was_answered(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    assert len(not_granted(notes(tmp_path, [msgspec.structs.replace(EVICTION, **changes)]))) == 1


def test_a_grant_for_one_namespace_holds_there_only(tmp_path: Path) -> None:
    found = notes(tmp_path, [EVICTION, LEASE], scope=NAMESPACE)
    assert [call.resource for call in not_granted(found)] == ["pods/eviction"]


def test_a_grant_that_nobody_has_used_is_a_fault(tmp_path: Path) -> None:
    assert [g.resource for g in never_used(notes(tmp_path, [LEASE]))] == ["pods/eviction"]


def test_a_call_that_was_refused_has_used_nothing(tmp_path: Path) -> None:
    refused = msgspec.structs.replace(LEASE, status=403)
    assert [g.verb for g in never_used(notes(tmp_path, [EVICTION, refused]))] == ["update"]


def test_what_is_open_to_every_account_needs_no_grant(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(EVICTION, verb="get", resource="", subresource="", path="/version")
    assert not_granted(notes(tmp_path, [asked])) == []


def test_others_may_do_as_they_like(tmp_path: Path) -> None:
    by_admin = msgspec.structs.replace(EVICTION, user="kubernetes-admin", verb="delete")
    assert not_granted(notes(tmp_path, [by_admin])) == []
