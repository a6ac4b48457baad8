"""Simulated objects have the shape of those in a dump of a real API server, taken in the middle of a rebalancing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from simulator.kubevirt.objectstore import Json
from simulator.kubevirt.options import KubeVirtOptions
from simulator.specs import GIB
from tests.simulator.kubevirt_builders import Cluster, cluster, vm

DUMP = Path(__file__).parents[1] / "data" / "cluster-dump.json"
PICKED = {
    "node": ("Node", "node-00"),
    "kubevirt": ("KubeVirt", "kubevirt"),
    "launcher": ("Pod", "virt-launcher-vm-000-i59bw"),
    "launcher-completed": ("Pod", "virt-launcher-vm-134-0felm"),
    "launcher-target": ("Pod", "virt-launcher-vm-001-wjref"),
    "launcher-evacuating": ("Pod", "virt-launcher-vm-024-r3vd0"),
    "vmi": ("VirtualMachineInstance", "vm-000"),
    "vmi-migrated": ("VirtualMachineInstance", "vm-001"),
    "vmi-migrating": ("VirtualMachineInstance", "vm-024"),
    "vmim-succeeded": ("VirtualMachineInstanceMigration", "kubevirt-evacuation-24hsg"),
    "vmim-running": ("VirtualMachineInstanceMigration", "kubevirt-evacuation-n4p2s"),
}
"""One object of each kind and state: kind and name in the dump."""

ONLY_RECORDED = {
    "node": {".status.daemonEndpoints.kubeletEndpoint.Port"}
    | {
        f".status.nodeInfo.{name}"
        for name in ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion")
    }
    | {
        f".status.nodeInfo.{name}"
        for name in ("kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem")
    }
    | {f".status.nodeInfo.{name}" for name in ("osImage", "systemUUID")},
}
"""What the simulator leaves out: nobody reads it."""
ONLY_SIMULATED = {
    "kubevirt": {
        ".spec.configuration.migrations.completionTimeoutPerGiB",
        ".spec.configuration.migrations.progressTimeout",
    },
    "vmi-migrated": {".status.migrationState.mode"},
    "vmi-migrating": {
        ".status.migrationState.mode",
        ".metadata.labels.kubevirt.io/migrationTargetNodeName",
    },
    "vmim-succeeded": {".status.migrationState.mode", ".metadata.labels.kubevirt.io/vmi-name"},
    "vmim-running": {".metadata.labels.kubevirt.io/vmi-name"},
}
"""What KubeVirt writes and the recording's emulator did not."""


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Where values stand in an object; list positions and keys that are UIDs do not matter."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from paths(item, f"{path}.*" if path.endswith("activePods") else f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from paths(item, f"{path}[]")
    else:
        yield path


def hot() -> Cluster:
    """vm-0 has been migrated, its source pod is still there; vm-1 is being migrated; vm-2 just runs."""
    built = cluster(
        *(vm(f"vm-{n}", guest_bytes=80 * GIB) for n in range(3)),
        options=replace(KubeVirtOptions(), source_linger_s=(3600.0, 3600.0)),
    )
    built.evict("vm-0")
    built.run(120)
    built.evict("vm-1")
    built.run(20)
    version = built.node("node-0")["metadata"]["resourceVersion"]
    taint = {"key": "a/b", "value": "true", "effect": "PreferNoSchedule"}
    assert built.control.replace_taints("node-0", version, [taint])
    return built


@pytest.fixture(scope="module")
def simulated() -> dict[str, Json]:
    built = hot()
    migrated_from, migrated_to = built.pods("vm-0")
    return {
        "node": built.node("node-0"),
        "kubevirt": built.kubevirt(),
        "launcher": built.pods("vm-2")[0],
        "launcher-completed": migrated_from,
        "launcher-target": migrated_to,
        "launcher-evacuating": built.pods("vm-1")[0],
        "vmi": built.vmi("vm-2"),
        "vmi-migrated": built.vmi("vm-0"),
        "vmi-migrating": built.vmi("vm-1"),
        "vmim-succeeded": built.vmims("vm-0")[0],
        "vmim-running": built.vmims("vm-1")[0],
    }


@pytest.fixture(scope="module")
def recorded() -> dict[str, Json]:
    items = {(item["kind"], item["metadata"]["name"]): item for item in json.loads(DUMP.read_text())["items"]}
    return {name: items[picked] for name, picked in PICKED.items()}


@pytest.mark.parametrize("name", PICKED)
def test_has_the_recorded_fields(simulated: dict[str, Json], recorded: dict[str, Json], name: str) -> None:
    ours, theirs = set(paths(simulated[name])), set(paths(recorded[name]))
    theirs = {path for path in theirs if not path.startswith(".metadata.managedFields")}
    assert theirs - ours == ONLY_RECORDED.get(name, set())
    assert ours - theirs == ONLY_SIMULATED.get(name, set())


@pytest.mark.parametrize("name", ["launcher", "launcher-completed", "launcher-target", "launcher-evacuating"])
def test_a_launcher_requests_and_tolerates_as_recorded(
    simulated: dict[str, Json], recorded: dict[str, Json], name: str
) -> None:
    ours, theirs = simulated[name]["spec"], recorded["launcher"]["spec"]
    for field in ("containers", "tolerations", "volumes", "nodeSelector", "priority", "restartPolicy"):
        assert ours[field] == theirs[field]
