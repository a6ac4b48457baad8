"""What to do next to keep a copy of a resource: list, then watch, over everything that can go wrong.

Pure: ``advance(state, input) -> (state, step)``. The shell around it makes the request that the step asks
for, turns what arrives into the next input, and does with the objects what the step says
(:meth:`Informer.carry_out`).

::

    state, step = begin(streaming=True)
    while True:
        wait at least step.delay_s, then make step.request (None: read on from the open stream)
        state, step = advance(state, what arrived)      # Page | Event | Ended | Failed
        informer.carry_out(step, what arrived)

Guarantees:

* The store is replaced only by a complete list, and only events that follow it are applied to it; what came
  of a list that was given up is discarded.
* Every list is consistent (no resourceVersion is asked for): the copy never goes back in time.
* A watch goes on where the last event or bookmark left it. After 410 (as a status, or as an event inside a
  200), and whenever else that place seems lost, everything is listed afresh; deletions in the gap show as a
  difference.
* No busy loop, whatever the server does: after a failure the next request waits, each time in a row twice
  as long, from ``BASE_DELAY_S`` to ``MAX_DELAY_S``, and at least the server's Retry-After (up to
  ``MAX_RETRY_AFTER_S``). Failures are in a row until a watch makes progress; a list is none in this sense,
  or list and 410 could alternate at full speed. At once come only: a new list after the first 410 or
  expired continue token, and pages after a server has refused the streaming list.
* No failure is final, and no watch stays stuck: one that keeps failing is given up for a new list, unless the
  failure says nothing about the watch (no connection, throttled, unauthorized).

Left to the shell, being neither pure nor a matter of one request: it stretches the delays at random, so
that many informers do not list at the same instant; renews credentials after 401; and notices silence (a
client read timeout longer than the ``timeoutSeconds`` asked for, also for a streaming list whose end never
comes), which it reports as ``Failed(NoAnswer(…))``.

Rules: Kubernetes API concepts ("Efficient detection of changes", "Streaming lists", "Retrieving large
results sets in chunks"), client-go ``tools/cache/reflector.go``, kubernetes/kubernetes#104171 (a watch from
a lost version that ends at once, empty, with 200).
"""

from datetime import timedelta
from enum import Enum, StrEnum
from typing import Generic, Literal, NamedTuple, TypeVar

