"""Mode Predictive with accounts that may only read: somebody tries the programs out on a cluster that matters.

With ``KUBECONFIG`` set it is that cluster, and the policy is the file that ``VM_REBALANCER_E2E_POLICY`` names; without
one there are no metrics to be had.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from e2e.chart import PROGRAMS
from e2e.kubectl import Kubectl
from e2e.lab import ACTS_WITHIN_S, Lab
from e2e.programs import Program

_NO_METRICS = {"url": "http://127.0.0.1:9", "allowHttp": True, "refreshInterval": "5s", "timeout": "5s"}


class Place(NamedTuple):
    """Where the programs run, and as whom."""

    kubeconfig: str
    """Of somebody who may look around."""
    environments: Mapping[str, Mapping[str, str]]
    """Program -> what tells it which cluster to talk to."""
    policy: Path
    has_metrics: bool


@pytest.fixture
def place(lab: Lab, tmp_path: Path) -> Place:
    theirs = os.environ.get("KUBECONFIG")
    return _simulated(lab, tmp_path) if theirs is None else _theirs(theirs, tmp_path)


def _simulated(lab: Lab, directory: Path) -> Place:
    lab.start("crowd", chart_values=("rbac.readOnly=true",))
    policy = directory / "predictive.yaml"
    policy.write_text(yaml.safe_dump(lab.policy({"mode": "Predictive"})), encoding="utf-8")
    environments = {
        program: {"VM_REBALANCER_KUBECONFIG": str(lab.cluster.kubeconfig_of(f"{program}-0"))}
        for program in PROGRAMS
    }
    return Place(str(lab.cluster.kubeconfig), environments, policy, has_metrics=True)


def _theirs(kubeconfig: str, directory: Path) -> Place:
    policy, given = directory / "predictive.yaml", os.environ.get("VM_REBALANCER_E2E_POLICY")
    document: dict[str, Any] = {
        "apiVersion": "vm-rebalancer.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metrics": _NO_METRICS,
    }
    if given is not None:
        document = yaml.safe_load(Path(given).read_text(encoding="utf-8"))
    policy.write_text(yaml.safe_dump({**document, "mode": "Predictive"}), encoding="utf-8")
    environments = {program: {"KUBECONFIG": kubeconfig} for program in PROGRAMS}
    return Place(kubeconfig, environments, policy, has_metrics=given is not None)


@pytest.mark.any_cluster
def test_predictive_without_a_lease_reports_and_writes_nothing(
    lab: Lab, place: Place, tmp_path: Path
) -> None:
    """Not even a dry run, a Lease or an Event; what it would do is in its log and its metrics."""
    kubectl = Kubectl(place.kubeconfig, tmp_path)
    before = _traces_of_ours(kubectl)
    programs = [
        lab.launch(
            f"{name}-0",
            [name, f"--policy-file={place.policy}", "--leader-elect=false"],
            place.environments[name],
        )
        for name in PROGRAMS
    ]
    for program in programs:
        lab.until(lambda one=program: _has_reported(one, place), ACTS_WITHIN_S, f"{program.account} reports")  # type: ignore[misc]

    assert _traces_of_ours(kubectl) == before
    assert programs[0].metric("evictions_total") + programs[0].metric("eviction_dry_runs_total") == 0
    if lab.cluster.is_running:
        lab.until(lambda: "should send VM" in programs[0].process.output(), ACTS_WITHIN_S, "it has decided")
        lab.until(lambda: "should carry" in programs[1].process.output(), ACTS_WITHIN_S, "it has decided")
        lab.let_pass(10)
        assert [str(r) for r in lab.cluster.requests() if r.writes] == []


def _has_reported(program: Program, place: Place) -> bool:
    if place.has_metrics and program.account.startswith("descheduler"):
        return bool(program.samples("node_value"))
    return program.is_ready() and (place.has_metrics or program.metric("refresh_failures_total") > 0)


def _traces_of_ours(kubectl: Kubectl) -> set[str]:
    """Whatever our programs leave behind in a cluster."""
    taints = (
        f"taint {node['metadata']['name']} {taint['key']}"
        for node in kubectl.items("nodes")
        for taint in node["spec"].get("taints") or ()
        if taint["key"].startswith("nodeutilization.vm-rebalancer.io/")
    )
    leases = (
        f"lease {lease['metadata']['namespace']}/{lease['metadata']['name']}"
        for lease in kubectl.items("leases", "--all-namespaces")
        if "vm-rebalancer" in lease["metadata"]["name"]
    )
    events = (
        f"event {event['metadata']['namespace']}/{event['metadata']['name']}"
        for event in kubectl.items("events", "--all-namespaces")
        if "vm-rebalancer" in (event.get("reportingComponent") or "")
    )
    return {*taints, *leases, *events}
