"""What a pod requests, by Kubernetes' rule: it decides where the pod fits."""

from typing import Any

import msgspec
import pytest

from controller.cluster.objects import PlacedPod, Pod

MIB = float(1 << 20)


def container(cpu: str, memory: str = "0", **more: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory, "devices.kubevirt.io/kvm": "1"}}, **more}


def sidecar(cpu: str, memory: str = "0") -> dict[str, Any]:
    return container(cpu, memory, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cores", "mib"),
    [
        ({"containers": []}, 0.0, 0),
        ({"containers": [{}, {"resources": {}}, {"resources": {"requests": None}}]}, 0.0, 0),
        ({"containers": [container("800m", "100Mi"), container("1", "28Mi")]}, 1.8, 128),
        ({"containers": [container("1e3", "1Ki")]}, 1000.0, 1 / 1024),
        ({"containers": [{"resources": {"requests": {"cpu": 2, "memory": 1048576}}}]}, 2.0, 1),
        # A greater init container counts alone: it runs before the others.
        ({"containers": [container("1", "10Mi")], "initContainers": [container("3", "5Mi")]}, 3.0, 10),
        ({"containers": [container("1")], "initContainers": [container("500m"), container("700m")]}, 1.0, 0),
        # Sidecars stay, so they count with the containers …
        ({"containers": [container("1")], "initContainers": [sidecar("500m")]}, 1.5, 0),
        # … and with the init containers after them, not with those before.
        ({"containers": [container("1")], "initContainers": [sidecar("500m"), container("2")]}, 2.5, 0),
        ({"containers": [container("1")], "initContainers": [container("2"), sidecar("500m")]}, 2.0, 0),
        ({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}}, 1.25, 120),
        # Requests of the pod as a whole replace the sum of those it names.
        ({"containers": [container("1", "9Mi")], "resources": {"requests": {"cpu": "4"}}}, 4.0, 9),
    ],
)
@pytest.mark.parametrize("kind", [Pod, PlacedPod])
def test_requests(kind: Any, spec: dict[str, Any], cores: float, mib: float) -> None:
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, kind)
    assert (pod.requests.cpu_cores, pod.requests.memory_bytes) == pytest.approx((cores, mib * MIB))


def test_of_other_pods_only_identity_node_phase_and_requests_are_kept() -> None:
    """There are several times more of them than of launchers."""
    pod = msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "n",
                "uid": "u",
                "resourceVersion": "3",
                "labels": {"a": "b"},
            },
            "spec": {
                "nodeName": "node-1",
                "containers": [container("1", "1Mi")],
                "tolerations": [{"key": "x"}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        },
        PlacedPod,
    )
    assert msgspec.to_builtins(pod) == {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "3"},
        "nodeName": "node-1",
        "phase": "Running",
        "requests": {"cpu_cores": 1.0, "memory_bytes": MIB},
        "spec": None,
        "status": None,
    }
