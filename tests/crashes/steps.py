"""What a program does, step by step: every request, every change of the ledger. It can be killed at any of them.

Steps are named after the code: by the method that is called, what it is told (``dry_run``) and the phases of the
entries it is given. So what is added to a port or to the ledger is a step by itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import isfunction
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from controller.evictions.entry import Entry
from controller.evictions.ledger import Ledger
from simulator.engine.ports import SimulatedEvictions, SimulatedMetrics, SimulatedPatcher
from simulator.engine.programs import Killed

T = TypeVar("T")

PORTS = (SimulatedEvictions, SimulatedPatcher, SimulatedMetrics)
LOOKS = frozenset({"view"})
"""Methods that change nothing and ask nobody."""


class Crash(Killed):
    """The process is killed here."""


class Point(NamedTuple):
    """Where to crash: right before or right after the step's n-th occurrence, counted from 1."""

    step: str
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.step} ({self.number})"


class Steps:
    """Counts them, and crashes once, at ``crash_at``."""

    def __init__(self, crash_at: Point | None = None) -> None:
        self.passed: Counter[str] = Counter()
        self.crashed = False
        self.crash_at = crash_at
        self._dying = False

    def take(self, step: str, act: Callable[[], T]) -> T:
        if self._dying:
            raise Crash  # whatever is done while it unwinds: the process is no more
        self.passed[step] += 1
        self._crash_if(Point(step, self.passed[step], after=False))
        number = self.passed[step]
        result = act()
        self._crash_if(Point(step, number, after=True))
        return result

    def died(self) -> None:
        """The process is gone, and what does steps from now on is another one."""
        self._dying = False

    def _crash_if(self, here: Point) -> None:
        if here == self.crash_at:
            self.crashed = self._dying = True
            raise Crash

    def points(self, most: int) -> list[Point]:
        """Before and after each step that was passed: its first occurrence, its last, and some between."""
        return [
            Point(step, number, after)
            for step, count in sorted(self.passed.items())
            for number in _spread(count, most)
            for after in (False, True)
        ]


def _spread(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(index * (count - 1) / max(1, most - 1)) for index in range(most)})


def verbs_of(watched: type) -> list[str]:
    """Its methods that change something, or ask somebody."""
    return [
        name
        for name, member in vars(watched).items()
        if isfunction(member) and not name.startswith("_") and name not in LOOKS
    ]


@contextmanager
def watching(steps: Steps) -> Iterator[None]:
    """Meanwhile every change of any ledger, and every request, is a step."""

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def step(owner: object, *given: Any, **options: Any) -> Any:
            name = _named(method.__name__, given, options)
            return steps.take(name, lambda: method(owner, *given, **options))

        return step

    with ExitStack() as stack:
        for owner in (Ledger, *PORTS):
            for name in verbs_of(owner):
                stack.enter_context(patch.object(owner, name, watched(getattr(owner, name))))
        yield


def _named(verb: str, given: tuple[Any, ...], options: dict[str, Any]) -> str:
    phases = [str(one.phase) for one in given if isinstance(one, Entry)]
    return " ".join([verb, *phases, *(option for option, value in options.items() if value is True)])
