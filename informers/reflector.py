"""The loop that keeps an informer up to date with an API server: it does what ``watchstate`` says.

Guarantees:

* Whatever happens is counted, reported and tried again, after a pause that grows; nothing ends the thread but
  ``stop``. What neither connection nor server is to blame for (an index function that raises, say) makes it
  list afresh, too.
* An open connection that is dead is noticed: a watch asks the server to end it after a time, and a silence
  longer than that is a failure.
* Many reflectors do not list at the same instant: pauses are stretched at random, lists that follow the first
  one are put off by up to ``SPREAD_S``, and watches end at different times.

Handlers of the informer are called in the reflector's thread.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition, Event, Thread, current_thread
from typing import Generic

from informers.clock import Clock
from informers.decoding import Decoder, Resource
from informers.errors import ApiError, Garbled, Gone, NoAnswer
from informers.informer import Informer
from informers.store import T
from informers.transport import Transport
from informers.watchstate import (
    Ended,
    Failed,
    Input,
    ListRequest,
    Objects,
    Page,
    Step,
    WatchRequest,
    WatchState,
    advance,
    begin,
)
from informers.watchstate import Event as WatchEvent

__all__ = ["Reflector", "ReflectorStatistics", "Resource"]

log = logging.getLogger(__name__)

PAGE_SIZE = 500
MAX_PAGE_BYTES = 128 << 20
"""Unpacked, and twice that while it is put together; 260 KB for each object, of which real ones take a tenth."""
PAGE_WITHIN = timedelta(seconds=60)

WATCH_S = 120
"""A watch asks to be ended after this time, or up to twice as much."""

GRACE = timedelta(seconds=15)
"""A watch that is silent for so much longer than that is dead."""

LIST_SILENCE = timedelta(seconds=30)
"""So long may a streaming list be silent."""

STRETCH = 0.5
"""A pause is stretched by up to this part of it."""

SPREAD_S = 2.0


class NotStored(Gone):
    """What arrived could not be stored, so the store is not what it should be."""


@dataclass(frozen=True, slots=True)
class ReflectorStatistics:
    """``lists``: complete ones; ``watches``: opened; ``events``: received, bookmarks included; ``errors``: by
    type, so far; ``last_error``: empty if there was none; ``age_s``: of the last contact.
    """

    name: str
    running: bool
    has_synced: bool
    objects: int
    lists: int
    watches: int
    events: int
    errors: Mapping[str, int]
    last_error: str
    age_s: float


class Reflector(Generic[T]):
    """See the module's guarantees. The informer must have no other reflector.

    ``on_error(name, error)`` is called, in the reflector's thread, for each thing that goes wrong.
    """

    def __init__(
        self,
        resource: Resource[T],
        transport: Transport,
        informer: Informer[T],
        clock: Clock,
        rng: random.Random,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self._resource = resource
        self._transport = transport
        self._informer = informer
        self._clock = clock
        self._rng = rng
        self._on_error = on_error
        lister = informer.lister
        self._decoder = Decoder(resource.kind, lambda key: lister.get(*key), self._report)
        self._thread = Thread(target=self._run, name=f"reflector-{informer.name}", daemon=True)
        # Set when the thread shall leave what it waits for: to stop, or to list afresh.
        self._interrupt = Event()
        # Guards all below. Notified after a complete list and at the end of the thread.
        self._changed = Condition()
        self._stopping = False
        self._contact_s = clock.monotonic()
        # Demands for a fresh list: made, met by the list under way once it is complete, met.
        self._demanded = self._under_way = self._met = 0
        self._counts = Counter[str]()
        self._errors = Counter[str]()
        self._last_error = ""

    def start(self) -> None:
        """Once. The first list begins at once."""
        with self._changed:
            self._contact_s = self._clock.monotonic()
        self._thread.start()

    def stop(self, timeout: timedelta) -> bool:
        """True: the thread has ended. False: it is still connecting, or a handler has not returned.

        May be called again, to wait on; not from a handler (RuntimeError).
        """
        if current_thread() is self._thread:
            raise RuntimeError("stop() must not be called from a handler: it would wait for itself")
        with self._changed:
            self._stopping = True
            self._interrupt.set()
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def resync(self, timeout: timedelta) -> None:
        """List afresh; when this returns, the store holds a state that the API server had after the call began.

        A failure is tried again within the timeout, a pause under way is cut short. Raises NoAnswer, with the
        last error, if no list was complete in time or the reflector is stopped. Not from a handler (RuntimeError).
        """
        if current_thread() is self._thread:
            raise RuntimeError("resync() must not be called from a handler: it would wait for itself")
        with self._changed:
            self._demanded += 1
            demand = self._demanded
            self._interrupt.set()
            self._changed.wait_for(
                lambda: self._met >= demand or self._stopping or not self._thread.is_alive(),
                timeout.total_seconds(),
            )
            if self._met < demand:
                within = f"within {timeout.total_seconds():g} s" if self._thread.is_alive() else "any more"
                cause = self._last_error or "no error"
                raise NoAnswer(f"{self._informer.name}: no fresh list {within}; last error: {cause}")

    def age_of_last_contact(self) -> float:
        """Seconds since the server last told us something about the objects (since ``start``, if never).

        A page, an event, a bookmark, a watch it opened; an error is none. Of a healthy watch where nothing
        happens: up to ``2 * WATCH_S``, about 60 s if the server sends bookmarks.
        """
        with self._changed:
            return self._clock.monotonic() - self._contact_s

    def statistics(self) -> ReflectorStatistics:
        with self._changed:
            return ReflectorStatistics(
                name=self._informer.name,
                running=self._thread.is_alive(),
                has_synced=self._informer.has_synced,
                objects=len(self._informer.lister),
                lists=self._counts["lists"],
                watches=self._counts["watches"],
                events=self._counts["events"],
                errors=dict(self._errors),
                last_error=self._last_error,
                age_s=self._clock.monotonic() - self._contact_s,
            )

    # The thread

    def _run(self) -> None:
        try:
            state, step = begin(streaming=True)
            while True:
                self._pause(step)
                with self._changed:
                    if self._stopping:
                        return
                    if self._interrupt.is_set():
                        self._interrupt.clear()
                        self._under_way = self._demanded
                        state, step = begin(streaming=state.streaming)
                        self._informer.carry_out(step, Ended(0.0))
                state, step = self._follow(state, step)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _pause(self, step: Step) -> None:
        delay_s = step.delay_s * (1.0 + STRETCH * self._rng.random())
        if self._informer.has_synced and _begins_list(step):
            delay_s = max(delay_s, SPREAD_S * self._rng.random())
        if delay_s > 0.0:
            self._interrupt.wait(delay_s)

    def _follow(self, state: WatchState, step: Step) -> tuple[WatchState, Step]:
        """Make the request and take what arrives, until there is another request to make."""
        with closing(self._inputs(step.request)) as inputs:
            for arrived in inputs:
                if self._interrupt.is_set():
                    break
                state, step = self._take(state, arrived)
                if step.request is not None:
                    break
        return state, step

    def _take(self, state: WatchState, arrived: Input[T]) -> tuple[WatchState, Step]:
        after, step = advance(state, arrived)
        if isinstance(arrived, Failed) and after.streaming == state.streaming:
            self._report(arrived.error)  # else the server is merely too old for streaming lists
        elif isinstance(arrived, Ended) and after.failures > state.failures:
            self._report(NoAnswer("the watch ended at once and brought nothing new"))
        try:
            self._informer.carry_out(step, arrived)
        except ExceptionGroup as group:  # of handlers; the store has changed as it should
            for error in group.exceptions:
                self._report(error)
        except Exception as error:  # noqa: BLE001 - reported, and made good by a new list
            return self._take(after, Failed(NotStored(f"{type(error).__name__}: {error}")))
        if step.objects is Objects.REPLACE:
            with self._changed:
                self._counts["lists"] += 1
                self._met = self._under_way
                self._changed.notify_all()
        return after, step

    def _inputs(self, request: ListRequest | WatchRequest | None) -> Generator[Input[T], None, None]:
        """What the request brings: a page, or events and how they end; or a failure."""
        try:
            if isinstance(request, ListRequest):
                yield self._page(request)
            elif isinstance(request, WatchRequest):
                yield from self._watch(request)
        except ApiError as error:
            yield Failed(error)
        except Exception as error:
            log.exception("reflector %s goes on after an exception", self._informer.name)
            yield Failed(Garbled(f"{type(error).__name__}: {error}"))

    def _page(self, request: ListRequest) -> Page[T]:
        query = {**self._resource.query(), "limit": str(PAGE_SIZE)}
        if request.continue_token:
            query["continue"] = request.continue_token
        body = self._transport.request(
            "GET",
            self._resource.path,
            query=query,
            deadline=PAGE_WITHIN,
            max_bytes=MAX_PAGE_BYTES,
            cancel=self._interrupt,
        )
        page = self._decoder.page(body)
        self._in_contact()
        return page

    def _watch(self, request: WatchRequest) -> Iterator[WatchEvent[T] | Failed | Ended]:
        lasts_s = WATCH_S + self._rng.randrange(WATCH_S)
        query = {
            **self._resource.query(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasts_s),
        }
        if request.initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            query["resourceVersion"] = request.resource_version
        silence = timedelta(seconds=lasts_s) + GRACE
        opened_s = self._clock.monotonic()
        with self._transport.stream(
            self._resource.path,
            query=query,
            read_timeout=LIST_SILENCE if request.initial_events else silence,
            cancel=self._interrupt,
        ) as lines:
            self._in_contact("watches")
            for line in lines:
                arrived = self._decoder.line(line)
                if isinstance(arrived, WatchEvent):
                    self._in_contact("events")
                    if arrived.initial_events_end:
                        lines.set_read_timeout(silence)
                yield arrived
        yield Ended(self._clock.monotonic() - opened_s)

    def _in_contact(self, counted: str = "") -> None:
        with self._changed:
            self._contact_s = self._clock.monotonic()
            self._counts[counted] += 1

    def _report(self, error: Exception) -> None:
        with self._changed:
            self._errors[type(error).__name__] += 1
            self._last_error = str(error) or type(error).__name__
        try:
            self._on_error(self._informer.name, error)
        except Exception:
            log.exception("reporting an error of reflector %s failed", self._informer.name)


def _begins_list(step: Step) -> bool:
    match step.request:
        case ListRequest(continue_token):
            return not continue_token
        case WatchRequest(initial_events=initial_events):
            return initial_events
    return False
