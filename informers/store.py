"""Objects by name, with secondary indexes: a :class:`Writer` for one owner, a :class:`Lister` for all others.

Guarantees:

* A call of the Lister sees the store between two changes, never in the middle of one; a ``replace`` is one
  change in this sense. Two calls may see different states.
* The changes a Writer returns, applied in order to what was there before, give what is there now; nothing is
  reported that did not change. An object re-created under the same name is a deletion and an addition.
* Order is repeatable: objects are listed in the order in which they came (into the store, or into the
  bucket of an index); a changed object keeps its place.
* An indexer that raises leaves the store as it was.
* ``upsert`` and ``delete`` cost time in proportion to the number of index values of the object.

Objects are frozen, so they are handed out as they are, never copied.
"""

import builtins
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar


class Metadata(Protocol):
    """What the store reads of an object's ``metadata``."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str:
        """Empty for cluster-scoped objects."""

    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """Anything with Kubernetes metadata. Must be frozen."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=KubeObject)

Indexer = Callable[[T], Iterable[Hashable]]
"""Pure function from an object to the values it is found by in one index; none and several are fine."""


class ObjectKey(NamedTuple):
    """Identity of an object among those that exist at one time. Over time it takes the uid, too."""

    namespace: str
    name: str


def key_of(obj: KubeObject) -> ObjectKey:
    metadata = obj.metadata
    return ObjectKey(metadata.namespace, metadata.name)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One object before and after: ``old`` is None for an addition, ``new`` is None for a deletion."""

    old: T | None
    new: T | None


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """``values``: how many different values each index holds."""

    objects: int
    version: int
    values: Mapping[str, int]


@dataclass(slots=True)
class _State(Generic[T]):
    """Shared by a Writer and its Lister. Everything below ``lock`` is read and written under it only.

    Invariant: ``indexes[i][v][key] is objects[key]`` exactly if ``v in indexers[i](objects[key])``; no
    bucket is empty.
    """

    indexers: Mapping[str, Indexer[T]]
    lock: Lock = field(default_factory=Lock)
    objects: dict[ObjectKey, T] = field(default_factory=dict)
    indexes: dict[str, dict[Hashable, dict[ObjectKey, T]]] = field(default_factory=dict)
    version: int = 0


class Lister(Generic[T]):
    """The read side. Safe to use from any thread."""

    def __init__(self, state: _State[T]) -> None:
        self._state = state

    def get(self, namespace: str, name: str) -> T | None:
        with self._state.lock:
            return self._state.objects.get(ObjectKey(namespace, name))

    def list(self) -> builtins.list[T]:
        """All objects, in the order in which they came; the caller's own list."""
        with self._state.lock:
            return [*self._state.objects.values()]

    def by_index(self, index: str, value: Hashable) -> builtins.list[T]:
        """The objects that have this value; raises KeyError for an index that does not exist."""
        with self._state.lock:
            return [*self._index(index).get(value, {}).values()]

    def index_values(self, index: str) -> builtins.list[Hashable]:
        """The values that at least one object has; raises KeyError for an index that does not exist."""
        with self._state.lock:
            return [*self._index(index)]

    def __len__(self) -> int:
        with self._state.lock:
            return len(self._state.objects)

    @property
    def version(self) -> int:
        """Grows by one with each change."""
        with self._state.lock:
            return self._state.version

    def statistics(self) -> StoreStatistics:
        with self._state.lock:
            values = {name: len(index) for name, index in self._state.indexes.items()}
            return StoreStatistics(len(self._state.objects), self._state.version, values)

    def _index(self, name: str) -> dict[Hashable, dict[ObjectKey, T]]:
        if (index := self._state.indexes.get(name)) is None:
            raise KeyError(f"no index {name!r}; there are: {', '.join(self._state.indexes) or 'none'}")
        return index


class Writer(Generic[T]):
    """The write side, for one thread at a time. Each method returns what it changed, in order."""

    def __init__(self, indexers: Mapping[str, Indexer[T]] = {}) -> None:
        self._state = _State(dict(indexers), indexes={name: {} for name in indexers})
        self.lister: Lister[T] = Lister(self._state)

    def upsert(self, obj: T) -> list[Change[T]]:
        """Add or replace the object of this name.

        The same uid with the same (non-empty) resourceVersion is no change. Another uid gives two changes:
        the old object deleted, the new one added.
        """
        return self._apply([], [obj])

    def delete(self, key: ObjectKey, uid: str = "") -> list[Change[T]]:
        """Remove the object of this name; with ``uid`` only if it is still that one, not its successor."""
        old = self._state.objects.get(key)
        if old is None or (uid and old.metadata.uid != uid):
            return []
        return self._apply([old], [])

    def replace(self, objs: Iterable[T]) -> list[Change[T]]:
        """Make the store hold exactly these: deletions first, then the rest in the order given.

        Of several objects with one name the last one counts.
        """
        wanted = {key_of(obj): obj for obj in objs}
        gone = [old for key, old in self._state.objects.items() if key not in wanted]
        return self._apply(gone, wanted.values())

    def _apply(self, gone: Iterable[T], wanted: Iterable[T]) -> list[Change[T]]:
        changes: list[Change[T]] = [Change(old, None) for old in gone]
        for obj in wanted:
            old = self._state.objects.get(key_of(obj))
            if old is None:
                changes.append(Change(None, obj))
            elif old.metadata.uid != obj.metadata.uid:
                changes += (Change(old, None), Change(None, obj))
            elif not obj.metadata.resource_version or (
                old.metadata.resource_version != obj.metadata.resource_version
            ):
                changes.append(Change(old, obj))
        # Indexers are the only foreign code here: all of them run before anything is touched.
        planned = [(change, self._values(change.old), self._values(change.new)) for change in changes]
        with self._state.lock:
            for change, old_values, new_values in planned:
                self._put(change, old_values, new_values)
        return changes

    def _values(self, obj: T | None) -> Mapping[str, Mapping[Hashable, None]]:
        if obj is None:
            return {}
        return {name: dict.fromkeys(values_of(obj)) for name, values_of in self._state.indexers.items()}

    def _put(
        self,
        change: Change[T],
        old_values: Mapping[str, Mapping[Hashable, None]],
        new_values: Mapping[str, Mapping[Hashable, None]],
    ) -> None:
        state, new = self._state, change.new
        if new is not None:
            key = key_of(new)
            state.objects[key] = new
        elif change.old is not None:
            key = key_of(change.old)
            del state.objects[key]
        for name, index in state.indexes.items():
            kept = new_values.get(name, {})
            for value in old_values.get(name, {}):
                if value not in kept:
                    del index[value][key]
                    if not index[value]:
                        del index[value]
            if new is not None:
                for value in kept:
                    index.setdefault(value, {})[key] = new
        state.version += 1
