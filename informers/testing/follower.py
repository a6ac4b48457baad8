"""Keeps an informer up to date with a fake source, one step at a time, in the caller's thread."""

from datetime import timedelta
from typing import Generic

from informers.clock import Clock
from informers.errors import ApiError, NoAnswer
from informers.informer import Informer
from informers.store import T
from informers.testing.source import FakeSource, FakeStream
from informers.watchstate import Ended, Failed, Input, ListRequest, advance, begin


class Follower(Generic[T]):
    """Lists and watches as ``watchstate`` says. A stream silent for ``silence`` counts as lost."""

    def __init__(
        self,
        source: FakeSource[T],
        informer: Informer[T],
        clock: Clock,
        *,
        streaming: bool = True,
        silence: timedelta = timedelta(minutes=5),
    ) -> None:
        self._source = source
        self._informer = informer
        self._clock = clock
        self._silence_s = silence.total_seconds()
        self._stream: FakeStream[T] | None = None
        self._opened_s = self._contact_s = self._not_before_s = clock.monotonic()
        self.state, self._todo = begin(streaming=streaming)

    def step(self) -> bool:
        """Make one request, or read one event; False if there is nothing to do at this time."""
        now_s = self._clock.monotonic()
        if self._stream is None:
            if now_s < self._not_before_s:
                return False
            self._opened_s = self._contact_s = now_s
            arrived = self._request()
            if arrived is None:  # a stream is open now
                return True
        else:
            arrived = self._read(self._stream, now_s)
            if arrived is None:
                return False
            self._contact_s = now_s
        self.state, step = advance(self.state, arrived)
        if step.request is not None:
            self._close()
            self._todo = step
            self._not_before_s = now_s + step.delay_s
        self._informer.carry_out(step, arrived)
        return True

    def catch_up(self) -> int:
        """Step until there is nothing to do at this time; returns the number of steps."""
        steps = 0
        while self.step():
            steps += 1
        return steps

    def next_due(self) -> float:
        """When there is a step even if nothing arrives: the next request, or the end of patience."""
        return self._not_before_s if self._stream is None else self._contact_s + self._silence_s

    def _request(self) -> Input[T] | None:
        try:
            if isinstance(self._todo.request, ListRequest):
                return self._source.list_page(self._todo.request)
            if self._todo.request is not None:
                self._stream = self._source.watch(self._todo.request)
        except ApiError as error:
            return Failed(error)
        return None

    def _read(self, stream: FakeStream[T], now_s: float) -> Input[T] | None:
        try:
            event = stream.read()
        except ApiError as error:
            return Failed(error)
        if event is not None:
            return event
        if stream.ended:
            return Ended(now_s - self._opened_s)
        if now_s >= self._contact_s + self._silence_s:
            return Failed(NoAnswer("the stream has gone silent"))
        return None

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.closed = True
            self._stream = None
