"""What the store held at which resourceVersion: the log behind watches, and snapshots for paged lists."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from simulator.kubevirt.objectstore import RESOURCES, Json, ObjectStore, WatchEvent

KEPT_CHANGES = 10_000
"""Of each kind. Older ones are compacted away."""
_KEPT_SNAPSHOTS = 8


class Gone(Exception):  # noqa: N818  the version is
    """A version that has been compacted away; ``oldest`` is the oldest one known."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"compacted up to {oldest}")
        self.oldest = oldest


class Change(NamedTuple):
    """One change of an object. ``new`` is never absent: of a deletion it is the last state, with its version."""

    version: int
    type: str
    old: Json | None
    new: Json


class Snapshot(NamedTuple):
    """All objects of a kind at one version, in the order of their keys."""

    version: int
    keys: Sequence[str]
    """As etcd orders them: ``namespace/name``, or ``name``."""
    objects: Sequence[Json]


class History:
    """Follows the store. Snapshots share the store's objects, which never change."""

    def __init__(self, store: ObjectStore, kept: int = KEPT_CHANGES) -> None:
        self._store = store
        self._objects: dict[str, dict[str, Json]] = {
            kind: {key_of(obj): obj for obj in store.list(kind)} for kind in RESOURCES
        }
        self._changes: dict[str, deque[Change]] = {kind: deque() for kind in RESOURCES}
        self._kept = kept
        self._oldest = dict.fromkeys(RESOURCES, store.resource_version)
        """Kind -> the version up to which changes are not known any more."""
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._subscribers: list[Callable[[str, Change], None]] = []
        store.subscribe(self._observe)

    @property
    def version(self) -> int:
        return self._store.resource_version

    def subscribe(self, receive: Callable[[str, Change], None]) -> None:
        """Get (kind, change) for all changes from now on."""
        self._subscribers.append(receive)

    def snapshot(self, kind: str, version: int | None = None) -> Snapshot:
        """At a version, default now; one in the future counts as now. Raises `Gone`."""
        version = self.version if version is None else min(version, self.version)
        undone, changes = self.since(kind, version), self._changes[kind]
        same_since = changes[-len(undone) - 1].version if len(changes) > len(undone) else self._oldest[kind]
        found = self._snapshots.get((kind, same_since))
        if found is None:
            found = self._rebuilt(kind, undone)
            while len(self._snapshots) >= _KEPT_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[kind, same_since] = found
        return found._replace(version=version)

    def since(self, kind: str, version: int) -> list[Change]:
        """All changes after a version, oldest first. Raises `Gone`."""
        if version < self._oldest[kind]:
            raise Gone(self._oldest[kind])
        found: list[Change] = []
        for change in reversed(self._changes[kind]):
            if change.version <= version:
                break
            found.append(change)
        return found[::-1]

    def compact(self) -> None:
        """Forget all changes up to now."""
        for kind, changes in self._changes.items():
            changes.clear()
            self._oldest[kind] = self.version
        self._snapshots.clear()

    def restart(self) -> None:
        """Read the store anew, after a roll-back, knowing no changes before it."""
        for kind in RESOURCES:
            self._objects[kind] = {key_of(obj): obj for obj in self._store.list(kind)}
        self.compact()

    def _rebuilt(self, kind: str, undone: Sequence[Change]) -> Snapshot:
        objects = dict(self._objects[kind])
        for change in reversed(undone):
            if change.old is None:
                del objects[key_of(change.new)]
            else:
                objects[key_of(change.new)] = change.old
        keys = sorted(objects)
        return Snapshot(0, keys, [objects[key] for key in keys])

    def _observe(self, event: WatchEvent) -> None:
        objects, key = self._objects[event.kind], key_of(event.object)
        version = int(event.object["metadata"]["resourceVersion"])
        change = Change(version, event.type, objects.get(key), event.object)
        if event.type == "DELETED":
            del objects[key]
        else:
            objects[key] = event.object
        changes = self._changes[event.kind]
        changes.append(change)
        if len(changes) > self._kept:
            self._oldest[event.kind] = changes.popleft().version
        for receive in self._subscribers:
            receive(event.kind, change)


def key_of(obj: Json) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
