"""A FakeSource behind real HTTP: what it does in memory happens on the wire."""

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Any

import msgspec

from informers.decoding import Resource
from informers.errors import ApiError, NoAnswer
from informers.testing import FakeSource, FakeStream
from informers.watchstate import INITIAL_EVENTS_END, Event, ListRequest, WatchRequest
from tests.informers.api_server import Call, status_body


class ItemMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Item(msgspec.Struct, frozen=True):
    metadata: ItemMeta
    size: int = 0
    text: str = ""


ITEMS = Resource("/apis/example.com/v1/items", Item)


def item(name: str, *, size: int = 0, uid: str = "uid-1", text: str = "") -> Item:
    return Item(ItemMeta(name, "ns", uid), size, text)


def stamp(obj: Item, version: str) -> Item:
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=version)
    )


class Served:
    """Give an instance to ``serving``. Everything that touches ``source`` goes through :meth:`change`.

    ``instead``: answers to the next requests, in place of the true ones; None: the true one.
    ``rewrite``: what is done to each line of a watch and to each list before it is sent.
    """

    def __init__(self, *, page_size: int = 500) -> None:
        self.instead: deque[Callable[[Call], None] | None] = deque()
        self.rewrite: Callable[[bytes], bytes] = bytes
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self._source = FakeSource[Item](stamp, page_size=page_size)
        self._changed = Condition()

    def change(self, act: Callable[[FakeSource[Item]], object]) -> None:
        with self._changed:
            act(self._source)
            self._changed.notify_all()

    def put(self, *items: Item) -> None:
        self.change(lambda source: [source.put(obj) for obj in items])

    def remove(self, name: str) -> None:
        self.change(lambda source: source.remove("ns", name))

    def fail_next(self, error: ApiError) -> None:
        self.change(lambda source: source.fail_next(error))

    def objects(self) -> dict[str, Item]:
        with self._changed:
            return {obj.metadata.name: obj for obj in self._source.objects()}

    def __call__(self, call: Call) -> None:
        (self.watches if "watch" in call.query else self.lists).append(call.query)
        if self.instead and (answer := self.instead.popleft()) is not None:
            answer(call)
            return
        try:
            if "watch" in call.query:
                self._watch(call)
            else:
                self._list(call)
        except ApiError as error:
            wait = {} if error.retry_after is None else {"Retry-After": str(error.retry_after.seconds)}
            call.answer_json(error.status, status_body(error.status, error.reason, error.message), wait)

    def _list(self, call: Call) -> None:
        with self._changed:
            page = self._source.list_page(ListRequest(call.query.get("continue", "")))
        metadata = {"resourceVersion": page.resource_version, "continue": page.continue_token}
        body = msgspec.json.encode({"kind": "ItemList", "metadata": metadata, "items": page.items})
        call.answer(200, self.rewrite(body))

    def _watch(self, call: Call) -> None:
        initial = "sendInitialEvents" in call.query
        with self._changed:
            stream = self._source.watch(WatchRequest(call.query.get("resourceVersion", ""), initial))
        call.begin_stream()
        while (line := self._next_line(call, stream)) is not None:
            call.chunk(self.rewrite(line) + b"\n")
        if not call.closing.is_set():
            call.end_stream()

    def _next_line(self, call: Call, stream: FakeStream[Item]) -> bytes | None:
        with self._changed:
            while not call.closing.is_set():
                try:
                    event = stream.read()
                except NoAnswer:
                    call.drop()
                    return None
                except ApiError as error:
                    return line_of("ERROR", status_body(error.status, error.reason, error.message))
                if event is not None:
                    return line_of(event.type, event.object if event.object is not None else bookmark(event))
                if stream.ended:
                    return None
                self._changed.wait(0.05)
        return None


def old_server(source: Served) -> Served:
    source.change(lambda it: setattr(it, "serves_streaming", False))
    return source


def bookmark(event: Event[Item]) -> dict[str, Any]:
    annotations = {INITIAL_EVENTS_END: "true"} if event.initial_events_end else None
    return {
        "kind": "Item",
        "metadata": {"resourceVersion": event.resource_version, "annotations": annotations},
    }


def line_of(event_type: str, body: object) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": body})
