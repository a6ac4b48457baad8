"""From bytes to what ``watchstate`` takes: a page of a list, a line of a watch. Pure.

One object that cannot be decoded (a value in a form that nobody expected, say) does not spoil the rest: it is
reported, and stays what it was in the store, or stays away if it was not there. An answer whose own structure
cannot be read is :class:`Garbled`: a page without items must never pass for an empty cluster.

Rules: Kubernetes API concepts; ``null`` in place of an empty list or map is how Go writes a nil one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from informers.errors import SHORT, Garbled, as_shown, from_status
from informers.store import ObjectKey, T
from informers.watchstate import INITIAL_EVENTS_END, Event, Failed, Page

Item = TypeVar("Item")

_NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LOOKED_AT = 400
_LONGEST_NAME = 320
"""Namespace and name: 63 and 253, and a slash."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """What to list and watch.

    ``path``: ``/api/v1/nodes`` and the like. ``kind``: what msgspec decodes an object into: a frozen struct
    that has (at least) the ``metadata`` of a :class:`~informers.store.KubeObject`. Selectors are in
    Kubernetes' own syntax; empty ones select everything.
    """

    path: str
    kind: type[T]
    label_selector: str = ""
    field_selector: str = ""

    def query(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: selector for name, selector in selectors.items() if selector}


class Undecodable(Garbled):
    """One object of an answer cannot be decoded."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continue_token: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[Item]):
    metadata: _ListMeta
    items: tuple[Item, ...] | None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, rename="camel"):
    """Of any object; that of a bookmark is all it has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, Any] | None = None


class _AnyObject(msgspec.Struct):
    metadata: _Metadata


_lines = msgspec.json.Decoder(_Line)
_raw_lists = msgspec.json.Decoder(_List[msgspec.Raw])
_any_objects = msgspec.json.Decoder(_AnyObject)


class Decoder(Generic[T]):
    """``stored`` looks up what the store holds; ``report`` is told of each object that cannot be decoded."""

    def __init__(
        self,
        kind: type[T],
        stored: Callable[[ObjectKey], T | None],
        report: Callable[[Undecodable], None],
    ) -> None:
        self._objects: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._lists: msgspec.json.Decoder[_List[T]] = msgspec.json.Decoder(_List[kind])  # type: ignore[valid-type]
        self._stored = stored
        self._report = report

    def page(self, body: bytes) -> Page[T]:
        """Raises Garbled."""
        try:
            page = self._lists.decode(body)
            items = page.items or ()
        except _NOT_DECODED:
            page, items = self._piece_by_piece(body)
        if not page.metadata.resource_version:
            raise Garbled("a list without a resourceVersion")
        return Page(items, page.metadata.resource_version, page.metadata.continue_token or "")

    def line(self, line: bytes) -> Event[T] | Failed:
        """Raises Garbled."""
        try:
            event = _lines.decode(line)
            if event.type == "BOOKMARK":
                return _bookmark(event.object)
            if event.type == "ERROR":
                return Failed(from_status(msgspec.json.decode(event.object, type=dict[str, Any])))
        except _NOT_DECODED as error:
            raise Garbled(f"a line of a watch: {error}; it begins {_begin(line)}") from None
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            found = _begin(event.type.encode())
            raise Garbled(f"a watch event must be ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, found {found}")
        try:
            obj = self._objects.decode(event.object)
        except _NOT_DECODED as error:
            metadata, old = self._left_alone(event.object, error)
            return Event(event.type, old, metadata.resource_version)  # type: ignore[arg-type]
        return Event(event.type, obj, obj.metadata.resource_version)  # type: ignore[arg-type]

    def _piece_by_piece(self, body: bytes) -> tuple["_List[Any]", tuple[T, ...]]:
        try:
            page = _raw_lists.decode(body)
        except _NOT_DECODED as error:
            raise Garbled(f"a list: {error}; it begins {_begin(body)}") from None
        items: list[T] = []
        for raw in page.items or ():
            try:
                items.append(self._objects.decode(raw))
            except _NOT_DECODED as error:
                if (old := self._left_alone(raw, error)[1]) is not None:
                    items.append(old)
        return page, tuple(items)

    def _left_alone(self, raw: msgspec.Raw, error: Exception) -> tuple[_Metadata, T | None]:
        """Reports it. Its metadata, as far as legible, and what the store has of it: that very object or None."""
        try:
            metadata = _any_objects.decode(raw).metadata
        except _NOT_DECODED:
            metadata = _Metadata()
        name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        who = as_shown(name, _LONGEST_NAME) or "an object without a name"
        self._report(Undecodable(f"{who} stays what it was: {as_shown(str(error), SHORT)}"))
        old = self._stored(ObjectKey(metadata.namespace, metadata.name))
        return metadata, old if old is not None and old.metadata.uid == metadata.uid else None


def _bookmark(raw: msgspec.Raw) -> Event[Any]:
    metadata = _any_objects.decode(raw).metadata
    if not metadata.resource_version:
        raise Garbled("a bookmark without a resourceVersion")
    ends = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
    return Event("BOOKMARK", None, metadata.resource_version, ends)


def _begin(text: bytes) -> str:
    return repr(as_shown(text[:_LOOKED_AT].decode(errors="replace"), 80))
