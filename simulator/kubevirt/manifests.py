"""The JSON of the objects as KubeVirt, kubelet and scheduler write them, shaped like recordings of a real API server.

Parts that are equal for all objects are shared between them: see the rule in `objectstore`.
"""

import functools
import math
from typing import Final

from simulator.agenda import rfc3339
from simulator.kubevirt.objectstore import Json
from simulator.kubevirt.options import KubeVirtOptions
from simulator.kubevirt.quantities import format_bytes, format_cpu
from simulator.specs import NodeSpec, VmSpec

HOSTNAME: Final = "kubernetes.io/hostname"
APP: Final = "kubevirt.io"
CREATED_BY: Final = "kubevirt.io/created-by"
DOMAIN: Final = "kubevirt.io/domain"
NODE_NAME: Final = "kubevirt.io/nodeName"
SCHEDULABLE: Final = "kubevirt.io/schedulable"
VMI_NAME: Final = "kubevirt.io/vmi-name"
MIGRATION_UID: Final = "kubevirt.io/migrationJobUID"
MIGRATION_NAME: Final = "kubevirt.io/migrationJobName"
MIGRATION_TARGET: Final = "kubevirt.io/migrationTargetNodeName"
EVACUATION: Final = "kubevirt.io/evacuationMigration"
EVICTION_SOURCE: Final = "kubevirt.io/eviction-source"
IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
ANTI_AFFINITY_GROUP: Final = "anti-affinity-group"
LAUNCHER: Final = "virt-launcher"
HOTPLUG: Final = "hotplug-disk"

MAX_PODS: Final = 250
_LAUNCHER_OVERHEAD_BYTES: Final = 400 << 20
"""What KubeVirt adds to the guest's memory for QEMU and libvirt: 80Gi -> 82320Mi in the recordings."""

_TOLERATIONS: Final = [
    {
        "effect": "NoExecute",
        "key": f"node.kubernetes.io/{trouble}",
        "operator": "Exists",
        "tolerationSeconds": 300,
    }
    for trouble in ("not-ready", "unreachable")
]
_VOLUMES: Final = [{"emptyDir": {}, "name": "private"}]
_MOUNTS: Final = [{"mountPath": "/var/run/kubevirt-private", "name": "private"}]
_HOST_MODEL: Final = "host-model-cpu.node.kubevirt.io/"
_MIGRATION_MODEL: Final = "cpu-model-migration.node.kubevirt.io/"
_CPU_VENDOR: Final = "cpu-vendor.node.kubevirt.io/"


def node(spec: NodeSpec, internal_ip: str) -> Json:
    resources = {
        "cpu": format_cpu(round(spec.cores * 1000)),
        "ephemeral-storage": "500Gi",
        "memory": format_bytes(round(spec.memory_bytes)),
        "pods": str(MAX_PODS),
    }
    labels = {
        "kubernetes.io/arch": "amd64",
        HOSTNAME: spec.name,
        "kubernetes.io/os": "linux",
        SCHEDULABLE: "true",
        "node-role.kubernetes.io/worker": "",
        **spec.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": labels, "name": spec.name},
        "spec": {"taints": list(spec.taints)} if spec.taints else {},
        "status": {
            "addresses": [
                {"address": internal_ip, "type": "InternalIP"},
                {"address": spec.name, "type": "Hostname"},
            ],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [ready_condition("True", "KubeletReady", None)],
        },
    }


def ready_condition(status: str, reason: str, since_s: float | None) -> Json:
    """A node's condition Ready; ``status`` is True, False or Unknown."""
    return {
        "lastHeartbeatTime": None,
        "lastTransitionTime": None if since_s is None else rfc3339(since_s),
        "reason": reason,
        "status": status,
        "type": "Ready",
    }


def daemon_pod(spec: NodeSpec) -> Json:
    """What runs on the node besides VMs, as one pod."""
    requests = {
        "cpu": format_cpu(round(spec.other_requests_cpu_cores * 1000)),
        "memory": format_bytes(round(spec.other_requests_memory_bytes)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"app": "other"}, "name": f"other-{spec.name}", "namespace": "kube-system"},
        "spec": {
            "containers": [{"image": "other", "name": "other", "resources": {"requests": requests}}],
            "nodeName": spec.name,
        },
        "status": {"phase": "Running"},
    }