from informers.errors import (
    ApiError,
    BadRequest,
    Garbled,
    Gone,
    Invalid,
    NoAnswer,
    NotFound,
    ResourceVersionTooLarge,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

T = TypeVar("T")

BASE_DELAY_S = 0.8
MAX_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 300.0

SHORT_STREAM_S = 1.0
"""A watch that ends sooner than that, and brought nothing new, is a failure."""

PATIENCE = 3
"""After so many failures in a row, a watch that brings nothing (legible) is given up for a new list …"""

LONG_PATIENCE = 6
"""… and after so many a watch that fails in any other way."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation, "true" on the bookmark that ends the initial events of a streaming list."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Page(NamedTuple, Generic[T]):
    """Input: one page of a list, with its ``metadata``; ``continue_token`` is empty on the last one."""

    items: tuple[T, ...]
    resource_version: str
    continue_token: str


class Event(NamedTuple, Generic[T]):
    """Input: one event of a watch. A bookmark has no object.

    ``ERROR`` is a :class:`Failed`; types that do not exist yet are to be left out.
    """

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False


class Ended(NamedTuple):
    """Input: the watch is over, this long after it was asked for: closed by the server, or the connection broke.

    For an idle watch the two are the same: load balancers cut it off.
    """

    lasted_s: float


class Failed(NamedTuple):
    """Input: the request failed, or the stream fell silent, is illegible or carried an ``ERROR`` event."""

    error: ApiError


Input = Page[T] | Event[T] | Ended | Failed


class ListRequest(NamedTuple):
    """GET one page; of a new list if ``continue_token`` is empty. Without a resourceVersion."""

    continue_token: str


class WatchRequest(NamedTuple):
    """GET with ``watch=1&allowWatchBookmarks=true``, from ``resource_version``.

    ``initial_events``: a streaming list, with ``sendInitialEvents=true&resourceVersionMatch=NotOlderThan``
    and no resource version.
    """

    resource_version: str
    initial_events: bool


class Objects(Enum):
    """What to do with the objects that came with the input."""

    NONE = "there is none, or it does not matter"
    COLLECT = "keep it for later (an event: apply it to what was kept)"
    REPLACE = "keep it; then what was kept is the whole, and replaces the store"
    APPLY = "apply it to the store"
    DISCARD = "throw away what was kept"


class Step(NamedTuple):
    """``request``: the next one, after at least ``delay_s`` seconds; None: read on from the stream."""

    objects: Objects
    request: ListRequest | WatchRequest | None = None
    delay_s: float = 0.0


class Phase(StrEnum):
    PAGING = "paging"
    STREAMING = "streaming"
    WATCHING = "watching"


class WatchState(NamedTuple):
    """Where we stand.

    ``streaming``: whether the server is believed to serve streaming lists. ``resource_version``: what a
    watch has seen last, ``opened_at``: what it was opened with; both empty before the list is complete.
    ``continue_token``: of the page asked for. ``failures``: in a row, since a watch last made progress.
    """

    phase: Phase
    streaming: bool
    resource_version: str = ""
    opened_at: str = ""
    continue_token: str = ""
    failures: int = 0


_NONE = Step(Objects.NONE)
_COLLECT = Step(Objects.COLLECT)
_REPLACE = Step(Objects.REPLACE)
_APPLY = Step(Objects.APPLY)


def begin(*, streaming: bool) -> tuple[WatchState, Step]:
    """Start with a list: a streaming one, or in pages. A server that refuses streaming is asked for pages."""
    return _list(WatchState(Phase.PAGING, streaming), 0.0)


def advance(state: WatchState, arrived: Input[T]) -> tuple[WatchState, Step]:
    """The next state and step. Raises ValueError for an input that the last request cannot have brought."""
    match arrived:
        case Event() if state.phase is not Phase.PAGING:
            return _after_event(state, arrived)
        case Page() if state.phase is Phase.PAGING:
            return _after_page(state, arrived)
        case Ended() if state.phase is not Phase.PAGING:
            return _after_end(state, arrived.lasted_s)
        case Failed():
            return _after_failure(state, arrived.error)
    raise ValueError(f"{type(arrived).__name__} cannot arrive while {state.phase}")


def _after_page(state: WatchState, page: Page[T]) -> tuple[WatchState, Step]:
    if page.continue_token:
        state = state._replace(continue_token=page.continue_token)
        return state, Step(Objects.COLLECT, ListRequest(page.continue_token))
    return _watch(state, page.resource_version, 0.0, Objects.REPLACE)


def _after_event(state: WatchState, event: Event[T]) -> tuple[WatchState, Step]:
    bookmark = event.type == "BOOKMARK"
    if state.phase is Phase.STREAMING:
        if not bookmark:
            return state, _COLLECT
        if not event.initial_events_end:
            return state, _NONE
        return _watching(state, event.resource_version), _REPLACE
    if event.resource_version and event.resource_version != state.resource_version:
        state = state._replace(resource_version=event.resource_version, failures=0)
    return state, _NONE if bookmark else _APPLY


def _after_end(state: WatchState, lasted_s: float) -> tuple[WatchState, Step]:
    failed = state._replace(failures=state.failures + 1)
    delay_s = _delay_s(failed.failures, None)
    if state.phase is Phase.STREAMING:
        return _pages(failed, delay_s)
    if lasted_s >= SHORT_STREAM_S or state.resource_version != state.opened_at:
        return _watch(state._replace(failures=0), state.resource_version, 0.0)
    if failed.failures >= PATIENCE:
        return _list(failed, delay_s)
    return _watch(failed, state.resource_version, delay_s)


def _after_failure(state: WatchState, error: ApiError) -> tuple[WatchState, Step]:
    first = state.failures == 0
    state = state._replace(failures=state.failures + 1)
    delay_s = _delay_s(state.failures, error.retry_after)
    # What has merely expired can be expected to work when asked for afresh.
    afresh_s = 0.0 if first and error.retry_after is None else delay_s
    match state.phase:
        case Phase.PAGING:
            if state.continue_token and isinstance(error, Gone | BadRequest):
                return _list(state, afresh_s)
            return state, Step(Objects.NONE, ListRequest(state.continue_token), delay_s)
        case Phase.STREAMING:
            if isinstance(error, BadRequest | Invalid):  # a server too old to know initial events
                return _pages(state._replace(streaming=False), 0.0)
            if isinstance(error, NoAnswer | Garbled | NotFound):  # something in between may hold streams back
                return _pages(state, delay_s)
            return _list(state, delay_s)
        case Phase.WATCHING:
            if isinstance(error, Gone):
                return _list(state, afresh_s)
            if _is_lost(state.failures, error):
                return _list(state, delay_s)
            return _watch(state, state.resource_version, delay_s)


def _is_lost(failures: int, error: ApiError) -> bool:
    """Whether the place where the watch stands is better given up."""
    if isinstance(error, ResourceVersionTooLarge | BadRequest | Invalid):
        return True
    if isinstance(error, Unreachable | TooManyRequests | Unauthorized):
        return False
    return failures >= (PATIENCE if isinstance(error, Garbled) else LONG_PATIENCE)


def _list(state: WatchState, delay_s: float) -> tuple[WatchState, Step]:
    if not state.streaming:
        return _pages(state, delay_s)
    state = WatchState(Phase.STREAMING, streaming=True, failures=state.failures)
    return state, Step(Objects.DISCARD, WatchRequest("", initial_events=True), delay_s)


def _pages(state: WatchState, delay_s: float) -> tuple[WatchState, Step]:
    state = WatchState(Phase.PAGING, state.streaming, failures=state.failures)
    return state, Step(Objects.DISCARD, ListRequest(""), delay_s)


def _watch(
    state: WatchState, version: str, delay_s: float, objects: Objects = Objects.NONE
) -> tuple[WatchState, Step]:
    return _watching(state, version), Step(objects, WatchRequest(version, initial_events=False), delay_s)


def _watching(state: WatchState, version: str) -> WatchState:
    return WatchState(Phase.WATCHING, state.streaming, version, opened_at=version, failures=state.failures)


def _delay_s(failures: int, retry_after: timedelta | None) -> float:
    asked_s = 0.0 if retry_after is None else min(retry_after.total_seconds(), MAX_RETRY_AFTER_S)
    return max(asked_s, min(MAX_DELAY_S, BASE_DELAY_S * 2.0 ** min(failures - 1, 16)))
