"""What an administrator sees of a move with kubectl, and that nothing else depends on its being seen."""

from typing import Any

from e2e import chart
from e2e.kubectl import Kubectl
from e2e.lab import ACTS_WITHIN_S, BALANCES_WITHIN_S, Lab

FAULTS = {"verbs": ["create", "patch"], "resources": ["events"]}
Events = list[dict[str, Any]]


def test_a_move_is_seen_from_eviction_to_arrival_by_kubectl(lab: Lab) -> None:
    lab.start("crowd")
    lab.run_all()
    kubectl = Kubectl(lab.cluster.kubeconfig, lab.cluster.directory)

    def arrived() -> Events:
        return kubectl.items("events", "-n", "vms", "--field-selector=reason=Rebalanced")

    event = lab.until(arrived, BALANCES_WITHIN_S, "an Event of an arrival")[0]

    involved = event["involvedObject"]
    vmi = lab.cluster.ask(
        "GET", f"/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/{involved['name']}"
    )
    assert (involved["kind"], involved["uid"]) == ("VirtualMachineInstance", vmi["metadata"]["uid"])
    (move,) = [m for m in lab.cluster.truth().own_moves if m.vm == f"vms/{involved['name']}"]
    assert event["message"].startswith(f"Live migration from {move.source} to {move.target} took ")
    described = kubectl("describe", "vmi", "-n", "vms", involved["name"])
    assert "RebalanceStarted" in described
    assert f"Evicted from over-utilised node {move.source}, expected at " in described
    assert "Rebalanced" in described


def test_what_cannot_be_moved_is_said_on_the_vm_and_an_invalid_policy_on_its_config_map(lab: Lab) -> None:
    lab.start("unmovable")
    lab.run_all()
    kubectl = Kubectl(lab.cluster.kubeconfig, lab.cluster.directory)
    skipped = lab.until(
        lambda: kubectl.items("events", "-n", "vms", "--field-selector=reason=NotLiveMigratable"),
        ACTS_WITHIN_S,
        "an Event of a VM that cannot be moved",
    )
    assert {(event["type"], event["source"]["component"]) for event in skipped} == {
        ("Warning", "vm-rebalancer")
    }

    lab.set_policy(lab.policy({"mode": "Automatik"}))
    refused = lab.until(
        lambda: kubectl.items("events", "-n", chart.NAMESPACE, "--field-selector=reason=PolicyInvalid"),
        ACTS_WITHIN_S,
        "an Event of the refused policy",
    )
    assert refused[0]["involvedObject"]["name"] == chart.CONFIG_MAP
    assert "did you mean Automatic?" in refused[0]["message"]
    lab.set_policy(lab.policy())
    lab.until(
        lambda: kubectl.items("events", "-n", chart.NAMESPACE, "--field-selector=reason=PolicyValid"),
        ACTS_WITHIN_S,
        "an Event of the policy that is in force again",
    )


def test_balancing_goes_on_though_events_are_refused(lab: Lab) -> None:
    lab.start("crowd")
    lab.cluster.fault("error", status=403, **FAULTS)
    lab.run_all()

    lab.until_balanced()

    assert lab.leader().metric("events_dropped_total", reason="NotTaken") > 0
    assert lab.leader().metric("handler_errors_total") == 0


def test_balancing_goes_on_though_events_are_answered_late(lab: Lab) -> None:
    """A program that waits for each answer would not balance in time."""
    lab.start("crowd")
    lab.cluster.fault("latency", delay_s=BALANCES_WITHIN_S, **FAULTS)
    lab.run_all()

    lab.until_balanced()

    assert len(lab.cluster.evictions()) > 1
    assert not any(r.resource == "events" and r.status < 300 for r in lab.cluster.requests()), "none is taken"
    assert lab.leader().metric("handler_errors_total") == 0
