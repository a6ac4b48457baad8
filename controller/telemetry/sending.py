"""Hands finished spans to an exporter, in a thread of its own, so that no slow collector holds up a decision."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Condition, Thread

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from informers.clock import Clock
from informers.errors import as_shown

log = logging.getLogger("vm-rebalancer")

_EXPORTERS_STOP_WITHIN_S = 0.2
_LONGEST = 300
"""Characters of an exporter's text that a message repeats."""


class Sending(SpanProcessor):
    """A bounded queue and a thread. What does not fit, is refused, or is left at the end, is dropped and counted.

    ``on_end`` never waits. ``why`` tells why the exporter failed last, and is shown without ``secrets``. Unlike the
    SDK's own processor, this one says how much it drops, sends soon (a leader may be killed at any moment) and ends in
    time.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        clock: Clock,
        count_dropped: Callable[[int], None],
        why: Callable[[], str],
        secrets: Sequence[str],
        *,
        queue_size: int,
        batch_size: int,
        delay_s: float,
    ) -> None:
        self._exporter = exporter
        self._clock = clock
        self._count_dropped = count_dropped
        self._why = why
        self._secrets = secrets
        self._queue_size = queue_size
        self._batch_size = batch_size
        self._delay_s = delay_s
        self._changed = Condition()  # guards what follows
        self._queue: deque[ReadableSpan] = deque()
        self._under_way = 0
        self._closing = False
        self._failing = False  # the thread's own
        self._thread = Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        with self._changed:
            fits = not self._closing and len(self._queue) < self._queue_size
            if fits:
                self._queue.append(span)
                self._changed.notify()
        if not fits:
            self._count_dropped(1)

    def stop(self, within: timedelta) -> bool:
        """Send what is left, for no longer than this, whatever the collector does. Whether it has ended."""
        within_s = within.total_seconds()
        until_s = self._clock.monotonic() + within_s
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(max(0.0, within_s - _EXPORTERS_STOP_WITHIN_S))
        # Closing a connection may wait for its server, too.
        stopping = Thread(target=self._exporter.shutdown, name="spans-end", daemon=True)
        stopping.start()
        stopping.join(max(0.0, until_s - self._clock.monotonic()))
        with self._changed:
            left = len(self._queue) + self._under_way
            self._queue.clear()
            self._under_way = 0
        if left:
            self._count_dropped(left)
            log.warning("%d spans of traces could not be sent before the end", left)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            sent = self._export(batch)
            with self._changed:
                dropped, self._under_way = self._under_way, 0
            if not sent and dropped:
                self._count_dropped(dropped)

    def _next(self) -> list[ReadableSpan]:
        """The next batch: what comes within ``delay_s`` of its first span. Empty: it is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(
                lambda: self._closing or len(self._queue) >= self._batch_size, timeout=self._delay_s
            )
            count = min(len(self._queue), self._batch_size)
            batch = [self._queue.popleft() for _ in range(count)]
            self._under_way = len(batch)
            return batch

    def _export(self, batch: list[ReadableSpan]) -> bool:
        try:
            sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
            reason = self._why()
        except Exception as error:  # noqa: BLE001 - whatever an exporter raises, only these spans are lost
            sent, reason = False, f"{type(error).__name__}: {error}"
        if not sent and not self._failing:
            log.warning("traces cannot be sent: %s", as_shown(reason, _LONGEST, self._secrets))
        elif sent and self._failing:
            log.info("traces can be sent again")
        self._failing = not sent
        return sent
