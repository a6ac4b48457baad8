"""What the programs list and watch. Adding a resource is a line here, and one in ``caches``."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.cluster.metadata import Identity
from controller.cluster.objects import LABEL_KUBEVIRT, KubeVirt, Node, PlacedPod, Pod, Vmi, Vmim
from controller.cluster.wire import Nullable, NullableStruct
from informers.decoding import Resource

LAUNCHERS = f"{LABEL_KUBEVIRT}=virt-launcher"
OTHER_PODS = f"{LABEL_KUBEVIRT}!=virt-launcher"
NOT_FINISHED = "status.phase!=Succeeded,status.phase!=Failed"

_KUBEVIRT = "/apis/kubevirt.io/v1"

RESOURCES: Mapping[str, Resource[Any]] = {
    "kubevirts": Resource(f"{_KUBEVIRT}/kubevirts", KubeVirt),
    "nodes": Resource("/api/v1/nodes", Node),
    "vmis": Resource(f"{_KUBEVIRT}/virtualmachineinstances", Vmi),
    "vmims": Resource(f"{_KUBEVIRT}/virtualmachineinstancemigrations", Vmim),
    "launchers": Resource("/api/v1/pods", Pod, LAUNCHERS),
    "placed": Resource("/api/v1/pods", PlacedPod, OTHER_PODS, NOT_FINISHED),
}
"""By the names of the informers of :class:`~controller.cluster.caches.ClusterCaches`."""


class ConfigMap(NullableStruct, frozen=True, kw_only=True):
    """A ConfigMap; ``binaryData`` is not decoded."""

    metadata: Identity
    data: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)


def config_map(namespace: str, name: str) -> Resource[ConfigMap]:
    """One ConfigMap, watched so that a permission by resource name is enough."""
    return Resource(
        f"/api/v1/namespaces/{namespace}/configmaps", ConfigMap, field_selector=f"metadata.name={name}"
    )
