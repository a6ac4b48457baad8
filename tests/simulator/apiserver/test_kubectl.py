"""The real kubectl gets along with the API: nobody here wrote it, so it believes nothing of ours."""

import json
from collections.abc import Iterator

import pytest

from informers.clock import SystemClock
from tests.simulator.apiserver.builders import SCENARIO, asked
from tests.simulator.apiserver.harness import Served
from tests.simulator.apiserver.kubectl import Kubectl, kubectl_program

pytestmark = pytest.mark.timeout(180)

POLICY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: policy, labels: {app: vm-rebalancer}}
data:
  policy.yaml: |
    mode: MODE
"""
MIGRATION = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {name: mine, namespace: vms}
spec: {vmiName: web-003}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """On a cluster that lives six times faster than real time: kubectl keeps its own time."""
    program = kubectl_program()
    directory = tmp_path_factory.mktemp("kubectl")
    quick = SCENARIO.replace("kubevirt: {", "kubevirt: {source_linger_s: [1, 2], ")
    with Served(asked(directory, quick, speed=6.0), SystemClock()) as served:
        yield Kubectl(program, served.what.kubeconfig, directory)


def test_lists_what_there_is(kubectl: Kubectl) -> None:
    lines = kubectl("get", "nodes,pods,vmi,vmim,kubevirts", "-A").splitlines()
    headers = [line.split() for line in lines if "NAME " in line]
    assert ["NAME", "STATUS", "ROLES", "AGE", "VERSION"] in headers
    assert ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"] in headers
    assert ["NAMESPACE", "NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"] in headers
    assert sum("virtualmachineinstance.kubevirt.io/" in line for line in lines) == 7
    assert any("node/node-00" in line and "Ready" in line for line in lines)


def test_knows_short_names_and_wide_columns(kubectl: Kubectl) -> None:
    assert "LIVE-MIGRATABLE" in kubectl("get", "vmis", "-n", "vms", "-o", "wide")
    assert "node-00" in kubectl("get", "po", "-n", "vms", "-o", "wide")
    resources = kubectl("api-resources", "-o", "name").split()
    assert {"nodes", "pods", "configmaps", "leases.coordination.k8s.io"} < set(resources)
    assert "virtualmachineinstancemigrations.kubevirt.io" in resources


def test_describes_nodes_and_vms(kubectl: Kubectl) -> None:
    node = kubectl("describe", "node", "node-01")
    assert "Non-terminated Pods:          (3 in total)" in node
    assert "Unschedulable:      false" in node
    vmi = kubectl("describe", "vmi", "-n", "vms", "web-000")
    assert "Eviction Strategy:  LiveMigrate" in vmi
    assert "virt-launcher" in kubectl("describe", "pods", "-n", "vms")


def test_cordons_and_uncordons(kubectl: Kubectl) -> None:
    assert kubectl("cordon", "node-02") == "node/node-02 cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "node-02")
    assert kubectl("cordon", "node-02") == "node/node-02 already cordoned\n"
    assert kubectl("uncordon", "node-02") == "node/node-02 uncordoned\n"
    assert "SchedulingDisabled" not in kubectl("get", "node", "node-02")


def test_taints_and_labels(kubectl: Kubectl) -> None:
    assert kubectl("taint", "nodes", "node-02", "a/b=c:PreferNoSchedule") == "node/node-02 tainted\n"
    refused = kubectl.try_("taint", "nodes", "node-02", "a/b=d:PreferNoSchedule")
    assert "already has a/b taint(s) with same effect(s)" in refused.stderr
    kubectl("taint", "nodes", "node-02", "--overwrite", "a/b=d:PreferNoSchedule")
    taints = json.loads(kubectl("get", "node", "node-02", "-o", "json"))["spec"]["taints"]
    assert taints == [{"key": "a/b", "value": "d", "effect": "PreferNoSchedule"}]
    assert kubectl("taint", "nodes", "node-02", "a/b:PreferNoSchedule-") == "node/node-02 untainted\n"
    assert kubectl("label", "node", "node-02", "zone=a") == "node/node-02 labeled\n"
    assert "node-02" in kubectl("get", "nodes", "-l", "zone=a")
    assert kubectl("annotate", "vmi", "-n", "vms", "web-000", "note=x").endswith("annotated\n")


def test_applies_what_has_changed_and_deletes_it(kubectl: Kubectl) -> None:
    automatic, predictive = (POLICY.replace("MODE", mode) for mode in ("Automatic", "Predictive"))
    assert kubectl("apply", "-f", "-", text=automatic) == "configmap/policy created\n"
    assert kubectl("apply", "-f", "-", text=automatic) == "configmap/policy unchanged\n"
    assert "+    mode: Predictive" in kubectl.try_("diff", "-f", "-", text=predictive).stdout
    assert kubectl("apply", "-f", "-", text=predictive) == "configmap/policy configured\n"
    data = json.loads(kubectl("get", "cm", "policy", "-o", "json"))["data"]
    assert data == {"policy.yaml": "mode: Predictive\n"}
    assert "deleted" in kubectl("delete", "-f", "-", text=predictive)
    assert "NotFound" in kubectl.try_("get", "cm", "policy").stderr


def test_watches_a_migration_that_it_has_applied(kubectl: Kubectl) -> None:
    watch = kubectl.start("get", "vmim", "-A", "-w")
    assert watch.stdout is not None
    try:
        assert kubectl("apply", "-f", "-", text=MIGRATION).endswith("/mine created\n")
        phases: list[str] = []
        for line in watch.stdout:
            if line.split()[1:2] == ["mine"]:
                phases.append(line.split()[2])
            if "Succeeded" in line:
                break
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()
    assert [phase for phase in dict.fromkeys(phases) if phase != "web-003"] == [
        *("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded")
    ]
    assert "deleted" in kubectl("delete", "vmim", "-n", "vms", "mine")


def test_waits_for_a_vm_that_it_deletes_to_be_gone(kubectl: Kubectl) -> None:
    def uid() -> str:
        return kubectl("get", "vmi", "-n", "vms", "perhaps-000", "-o", "jsonpath={.metadata.uid}")

    before = uid()
    assert "deleted" in kubectl("delete", "vmi", "-n", "vms", "perhaps-000")
    assert uid() != before


def test_drains_a_node_by_evictions_that_are_refused_until_the_vm_has_moved(kubectl: Kubectl) -> None:
    selector = "--pod-selector=vm.kubevirt.io/name=web-001"
    done = kubectl.try_("drain", "node-00", "--delete-emptydir-data", selector, "--timeout=60s")
    assert done.returncode == 0, done.stderr
    assert 'Eviction triggered evacuation of VMI "vms/web-001"' in done.stderr
    assert done.stdout.endswith("node/node-00 drained\n")
    vmi = json.loads(kubectl("get", "vmi", "-n", "vms", "web-001", "-o", "json"))
    assert vmi["status"]["nodeName"] != "node-00"
    assert "kubevirt.io/eviction-source" not in vmi["metadata"]["annotations"]
    kubectl("uncordon", "node-00")


def test_explains_that_fields_are_not_described(kubectl: Kubectl) -> None:
    assert "KIND:       Node" in kubectl("explain", "nodes")
    assert "v1.36" in kubectl("version")
