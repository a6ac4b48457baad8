"""The soft-tainter's account can change nothing on a node but its own taints, whatever it tries."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.objects import Taint
from controller.taints.desired import APPROPRIATE, OVER, PREFIX, merged
from tests.charts.admission import AdmissionPolicy
from tests.charts.attacks import Case, read_cases
from tests.charts.helm import NAMESPACE, RELEASE, Object, named, render, try_template

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-soft-tainter"
RECORDED = Path(__file__).parents[1] / "controller/cluster/data/watch-nodes.jsonl"
CASES = read_cases()
LEGAL = [case for case in CASES if case.legal and case.by_tainter]
ATTACKS = [case for case in CASES if not case.legal]


@cache
def objects() -> list[Object]:
    return render()


@cache
def policy() -> AdmissionPolicy:
    return AdmissionPolicy(named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"])


def recorded_node() -> Object:
    """One as a real API server sends it, with what the table's node has merged in."""
    event = json.loads(RECORDED.read_text(encoding="utf-8").splitlines()[0])
    node: Object = event["object"]
    return node


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(ATTACKS) >= 30
    assert len(LEGAL) >= 10
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_attack_changes_something() -> None:
    """A case whose patch is without effect would prove nothing."""
    assert [case.name for case in ATTACKS if case.old == case.new] == []


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case.name)
def test_refuses(case: Case) -> None:
    assert policy().concerns(ACCOUNT)
    assert policy().refusals(case.old, case.new)


@pytest.mark.parametrize("case", LEGAL, ids=lambda case: case.name)
def test_admits(case: Case) -> None:
    assert policy().refusals(case.old, case.new) == []


def test_judges_a_recorded_node_alike() -> None:
    wrong = [
        case.name
        for case in read_cases(recorded_node())
        if case.by_tainter and bool(policy().refusals(case.old, case.new)) is case.legal
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "user",
    [
        "system:node:worker-1",
        "kubernetes-admin",
        f"system:serviceaccount:{NAMESPACE}:{RELEASE}-descheduler",
        f"system:serviceaccount:kube-system:{RELEASE}-soft-tainter",
        f"{ACCOUNT}-too",
    ],
)
def test_concerns_nobody_else(user: str) -> None:
    assert not policy().concerns(user)


@pytest.mark.parametrize("index", range(5))
def test_each_rule_is_needed(index: int) -> None:
    """Without it some attack of the table would go through."""
    assert len(policy()) == 5
    weaker = policy().without(index)
    assert any(not weaker.refusals(case.old, case.new) for case in ATTACKS)


WEAKER = [
    ("startsWith", "contains"),
    ('vm-rebalancer.io/")', 'vm-rebalancer.io")'),
    ('t.effect == "PreferNoSchedule"', "true"),
    ("variables.others.size() == variables.oldOthers.size()", "true"),
    ("variables.others.all(t, t in variables.oldOthers)", "true"),
    ("variables.oldOthers.all(t, t in variables.others)", "true"),
    ("variables.spec[k] == variables.oldSpec[k]", "true"),
    ("k in variables.oldSpec &&", "!(k in variables.oldSpec) ||"),
    ("|| k in variables.spec", "|| true"),
    ("variables.metadata[k] == variables.oldMetadata[k]", "true"),
    ("k in variables.oldMetadata &&", "!(k in variables.oldMetadata) ||"),
    ("|| k in variables.metadata", "|| true"),
    ("variables.object[k] == variables.oldObject[k]", "true"),
    *(
        ('"managedFields"', f'"managedFields", "{key}"')
        for key in ("labels", "annotations", "finalizers", "ownerReferences")
    ),
    *(
        ('k == "taints"', f'k in ["taints", "{key}"]')
        for key in ("unschedulable", "providerID", "podCIDRs", "externalID")
    ),
]


@pytest.mark.parametrize(("part", "instead"), WEAKER)
def test_each_part_of_a_rule_is_needed(part: str, instead: str) -> None:
    spec = copy.deepcopy(named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"])
    texts = [e["expression"] for kind in ("variables", "validations") for e in spec[kind]]
    assert any(part in text for text in texts)
    for expression in (*spec["variables"], *spec["validations"]):
        expression["expression"] = expression["expression"].replace(part, instead)
    weaker = AdmissionPolicy(spec)
    assert any(not weaker.refusals(case.old, case.new) for case in ATTACKS)


def test_covers_updates_of_nodes_and_of_all_their_subresources() -> None:
    (rule,) = named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"]["matchConstraints"][
        "resourceRules"
    ]
    assert rule == {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["nodes", "nodes/*"],
    }


def test_is_in_force() -> None:
    """A policy that nothing binds, or that only warns, or that lets pass what it cannot judge, limits nobody."""
    spec = named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"]
    binding = named(objects(), "ValidatingAdmissionPolicyBinding", "soft-tainter")["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert binding["policyName"] == f"{RELEASE}-soft-tainter"
    assert "Deny" in binding["validationActions"]
    assert "matchResources" not in binding
    assert all(validation["reason"] == "Forbidden" for validation in spec["validations"])


def test_keeps_to_the_language_of_kubernetes_1_30() -> None:
    """Expressions of a new policy are compiled with what the version before had: no optionals, sets or transforms."""
    spec = named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"]
    texts = [e["expression"] for part in ("matchConditions", "variables", "validations") for e in spec[part]]
    for newer in (".?", "[?", "optional.", "sets.", "transform", "cel.bind", ".in(", "format("):
        assert [text for text in texts if newer in text] == []


def test_no_value_of_the_chart_changes_whose_taints_are_ours() -> None:
    """The prefix is a constant of the program; a policy for another one would shut it out."""
    values = {"softTainter": {"admissionPolicy": {"taintPrefix": "taints.example.com"}}}
    assert "taintPrefix" in try_template(values=values).stderr
    spec = named(objects(), "ValidatingAdmissionPolicy", "soft-tainter")["spec"]
    texts = [e["expression"] for e in spec["variables"] if "startsWith" in e["expression"]]
    assert len(texts) == 3
    assert all(f't.key.startsWith("{PREFIX}/")' in text for text in texts)


@pytest.mark.parametrize(
    "keys",
    [
        set[str](),
        {OVER},
        {APPROPRIATE},
        {OVER, APPROPRIATE},
        {f"{OVER}-level-{level}" for level in range(1, 11)},
    ],
)
def test_admits_what_the_program_writes(keys: set[str]) -> None:
    before = [
        Taint(key="dedicated", value="vms", effect="NoSchedule"),
        Taint(key=OVER, value="", effect="PreferNoSchedule"),
        Taint(key=OVER, value="", effect="NoExecute"),
    ]
    old, new = _node(before), _node(merged(before, keys))
    assert policy().refusals(old, new) == []


def _node(taints: list[Taint]) -> dict[str, Any]:
    stored = [{"key": t.key, **({"value": t.value} if t.value else {}), "effect": t.effect} for t in taints]
    return {"metadata": {"name": "n"}, "spec": {"taints": stored}}
