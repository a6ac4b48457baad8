"""What became of the VMs on the move: brings the ledger's entries up to what the cluster shows.

Whoever asked for a migration, it is followed: it takes the same slots, and its arrival has to settle as well.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from controller.cluster.objects import Vmi
from controller.cluster.view import ClusterView
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.ledger import Ledger
from controller.evictions.lifecycle import Timing, advance, lost, next_look, overdue, under_way
from controller.evictions.rebuild import finished_migrations, found_in_flight, found_settling
from controller.evictions.views import Finished, Refusal
from controller.policy.model import Policy
from controller.ports import DescheduleObserver, EvictionApi
from controller.survey import Survey
from informers.clock import Clock
from informers.workers import Again

LOOK_AGAIN = timedelta(milliseconds=100)


class Following:
    """``wake`` is called when a slot has become free."""

    def __init__(
        self,
        view: ClusterView,
        survey: Survey,
        ledger: Ledger,
        api: EvictionApi,
        observer: DescheduleObserver,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._view = view
        self._survey = survey
        self._ledger = ledger
        self._api = api
        self._observer = observer
        self._clock = clock
        self._wake = wake

    def follow(self, vm: VmKey, policy: Policy) -> Again | None:
        """Bring the entries of one VM up to what the stores show, and take up what has no entry yet."""
        timing, now = timing_of(policy), self._clock.now()
        vmi = self._view.vmi(vm)
        waits = []
        for entry in [e for e in self._ledger.view().entries if e.vm == vm]:
            after = advance(
                entry, self._survey.sighting(entry, vmi), self._survey.evidence(entry), timing, now
            )
            if overdue(after, timing, now):
                after = self._look_up(after, timing)
            if after.load is None and after.in_flight and (load := self._survey.load_of(vm)) is not None:
                after = replace(after, load=load)  # opened while it was not measured
            if not self._put(entry, after, policy):
                waits.append(LOOK_AGAIN)  # it has changed meanwhile
            elif after.open and (wait := next_look(after, timing, now)) is not None:
                waits.append(wait)
        if vmi is not None and (found := self._take_up(vmi, policy)) is not None:
            waits.extend(filter(None, [next_look(found, timing, now)]))
        return Again(max(min(waits), LOOK_AGAIN)) if waits else None

    def _look_up(self, entry: Entry, timing: Timing) -> Entry:
        """No sign came: ask the API itself, once, before the eviction is given up for lost."""
        vmi = self._api.read_vmi(entry.vm)
        now = self._clock.now()
        after = advance(entry, self._survey.sighting(entry, vmi), self._survey.evidence(entry), timing, now)
        if after.phase is Phase.SETTLING:
            # A fresh VMI beside VMIMs of the caches, which are behind: they will show when it is over.
            after = under_way(entry, now)
        # That the caches have not seen the mark stays so: until they do, they cannot tell that it has gone.
        return lost(after, now) if overdue(after, timing, now) else replace(after, mark_seen=entry.mark_seen)

    def _put(self, before: Entry, after: Entry, policy: Policy) -> bool:
        """Have the ledger show what became of an entry; False if it shows something newer."""
        if after is before:
            return True
        rest = None
        if after.ours and after.phase in (Phase.LOST, Phase.CANCELLED):
            why, cooldown = f"its last eviction was {after.phase}", policy.evictions.cooldown
            rest = Refusal.after(why, cooldown.base, self._clock.now())
        if not self._ledger.observe(before, after, rest):
            return False
        self._observer.transition(before, after)
        freed = before.holds_slot() and not after.holds_slot()
        if freed or (before.counts_cluster_wide() and not after.counts_cluster_wide()):
            self._wake()
        return True

    def _take_up(self, vmi: Vmi, policy: Policy) -> Entry | None:
        """Remember ended migrations for cool-downs and breakers, and open an entry for what has none.

        That is somebody else's migration, or one of which no sign came in time; they ended when we saw it.
        """
        known, timing, now = self._survey.known(vmi), timing_of(policy), self._clock.now()
        ended = finished_migrations(known.migrations, vmi, observed_at=now)
        news = [f for f in ended if self._ledger.remember(f)]
        entries = [e for e in self._ledger.view().entries if e.vmi_uid == vmi.uid]
        if any(e.in_flight for e in entries):
            return None
        # It has just been seen to begin, or to end; API times may be off.
        if (found := found_in_flight(known, timing, now)) is not None:
            found = replace(found, opened_at=now)
        elif any(f.succeeded for f in news) and all(e.target != vmi.node_name for e in entries):
            found = found_settling(known, timing, now)
            found = replace(found, ended_at=now) if found is not None else None
        if found is None:
            return None
        # What we asked for has an entry, unless it was given up for lost; another descheduler's leaves the same traces.
        given_up = self._ledger.view().refusal(vmi.uid, now) is not None
        found = replace(found, ours=found.ours and given_up)
        if not self._ledger.adopt(found):
            return None
        self._observer.transition(None, found)
        return found

    def rebuild(self, policy: Policy) -> list[VmKey]:
        """There is no private storage: what was on the move, and what to remember, is read off the cluster.

        Returns the VMs to follow.
        """
        entries, finished = read_off(self._survey, timing_of(policy), self._clock.now())
        self._ledger.replace_all(entries, finished)
        for entry in entries:
            self._observer.transition(None, entry)
        return [entry.vm for entry in entries]


def read_off(survey: Survey, timing: Timing, now: datetime) -> tuple[list[Entry], list[Finished]]:
    """What the cluster shows to be on the move or to settle, and the migrations that ended."""
    entries: list[Entry] = []
    finished: list[Finished] = []
    for known in survey.everything():
        finished.extend(finished_migrations(known.migrations, known.vmi))
        entry = found_in_flight(known, timing, now) or found_settling(known, timing, now)
        if entry is not None:
            entries.append(entry)
    return entries, finished


def timing_of(policy: Policy) -> Timing:
    evictions = policy.evictions
    return Timing(evictions.acknowledge_timeout, evictions.migration_timeout, policy.effective_settle)
