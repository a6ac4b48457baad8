"""What Go's decoder takes for each kind, as far as anything here looks at it: wrong types and times are refused (400).

Other fields may hold anything.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from simulator.apiserver.refusals import Refusal, bad_request
from simulator.apiserver.resources import Resource
from simulator.kubevirt.objectstore import CONFIG_MAP, EVENT, LEASE, NODE, VMIM, Json, Path, at, edited

_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_MICRO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}(?:Z|[+-]\d{2}:\d{2})")

Texts = dict[str, str]


class Preconditions(msgspec.Struct, frozen=True):
    uid: str | None = None
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")


class DeleteOptions(msgspec.Struct, frozen=True):
    """``metav1.DeleteOptions``."""

    dry_run: list[str] | None = msgspec.field(default=None, name="dryRun")
    preconditions: Preconditions | None = None


class Metadata(msgspec.Struct, frozen=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")
    generate_name: str | None = msgspec.field(default=None, name="generateName")
    labels: Texts | None = None
    annotations: Texts | None = None
    finalizers: list[str] | None = None
    owner_references: list[Json] | None = msgspec.field(default=None, name="ownerReferences")


class Eviction(msgspec.Struct, frozen=True):
    """``policy/v1``."""

    api_version: str = msgspec.field(default="policy/v1", name="apiVersion")
    kind: str = "Eviction"
    metadata: Metadata | None = None
    delete_options: DeleteOptions | None = msgspec.field(default=None, name="deleteOptions")


class EvacuateCancelOptions(msgspec.Struct, frozen=True):
    """KubeVirt's."""

    dry_run: list[str] | None = msgspec.field(default=None, name="dryRun")
    evacuation_node_name: str | None = msgspec.field(default=None, name="evacuationNodeName")


class _Object(msgspec.Struct, frozen=True):
    metadata: Metadata | None = None
    spec: Json | None = None
    status: Json | None = None


class _Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: Metadata | None = None
    spec: _NodeSpec | None = None
    status: Json | None = None


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: Metadata | None = None
    data: Texts | None = None
    binary_data: Texts | None = msgspec.field(default=None, name="binaryData")


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: Metadata | None = None
    spec: _LeaseSpec | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: Metadata | None = None
    involved_object: Texts | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    action: str | None = None
    count: int | None = None
    event_time: str | None = None
    source: Texts | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None
    series: Json | None = None


class _MigrationSpec(msgspec.Struct, frozen=True):
    vmi_name: str | None = msgspec.field(default=None, name="vmiName")


class _Migration(msgspec.Struct, frozen=True):
    metadata: Metadata | None = None
    spec: _MigrationSpec | None = None
    status: Json | None = None


_SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    NODE: _Node,
    CONFIG_MAP: _ConfigMap,
    LEASE: _Lease,
    EVENT: _Event,
    VMIM: _Migration,
}
_MICRO_TIMES: Final[Mapping[str, tuple[Path, ...]]] = {
    LEASE: (("spec", "acquireTime"), ("spec", "renewTime")),
    EVENT: (("eventTime",), ("series", "lastObservedTime")),
}
"""Where a kind has a ``metav1.MicroTime``."""


def decoded(resource: Resource, obj: Json) -> Json:
    """The object as Go would encode it again: its MicroTimes in UTC. Raises `Refusal` (400)."""
    try:
        msgspec.convert(obj, _SHAPES.get(resource.kind, _Object))
    except msgspec.ValidationError as error:
        raise _undecodable(resource, f"json: {error}") from None
    times: dict[Path, Any] = {}
    for path in _MICRO_TIMES.get(resource.kind, ()):
        text = at(obj, *path)
        if text is not None:
            times[path] = _micro_time(resource, str(text))
    return edited(obj, times) if times else obj


def read(body: Json, kind: type[msgspec.Struct]) -> Any:
    """A request's options. Raises `Refusal` (400)."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        name = kind.__name__
        raise bad_request(f'{name} in version "v1" cannot be handled as a {name}: json: {error}') from None


def _micro_time(resource: Resource, text: str) -> str:
    """Six digits after the point, no fewer and no more: Go's parser insists."""
    if not _MICRO_TIME.fullmatch(text):
        raise _undecodable(
            resource, f'parsing time "{text}" as "{_MICRO_LAYOUT}": cannot parse "{text[19:]}" as ".000000"'
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _undecodable(resource, f'parsing time "{text}": {error}') from None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _undecodable(resource: Resource, why: str) -> Refusal:
    kind = resource.kind
    return bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {why}')
