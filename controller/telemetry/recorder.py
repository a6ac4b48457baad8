"""Sends Events to the API server: one of the few places that write to the cluster.

Nobody waits for it, and nothing depends on it: what cannot be sent soon is dropped, and counted. Names and counts are
fixed before anything is sent, so a request whose answer was lost is simply sent again.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import msgspec
from prometheus_client import Counter

from controller.policy.model import Mode, Policy
from controller.telemetry.correlation import Correlator, Dropped, Outgoing
from controller.telemetry.events import Event
from controller.telemetry.news import News
from informers.clock import Clock
from informers.errors import AlreadyExists, ApiError, NoAnswer, NotFound, ServerError, Throttled, Unreachable
from informers.transport import Transport

log = logging.getLogger("vm-rebalancer")

DEADLINE = timedelta(seconds=5)
MOST_WAITING = 500
ATTEMPTS = 3
PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(seconds=30)
AT_ONCE = timedelta(0)
_FOR_THE_REST = 0.6
"""Of the time to stop: what waits is sent in it; in what is left of the time, a request under way is given up."""
_PASSING = (NoAnswer, ServerError, Throttled, Unreachable)


class _NotAllowedError(Exception):
    """Nobody is to hear of us any more."""


class EventRecorder:
    """Implements :class:`controller.telemetry.events.EventSink`, for any thread.

    Nothing is sent unless the policy in force is an Automatic one and the lease allows it: ``time_to_write`` says how
    long a request that begins now may take.
    ``dropped`` counts by ``reason``. ``start`` and ``stop`` are called once each.
    """

    def __init__(
        self,
        transport: Transport,
        time_to_write: Callable[[], timedelta],
        current_policy: Callable[[], Policy | None],
        clock: Clock,
        dropped: Counter,
    ) -> None:
        self._transport = transport
        self._time_to_write = time_to_write
        self._current_policy = current_policy
        self._clock = clock
        self._dropped = {why: dropped.labels(why) for why in Dropped}
        # Guards the three that follow; only the sending thread takes what waits.
        self._changed = threading.Condition()
        self._correlator = Correlator(clock.now())
        self._waiting: deque[Outgoing] = deque()
        self._ending = False
        # The sending thread's own.
        self._attempts = 0
        self._news = News(clock)
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: timedelta) -> bool:
        """Send what waits, as far as there is time for that. False if a request is still connecting.

        Nothing new is taken from now on, and no request leaves after the return.
        """
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(within.total_seconds() * _FOR_THE_REST)
            self._given_up.set()
            self._thread.join(within.total_seconds() * (1 - _FOR_THE_REST))
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
        self._dropped[Dropped.ENDING].inc(left)
        return not self._thread.is_alive()

    def say(self, event: Event) -> bool:
        """Take it to be sent; False if it will not be. Returns at once."""
        if not self._time_left():
            return False
        with self._changed:
            if self._ending:
                outgoing: Outgoing | Dropped = Dropped.ENDING
            elif len(self._waiting) >= MOST_WAITING:
                outgoing = Dropped.QUEUE_FULL
            else:
                outgoing = self._correlator.admit(event, self._clock.now())
            if isinstance(outgoing, Outgoing):
                self._waiting.append(outgoing)
                self._changed.notify_all()
                return True
        self._dropped[outgoing].inc()
        return False

    def send_next(self) -> timedelta | None:
        """Send what waits first. Returns how long to wait before the next; ``None`` if nothing waits.

        By one thread at a time.
        """
        with self._changed:
            if not self._waiting:
                return None
            outgoing = self._waiting[0]
        outcome = self._try(outgoing)
        if isinstance(outcome, timedelta):
            return outcome
        self._attempts = 0
        with self._changed:
            if not self._waiting:
                return AT_ONCE  # stopped meanwhile, which has counted it
            self._waiting.popleft()
        if outcome is not None:
            self._dropped[outcome].inc()
        return AT_ONCE

    def _run(self) -> None:
        while self._wait_for_more():
            pause = self.send_next()
            if pause:
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, pause.total_seconds())

    def _wait_for_more(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            return bool(self._waiting) and not self._given_up.is_set()

    def _try(self, outgoing: Outgoing) -> timedelta | Dropped | None:
        """``None``: it is there; a time: it is to be tried again after so long."""
        try:
            self._send(outgoing)
        except AlreadyExists:
            return None  # an answer was lost
        except _NotAllowedError:
            return Dropped.NOT_ALLOWED
        except ApiError as error:
            self._log(error)
            self._attempts += 1
            if isinstance(error, _PASSING) and self._attempts < ATTEMPTS and not self._ending:
                return min(error.retry_after or PAUSE, LONGEST_PAUSE)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about no more than an Event
            self._log(error)
        else:
            return None
        return Dropped.NOT_TAKEN

    def _send(self, outgoing: Outgoing) -> None:
        if not outgoing.is_new:
            try:
                self._request("PATCH", f"/{outgoing.name}", outgoing, outgoing.patch())
            except NotFound as error:
                if error.reason != "NotFound":
                    raise
            else:
                return
        # New, or the one that is there no longer: Events are kept for an hour.
        self._request("POST", "", outgoing, outgoing.body())

    def _request(self, method: str, which: str, outgoing: Outgoing, body: dict[str, object]) -> None:
        if not (left := self._time_left()):
            raise _NotAllowedError
        self._transport.request(
            method,
            f"/api/v1/namespaces/{outgoing.namespace}/events{which}",
            body=msgspec.json.encode(body),
            content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
            deadline=min(left, DEADLINE),
            cancel=self._given_up,
        )

    def _time_left(self) -> timedelta:
        """How long a request may take now; none at all may be sent if that is zero."""
        policy = self._current_policy()
        if policy is None or policy.mode is not Mode.AUTOMATIC:
            return timedelta(0)
        return self._time_to_write()

    def _log(self, error: Exception) -> None:
        if self._given_up.is_set() or not self._news.is_news(type(error).__name__):
            return
        happens = isinstance(error, ApiError)
        log.warning("an Event was not sent: %s", error, exc_info=None if happens else error)
