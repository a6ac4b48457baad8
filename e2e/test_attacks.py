"""The admission policy of a live cluster against the table of attacks, as the soft-tainter's account.

The simulated API server evaluates no admission policies: without ``KUBECONFIG`` these are left out.

Every attempt is a server-side dry run, so nothing is changed: a row is tried on a node that is already as the row
wants it before. ``VM_REBALANCER_E2E_NODE`` may name a Node that was made for this and runs nothing: that one is made as
each of the other rows wants it, and put back in the end.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import Kubectl
from tests.charts.attacks import Case, merge, read_cases

Node = dict[str, Any]

CASES = [case for case in read_cases() if case.live and case.by_tainter]
_ACCOUNT = re.compile(r'request\.userInfo\.username == "(system:serviceaccount:[^"]+)"')


@dataclass(frozen=True, slots=True)
class Field:
    """Where it is tried."""

    kubectl: Kubectl
    account: str
    node: str
    ours: bool
    """Whether the node may be changed."""

    def read(self) -> Node:
        node: Node = json.loads(self.kubectl("get", "node", self.node, "--output=json"))
        return node

    def patch(self, patch: Mapping[str, Any], *flags: str) -> str:
        """What the API server says against it; empty: nothing."""
        command = ["patch", "node", self.node, "--type=merge", f"--patch={json.dumps(patch)}", *flags]
        return self.kubectl.refusal(*command)


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    kubectl = Kubectl(os.environ["KUBECONFIG"], tmp_path)
    if refusal := kubectl.refusal("get", "validatingadmissionpolicies"):
        pytest.skip(f"no admission policies are to be had in this cluster: {refusal}")
    policies = kubectl.items("validatingadmissionpolicies", "--selector=app.kubernetes.io/name=vm-rebalancer")
    found = [_ACCOUNT.search(c["expression"]) for p in policies for c in p["spec"]["matchConditions"]]
    accounts = [match[1] for match in found if match]
    if not accounts:
        pytest.skip("the chart's admission policy is not installed in this cluster")
    own = os.environ.get("VM_REBALANCER_E2E_NODE", "")
    untainted = [n["metadata"]["name"] for n in kubectl.items("nodes") if not n["spec"].get("taints")]
    if not own and not untainted:
        pytest.skip("each node has taints, and VM_REBALANCER_E2E_NODE names none to be changed")
    one = Field(kubectl, accounts[0], own or untainted[0], bool(own))
    before = one.read()
    yield one
    if own:
        now = one.read()
        kept = {part: _back(now[part], before[part]) for part in ("metadata", "spec")}
        kept["metadata"].pop("resourceVersion", None)
        assert one.patch(kept) == ""


def _back(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one to the other, field by field."""
    changed = {key: value for key, value in before.items() if now.get(key) != value}
    return {**changed, **dict.fromkeys(now.keys() - before.keys())}


@pytest.mark.live_cluster
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_live_api_server_admits_what_is_legal_and_refuses_all_else(field: Field, case: Case) -> None:
    node = field.read()
    if merge(node, case.before) != node:
        if not field.ours:
            pytest.skip(
                f"node {field.node} is not as it should be before; VM_REBALANCER_E2E_NODE names none to change"
            )
        if refusal := field.patch(case.before):
            pytest.skip(f"node {field.node} cannot be made as it should be before: {refusal}")
        node = field.read()
    if not case.legal and merge(node, case.patch) == node:
        pytest.skip(f"it would change nothing on node {field.node}")
    part = [f"--subresource={case.subresource}"] if case.subresource else []

    refusal = field.patch(case.patch, "--dry-run=server", f"--as={field.account}", *part)

    if case.legal:
        assert refusal == ""
    else:
        # By the policy, by the API's own validation, or, of a subresource, by the role that does not grant it.
        assert re.search("ValidatingAdmissionPolicy|is invalid|cannot patch resource", refusal), refusal


def test_most_attacks_need_no_node_that_may_be_changed() -> None:
    """What is tried wherever some worker has no taint."""
    worker: Node = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": {}}
    attacks = [c for c in CASES if not c.legal and merge(worker, c.before) == worker]
    assert len(attacks) >= 30
    assert [c.name for c in CASES if c.legal and merge(worker, c.before) == worker]
