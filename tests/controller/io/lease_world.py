"""Candidates for one Lease: alone on a clock that a test moves, or several as threads of which one moves at a time."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event, Semaphore, Thread
from typing import Any

from controller.lease import DEFAULT_TIMING, LeaderElection, LeaseTiming
from informers.errors import ApiError, NoAnswer
from informers.testing import ManualClock
from tests.controller.io.fake_api import LeaseServer

ALIKE = 1.1
"""How much faster one clock may run than another for writes never to overlap."""
START = datetime(2026, 1, 1, tzinfo=UTC)
OTHER = {
    "holderIdentity": "other",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T00:00:00.000000Z",
    "renewTime": "2026-01-01T00:00:00.000000Z",
    "leaseTransitions": 3,
}


def manual_clock() -> ManualClock:
    return ManualClock(START)


def election(
    server: Any,
    clock: Any,
    identity: str = "me",
    timing: LeaseTiming = DEFAULT_TIMING,
    *,
    seize: bool = False,
) -> LeaderElection:
    return LeaderElection(server, "rebalancing", "l", identity, clock, random.Random(1), timing, seize=seize)


class Steps(Event):
    """A stop event whose waits take no time: each moves the clock by what was to be waited, then does the next action.

    It is set when all actions are done.
    """

    def __init__(self, clock: ManualClock, *actions: Callable[[], object]) -> None:
        super().__init__()
        self._clock = clock
        self._actions = list(actions)
        self.waited_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited_s.append(timeout)
        self._clock.advance(timedelta(seconds=timeout))
        if self._actions:
            self._actions.pop(0)()
        if not self._actions:
            self.set()
        return self.is_set()


# --- several candidates, every interleaving of their requests ---


class KilledError(BaseException):
    """The process is gone, in the middle of whatever it did."""


class Machine:
    """A clock of its own: other start, other speed, and a wall clock that somebody sets."""

    def __init__(self, world: "World", rate: float, offset_s: float) -> None:
        self._world = world
        self.rate = rate
        self._offset_s = offset_s
        self.wall_offset = timedelta(0)

    def monotonic(self) -> float:
        return self._offset_s + self.rate * self._world.now_s

    def now(self) -> datetime:
        return START + self.wall_offset + timedelta(seconds=self._world.now_s)


class Candidate(Event):
    """A process that takes part. It is its own stop event and its own transport: both stop at the turnstile."""

    def __init__(self, world: "World", identity: str, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.identity = identity
        self.election = election(self, machine, identity)
        self.due_s: float | None = world.now_s
        """When it has something to do, in true time; None: it has ended."""
        self.fate = "answered"
        self._world = world
        self._killed = False
        self._go = Semaphore(0)
        self._parked = Semaphore(0)
        self._thread = Thread(target=self._run, name=identity, daemon=True)
        self._thread.start()

    def move(self) -> None:
        """Let it go on to its next wait, request or end. A request is carried out, or its answer handed over."""
        if self.due_s is not None:
            self._go.release()
            self._parked.acquire()

    def kill(self) -> None:
        """As SIGKILL does; also how a test ends those that are still there."""
        self._killed = True
        while self.due_s is not None:
            self.move()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                self.election.run(self)
        except KilledError:
            pass
        self.due_s = None
        self._parked.release()

    def _park(self, due_s: float) -> None:
        self.due_s = due_s
        self._parked.release()
        self._go.acquire()
        if self._killed:
            raise KilledError

    def wait(self, timeout: float | None = None) -> bool:
        self._park(self._world.now_s + (timeout or 0.0) / self.machine.rate)
        return self.is_set()

    def request(self, method: str, path: str, **arguments: Any) -> bytes:
        fate, self.fate = self.fate, "answered"
        self._park(self._world.now_s)
        if fate in ("lost", "late"):
            if fate == "late":
                self._world.under_way.append(lambda: self._world.server.request(method, path, **arguments))
            raise NoAnswer("connection lost")
        answer: bytes | ApiError
        try:
            answer = self._world.server.request(method, path, **arguments)
        except ApiError as error:
            answer = error
        self._park(self._world.now_s)
        if fate == "answer lost":
            raise NoAnswer("connection lost")
        if isinstance(answer, ApiError):
            raise answer
        return answer


class World:
    """One API server, one true time, candidates on machines of their own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.server = LeaseServer()
        self.candidates: list[Candidate] = []
        self.under_way: list[Callable[[], bytes]] = []
        """Requests that their sender has given up, and that may still arrive."""
        self._writes_end_s: dict[Candidate, float] = {}
        """When the last write that each may have begun is given up, in true time."""

    def join(self, identity: str, rate: float = 1.0, offset_s: float = 0.0) -> Candidate:
        candidate = Candidate(self, identity, Machine(self, rate, offset_s))
        self.candidates.append(candidate)
        return candidate

    def pass_time(self, duration_s: float, frozen: "Candidate | None" = None) -> None:
        """Everybody but ``frozen`` moves whenever there is something to do."""
        until_s = self.now_s + duration_s
        while True:
            due = [
                (c.due_s, n) for n, c in enumerate(self.candidates) if c.due_s is not None and c is not frozen
            ]
            due_s, number = min(due, default=(until_s, -1))
            if due_s >= until_s:
                break
            self.stand_still(max(0.0, due_s - self.now_s))
            self.candidates[number].move()
            self.check()
        self.stand_still(until_s - self.now_s)

    def stand_still(self, duration_s: float) -> None:
        """Time passes and nobody moves."""
        for _ in range(10):
            self.now_s += duration_s / 10
            self.check()

    def deliver_late(self) -> None:
        """What was under way arrives at last."""
        requests, self.under_way = self.under_way, []
        for request in requests:
            with suppress(ApiError):
                request()

    def check(self) -> None:
        """At no moment may two write."""
        writers = [c for c in self.candidates if c.election.writes_allowed()]
        assert len(writers) <= 1, (self.now_s, self.writers())
        for writer in writers:
            for other, end_s in self._writes_end_s.items():
                fastest, slowest = sorted((writer.machine.rate, other.machine.rate), reverse=True)
                if other is not writer and fastest / slowest <= ALIKE:
                    assert self.now_s >= end_s, (self.now_s, writer.identity, other.identity, end_s)
            left_s = writer.election.time_to_write().total_seconds() / writer.machine.rate
            assert left_s > 0
            self._writes_end_s[writer] = self.now_s + left_s

    def writers(self) -> list[str]:
        return [c.identity for c in self.candidates if c.election.writes_allowed()]

    def leaders(self) -> list[str]:
        return [c.identity for c in self.candidates if c.election.is_leader()]

    def close(self) -> None:
        for candidate in self.candidates:
            candidate.kill()
