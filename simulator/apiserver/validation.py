"""What the API server and KubeVirt's webhooks do not let into the store, kind by kind."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from simulator.apiserver.refusals import Cause, denied, invalid
from simulator.apiserver.resources import Resource
from simulator.kubevirt.objectstore import EVENT, LEASE, NODE, POD, VMI, VMIM, Json, at

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOTE_LIMIT = 1024
_SHORT_LIMIT = 128


def check(resource: Resource, new: Json, old: Json | None) -> None:
    """``old``: the stored state that is replaced; ``None``: it is created. Raises `Refusal`."""
    subject = resource.subject(new["metadata"].get("name", ""))
    webhook = _WEBHOOKS.get(resource.kind)
    if webhook is not None and old is not None and (message := webhook(new, old)):
        raise denied(message, subject)
    rule = _RULES.get(resource.kind)
    if rule is not None and (causes := list(rule(resource, new, old))):
        raise invalid(subject, causes)


def check_metadata(resource: Resource, new: Json, old: Json) -> None:
    """An update must be one of the same object."""
    name = old["metadata"]["name"]
    if new["metadata"].get("name") != name:
        message = f'Invalid value: "{new["metadata"].get("name", "")}": field is immutable'
        raise invalid(resource.subject(name), [Cause("FieldValueInvalid", message, "metadata.name")])
    if not resource.unconditional and not new["metadata"].get("resourceVersion"):
        message = "Invalid value: 0: must be specified for an update"
        raise invalid(
            resource.subject(name), [Cause("FieldValueInvalid", message, "metadata.resourceVersion")]
        )


def _node(_: Resource, new: Json, __: Json | None) -> Iterator[Cause]:
    causes = list(_taints(at(new, "spec", "taints") or ()))
    yield from causes * 2  # Kubernetes checks them twice, once as those of an update


def _taints(taints: Sequence[Mapping[str, str]]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(taints):
        field = f"metadata.taints[{position}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        name = key.rpartition("/")[2]
        if not _QUALIFIED.fullmatch(name):
            yield Cause("FieldValueInvalid", f'Invalid value: "{key}": {_NAME_RULE}', f"{field}.key")
        if not effect:
            yield Cause("FieldValueRequired", "Required value", f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(f'"{e}"' for e in _EFFECTS)
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", message, f"{field}.effect")
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect}
            text = msgspec.json.encode(shown | {"TimeAdded": taint.get("timeAdded")}).decode()
            message = f"Duplicate value: {text}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", message, field)
        seen.add((key, effect))


def _lease(_: Resource, new: Json, __: Json | None) -> Iterator[Cause]:
    duration = at(new, "spec", "leaseDurationSeconds")
    if duration is not None and duration <= 0:
        message = f"Invalid value: {duration}: must be greater than 0"
        yield Cause("FieldValueInvalid", message, "spec.leaseDurationSeconds")
    transitions = at(new, "spec", "leaseTransitions")
    if transitions is not None and transitions < 0:
        message = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield Cause("FieldValueInvalid", message, "spec.leaseTransitions")


def _pod(_: Resource, new: Json, old: Json | None) -> Iterator[Cause]:
    if old is not None and new.get("spec") != old.get("spec"):
        message = (
            "Forbidden: pod updates may not change fields other than `spec.tolerations` (only additions to "
        )
        yield Cause("FieldValueForbidden", message + "existing tolerations) and images", "spec")


def _event(resource: Resource, new: Json, old: Json | None) -> Iterator[Cause]:
    """``pkg/apis/core/validation/events.go``: events of the new API need more than those of the old one."""
    namespace = at(new, "involvedObject", "namespace") or ""
    if (namespace or "default") != new["metadata"].get("namespace"):
        message = f'Invalid value: "{namespace}": does not match event.namespace'
        yield Cause("FieldValueInvalid", message, "involvedObject.namespace")
    if not resource.group or old is not None:
        return
    required = {
        "eventTime": new.get("eventTime"),
        "reportingController": new.get("reportingComponent"),
        "reportingInstance": new.get("reportingInstance"),
        "action": new.get("action"),
        "reason": new.get("reason"),
    }
    for name, value in required.items():
        if not value:
            yield Cause("FieldValueRequired", "Required value", name)
        elif name != "eventTime" and len(value) > _SHORT_LIMIT:
            message = f"Invalid value: can have at most {_SHORT_LIMIT} characters"
            yield Cause("FieldValueInvalid", message, name)
    if len(new.get("message") or "") > _NOTE_LIMIT:
        yield Cause(
            "FieldValueInvalid", f"Invalid value: can have at most {_NOTE_LIMIT} characters", "message"
        )
    if new.get("type") not in ("Normal", "Warning"):
        yield Cause("FieldValueInvalid", f'Invalid value: "{new.get("type") or ""}": ', "type")


def _vmi_webhook(new: Json, old: Json) -> str:
    if new.get("spec") == old.get("spec"):
        return ""
    return (
        'admission webhook "virtualmachineinstances-update-validator.kubevirt.io" denied the request: '
        "update of VMI object is restricted"
    )


def _vmim_webhook(new: Json, old: Json) -> str:
    if new.get("spec") == old.get("spec"):
        return ""
    return (
        'admission webhook "migration-update-validator.kubevirt.io" denied the request: '
        "update of Migration object's spec is restricted"
    )


_RULES: Final[Mapping[str, Callable[[Resource, Json, Json | None], Iterator[Cause]]]] = {
    NODE: _node,
    LEASE: _lease,
    POD: _pod,
    EVENT: _event,
}
_WEBHOOKS: Final[Mapping[str, Callable[[Json, Json], str]]] = {VMI: _vmi_webhook, VMIM: _vmim_webhook}
