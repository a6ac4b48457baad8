"""Watches: for each client the lines that it gets, ready to be sent.

A watch does not wait for anything. Whoever sends its lines takes what is there (`Watch.take`) and is woken when there
is more. What happens on the way is up to faults: a watch can be stalled, garbled and ended.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from simulator.apiserver.forms import Form
from simulator.apiserver.history import Change, Gone, History
from simulator.apiserver.listing import ListOptions, too_large_for
from simulator.apiserver.refusals import Refusal, too_old
from simulator.kubevirt.objectstore import Json, edited

BOOKMARK_S = 60.0
"""How often a watch gets a bookmark, in the world's seconds."""
_MOST_WAITING = 20_000
"""A client that is so many events behind is cut off."""
_SHORTEST_TIMEOUT_S, _LONGEST_TIMEOUT_S = 1800, 3600
"""Of watches that ask for none (``--min-request-timeout``)."""
_GARBAGE = b'\x00\xff{"type":"MODIFIED","object":{"metadata":{"name":\n'


class Watch:
    """One client's watch. ``wake`` is called when there is something to take, or it has ended."""

    def __init__(self, form: Form, namespace: str, options: ListOptions, user: str, timeout_s: float) -> None:
        self.form = form
        self.namespace = namespace
        self.options = options
        self.user = user
        self.timeout_s = timeout_s
        """After so many seconds of real time its sender ends it."""
        self.ended = False
        self.broken = False
        """It is to end with a broken connection."""
        self.stalled = False
        self.wake: Callable[[], None] = lambda: None
        self._waiting: deque[bytes] = deque()
        self._garble = False
        self._shown = False

    def take(self) -> bytes:
        """All lines that wait to be sent."""
        if self.stalled:
            return b""
        lines = b"".join(self._waiting)
        self._waiting.clear()
        if self._garble and lines:
            self._garble = False
            return _GARBAGE + lines
        return lines

    def offer(self, line: bytes) -> None:
        self._waiting.append(line)
        self.wake()

    @property
    def is_behind(self) -> bool:
        """Its client does not keep up."""
        return len(self._waiting) > _MOST_WAITING

    def first_object(self) -> bool:
        """Whether no object has been shown yet; one is shown now."""
        shown, self._shown = self._shown, True
        return not shown

    def garble(self) -> None:
        """Put garbage before the next line."""
        self._garble = True

    def stall(self, *, is_on: bool) -> None:
        """While on, nothing is sent, and nothing ends: as when a network swallows all packets."""
        self.stalled = is_on
        self.wake()

    def end(self, *, broken: bool = False) -> None:
        """If it breaks, what a network has swallowed meanwhile is lost."""
        self.ended, self.broken = True, broken
        if broken and self.stalled:
            self._waiting.clear()
            self.stalled = False
        self.wake()


class Watches:
    """All watches that are open. Hands each change to those that want it."""

    def __init__(self, history: History, rng: random.Random, now: Callable[[], datetime]) -> None:
        self._history = history
        self._rng = rng
        self._now = now
        self._open: dict[Watch, None] = {}
        history.subscribe(self._receive)

    def __iter__(self) -> Iterator[Watch]:
        return iter(list(self._open))

    def open(self, form: Form, namespace: str, options: ListOptions, user: str) -> Watch:
        """Begin a watch: its first lines, if it gets initial events, are there already.

        One that asks for changes which are not known any more gets the 410 as its only event. Raises `Refusal`.
        """
        refused = too_large_for(self._history, options)
        if refused is not None:
            raise refused
        timeout_s = options.timeout_s or self._rng.uniform(_SHORTEST_TIMEOUT_S, _LONGEST_TIMEOUT_S)
        watch = Watch(form, namespace, options, user, timeout_s)
        if options.initial_events or (options.initial_events is None and not options.version):
            self._send_all(watch)
        elif options.version:
            try:
                missed = self._history.since(form.resource.kind, options.version)
            except Gone as gone:
                self.refuse(watch, too_old(options.version, gone.oldest))
                return watch
            for change in missed:
                self._show(watch, change, {})
        self._open[watch] = None
        return watch

    def close(self, watch: Watch) -> None:
        self._open.pop(watch, None)

    def bookmark(self, watch: Watch) -> None:
        """Tell a client that wants bookmarks how far it has come."""
        if watch.options.bookmarks and not watch.ended:
            version = self._history.version
            body = watch.form.bookmark(version, self._now(), initial_events_end=False)
            watch.offer(_line("BOOKMARK", body))

    def refuse(self, watch: Watch, refusal: Refusal) -> None:
        """End a watch with an error event."""
        watch.offer(_line("ERROR", refusal.body()))
        watch.end()

    def _send_all(self, watch: Watch) -> None:
        snapshot = self._history.snapshot(watch.form.resource.kind)
        for obj in snapshot.objects:
            if _in_namespace(obj, watch.namespace) and watch.options.selector.matches(obj):
                shown = watch.form.watched(obj, self._now(), first=watch.first_object())
                watch.offer(_line("ADDED", shown))
        if watch.options.initial_events and watch.options.bookmarks:
            end = watch.form.bookmark(snapshot.version, self._now(), initial_events_end=True)
            watch.offer(_line("BOOKMARK", end))

    def _receive(self, kind: str, change: Change) -> None:
        encoded: dict[tuple[object, ...], bytes] = {}
        for watch in list(self._open):
            if watch.form.resource.kind == kind and not watch.ended and change.version > _after(watch):
                self._show(watch, change, encoded)
                if watch.is_behind:
                    watch.end()

    def _show(self, watch: Watch, change: Change, encoded: dict[tuple[object, ...], bytes]) -> None:
        """Offer a change as the watch's selector sees it; the same line is encoded once for all watches."""
        if not _in_namespace(change.new, watch.namespace):
            return
        event, obj = _seen(watch, change)
        if obj is None:
            return
        first = watch.first_object()
        key = (*watch.form.cache_key, event, first and watch.form.shape == "table")
        if key not in encoded:
            encoded[key] = _line(event, watch.form.watched(obj, self._now(), first=first))
        watch.offer(encoded[key])


def _after(watch: Watch) -> int:
    """Changes up to this version do not concern the watch: it asked for later ones."""
    return watch.options.version or 0


def _seen(watch: Watch, change: Change) -> tuple[str, Json | None]:
    """(event type, object) of a change for a selector: objects may move into its sight and out of it."""
    matches = watch.options.selector.matches
    before = change.old is not None and matches(change.old)
    after = change.type != "DELETED" and matches(change.new)
    if after:
        return ("MODIFIED" if before else "ADDED"), change.new
    if not before or change.old is None:
        return "", None
    if change.type == "DELETED":
        return "DELETED", change.new
    return "DELETED", edited(change.old, {("metadata", "resourceVersion"): str(change.version)})


def _in_namespace(obj: Json, namespace: str) -> bool:
    return not namespace or obj["metadata"].get("namespace") == namespace


def _line(event: str, body: Json) -> bytes:
    return msgspec.json.encode({"type": event, "object": body}) + b"\n"
