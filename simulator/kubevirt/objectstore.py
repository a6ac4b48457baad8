"""The simulated API server's storage: JSON objects with true resourceVersions, and an ordered log of changes.

Objects are plain dicts as in the real API's JSON. They are never changed once stored: whoever got one may keep it,
and a change stores a new object that shares all unchanged parts with the old one (`edited`). In return nobody may
write into an object that was handed in or out.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from simulator.agenda import Agenda, rfc3339

Json = dict[str, Any]
Path = tuple[str, ...]

NODE: Final = "Node"
POD: Final = "Pod"
VMI: Final = "VirtualMachineInstance"
VMIM: Final = "VirtualMachineInstanceMigration"
KUBEVIRT: Final = "KubeVirt"
PDB: Final = "PodDisruptionBudget"
NAMESPACE: Final = "Namespace"
CONFIG_MAP: Final = "ConfigMap"
LEASE: Final = "Lease"
EVENT: Final = "Event"

RESOURCES: Final[Mapping[str, str]] = {
    NODE: "nodes",
    POD: "pods",
    VMI: "virtualmachineinstances.kubevirt.io",
    VMIM: "virtualmachineinstancemigrations.kubevirt.io",
    KUBEVIRT: "kubevirts.kubevirt.io",
    PDB: "poddisruptionbudgets.policy",
    NAMESPACE: "namespaces",
    CONFIG_MAP: "configmaps",
    LEASE: "leases.coordination.k8s.io",
    EVENT: "events",
}
"""Kind -> the resource's name in error messages. The last four are only there for clients of the HTTP API."""

_WITHOUT_GENERATION = (NODE, NAMESPACE, CONFIG_MAP, LEASE, EVENT)

REMOVE: Final = object()
"""As a value of `edited`: take the key out."""

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_KEPT_EVENTS = 10_000


class ApiError(Exception):
    """A refused request: HTTP status, reason and message as in the API's Status object."""

    status = 500
    reason = "InternalError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(ApiError):  # noqa: N818  the API's own name
    status = 404
    reason = "NotFound"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{RESOURCES[kind]} "{name}" not found')


class AlreadyExists(ApiError):  # noqa: N818
    status = 409
    reason = "AlreadyExists"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{RESOURCES[kind]} "{name}" already exists')


class Conflict(ApiError):  # noqa: N818
    status = 409
    reason = "Conflict"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f'Operation cannot be fulfilled on {RESOURCES[kind]} "{name}": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )


class Invalid(ApiError):  # noqa: N818
    status = 422
    reason = "Invalid"


class WatchEvent(NamedTuple):
    kind: str
    type: str
    """ADDED, MODIFIED or DELETED."""
    object: Json
    """The object after the change; of a deletion the last one, with the deletion's resourceVersion."""


def edited(obj: Json, changes: Mapping[Path, Any]) -> Json:
    """A copy with other values at some paths; ``REMOVE`` takes a key out. Only dicts on those paths are copied."""
    root = dict(obj)
    copied: dict[Path, Json] = {(): root}

    def own(path: Path) -> Json:
        if path not in copied:
            parent = own(path[:-1])
            copied[path] = parent[path[-1]] = dict(parent.get(path[-1]) or {})
        return copied[path]

    for path, value in changes.items():
        if value is not REMOVE:
            own(path[:-1])[path[-1]] = value
        elif at(root, *path) is not None:
            own(path[:-1]).pop(path[-1])
    return root


def at(obj: Mapping[str, Any], *path: str) -> Any:
    """The value at a path, or ``None`` if any part of it is absent."""
    value: Any = obj
    for key in path:
        if value is None:
            return None
        value = value.get(key)
    return value


