"""The one place that knows which VMs we have on the move, and what VMs and nodes have been through lately.

State here is intent and memory; facts about the cluster stay in the stores. Readers get a frozen view.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from cachetools import TTLCache

from controller.evictions.entry import AWAITING_SIGN, Entry, Phase
from controller.evictions.views import Alarm, Finished, LedgerView, Refusal
from controller.policy.durations import LONGEST
from informers.clock import Clock

_Memory: TypeAlias = (
    "tuple[dict[str, tuple[Finished, ...]], dict[str, tuple[Finished, ...]], dict[str, Refusal]]"
)


class Ledger:
    """Open entries and memory, behind one lock that is never held over a request.

    Invariants: at most one entry in flight per VMI UID; an ended entry is not kept; ``version`` grows with every
    change. Memory is bounded: at most ``_PER_SUBJECT`` of each kind (as many failures as a breaker may count) for each
    of ``_SUBJECTS`` VMs or nodes, forgotten after ``LONGEST``, the longest time that a rule may look back.

    Thread-safe. Writers: the descheduler's handlers only.
    """

    _PER_SUBJECT = 100
    _SUBJECTS = 100_000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._version = 0
        self._entries: dict[str, Entry] = {}
        remember_s, timer = LONGEST.total_seconds(), clock.monotonic
        self._finished: TTLCache[str, tuple[Finished, ...]] = TTLCache(self._SUBJECTS, remember_s, timer)
        self._failures: TTLCache[str, tuple[Finished, ...]] = TTLCache(self._SUBJECTS, remember_s, timer)
        self._refusals: TTLCache[str, Refusal] = TTLCache(self._SUBJECTS, remember_s, timer)
        self._alarm: Alarm | None = None
        # Parts of the view, and the view, as long as nothing has changed them: memory is large and changes seldom.
        self._memory: _Memory | None = None
        self._view: LedgerView | None = None

    def view(self) -> LedgerView:
        """A frozen look; the same object until something changes."""
        with self._lock:
            if self._memory is None:
                self._memory = dict(self._finished), dict(self._failures), dict(self._refusals)
            if self._view is None:
                entries = tuple(self._entries.values())
                self._view = LedgerView(self._version, entries, *self._memory, self._alarm)
            return self._view

    def try_open(self, entry: Entry, view_version: int) -> bool:
        """Reserve a slot before any request leaves.

        False, and nothing reserved, if the ledger has changed since the view on which the limits were checked: the
        check and the reservation are one step that way, and the caller plans again. False as well if that VM is in
        flight already.
        """
        with self._lock:
            return view_version == self._version and self._add(entry)

    def adopt(self, entry: Entry) -> bool:
        """Take up a migration found in the cluster. False if it is over, or that VM has an entry in flight already."""
        with self._lock:
            return self._add(entry)

    def confirm(self, pod_uid: str) -> Entry | None:
        """The request was accepted: from now on the cluster should show a sign.

        Returns the entry as it is now; ``None`` if the watch has shown more meanwhile, and that stays.
        """
        return self._answered(pod_uid, Phase.REQUESTED)

    def lose_answer(self, pod_uid: str) -> Entry | None:
        """No answer came: the entry counts until the cluster shows what became of it.

        Returns the entry as it is now; ``None`` if the watch has shown more meanwhile, and that stays.
        """
        return self._answered(pod_uid, Phase.UNKNOWN)

    def _answered(self, pod_uid: str, phase: Phase) -> Entry | None:
        with self._lock:
            entry = self._entries.get(pod_uid)
            if entry is None or entry.phase is not Phase.REQUESTED:
                return None
            entry = self._entries[pod_uid] = replace(entry, phase=phase, answered_at=self._clock.now())
            self._changed()
            return entry

    def release(self, pod_uid: str) -> bool:
        """The request was refused, or never sent: we have nothing on the move.

        False, and the entry stays, if the watch has shown meanwhile that the VM does move: somebody else was quicker.
        """
        with self._lock:
            entry = self._entries.get(pod_uid)
            if entry is None or entry.phase not in AWAITING_SIGN:
                return False
            del self._entries[pod_uid]
            self._changed()
            return True

    def observe(self, before: Entry, after: Entry, rest: Refusal | None = None) -> bool:
        """Put the entry's next state in place of the one it was computed from; False if that is no longer there.

        ``rest``: noted with it, so that nobody picks the VM in between.
        """
        with self._lock:
            if self._entries.get(before.pod_uid) is not before:
                return False
            if after.open:
                self._entries[after.pod_uid] = after
            else:
                del self._entries[before.pod_uid]
            if rest is not None:
                self._refusals[after.vmi_uid] = rest
                self._memory = None
            self._changed()
            return True

    def remember(self, finished: Finished) -> bool:
        """Note that a migration ended; False if that was known, or is too long ago to be kept beside the others."""
        with self._lock:
            known = self._finished.get(finished.vmi_uid, ())
            if any(f.vmim_uid == finished.vmim_uid for f in known):
                return False
            ordered = sorted((*known, finished), key=lambda f: (f.at, f.vmim_uid))
            kept = tuple(ordered[-self._PER_SUBJECT :])
            if finished not in kept:
                return False
            self._finished[finished.vmi_uid] = kept
            self._note_for_node(finished)
            self._memory = None
            self._changed()
            return True

    def refuse(self, vmi_uid: str, refusal: Refusal) -> None:
        """Note that the API would not evict this VM, so that it is not asked again and again."""
        with self._lock:
            self._refusals[vmi_uid] = refusal
            self._memory = None
            self._changed()

    def raise_alarm(self, alarm: Alarm) -> None:
        """Stop all evicting under the policy that the alarm names."""
        with self._lock:
            self._alarm = alarm
            self._changed()

    def forget_alarm(self, unless_under: str) -> None:
        """Drop an alarm that was raised under another policy than that of this digest: the policy has changed."""
        with self._lock:
            if self._alarm is not None and self._alarm.policy_digest != unless_under:
                self._alarm = None
                self._changed()

    def replace_all(self, entries: Iterable[Entry], finished: Iterable[Finished]) -> None:
        """Start afresh from what the cluster shows; refusals and the alarm stay."""
        with self._lock:
            self._entries.clear()
            for entry in entries:
                self._add(entry)
            self._finished.clear()
            self._failures.clear()
            self._memory = None
            self._changed()
        for f in sorted(finished, key=lambda f: (f.at, f.vmim_uid)):
            self.remember(f)

    def _note_for_node(self, finished: Finished) -> None:
        """Keep the failures since the last success; called with the lock held."""
        node, known = finished.source, self._failures.get(finished.source, ())
        if finished.succeeded:
            known = tuple(f for f in known if f.at > finished.at)
        elif node:
            known = tuple(sorted((*known, finished), key=lambda f: f.at)[-self._PER_SUBJECT :])
        if known:
            self._failures[node] = known
        else:
            self._failures.pop(node, None)

    def _add(self, entry: Entry) -> bool:
        """Keeps the invariants; the caller holds the lock."""
        moving = any(e.vmi_uid == entry.vmi_uid and e.in_flight for e in self._entries.values())
        if not entry.open or moving or entry.pod_uid in self._entries:
            return False
        self._entries[entry.pod_uid] = entry
        self._changed()
        return True

    def _changed(self) -> None:
        self._version += 1
        self._view = None