def vmi(spec: VmSpec) -> Json:
    """A VMI as its VM creates it, before KubeVirt has done anything for it."""
    annotations = {"kubevirt.io/latest-observed-api-version": "v1", **_opt_out(spec)}
    body: Json = {"domain": _domain(spec.vcpus, spec.guest_bytes)}
    if spec.eviction_strategy is not None:
        body["evictionStrategy"] = spec.eviction_strategy
    if spec.pinned_to is not None:
        body["nodeSelector"] = {HOSTNAME: spec.pinned_to}
    if spec.anti_affinity_group is not None:
        body["affinity"] = _affinity([_apart({ANTI_AFFINITY_GROUP: spec.anti_affinity_group})])
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "annotations": annotations,
            "labels": _labels(spec),
            "name": spec.name,
            "namespace": spec.namespace,
        },
        "spec": body,
        "status": {"phase": "Pending"},
    }


def live_migratable(spec: VmSpec) -> Json:
    """The VMI's condition LiveMigratable."""
    if spec.migratable:
        return {"status": "True", "type": "LiveMigratable"}
    return {
        "message": "cannot migrate VMI: PVC rootdisk is not shared, live migration requires that all PVCs must be "
        "shared (using ReadWriteMany access mode)",
        "reason": "DisksNotLiveMigratable",
        "status": "False",
        "type": "LiveMigratable",
    }


def launcher(spec: VmSpec, name: str, vmi_uid: str) -> Json:
    """A virt-launcher pod before the scheduler has seen it."""
    labels = {APP: LAUNCHER, CREATED_BY: vmi_uid, "vm.kubevirt.io/name": spec.name, **_labels(spec)}
    selector = {SCHEDULABLE: "true"}
    if spec.pinned_to is not None:
        selector[HOSTNAME] = spec.pinned_to
    body: Json = {
        "automountServiceAccountToken": False,
        "containers": _containers(spec.vcpus, spec.guest_bytes),
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeSelector": selector,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": spec.priority,
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": _TOLERATIONS,
        "volumes": _VOLUMES,
    }
    if spec.anti_affinity_group is not None:
        body["affinity"] = _affinity([_apart({ANTI_AFFINITY_GROUP: spec.anti_affinity_group})])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {DOMAIN: spec.name, **_opt_out(spec)},
            "labels": labels,
            "name": name,
            "namespace": spec.namespace,
            "ownerReferences": [_owner("kubevirt.io/v1", "VirtualMachineInstance", spec.name, vmi_uid)],
        },
        "spec": body,
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def migration_target(
    spec: VmSpec, name: str, migration: Json, source_pod: Json, source_node: Json | None
) -> Json:
    """The target pod of a migration: never beside the source, and only where the guest's CPU exists."""
    pod = launcher(spec, name, source_pod["metadata"]["labels"][CREATED_BY])
    metadata, body = pod["metadata"], pod["spec"]
    metadata["labels"][MIGRATION_UID] = migration["metadata"]["uid"]
    metadata["annotations"][MIGRATION_NAME] = migration["metadata"]["name"]
    rules = [_apart({CREATED_BY: source_pod["metadata"]["labels"][CREATED_BY]})]
    if "affinity" in body:
        rules += body["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    body["affinity"] = _affinity(rules)
    body["nodeSelector"] = {**body["nodeSelector"], **_cpu_selector(source_pod, source_node)}
    return pod


def hotplug_pod(spec: VmSpec, name: str, launcher_pod: Json) -> Json:
    """The pod that holds hotplugged volumes for a launcher, on the launcher's node."""
    metadata = launcher_pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {APP: HOTPLUG},
            "name": name,
            "namespace": spec.namespace,
            "ownerReferences": [_owner("v1", "Pod", metadata["name"], metadata["uid"])],
        },
        "spec": {
            "containers": [
                {
                    "image": "virt-launcher",
                    "name": "hotplug-disk",
                    "resources": {"requests": {"cpu": "10m", "memory": "2Mi"}},
                }
            ],
            "nodeName": launcher_pod["spec"]["nodeName"],
            "terminationGracePeriodSeconds": 0,
        },
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def vmim(namespace: str, vmi_name: str, priority: str, evacuated_node: str | None) -> Json:
    """A migration that was just asked for: by the evacuation controller, or by a person."""
    metadata: Json = {
        "generateName": "kubevirt-migrate-vm-" if evacuated_node is None else "kubevirt-evacuation-",
        "labels": {VMI_NAME: vmi_name},
        "namespace": namespace,
    }
    if evacuated_node is not None:
        metadata["annotations"] = {EVACUATION: evacuated_node}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": metadata,
        "spec": {"priority": priority, "vmiName": vmi_name},
    }


