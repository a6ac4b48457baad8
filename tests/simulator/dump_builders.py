"""Objects as ``kubectl get … -o json`` prints them, as small as they can be."""

import json
from typing import Any

Json = dict[str, Any]


def listing(*items: Json) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()


def node(
    name: str = "node-a", *, labels: Json | None = None, spec: Json | None = None, **status: Any
) -> Json:
    """A node with 16 cores and 64 GiB that can run VMs; ``status`` replaces fields."""
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name, **(labels or {})},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec or {},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }


def vmi(
    name: str = "vm-a",
    node_name: str = "node-a",
    *,
    domain: Json | None = None,
    metadata: Json | None = None,
    spec: Json | None = None,
    **status: Any,
) -> Json:
    """A running, migratable VMI with 2 cores and 4 GiB."""
    return {
        "kind": "VirtualMachineInstance",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            **(metadata or {}),
        },
        "spec": {
            "domain": {"cpu": {"cores": 2}, "memory": {"guest": "4Gi"}} if domain is None else domain,
            "evictionStrategy": "LiveMigrate",
            **(spec or {}),
        },
        "status": {
            "phase": "Running",
            "nodeName": node_name,
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
            **status,
        },
    }


def launcher(
    vmi_name: str = "vm-a", node_name: str = "node-a", *, labels: Json | None = None, **spec: Any
) -> Json:
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "shop",
            "name": f"virt-launcher-{vmi_name}-x",
            "labels": {
                "kubevirt.io": "virt-launcher",
                "kubevirt.io/created-by": f"uid-{vmi_name}",
                **(labels or {}),
            },
        },
        "spec": {"nodeName": node_name, "containers": [], **spec},
        "status": {"phase": "Running"},
    }


def pod(node_name: str = "node-a", *requests: Json, phase: str = "Running", **spec: Any) -> Json:
    """Some other pod, with one container for each of the requests."""
    containers = [{"resources": {"requests": request}} for request in requests]
    return {
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "daemon"},
        "spec": {"nodeName": node_name, "containers": containers, **spec},
        "status": {"phase": phase},
    }
