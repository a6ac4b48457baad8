"""A small scenario, bodies of requests, and where things are in the API."""

from pathlib import Path
from typing import Any

from simulator.apiserver.serving import Serving
from simulator.scenario.loading import parse_scenario

SCENARIO = """
description: three nodes, seven VMs
expectation: none
minutes: 60
nodes:
  node: {count: 3, cores: 64, memory_gib: 512, nic_gbit_per_s: 10}
vms:
  web: {count: 4, vcpus: 8, memory_gib: 16, dirty_mb_per_s: 25, placement: {node-00: 4}}
  fixed: {count: 1, vcpus: 4, memory_gib: 8, dirty_mb_per_s: 5, migratable: false, placement: {node-01: 1}}
  loose: {count: 1, vcpus: 4, memory_gib: 8, dirty_mb_per_s: 5, eviction_strategy: "None", placement: {node-01: 1}}
  perhaps:
    {count: 1, vcpus: 4, memory_gib: 8, dirty_mb_per_s: 5, migratable: false,
     eviction_strategy: LiveMigrateIfPossible, placement: {node-01: 1}}
load: {demand: 0.5}
kubevirt: {failed_target_stays_probability: 0}
"""
"""Three nodes; on node-00 four VMs that migrate, on node-01 three that do not, each for another reason."""

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/vms/pods"
CONFIG_MAPS = "/api/v1/namespaces/vm-rebalancer/configmaps"
EVENTS = "/apis/events.k8s.io/v1/namespaces/vms/events"
CORE_EVENTS = "/api/v1/namespaces/vms/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vm-rebalancer/leases"
VMIS = "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances"
VMIMS = "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstancemigrations"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/vms/virtualmachineinstances"

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DESCHEDULER = "sigs.k8s.io/descheduler"


def asked(directory: Path, text: str = SCENARIO, **changes: Any) -> Serving:
    return Serving(
        **{
            "scenario": parse_scenario(text),
            "kubeconfig": directory / "kubeconfig",
            "audit": directory / "audit.jsonl",
            **changes,
        }
    )


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def lease(name: str, holder: str = "a", **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


def event(name: str, vmi: str = "web-000", **changes: Any) -> dict[str, Any]:
    """In the form of events.k8s.io."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "vms"},
        "regarding": {"kind": "VirtualMachineInstance", "name": vmi, "namespace": "vms"},
        "eventTime": "2026-12-01T12:00:00.000000Z",
        "reportingController": "vm-rebalancer.io/descheduler",
        "reportingInstance": "a",
        "action": "Evict",
        "reason": "Evicted",
        "type": "Normal",
        "note": "moved",
        **changes,
    }


def migration(name: str, vmi: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name},
        "spec": {"vmiName": vmi},
    }


def eviction(
    pod: str, *, dry_run: bool = False, uid: str = "", requested_by: str = DESCHEDULER
) -> dict[str, Any]:
    options: dict[str, Any] = {"dryRun": ["All"]} if dry_run else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "vms", "annotations": {"requested-by": requested_by}},
        "deleteOptions": options | ({"preconditions": {"uid": uid}} if uid else {}),
    }
