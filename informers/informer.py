"""A copy of one resource's objects, and handlers that turn its changes into keys for work queues.

Passive: a reflector (or a simulation) drives it. Guarantees:

* Handlers only compute keys: what is worked on later is read from the Lister, never from an event. When a
  handler is called, the Lister already shows the change.
* For every object a handler sees an unbroken chain: an addition, then changes each of which starts where
  the last one ended, then a deletion. Nothing is left out and nothing repeated, over any number of relists:
  a ``replace`` delivers exactly the difference, deletions included. An object re-created under the same
  name (another uid) is a deletion and an addition.
* A handler added late sees the objects that are there as additions first.
* Changes come one at a time, in the same order for every handler; one that raises keeps neither the others
  nor later changes from being delivered.
* ``has_synced`` turns True with the first complete list, after its changes were delivered, and stays True.

Safe to drive from several threads, one at a time gets in. ``enqueue`` is called while the others wait: it
must only put the key into a queue.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Generic, Literal

from informers.store import Change, Indexer, Lister, ObjectKey, T, Writer, key_of
from informers.watchstate import Event, Input, Objects, Page, Step
from informers.workqueue import K


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    """``replaced``: complete lists so far; ``applied``: events; ``changes``: what came of both."""

    name: str
    has_synced: bool
    objects: int
    replaced: int
    applied: int
    changes: int


class Informer(Generic[T]):
    """See the module's guarantees. ``name`` is for messages and statistics."""

    def __init__(self, name: str, indexers: Mapping[str, Indexer[T]] = {}) -> None:
        self.name = name
        self._writer = Writer(indexers)
        self.lister: Lister[T] = self._writer.lister
        # Guards everything below, and the order in which changes are delivered.
        self._lock = Lock()
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._has_synced = False
        self._replaced = self._applied = self._changes = 0
        # Of a list under way; belongs to the one that calls carry_out.
        self._collected: dict[ObjectKey, T] = {}

    @property
    def has_synced(self) -> bool:
        return self._has_synced

    def add_handler(self, keys: Callable[[Change[T]], Iterable[K]], enqueue: Callable[[K], None]) -> None:
        """Call ``enqueue`` with each key that ``keys`` computes from a change. Both must be quick."""

        def handler(change: Change[T]) -> None:
            for key in keys(change):
                enqueue(key)

        with self._lock:
            self._handlers.append(handler)
            self._deliver([Change(None, obj) for obj in self.lister.list()], [handler])

    def replace(self, objects: Iterable[T]) -> None:
        """These are all the objects there are."""
        with self._lock:
            changes = self._writer.replace(objects)
            self._replaced += 1
            self._changes += len(changes)
            try:
                self._deliver(changes, self._handlers)
            finally:
                self._has_synced = True

    def apply(self, event_type: Literal["ADDED", "MODIFIED", "DELETED"], obj: T) -> None:
        """One event of a watch. A deletion of another uid than the one that is here is none."""
        with self._lock:
            match event_type:
                case "ADDED" | "MODIFIED":
                    changes = self._writer.upsert(obj)
                case "DELETED":
                    changes = self._writer.delete(key_of(obj), obj.metadata.uid)
                case _:
                    raise ValueError(f"event type must be ADDED, MODIFIED or DELETED, found {event_type!r}")
            self._applied += 1
            self._changes += len(changes)
            self._deliver(changes, self._handlers)

    def carry_out(self, step: Step, arrived: Input[T]) -> None:
        """Do with the objects that arrived what ``watchstate`` decided."""
        match step.objects:
            case Objects.APPLY:
                if isinstance(arrived, Event) and arrived.object is not None and arrived.type != "BOOKMARK":
                    self.apply(arrived.type, arrived.object)
            case Objects.COLLECT:
                self._collect(arrived)
            case Objects.REPLACE:
                self._collect(arrived)
                collected, self._collected = self._collected, {}
                self.replace(collected.values())
            case Objects.DISCARD:
                self._collected = {}

    def statistics(self) -> InformerStatistics:
        with self._lock:
            return InformerStatistics(
                name=self.name,
                has_synced=self._has_synced,
                objects=len(self.lister),
                replaced=self._replaced,
                applied=self._applied,
                changes=self._changes,
            )

    def _collect(self, arrived: Input[T]) -> None:
        if isinstance(arrived, Page):
            self._collected.update((key_of(obj), obj) for obj in arrived.items)
        elif isinstance(arrived, Event) and arrived.object is not None:
            if arrived.type == "DELETED":
                self._collected.pop(key_of(arrived.object), None)
            else:
                self._collected[key_of(arrived.object)] = arrived.object

    def _deliver(self, changes: Iterable[Change[T]], handlers: Iterable[Callable[[Change[T]], None]]) -> None:
        """Raises ExceptionGroup at the end, of whatever handlers raised."""
        errors: list[Exception] = []
        for change in changes:
            for handler in handlers:
                try:
                    handler(change)
                except Exception as error:  # noqa: BLE001 - delivered to whoever drives us, below
                    errors.append(error)
        if errors:
            raise ExceptionGroup(f"handlers of informer {self.name} failed", errors)
