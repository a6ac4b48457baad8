"""What the API serves: resources, their names, verbs, subresources and fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.apiserver.refusals import Subject
from simulator.kubevirt.objectstore import (
    CONFIG_MAP,
    EVENT,
    KUBEVIRT,
    LEASE,
    NAMESPACE,
    NODE,
    PDB,
    POD,
    VMI,
    VMIM,
    Json,
    Path,
)

READ: Final = ("get", "list", "watch")
CHANGE: Final = ("patch", "update")
ALL: Final = ("create", "delete", "deletecollection", *READ, *CHANGE)

_NAMES: Final[Mapping[str, Path]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}
_NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource in one API version."""

    kind: str
    """Of its objects, and the store's name for them."""
    plural: str
    singular: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    custom: bool = False
    """Defined by a CRD: no strategic merge patch, and items of lists carry kind and apiVersion."""
    verbs: tuple[str, ...] = ALL
    status: bool = False
    """Has a status subresource: status changes go there and nowhere else."""
    subresources: Mapping[str, str] = field(default_factory=dict)
    """Further ones: name -> kind."""
    unconditional: bool = True
    """An update may come without a resourceVersion (the strategy's AllowUnconditionalUpdate)."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: Mapping[str, Path] = field(default_factory=dict)
    """Field selectors beyond name and namespace -> where the value stands in the stored object."""
    empty: Json | None = None
    """What an object of the Go type holds when nothing is set: bookmarks show it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def selectable(self) -> Mapping[str, Path]:
        """Field selector -> where its value stands."""
        return {**_NAMES, **self.fields}

    def subject(self, name: str = "") -> Subject:
        return Subject(self.plural, self.group, name, self.kind)

    def serves(self, verb: str) -> bool:
        return verb in self.verbs


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

RESOURCES: Final = (
    Resource(
        kind=NODE,
        plural="nodes",
        singular="node",
        namespaced=False,
        verbs=("delete", *READ, *CHANGE),
        status=True,
        short_names=("no",),
        fields={"spec.unschedulable": ("spec", "unschedulable")},
        empty={
            "spec": {},
            "status": {
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": dict.fromkeys(_NODE_INFO, ""),
            },
        },
    ),
    Resource(
        kind=POD,
        plural="pods",
        singular="pod",
        verbs=("delete", "deletecollection", *READ, *CHANGE),
        status=True,
        subresources={"eviction": "Eviction"},
        short_names=("po",),
        categories=("all",),
        fields={
            "spec.nodeName": ("spec", "nodeName"),
            "spec.restartPolicy": ("spec", "restartPolicy"),
            "spec.schedulerName": ("spec", "schedulerName"),
            "spec.serviceAccountName": ("spec", "serviceAccountName"),
            "status.phase": ("status", "phase"),
            "status.podIP": ("status", "podIP"),
        },
        empty={"spec": {"containers": None}, "status": {}},
    ),
    Resource(
        kind=NAMESPACE,
        plural="namespaces",
        singular="namespace",
        namespaced=False,
        verbs=("create", *READ, *CHANGE),
        short_names=("ns",),
        fields={"status.phase": ("status", "phase")},
        empty={"spec": {}, "status": {}},
    ),
    Resource(kind=CONFIG_MAP, plural="configmaps", singular="configmap", short_names=("cm",), empty={}),
    Resource(
        kind=EVENT,
        plural="events",
        singular="event",
        short_names=("ev",),
        fields={
            "reason": ("reason",),
            "type": ("type",),
            "reportingComponent": ("reportingComponent",),
            "source": ("source", "component"),
            **{f"involvedObject.{name}": ("involvedObject", name) for name in _INVOLVED},
        },
        empty={"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None},
    ),
    Resource(
        kind=EVENT,
        plural="events",
        singular="event",
        group="events.k8s.io",
        short_names=("ev",),
        fields={
            "reason": ("reason",),
            "type": ("type",),
            "reportingController": ("reportingComponent",),
            **{f"regarding.{name}": ("involvedObject", name) for name in _INVOLVED},
        },
        empty={"eventTime": None, "deprecatedSource": {}, "regarding": {}},
    ),
    Resource(
        kind=LEASE,
        plural="leases",
        singular="lease",
        group="coordination.k8s.io",
        unconditional=False,
        empty={"spec": {}},
    ),
    Resource(
        kind=PDB,
        plural="poddisruptionbudgets",
        singular="poddisruptionbudget",
        group="policy",
        verbs=READ,
        short_names=("pdb",),
        empty={"spec": {}, "status": {}},
    ),
    Resource(
        kind=VMI,
        plural="virtualmachineinstances",
        singular="virtualmachineinstance",
        group="kubevirt.io",
        custom=True,
        verbs=("delete", "deletecollection", *READ, *CHANGE),
        unconditional=False,
        short_names=("vmi", "vmis"),
        categories=("all",),
    ),
    Resource(
        kind=VMIM,
        plural="virtualmachineinstancemigrations",
        singular="virtualmachineinstancemigration",
        group="kubevirt.io",
        custom=True,
        status=True,
        unconditional=False,
        short_names=("vmim", "vmims"),
        categories=("all",),
    ),
    Resource(
        kind=KUBEVIRT,
        plural="kubevirts",
        singular="kubevirt",
        group="kubevirt.io",
        custom=True,
        verbs=(*READ, *CHANGE),
        status=True,
        unconditional=False,
        short_names=("kv", "kvs"),
        categories=("all",),
    ),
)

SUBRESOURCES_GROUP: Final = "subresources.kubevirt.io"
"""KubeVirt's own API server: actions on VMs and VMIs."""

BY_PATH: Final[Mapping[tuple[str, str, str], Resource]] = {
    (resource.group, resource.version, resource.plural): resource for resource in RESOURCES
}
"""(group, version, plural) -> resource."""


def groups() -> dict[str, list[Resource]]:
    """Group -> its resources, in the order of discovery; "" is the core group."""
    found: dict[str, list[Resource]] = {}
    for resource in RESOURCES:
        found.setdefault(resource.group, []).append(resource)
    return found
