"""What goes wrong on purpose: which requests are hit, and how.

Each kind is a struct of plain parameters (tag ``kind`` in the control endpoint's JSON). A fault holds until its
``count`` of requests is used up, its ``seconds`` of real time are over, or it is taken away. All that hit a request
apply, oldest first; the first one that answers it decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct

from simulator.apiserver.routing import Call

AtLeast0 = Annotated[float, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]


class _Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Which requests: empty lists mean all. Globs, but for verbs."""

    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    """``pods``, ``pods/eviction``, ``nodes*``"""
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """User names, e.g. ``system:serviceaccount:*``."""
    continued: bool | None = None
    """Only lists with (or only without) a continue token."""
    dry_run: bool | None = None
    """Only dry runs (or only what is meant)."""
    count: Annotated[int, Meta(ge=1)] | None = None
    seconds: Above0 | None = None

    def hits(self, call: Call, user: str, *, continued: bool, dry_run: bool) -> bool:
        return (
            (not self.verbs or call.verb in self.verbs)
            and _any_match(self.resources, call.full_resource)
            and _any_match(self.names, call.name)
            and _any_match(self.users, user)
            and self.continued in (None, continued)
            and self.dry_run in (None, dry_run)
        )


class Error(_Fault, frozen=True, kw_only=True, tag="error"):
    """An answer instead of the real one; nothing is carried out."""

    status: Annotated[int, Meta(ge=400, le=599)]
    message: str = ""
    """Default: Kubernetes' own words."""
    retry_after_s: AtLeast0 | None = None
    body: Literal["status", "text", "html"] = "status"
    """A Status object, plain text as the flow control sends it, or a proxy's page."""


class Latency(_Fault, frozen=True, kw_only=True, tag="latency"):
    """The request waits. ``after``: it is carried out at once, and its answer waits."""

    delay_s: Above0
    after: bool = False


class Cut(_Fault, frozen=True, kw_only=True, tag="cut"):
    """The connection breaks without an answer, or in the middle of it; ``carried_out``: after the deed."""

    carried_out: bool = True
    half: bool = False
    """Half of the answer's body arrives."""


class Garbage(_Fault, frozen=True, kw_only=True, tag="garbage"):
    """The request is carried out, and its answer is no JSON any more."""


class BadWatch(_Fault, frozen=True, kw_only=True, tag="watch"):
    """Watches that are opened from now on; those that are open are left alone."""

    do: Literal["empty", "stall", "expire", "expire-status"]
    """Ends at once; never sends anything; 410 as an event; 410 as the answer's status."""


Fault = Error | Latency | Cut | Garbage | BadWatch


@dataclass(slots=True)
class _Active:
    fault: Fault
    left: int | None
    until_s: float | None
    """Monotonic."""


class Faults:
    """The faults that hold now, by number."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._active: dict[int, _Active] = {}
        self._last = 0

    def add(self, fault: Fault) -> int:
        self._last += 1
        until_s = None if fault.seconds is None else self._monotonic() + fault.seconds
        self._active[self._last] = _Active(fault, fault.count, until_s)
        return self._last

    def remove(self, number: int) -> bool:
        """Whether there was one of that number."""
        return self._active.pop(number, None) is not None

    def clear(self) -> None:
        self._active.clear()

    def listed(self) -> dict[int, Fault]:
        self._tidy_up()
        return {number: active.fault for number, active in self._active.items()}

    def hit(self, call: Call, user: str, *, continued: bool, dry_run: bool) -> list[Fault]:
        """What befalls this request; counts it."""
        return [active.fault for active in self._hit(call, user, continued=continued, dry_run=dry_run)]

    def _hit(self, call: Call, user: str, *, continued: bool, dry_run: bool) -> Iterator[_Active]:
        self._tidy_up()
        for number, active in list(self._active.items()):
            if not active.fault.hits(call, user, continued=continued, dry_run=dry_run):
                continue
            yield active
            if active.left is not None:
                active.left -= 1
                if active.left == 0:
                    del self._active[number]

    def _tidy_up(self) -> None:
        now_s = self._monotonic()
        ended = [
            n for n, active in self._active.items() if active.until_s is not None and active.until_s <= now_s
        ]
        for number in ended:
            del self._active[number]


def _any_match(globs: tuple[str, ...], text: str) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
