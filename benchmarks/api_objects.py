"""Nodes and launcher pods of the size that they have in real clusters, and a server that hands them out.

Most of a real object is nothing that we look at: managed fields, images, environment, volumes, conditions.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

NODES = 2_000
PODS = 30_000
_NAME = "name-of-the-object"
_TIME = "2026-01-05T10:00:00Z"


def _managed_fields(fields: int) -> list[dict[str, Any]]:
    tree: dict[str, Any] = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(fields)}
    return [
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": _TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": tree},
        }
    ]


def node() -> dict[str, Any]:
    """15 kB."""
    resources = {"cpu": "127500m", "memory": "1055123456Ki", "pods": "500", "devices.kubevirt.io/kvm": "1k"}
    return {
        "metadata": {
            "name": _NAME,
            "uid": f"uid-{_NAME}",
            "resourceVersion": "1000",
            "creationTimestamp": _TIME,
            "labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": _NAME}
            | {f"cpu-feature.node.kubevirt.io/feature-{number}": "true" for number in range(80)},
            "annotations": {"k8s.ovn.org/node-subnets": '{"default":["10.128.0.0/23"]}'},
            "managedFields": _managed_fields(50),
        },
        "spec": {"podCIDR": "10.1.0.0/24", "taints": [{"key": "a", "effect": "PreferNoSchedule"}]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": _TIME,
                    "lastTransitionTime": _TIME,
                    "reason": "KubeletIsFine",
                    "message": "the kubelet says that all is well",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": _NAME},
            ],
            "images": [
                {"names": [f"quay.io/some/image-{number}@sha256:{'0' * 64}"], "sizeBytes": 123456789}
                for number in range(60)
            ],
        },
    }


def launcher() -> dict[str, Any]:
    """16 kB."""
    return {
        "metadata": {
            "name": _NAME,
            "namespace": "vms",
            "uid": f"uid-{_NAME}",
            "resourceVersion": "1000",
            "creationTimestamp": _TIME,
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": f"vmi-{_NAME}"},
            "annotations": {
                "kubevirt.io/domain": "vm",
                "k8s.v1.cni.cncf.io/network-status": json.dumps([{"name": "ovn", "ips": ["10.1.2.3"] * 580}]),
            },
            "ownerReferences": [
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachineInstance",
                    "name": "vm",
                    "uid": f"vmi-{_NAME}",
                    "controller": True,
                }
            ],
            "managedFields": _managed_fields(40),
        },
        "spec": {
            "nodeName": "node-1",
            "priority": 0,
            "nodeSelector": {"kubevirt.io/schedulable": "true"},
            "tolerations": [{"key": f"key-{number}", "operator": "Exists"} for number in range(4)],
            "containers": [
                {
                    "name": f"container-{number}",
                    "image": f"registry.example.com/virt-launcher@sha256:{'0' * 64}",
                    "command": ["/usr/bin/virt-launcher-monitor", "--qemu-timeout", "298s", "--name", "vm"],
                    "env": [
                        {"name": f"VARIABLE_{i}", "value": "a value of some length, as they are"}
                        for i in range(8)
                    ],
                    "resources": {"requests": {"cpu": "800m", "memory": "8747Mi"}},
                    "volumeMounts": [{"name": f"volume-{i}", "mountPath": f"/mnt/{i}"} for i in range(12)],
                }
                for number in range(3)
            ],
            "volumes": [{"name": f"volume-{i}", "emptyDir": {}} for i in range(12)],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _TIME}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": f"container-{number}",
                    "image": "registry.example.com/virt-launcher",
                    "imageID": f"registry.example.com/virt-launcher@sha256:{'0' * 64}",
                    "containerID": f"cri-o://{'0' * 64}",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": _TIME}},
                }
                for number in range(3)
            ],
        },
    }


class _Objects:
    """Many objects from one template: as JSON they differ in name and UID."""

    def __init__(self, kind: str, count: int, template: dict[str, Any]) -> None:
        self.kind = kind
        self.count = count
        self._pieces = json.dumps(template, separators=(",", ":")).encode().split(_NAME.encode())

    def json(self, number: int) -> bytes:
        return f"object-{number}".encode().join(self._pieces)

    def lines(self) -> Iterator[bytes]:
        for number in range(self.count):
            yield b'{"type":"ADDED","object":' + self.json(number) + b"}\n"
        annotations = {"k8s.io/initial-events-end": "true"}
        bookmark = {"kind": self.kind, "metadata": {"resourceVersion": "2000", "annotations": annotations}}
        yield json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n"


def _collections() -> dict[str, _Objects]:
    return {
        "/api/v1/nodes": _Objects("Node", NODES, node()),
        "/api/v1/pods": _Objects("Pod", PODS, launcher()),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    collections = _collections()

    def do_GET(self) -> None:
        """Paths below ``/old`` are those of a server without streaming lists."""
        target = urlsplit(self.path)
        query = dict(parse_qsl(target.query))
        objects = self.collections[target.path.removeprefix("/old")]
        initial = "sendInitialEvents" in query
        if initial and target.path.startswith("/old"):
            self._answer(422, b"{}")
        elif query.get("watch") in ("1", "true", "True"):
            self._stream(objects.lines() if initial else iter(()))
        else:
            self._list(objects, query)

    def _list(self, objects: _Objects, query: dict[str, str]) -> None:
        first = int(query.get("continue", 0))
        after = min(objects.count, first + int(query.get("limit", objects.count)))
        metadata = {"resourceVersion": "2000"} | ({"continue": str(after)} if after < objects.count else {})
        head = {"kind": f"{objects.kind}List", "apiVersion": "v1", "metadata": metadata}
        items = b",".join(objects.json(number) for number in range(first, after))
        self._answer(200, json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, lines: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        with suppress(OSError):
            self.rfile.read(1)  # until the client goes

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(ready: Callable[[int], None]) -> None:
    """Serve for ever on a free port of 127.0.0.1, and say which."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        ready(server.server_port)
        server.serve_forever()