class ObjectStore:
    """Objects by kind, namespace and name ("" for cluster-scoped kinds).

    Guarantees: one resourceVersion counter for all kinds; each change gets the next number; subscribers get every
    change in that order, also when they cause changes themselves; `list` is in order of creation. `events` holds the
    last changes.
    """

    def __init__(self, agenda: Agenda, rng: random.Random) -> None:
        self._agenda = agenda
        self._rng = rng
        self._objects: dict[str, dict[tuple[str, str], Json]] = {kind: {} for kind in RESOURCES}
        self._subscribers: list[Callable[[WatchEvent], None]] = []
        self._undelivered: deque[WatchEvent] = deque()
        self._delivering = False
        self.resource_version = 0
        self.events: deque[WatchEvent] = deque(maxlen=_KEPT_EVENTS)

    def subscribe(self, receive: Callable[[WatchEvent], None]) -> None:
        """Get all changes from now on."""
        self._subscribers.append(receive)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self._objects[kind].get((namespace, name))

    def list(self, kind: str) -> list[Json]:
        return list(self._objects[kind].values())

    def create(self, kind: str, obj: Json) -> Json:
        """Store a new object and return it as stored.

        Sets resourceVersion, and name (from generateName), uid, creationTimestamp and generation where they are
        absent. Raises `AlreadyExists`.
        """
        metadata = dict(obj["metadata"])
        namespace = metadata.get("namespace", "")
        if "name" not in metadata:
            metadata["name"] = self.new_name(kind, namespace, metadata["generateName"])
        key = (namespace, metadata["name"])
        if key in self._objects[kind]:
            raise AlreadyExists(kind, metadata["name"])
        metadata.setdefault("uid", self.new_uid())
        metadata.setdefault("creationTimestamp", rfc3339(self._agenda.now_s))
        if kind not in _WITHOUT_GENERATION:
            metadata["generation"] = 1
        return self._store(kind, "ADDED", key, {**obj, "metadata": metadata})

    def replace(self, kind: str, obj: Json) -> Json:
        """Store a new state and return it as stored.

        Raises `NotFound`; and `Conflict` if the object carries another resourceVersion, or uid, than the stored one
        (without a resourceVersion it always wins). Nothing happens if nothing changes.
        """
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = self._objects[kind].get(key)
        if old is None:
            raise NotFound(kind, metadata["name"])
        before = old["metadata"]
        if metadata.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise Conflict(kind, metadata["name"])
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise Conflict(kind, metadata["name"])
        metadata = {**metadata, **{name: before[name] for name in _FIXED if name in before}}
        if _content_changed(kind, old, obj):
            metadata["generation"] = before["generation"] + 1
        new = {**obj, "metadata": metadata}
        if new == old:
            return old
        return self._store(kind, "MODIFIED", key, new)

    def update(self, kind: str, namespace: str, name: str, changes: Mapping[Path, Any]) -> Json:
        """`replace` with some paths changed (see `edited`). Raises `NotFound`."""
        old = self._objects[kind].get((namespace, name))
        if old is None:
            raise NotFound(kind, name)
        return self.replace(kind, edited(old, changes))

    def delete(self, kind: str, namespace: str, name: str) -> Json:
        """Remove an object and return its last state. Raises `NotFound`."""
        old = self._objects[kind].pop((namespace, name), None)
        if old is None:
            raise NotFound(kind, name)
        gone = edited(old, {("metadata", "resourceVersion"): self._next_version()})
        self._emit(WatchEvent(kind, "DELETED", gone))
        return gone

    def roll_back(self, versions: int) -> None:
        """As after a restore of etcd from a backup: the counter goes back, and whoever keeps objects up to date writes
        those anew that are younger than it. Subscribers hear nothing of it.
        """
        self.resource_version = max(self.resource_version - versions, 1)
        self.events.clear()
        restored = self.resource_version
        for objects in self._objects.values():
            for key, obj in objects.items():
                if int(obj["metadata"]["resourceVersion"]) > restored:
                    objects[key] = edited(obj, {("metadata", "resourceVersion"): self._next_version()})

    def new_uid(self) -> str:
        """A random (version 4) UUID."""
        digits = f"{self._rng.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def new_name(self, kind: str, namespace: str, prefix: str) -> str:
        """A name that is free, with five random letters at its end, as the API server makes it of a generateName."""
        while True:
            name = prefix + "".join(self._rng.choices(_NAME_LETTERS, k=5))
            if (namespace, name) not in self._objects[kind]:
                return name

    def _store(self, kind: str, event: str, key: tuple[str, str], obj: Json) -> Json:
        obj["metadata"]["resourceVersion"] = self._next_version()  # both dicts are the store's own, and new
        self._objects[kind][key] = obj
        self._emit(WatchEvent(kind, event, obj))
        return obj

    def _next_version(self) -> str:
        self.resource_version += 1
        return str(self.resource_version)

    def _emit(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._undelivered.append(event)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                due = self._undelivered.popleft()
                for receive in self._subscribers:
                    receive(due)
        finally:
            self._delivering = False


_FIXED = ("uid", "creationTimestamp", "generation", "resourceVersion")


def _content_changed(kind: str, old: Json, new: Json) -> bool:
    """Whether the generation grows: for VMIs with the status too, since they have no status subresource."""
    if kind in _WITHOUT_GENERATION:
        return False
    return old.get("spec") != new.get("spec") or (kind == VMI and old.get("status") != new.get("status"))
