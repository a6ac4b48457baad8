"""Metadata of API objects."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from controller.cluster.wire import ApiStruct, Nullable, NullableStruct, put

_KEPT_ANNOTATION_DOMAINS = ("kubevirt.io/", "descheduler.alpha.kubernetes.io/", "k8s.io/")


class OwnerReference(ApiStruct, frozen=True):
    """Who an object belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Identity(ApiStruct, frozen=True):
    """The metadata that tell an object and its version from others; namespace ``""``: cluster-scoped."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class ObjectMeta(NullableStruct, frozen=True):
    """Metadata of an object.

    Of the annotations, only those under ``kubevirt.io/``, ``descheduler.alpha.kubernetes.io/`` and
    ``k8s.io/`` are kept: the others (the network's, for example) take more room than all the rest.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)
    annotations: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)
    owner_references: Nullable[tuple[OwnerReference, ...]] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    def __post_init__(self) -> None:
        NullableStruct.__post_init__(self)
        if self.annotations:
            kept = {k: v for k, v in self.annotations.items() if k.startswith(_KEPT_ANNOTATION_DOMAINS)}
            put(self, annotations=kept)

    @property
    def being_deleted(self) -> bool:
        """Whether its deletion has been asked for."""
        return self.deletion_timestamp is not None
