"""Cached objects are shared by all who read the caches: nobody may change one."""

from collections.abc import Iterable
from typing import Any

import msgspec

from informers.informer import Informer
from informers.store import Change


class CachedObjects:
    """Remembers what every cached object looked like when it came, and compares when it goes, or when asked.

    Invariant: holds exactly the objects that are in the caches.
    """

    def __init__(self, informers: Iterable[Informer[Any]]) -> None:
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self._seen: dict[int, tuple[object, bytes]] = {}
        self._changed = ""
        for informer in informers:
            informer.add_handler(self._heard, lambda _: None)

    def changed(self) -> str:
        """What the first object that was changed looked like before; empty: none was."""
        for obj, before in self._seen.values():
            self._compare(obj, before)
        return self._changed

    def _heard(self, change: Change[Any]) -> tuple[()]:
        if change.old is not None and (seen := self._seen.pop(id(change.old), None)) is not None:
            self._compare(*seen)
        if change.new is not None:
            self._seen[id(change.new)] = change.new, self._encode(change.new)
        return ()

    def _compare(self, obj: object, before: bytes) -> None:
        if not self._changed and self._encode(obj) != before:
            self._changed = before[:200].decode(errors="replace")