def kubevirt(options: KubeVirtOptions) -> Json:
    migrations: Json = {
        "completionTimeoutPerGiB": math.ceil(options.completion_timeout_per_gib_s),
        "parallelMigrationsPerCluster": options.parallel_migrations_per_cluster,
        "parallelOutboundMigrationsPerNode": options.parallel_outbound_migrations_per_node,
        "progressTimeout": math.ceil(options.progress_timeout_s),
    }
    if options.bandwidth_per_migration_bytes_per_s:
        migrations["bandwidthPerMigration"] = format_bytes(round(options.bandwidth_per_migration_bytes_per_s))
    configuration: Json = {"migrations": migrations}
    if options.cluster_eviction_strategy is not None:
        configuration["evictionStrategy"] = options.cluster_eviction_strategy
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": configuration},
    }


def disruption_budget(spec: VmSpec, vmi_uid: str) -> Json:
    """The PDB that older KubeVirt keeps for a VMI that an eviction would migrate."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "generateName": "kubevirt-disruption-budget-",
            "namespace": spec.namespace,
            "ownerReferences": [_owner("kubevirt.io/v1", "VirtualMachineInstance", spec.name, vmi_uid)],
        },
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {CREATED_BY: vmi_uid}}},
        "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1},
    }


def pod_condition(kind: str, status: str, since_s: float | None, reason: str = "", message: str = "") -> Json:
    condition: Json = {
        "lastProbeTime": None,
        "lastTransitionTime": None if since_s is None else rfc3339(since_s),
        "status": status,
        "type": kind,
    }
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def running_status(since_s: float) -> Json:
    """The status of a launcher pod that became ready at that time."""
    kinds = ("Initialized", "ContainersReady", "Ready", "PodScheduled")
    started = rfc3339(since_s)
    return {
        "conditions": [pod_condition(kind, "True", since_s) for kind in kinds],
        "containerStatuses": [
            {
                "image": "virt-launcher",
                "imageID": "",
                "lastState": {},
                "name": "compute",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }
        ],
        "hostIP": "127.0.0.1",
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": started,
    }


@functools.lru_cache(maxsize=1024)
def _containers(vcpus: float, guest_bytes: float) -> list[Json]:
    """CPU requests are a tenth of the vCPUs (KubeVirt's default overcommit)."""
    requests = {
        "cpu": format_cpu(math.ceil(vcpus * 100)),
        "memory": format_bytes(round(guest_bytes) + _LAUNCHER_OVERHEAD_BYTES),
    }
    return [
        {
            "image": "virt-launcher",
            "imagePullPolicy": "Always",
            "name": "compute",
            "resources": {"requests": requests},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": _MOUNTS,
        }
    ]


@functools.lru_cache(maxsize=1024)
def _domain(vcpus: float, guest_bytes: float) -> Json:
    return {"cpu": {"cores": math.ceil(vcpus)}, "memory": {"guest": format_bytes(round(guest_bytes))}}


def _labels(spec: VmSpec) -> dict[str, str]:
    group = spec.anti_affinity_group
    return spec.labels if group is None else {**spec.labels, ANTI_AFFINITY_GROUP: group}


def _opt_out(spec: VmSpec) -> dict[str, str]:
    return {PREFER_NO_EVICTION: "true"} if spec.opted_out else {}


def _owner(api_version: str, kind: str, name: str, uid: str) -> Json:
    return {
        "apiVersion": api_version,
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": kind,
        "name": name,
        "uid": uid,
    }


def _apart(labels: dict[str, str]) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}


def _affinity(rules: list[Json]) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}


def _cpu_selector(source_pod: Json, source_node: Json | None) -> dict[str, str]:
    """Node labels that a target needs so that a guest with CPU model host-model can go on there (KubeVirt).

    A guest that has migrated before keeps the model of its first node.
    """
    before = {
        key: value
        for key, value in source_pod["spec"]["nodeSelector"].items()
        if key.startswith((_MIGRATION_MODEL, _CPU_VENDOR))
    }
    if before or source_node is None:
        return before
    return {
        key.replace(_HOST_MODEL, _MIGRATION_MODEL): value
        for key, value in source_node["metadata"]["labels"].items()
        if key.startswith((_HOST_MODEL, _CPU_VENDOR))
    }
