"""Server-side tables: the columns that ``kubectl get`` prints."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

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
    at,
)

_NONE = "<none>"
_UNKNOWN = "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow "
    "a client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


class Column(NamedTuple):
    """A column and how its cells are made of an object and the time of day."""

    name: str
    cell: Callable[[Json, datetime], Any]
    description: str = ""
    type: str = "string"
    wide: bool = False
    """Only shown with ``-o wide``."""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": int(self.wide),
        }


def columns_of(kind: str) -> tuple[Column, ...]:
    return (_NAME, *_COLUMNS[kind])


def cells(columns: Sequence[Column], obj: Json, now: datetime) -> list[Any]:
    return [column.cell(obj, now) for column in columns]


def human_duration(duration: timedelta) -> str:
    """As kubectl prints ages: two units while they are small (``k8s.io/apimachinery/pkg/util/duration``)."""
    seconds = int(duration.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def _value(*path: str, otherwise: Any = "") -> Callable[[Json, datetime], Any]:
    def cell(obj: Json, _: datetime) -> Any:
        value = at(obj, *path)
        return otherwise if value is None or value == "" else value

    return cell


def _since(*path: str) -> Callable[[Json, datetime], str]:
    def cell(obj: Json, now: datetime) -> str:
        text = at(obj, *path)
        return human_duration(now - datetime.fromisoformat(text)) if text else _UNKNOWN

    return cell


def _condition(obj: Json, kind: str) -> str:
    found = [c["status"] for c in at(obj, "status", "conditions") or () if c["type"] == kind]
    return str(found[0]) if found else ""


def _node_status(node: Json, _: datetime) -> str:
    ready = {"True": "Ready", "": "Unknown"}.get(_condition(node, "Ready"), "NotReady")
    return f"{ready},SchedulingDisabled" if at(node, "spec", "unschedulable") else ready


def _roles(node: Json, _: datetime) -> str:
    labels = at(node, "metadata", "labels") or {}
    return ",".join(sorted(label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE))) or _NONE


def _address(kind: str) -> Callable[[Json, datetime], str]:
    def cell(node: Json, _: datetime) -> str:
        addresses = at(node, "status", "addresses") or ()
        return next((str(a["address"]) for a in addresses if a["type"] == kind), _NONE)

    return cell


def _pod_ready(pod: Json, _: datetime) -> str:
    ready = sum(bool(status.get("ready")) for status in at(pod, "status", "containerStatuses") or ())
    return f"{ready if at(pod, 'status', 'phase') == 'Running' else 0}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json, _: datetime) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    phase = at(pod, "status", "phase")
    return "Completed" if phase == "Succeeded" else str(at(pod, "status", "reason") or phase)


def _restarts(pod: Json, _: datetime) -> str:
    return str(sum(status.get("restartCount", 0) for status in at(pod, "status", "containerStatuses") or ()))


def _vmi_ready(vmi: Json, _: datetime) -> str:
    return _condition(vmi, "Ready") or str(at(vmi, "status", "phase") == "Running")


def _vmi_ip(vmi: Json, _: datetime) -> str:
    return next((str(i.get("ipAddress", "")) for i in at(vmi, "status", "interfaces") or ()), "")


def _event_seen(event: Json, now: datetime) -> str:
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return human_duration(now - datetime.fromisoformat(text)) if text else _UNKNOWN


def _event_object(event: Json, _: datetime) -> str:
    return f"{str(at(event, 'involvedObject', 'kind')).lower()}/{at(event, 'involvedObject', 'name')}"


def _event_source(event: Json, _: datetime) -> str:
    return str(at(event, "source", "component") or event.get("reportingComponent") or "")


_NAME = Column("Name", _value("metadata", "name"), _NAME_TEXT)
_AGE = Column("Age", _since("metadata", "creationTimestamp"), _AGE_TEXT)
_CUSTOM_AGE = _AGE._replace(type="date")

_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    NODE: (
        Column("Status", _node_status, "The status of the node"),
        Column("Roles", _roles, "The roles of the node"),
        _AGE,
        Column(
            "Version",
            _value("status", "nodeInfo", "kubeletVersion"),
            "Kubelet Version reported by the node.",
        ),
        Column("Internal-IP", _address("InternalIP"), wide=True),
        Column("External-IP", _address("ExternalIP"), wide=True),
        Column("OS-Image", _value("status", "nodeInfo", "osImage", otherwise=_UNKNOWN), wide=True),
        Column(
            "Kernel-Version", _value("status", "nodeInfo", "kernelVersion", otherwise=_UNKNOWN), wide=True
        ),
        Column(
            "Container-Runtime",
            _value("status", "nodeInfo", "containerRuntimeVersion", otherwise=_UNKNOWN),
            wide=True,
        ),
    ),
    POD: (
        Column("Ready", _pod_ready, "The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", _pod_status, "The aggregate status of the containers in this pod."),
        Column("Restarts", _restarts, "The number of times the containers in this pod have been restarted."),
        _AGE,
        Column("IP", _value("status", "podIP", otherwise=_NONE), wide=True),
        Column("Node", _value("spec", "nodeName", otherwise=_NONE), wide=True),
        Column("Nominated Node", _value("status", "nominatedNodeName", otherwise=_NONE), wide=True),
        Column("Readiness Gates", lambda _obj, _now: _NONE, wide=True),
    ),
    VMI: (
        _CUSTOM_AGE,
        Column("Phase", _value("status", "phase")),
        Column("IP", _vmi_ip),
        Column("NodeName", _value("status", "nodeName")),
        Column("Ready", _vmi_ready),
        Column("Live-Migratable", lambda vmi, _: _condition(vmi, "LiveMigratable"), wide=True),
        Column("Paused", lambda vmi, _: _condition(vmi, "Paused"), wide=True),
    ),
    VMIM: (Column("Phase", _value("status", "phase")), Column("VMI", _value("spec", "vmiName"))),
    KUBEVIRT: (_CUSTOM_AGE, Column("Phase", _value("status", "phase"))),
    PDB: (
        Column("Min Available", _value("spec", "minAvailable", otherwise="N/A")),
        Column("Max Unavailable", _value("spec", "maxUnavailable", otherwise="N/A")),
        Column("Allowed Disruptions", _value("status", "disruptionsAllowed", otherwise=0), type="integer"),
        _AGE,
    ),
    NAMESPACE: (Column("Status", _value("status", "phase")), _AGE),
    CONFIG_MAP: (
        Column("Data", lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        _AGE,
    ),
    LEASE: (Column("Holder", _value("spec", "holderIdentity")), _AGE),
    EVENT: (
        Column("Last Seen", _event_seen),
        Column("Type", _value("type")),
        Column("Reason", _value("reason")),
        Column("Object", _event_object),
        Column("Source", _event_source, wide=True),
        Column("Message", _value("message")),
        Column("First Seen", _since("metadata", "creationTimestamp"), wide=True),
        Column("Count", _value("count", otherwise=1), type="integer", wide=True),
    ),
}
