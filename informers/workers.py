"""Threads around a work queue: the one place that turns a result or an error into a requeue.

Guarantees, on top of those of the queue:

* A handler that returns None is done with the key; one that returns :class:`Again` sees it again after that
  time. Either way the key's failures are forgotten.
* A handler that raises sees the key again after the queue's back-off, and ``on_error`` is told, once for
  each failure.
* No exception ends a worker thread, whatever handler or ``on_error`` raise.
* A key is never worked on by two threads at once; different keys are.
* ``stop`` returns within its timeout. True: no thread is left. False: a handler has not returned; its
  thread ends as soon as it does. Once ``stop`` was called, no further key is handed out.
* Neither handler nor ``on_error`` is ever called with a lock held.

There are two ways to run it. ``start`` works with threads. Without threads, ``work_ready`` works in the
caller's thread, and ``next_due`` says when there is something to do: so a simulation jumps from one due
time to the next.
"""

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic

from informers.clock import Clock
from informers.durations import DurationCounter, Durations
from informers.workqueue import K, WorkQueue, WorkQueueStatistics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Again:
    """A handler's answer: "handle this key again after …". Raises ValueError unless that is positive."""

    after: timedelta

    def __post_init__(self) -> None:
        if self.after <= timedelta(0):
            raise ValueError(f"Again.after must be positive, found {self.after}")


@dataclass(frozen=True, slots=True)
class WorkersStatistics:
    """``threads`` are alive; ``succeeded`` and ``failed`` count handler calls, ``worked`` says how long they
    took; ``longest_running_s`` is the age of the oldest call that has not returned (0: none), which tells a
    hanging handler from a busy one.
    """

    queue: WorkQueueStatistics
    threads: int
    succeeded: int
    failed: int
    worked: Durations
    longest_running_s: float


class Workers(Generic[K]):
    """See the module's guarantees. From here on the queue is the Workers': add keys through them only."""

    def __init__(
        self,
        queue: WorkQueue[K],
        handler: Callable[[K], Again | None],
        clock: Clock,
        on_error: Callable[[K, Exception, timedelta], None],
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._on_error = on_error
        # Guards the queue and all below. Notified when there may be work, when a thread ends, and on stop.
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._alive = 0
        self._stopping = False
        self._started_s: dict[K, float] = {}
        self._succeeded = self._failed = 0
        self._worked = DurationCounter()

    def add(self, key: K) -> None:
        """Have the key handled as soon as possible. Never blocks on a handler; from any thread."""
        with self._changed:
            self._queue.add(key, self._clock.monotonic())
            self._changed.notify()

    def add_after(self, key: K, delay: timedelta) -> None:
        """Have the key handled after a delay; from any thread."""
        with self._changed:
            self._queue.add_after(key, delay.total_seconds(), self._clock.monotonic())
            self._changed.notify()

    def next_due(self) -> float | None:
        """When there is something to do, on the clock's monotonic time: ``-inf`` for now, None for never."""
        with self._changed:
            return self._queue.next_due()

    def work_ready(self) -> int:
        """Work off, in this thread, all that is ready, and what becomes ready by that.

        Returns the number of handler calls. What ``on_error`` raises, and what a handler raises that is no
        Exception (KeyboardInterrupt), comes through; the queue is in order then, and the key comes again.
        Raises RuntimeError if threads were started.
        """
        if self._threads:
            raise RuntimeError("work_ready() is for workers without threads, and these were started")
        calls = 0
        while (key := self._next_key()) is not None:
            self._work(key)
            calls += 1
        return calls

    def start(self, threads: int) -> None:
        """Start working with this many threads; once. The clock must be one that runs by itself."""
        if threads < 1:
            raise ValueError(f"need at least one thread, found {threads}")
        with self._changed:
            if self._threads or self._stopping:
                raise RuntimeError("workers can be started only once")
            self._threads = [
                threading.Thread(target=self._run, name=f"worker-{number}", daemon=True)
                for number in range(threads)
            ]
            for thread in self._threads:
                thread.start()
                self._alive += 1

    def stop(self, timeout: timedelta) -> bool:
        """Let running handlers finish, start no other; True if all threads have ended in time.

        Keys not worked on stay in the queue. May be called again, to wait on; not from a handler
        (RuntimeError).
        """
        if threading.current_thread() in self._threads:
            raise RuntimeError("stop() must not be called from a handler: it would wait for itself")
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._alive == 0, timeout.total_seconds()):
                return False
        for thread in self._threads:
            thread.join()  # each has left its loop
        return True

    def statistics(self) -> WorkersStatistics:
        with self._changed:
            oldest_s = min(self._started_s.values(), default=None)
            return WorkersStatistics(
                queue=self._queue.statistics(),
                threads=self._alive,
                succeeded=self._succeeded,
                failed=self._failed,
                worked=self._worked.snapshot(),
                longest_running_s=0.0 if oldest_s is None else self._clock.monotonic() - oldest_s,
            )

    def _run(self) -> None:
        try:
            while (key := self._wait_for_key()) is not None:
                try:
                    self._work(key)
                except BaseException:  # the thread must survive anything, SystemExit included
                    log.exception("worker goes on after an exception that no handler should let out")
        finally:
            with self._changed:
                self._alive -= 1
                self._changed.notify_all()

    def _wait_for_key(self) -> K | None:
        """The next key; None when stopping."""
        with self._changed:
            while not self._stopping:
                if (key := self._next_key()) is not None:
                    # The next one's time is for another thread to wait for, now that this one is busy.
                    if self._queue.next_due() is not None:
                        self._changed.notify()
                    return key
                due_s = self._queue.next_due()
                wait_s = math.inf if due_s is None else due_s - self._clock.monotonic()
                self._changed.wait(None if wait_s > threading.TIMEOUT_MAX else max(0.0, wait_s))
            return None

    def _next_key(self) -> K | None:
        with self._changed:
            if self._stopping:
                return None
            now_s = self._clock.monotonic()
            if (key := self._queue.pop_ready(now_s)) is not None:
                self._started_s[key] = now_s
            return key

    def _work(self, key: K) -> None:
        try:
            again = self._handler(key)
            after_s = None if again is None else again.after.total_seconds()
        except BaseException as error:
            delay_s = self._fail(key)
            if not isinstance(error, Exception):
                raise
            self._on_error(key, error, timedelta(seconds=delay_s))
        else:
            self._succeed(key, after_s)

    def _succeed(self, key: K, after_s: float | None) -> None:
        with self._changed:
            self._succeeded += 1
            self._queue.forget(key)
            if after_s is not None:
                self._queue.add_after(key, after_s, self._clock.monotonic())
            self._give_back(key)

    def _fail(self, key: K) -> float:
        """Returns the back-off in seconds."""
        with self._changed:
            self._failed += 1
            delay_s = self._queue.add_rate_limited(key, self._clock.monotonic())
            self._give_back(key)
            return delay_s

    def _give_back(self, key: K) -> None:
        self._queue.done(key)
        self._worked.add(self._clock.monotonic() - self._started_s.pop(key))
        self._changed.notify()
