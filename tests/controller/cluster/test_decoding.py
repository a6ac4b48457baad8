"""Real API JSON becomes the objects the controller reads, whatever is missing, null or unknown in it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.cluster.objects import (
    KubeVirt,
    Node,
    NodeAddress,
    PlacedPod,
    Pod,
    Resources,
    Taint,
    Vmi,
    Vmim,
    decode,
    decode_list,
)

RECORDED = Path(__file__).parent / "data"
DUMP = Path(__file__).parents[2] / "data" / "cluster-dump.json"
KINDS: dict[str, Any] = {
    "Node": Node,
    "Pod": Pod,
    "VirtualMachineInstance": Vmi,
    "VirtualMachineInstanceMigration": Vmim,
    "KubeVirt": KubeVirt,
}
GIB = float(1 << 30)
MIB = float(1 << 20)


def recorded(name: str) -> list[tuple[str, bytes]]:
    """Type and object of each line of a recorded watch."""
    events = []
    for line in (RECORDED / name).read_bytes().splitlines():
        event = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        events.append((msgspec.json.decode(event["type"], type=str), bytes(event["object"])))
    return events


@pytest.mark.parametrize(
    ("name", "kind"), [("watch-nodes", Node), ("watch-pods", Pod), ("watch-vmis", Vmi), ("watch-vmims", Vmim)]
)
def test_decodes_every_object_of_a_recorded_watch(name: str, kind: Any) -> None:
    events = recorded(f"{name}.jsonl")
    objects = [decode(data, kind) for event_type, data in events if event_type != "BOOKMARK"]
    assert objects
    for obj in objects:
        assert obj.metadata.name
        assert obj.metadata.uid
        assert obj.metadata.resource_version
        assert obj.metadata.creation_timestamp.tzinfo is UTC


@pytest.mark.parametrize(
    ("name", "kind"),
    [("watch-nodes", Node), ("watch-pods", PlacedPod), ("watch-vmis", Vmi), ("watch-vmims", Vmim)],
)
def test_decodes_bookmarks_which_are_all_but_empty(name: str, kind: Any) -> None:
    (data,) = [data for event_type, data in recorded(f"{name}.jsonl") if event_type == "BOOKMARK"]
    assert decode(data, kind).metadata.resource_version


def test_keeps_the_annotation_that_ends_the_initial_events() -> None:
    (data,) = [data for event_type, data in recorded("watch-vmis.jsonl") if event_type == "BOOKMARK"]
    assert decode(data, Vmi).metadata.annotations == {"k8s.io/initial-events-end": "true"}


def test_decodes_a_dump_of_a_cluster_from_bytes_and_from_dicts_alike() -> None:
    items = json.loads(DUMP.read_bytes())["items"]
    assert {item["kind"] for item in items} == set(KINDS)
    for item in items:
        kind = KINDS[item["kind"]]
        obj = msgspec.convert(item, kind)
        assert obj == decode(json.dumps(item), kind)
        assert obj.spec is None
        assert getattr(obj, "status", None) is None


def test_reads_a_recorded_launcher() -> None:
    pod = decode(recorded("watch-pods.jsonl")[0][1], Pod)
    assert (pod.metadata.namespace, pod.metadata.name) == ("vms", "virt-launcher-vm-000-i59bw")
    assert (pod.node_name, pod.phase, pod.finished, pod.priority) == ("node-04", "Running", False, 0)
    assert (pod.vmi_name, pod.vmi_uid) == ("vm-000", "685a14a4-83b9-4644-8be8-8239cbf9e3a7")
    assert pod.migration_uid == ""
    assert pod.requests == Resources(0.8, 82320 * MIB)
    assert pod.node_selector == {"kubevirt.io/schedulable": "true"}
    assert pod.metadata.owner_references[0].kind == "VirtualMachineInstance"
    assert [toleration.effect for toleration in pod.tolerations] == ["NoExecute", "NoExecute"]


def test_reads_the_target_pod_of_a_recorded_migration() -> None:
    pod = decode(recorded("watch-pods.jsonl")[1][1], Pod)
    assert pod.migration_uid
    (term,) = pod.affinity.pod_anti_affinity.required
    assert term.topology_key == "kubernetes.io/hostname"
    assert term.selects("vms", "vms", {"kubevirt.io/created-by": pod.vmi_uid})


def test_reads_a_recorded_node() -> None:
    node = decode(recorded("watch-nodes.jsonl")[0][1], Node)
    assert node.name == "node-00"
    assert node.ready
    assert not node.unschedulable
    assert node.labels["kubevirt.io/schedulable"] == "true"
    assert node.allocatable == Resources(128.0, 2355 * GIB)
    assert node.max_pods == 250
    assert node.addresses == (NodeAddress("Hostname", "node-00"),)


def test_reads_the_taints_of_a_recorded_node() -> None:
    node = decode(recorded("watch-nodes.jsonl")[1][1], Node)
    prefix = "nodeutilization.descheduler.openshift.io"
    assert Taint(f"{prefix}/appropriate", "true", "PreferNoSchedule") in node.taints


def test_reads_a_recorded_vmi_that_has_migrated() -> None:
    vmi = decode(recorded("watch-vmis.jsonl")[1][1], Vmi)
    assert (vmi.namespace, vmi.name, vmi.phase, vmi.eviction_strategy) == (
        "vms",
        "vm-001",
        "Running",
        "LiveMigrate",
    )
    assert vmi.live_migratable
    assert vmi.evacuation_node_name == ""
    state = vmi.migration_state
    assert state is not None
    assert state.completed
    assert not state.failed
    assert state.target_node == vmi.node_name
    assert state.end_timestamp == datetime(2026, 12, 1, 13, 40, 43, tzinfo=UTC)
    assert list(vmi.active_pods.values()) == [vmi.node_name]


def test_reads_a_recorded_migration() -> None:
    vmim = decode(recorded("watch-vmims.jsonl")[0][1], Vmim)
    assert (vmim.vmi_name, vmim.priority, vmim.phase) == ("vm-126", "system-maintenance", "Succeeded")
    assert vmim.finished
    assert vmim.evacuation_of == "node-00"
    assert vmim.phase_transition_timestamps[0].phase == "Pending"
    assert vmim.phase_transition_timestamps[-1].phase == "Succeeded"
    assert vmim.migration_state is not None
    assert vmim.migration_state.migration_uid == vmim.metadata.uid


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "WaitingForSync", "SomethingNew"])
def test_a_migration_in_any_other_phase_is_in_progress(phase: str) -> None:
    """Only Succeeded and Failed are final; to take an unknown phase for an end would free its slot too early."""
    assert not msgspec.convert({"metadata": {}, "status": {"phase": phase}}, Vmim).finished


@pytest.mark.parametrize("kind", KINDS.values())
def test_an_object_of_nothing_but_a_name_has_defaults(kind: Any) -> None:
    bare = decode(b'{"metadata":{"name":"x"}}', kind)
    assert decode(b'{"metadata":{"name":"x"},"spec":null,"status":null}', kind) == bare
    assert decode(b'{"metadata":{"name":"x"},"spec":{},"status":{},"future":{"field":[1]}}', kind) == bare


@pytest.mark.parametrize(
    ("kind", "nulls"),
    [
        (Node, '"spec":{"taints":null,"unschedulable":null},'
               '"status":{"allocatable":null,"conditions":null,"addresses":null}'),
        (Pod, '"spec":{"containers":null,"initContainers":null,"tolerations":null,"nodeSelector":null,'
              '"affinity":null,"priority":null,"overhead":null,"resources":null,"nodeName":null},"status":{"phase":null}'),
        (PlacedPod, '"spec":{"containers":null,"initContainers":null,"overhead":null},"status":{"phase":null}'),
        (Vmi, '"spec":{"evictionStrategy":null},"status":{"conditions":null,"activePods":null,"migrationState":null,'
              '"evacuationNodeName":null,"nodeName":null,"phase":null}'),
        (Vmim, '"spec":{"vmiName":null,"priority":null},'
               '"status":{"phase":null,"phaseTransitionTimestamps":null,"migrationState":null}'),
        (KubeVirt, '"spec":{"configuration":{"evictionStrategy":null,"migrations":null}}'),
        (KubeVirt, '"spec":{"configuration":null}'),
    ],
)  # fmt: skip
def test_null_means_the_same_as_missing(kind: Any, nulls: str) -> None:
    metadata = '"labels":null,"annotations":null,"ownerReferences":null,"creationTimestamp":null'
    data = f'{{"metadata":{{"name":"x",{metadata}}},{nulls}}}'
    assert decode(data, kind) == decode(b'{"metadata":{"name":"x"}}', kind)


def test_null_parts_of_an_affinity_require_nothing() -> None:
    affinity = '{"nodeAffinity":null,"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}'
    pod = decode(f'{{"metadata":{{}},"spec":{{"affinity":{affinity}}}}}', Pod)
    assert pod.affinity == decode(b'{"metadata":{}}', Pod).affinity


def test_an_empty_list_may_be_null() -> None:
    assert decode_list(b'{"metadata":{"resourceVersion":"7"},"items":null}', Pod).items == ()


def test_a_page_tells_where_the_next_one_begins() -> None:
    page = decode_list(
        b'{"metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[{"metadata":{"name":"a"}}]}',
        Node,
    )
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("7", "abc")
    assert [node.name for node in page.items] == ["a"]


def test_annotations_that_nobody_reads_are_not_kept() -> None:
    """Network annotations of 30,000 launchers would take more memory than everything else."""
    annotations = {
        "k8s.v1.cni.cncf.io/network-status": "x" * 1000,
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "kubevirt.io/domain": "vm-1",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
    }
    pod = msgspec.convert({"metadata": {"name": "x", "annotations": annotations}}, Pod)
    assert list(pod.metadata.annotations) == list(annotations)[2:]


def test_defaults_of_a_kubevirt_are_those_of_kubevirt() -> None:
    kubevirt = decode(b'{"metadata":{"name":"kubevirt"},"spec":{"configuration":{}}}', KubeVirt)
    assert kubevirt.eviction_strategy is None
    assert kubevirt.parallel_migrations_per_cluster == 5
    assert kubevirt.parallel_outbound_migrations_per_node == 2
    assert kubevirt.bandwidth_per_migration == 0.0


def test_reads_the_configuration_of_a_kubevirt() -> None:
    migrations = {
        "parallelMigrationsPerCluster": 9,
        "parallelOutboundMigrationsPerNode": 3,
        "bandwidthPerMigration": "64Mi",
    }
    configuration = {"evictionStrategy": "External", "migrations": migrations}
    kubevirt = msgspec.convert({"metadata": {}, "spec": {"configuration": configuration}}, KubeVirt)
    assert kubevirt.eviction_strategy == "External"
    assert kubevirt.parallel_migrations_per_cluster == 9
    assert kubevirt.parallel_outbound_migrations_per_node == 3
    assert kubevirt.bandwidth_per_migration == 64 * MIB


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (
            '{"metadata":{"name":"p","namespace":"ns"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1x"}}}]}}',
            Pod,
            "pod ns/p: requests cpu: quantity '1x': expected a number",
        ),
        (
            '{"metadata":{"name":"p","namespace":"ns"},"spec":{"overhead":{"memory":"1 Gi"}}}',
            PlacedPod,
            "pod ns/p: requests memory: quantity '1 Gi': expected a number",
        ),
        (
            '{"metadata":{"name":"n"},"status":{"allocatable":{"pods":"many"}}}',
            Node,
            "node n: allocatable pods: quantity 'many': expected a number",
        ),
        (
            '{"metadata":{},"spec":{"configuration":{"migrations":{"bandwidthPerMigration":"fast"}}}}',
            KubeVirt,
            "bandwidthPerMigration: quantity 'fast': expected a number",
        ),
        ('{"metadata":{"labels":{"a":1}}}', Vmi, "Expected `str`, got `int` - at `$.metadata.labels"),
    ],
)
def test_what_makes_no_sense_is_refused_with_where_and_what(data: str, kind: Any, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        decode(data, kind)
    assert message in str(caught.value)


def test_objects_cannot_be_changed() -> None:
    node = decode(b'{"metadata":{"name":"x"}}', Node)
    with pytest.raises(AttributeError):
        node.ready = True  # type: ignore[misc]


def test_a_changed_copy_keeps_what_was_decoded() -> None:
    pod = decode(recorded("watch-pods.jsonl")[0][1], Pod)
    moved = msgspec.structs.replace(pod, node_name="elsewhere")
    assert (moved.node_name, moved.requests) == ("elsewhere", pod.requests)
