"""What decisions may know of the ledger: frozen values, and the rules that only look at them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from controller.evictions.entry import Entry
from controller.policy.model import Breaker, Cooldown


class Finished(NamedTuple):
    """One migration that ended, whoever asked for it."""

    vmim_uid: str
    vmi_uid: str
    source: str
    succeeded: bool
    at: datetime
    took: timedelta


SHORTEST_REST = timedelta(seconds=30)


class Refusal(NamedTuple):
    """The API would not evict this VM; asking again soon would only get the same answer."""

    reason: str
    until: datetime

    @classmethod
    def after(cls, reason: str, rest: timedelta, now: datetime) -> "Refusal":
        """Rests for ``rest``, but never so short, whatever the policy says, that it is asked in a loop."""
        return cls(reason, now + max(rest, SHORTEST_REST))


class Alarm(NamedTuple):
    """A VM went down by our hand: all evicting stops until the policy is changed."""

    reason: str
    policy_digest: str


@dataclass(frozen=True, slots=True)
class LedgerView:
    """A frozen look at the ledger. ``version`` grows with every change of it."""

    version: int
    entries: tuple[Entry, ...] = ()
    finished: Mapping[str, tuple[Finished, ...]] = field(default_factory=dict)
    """VMI UID -> its remembered migrations, oldest first."""
    failures: Mapping[str, tuple[Finished, ...]] = field(default_factory=dict)
    """Node -> migrations away from it that failed since the last that succeeded, oldest first."""
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """VMI UID -> the last refusal."""
    alarm: Alarm | None = None

    def cooling_until(self, vmi_uid: str, cooldown: Cooldown, now: datetime) -> datetime | None:
        """Until when this VM rests after its migrations inside the window; ``None`` if it does not.

        It rests for ``base``, doubled with each further migration, at most ``max``, and never for less time than
        its last migration took.
        """
        moves = [f for f in self.finished.get(vmi_uid, ()) if f.succeeded and f.at > now - cooldown.window]
        if not moves:
            return None
        doubled_s = cooldown.base.total_seconds() * 2.0 ** min(len(moves) - 1, 64)
        rest = timedelta(seconds=min(doubled_s, cooldown.max.total_seconds()))
        until = moves[-1].at + max(rest, moves[-1].took)
        return until if until > now else None

    def vm_resting_until(self, vmi_uid: str, breaker: Breaker, now: datetime) -> datetime | None:
        failed = [f.at for f in self.finished.get(vmi_uid, ()) if not f.succeeded]
        return _tripped_until(failed, breaker, now)

    def node_resting_until(self, node: str, breaker: Breaker, now: datetime) -> datetime | None:
        """A node rests when different VMs fail to leave it and none succeeds: one bad VM says nothing of its node."""
        last: dict[str, datetime] = {f.vmi_uid: f.at for f in self.failures.get(node, ())}
        return _tripped_until(last.values(), breaker, now)

    def refusal(self, vmi_uid: str, now: datetime) -> Refusal | None:
        refusal = self.refusals.get(vmi_uid)
        return refusal if refusal is not None and refusal.until > now else None


def _tripped_until(failed: Iterable[datetime], breaker: Breaker, now: datetime) -> datetime | None:
    """A circuit breaker: so many failures within a time, and it rests, counted from the failure that tripped it."""
    times = sorted(failed)
    for last in range(len(times) - 1, breaker.failures - 2, -1):
        if times[last] - times[last - breaker.failures + 1] <= breaker.within:
            until = times[last] + breaker.rest
            return until if until > now else None
    return None
