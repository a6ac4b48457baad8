"""A resource of an API server, in memory, that keeps the rules of list and watch, and fails on demand."""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Generic

from informers.errors import ApiError, BadRequest, Gone, Invalid, ResourceVersionTooLarge
from informers.store import ObjectKey, T, key_of
from informers.watchstate import Event, EventType, ListRequest, Page, WatchRequest


class OldVersion(StrEnum):
    """How a watch from a version that is gone is answered: all three are seen in the field."""

    STATUS = "410 as the status"
    EVENT = "200, with an ERROR event that says 410"
    SILENCE = "200, and closed at once without a word"


class FakeStream(Generic[T]):
    """An open watch, never blocking."""

    def __init__(self) -> None:
        self.closed = False
        """No more will come; what has not been read yet still can be."""
        self._stalled = False
        self._arrived: deque[Event[T] | ApiError] = deque()

    def read(self) -> Event[T] | None:
        """The next event; None if there is none now. Raises ApiError where the stream breaks."""
        if not self._arrived:
            return None
        arrived = self._arrived.popleft()
        if isinstance(arrived, ApiError):
            raise arrived
        return arrived

    @property
    def ended(self) -> bool:
        """Closed, read to the end, and not stalled."""
        return self.closed and not self._arrived and not self._stalled

    def send(self, arrived: Event[T] | ApiError) -> None:
        """Put into the stream; lost if it is closed or stalled."""
        if not self.closed and not self._stalled:
            self._arrived.append(arrived)

    def stall(self) -> None:
        """As after a network loss that nobody noticed: from now on nothing arrives, nor does it end."""
        self._stalled = True


class FakeSource(Generic[T]):
    """Objects that a test puts and removes, and the requests of a client that follows them.

    Versions are whole numbers, one for each change. ``stamp`` returns a copy of an object that carries the
    given resourceVersion. Lists are consistent: the pages of one list show the same moment.
    """

    def __init__(self, stamp: Callable[[T, str], T], *, page_size: int = 500) -> None:
        self.old_version = OldVersion.STATUS
        self.serves_streaming = True
        self._stamp = stamp
        self._page_size = page_size
        self._version = 1
        self._forgotten = 0  # versions up to this are gone
        self._objects: dict[ObjectKey, T] = {}
        self._history: list[tuple[int, Event[T]]] = []
        self._lists: dict[str, tuple[int, list[T]]] = {}  # continue token -> version, objects not yet sent
        self._streams: list[FakeStream[T]] = []
        self._failures: deque[ApiError | None] = deque()

    # What is there

    def objects(self) -> list[T]:
        return [*self._objects.values()]

    def put(self, obj: T) -> T:
        """Create or change the object of this name; with another uid: delete and re-create it. As stored."""
        old = self._objects.get(key_of(obj))
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self.remove(*key_of(old))
            old = None
        return self._commit("ADDED" if old is None else "MODIFIED", obj)

    def remove(self, namespace: str, name: str) -> None:
        """Delete; nothing happens if there is no such object."""
        if (old := self._objects.get(ObjectKey(namespace, name))) is not None:
            self._commit("DELETED", old)

    # What a client asks

    def list_page(self, request: ListRequest) -> Page[T]:
        """Raises Gone for a continue token that has expired, BadRequest for one never given."""
        self._fail_if_told()
        version, left = self._version, self.objects()
        if request.continue_token:
            if request.continue_token not in self._lists:
                raise BadRequest("invalid continue token", status=400, reason="BadRequest")
            version, left = self._lists[request.continue_token]
            if version <= self._forgotten:
                raise Gone("The provided continue parameter is too old", status=410, reason="Expired")
        items, left = left[: self._page_size], left[self._page_size :]
        token = f"{version}/{len(left)}" if left else ""
        if token:
            self._lists[token] = version, left
        return Page(tuple(items), str(version), token)

    def watch(self, request: WatchRequest) -> FakeStream[T]:
        """Raises Gone, Invalid (no streaming lists here) or ResourceVersionTooLarge as a server would."""
        told = self._fail_if_told()
        stream: FakeStream[T] = FakeStream()
        if told:
            stream.closed = True
        elif request.initial_events:
            if not self.serves_streaming:
                raise Invalid("sendInitialEvents is forbidden for watch", status=422, reason="Invalid")
            for obj in self.objects():
                stream.send(Event("ADDED", obj, obj.metadata.resource_version))
            stream.send(Event("BOOKMARK", None, str(self._version), initial_events_end=True))
        else:
            self._resume(stream, int(request.resource_version))
        self._streams = [each for each in self._streams if not each.closed]
        self._streams.append(stream)
        return stream

    # What goes wrong

    def fail_next(self, error: ApiError) -> None:
        """The next request fails like this; one more for each call."""
        self._failures.append(error)

    def end_next_at_once(self) -> None:
        """The next request, if it is a watch, is answered with 200 and an empty stream that ends at once."""
        self._failures.append(None)

    def drop(self) -> None:
        """Close all open watches, as a server does after a while, or a lost connection."""
        for stream in self._streams:
            stream.closed = True

    def break_off(self, error: ApiError) -> None:
        """Break all open watches with an error, such as an ``ERROR`` event."""
        for stream in self._streams:
            stream.send(error)
            stream.closed = True

    def stall(self) -> None:
        """All open watches fall silent."""
        for stream in self._streams:
            stream.stall()

    def bookmark(self) -> None:
        """Tell all open watches where they stand."""
        for stream in self._streams:
            stream.send(Event("BOOKMARK", None, str(self._version)))

    def compact(self) -> None:
        """Forget the past: what continues from before the newest version is answered with 410 from now on."""
        self._version += 1
        self._forgotten = self._version - 1
        self._history.clear()

    def _commit(self, event_type: EventType, obj: T) -> T:
        self._version += 1
        stored = self._stamp(obj, str(self._version))
        if event_type == "DELETED":
            del self._objects[key_of(obj)]
        else:
            self._objects[key_of(obj)] = stored
        event = Event(event_type, stored, str(self._version))
        self._history.append((self._version, event))
        for stream in self._streams:
            stream.send(event)
        return stored

    def _resume(self, stream: FakeStream[T], version: int) -> None:
        if version > self._version:
            raise ResourceVersionTooLarge("Too large resource version", status=504, reason="Timeout")
        if version > self._forgotten:
            for at, event in self._history:
                if at > version:
                    stream.send(event)
            return
        gone = Gone(f"too old resource version: {version} ({self._forgotten})", status=410, reason="Expired")
        if self.old_version is OldVersion.STATUS:
            raise gone
        if self.old_version is OldVersion.EVENT:
            stream.send(gone)
        stream.closed = True

    def _fail_if_told(self) -> bool:
        """Raises what the next request shall fail with; True: it shall be empty instead."""
        if not self._failures:
            return False
        if (error := self._failures.popleft()) is not None:
            raise error
        return True
