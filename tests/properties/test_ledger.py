"""The ledger's guarantees, for any sequence of its verbs."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.evictions.entry import ENDED, Entry, Phase
from controller.evictions.ledger import Ledger
from controller.evictions.views import Alarm, LedgerView, Refusal
from informers.testing import ManualClock
from tests.builders import START
from tests.controller.decision_builders import entry, finished

vms = st.sampled_from(["vm-1", "vm-2", "vm-3"])
pods = st.sampled_from(["a", "b"])
nodes = st.sampled_from(["node-1", "node-2", ""])
minutes = st.integers(0, 300).map(lambda m: START + timedelta(minutes=m))
ON_THE_MOVE = [p for p in Phase if p not in ENDED]


class AnyLedger(RuleBasedStateMachine):
    """Drives one ledger; what it must hold is compared with a plain dictionary of entries."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.ledger = Ledger(self.clock)
        self.entries: dict[str, Entry] = {}
        self.version = self.ledger.view().version
        self.frozen: list[tuple[LedgerView, tuple[Entry, ...], int]] = []
        self.news: Counter[tuple[str, str]] = Counter()

    def some_entry(self, vm: str, pod: str, phase: Phase) -> Entry:
        return entry(vm, pod_uid=f"{vm}-{pod}", phase=phase)

    def changed(self, changed: bool) -> None:
        """The version grows with every change, and only then."""
        version = self.ledger.view().version
        assert version > self.version if changed else version == self.version
        self.version = version

    def in_flight(self, vm: str) -> bool:
        return any(e.in_flight and e.vm.name == vm for e in self.entries.values())

    @rule(vm=vms, pod=pods, behind=st.sampled_from([0, 0, 0, 1, 2, -1]))
    def try_open(self, vm: str, pod: str, behind: int) -> None:
        new = self.some_entry(vm, pod, Phase.REQUESTED)
        expected = behind == 0 and not self.in_flight(vm) and new.pod_uid not in self.entries
        assert self.ledger.try_open(new, self.ledger.view().version - behind) is expected
        if expected:
            self.entries[new.pod_uid] = new
        self.changed(expected)

    @rule(vm=vms, pod=pods, phase=st.sampled_from(list(Phase)))
    def adopt(self, vm: str, pod: str, phase: Phase) -> None:
        new = self.some_entry(vm, pod, phase)
        expected = phase not in ENDED and not self.in_flight(vm) and new.pod_uid not in self.entries
        assert self.ledger.adopt(new) is expected
        if expected:
            self.entries[new.pod_uid] = new
        self.changed(expected)

    @rule(vm=vms, pod=pods, accepted=st.booleans())
    def answer(self, vm: str, pod: str, accepted: bool) -> None:
        known = self.entries.get(f"{vm}-{pod}")
        (self.ledger.confirm if accepted else self.ledger.lose_answer)(f"{vm}-{pod}")
        awaited = known is not None and known.phase is Phase.REQUESTED
        if known is not None and awaited:
            phase = Phase.REQUESTED if accepted else Phase.UNKNOWN
            self.entries[known.pod_uid] = replace(known, phase=phase, answered_at=self.clock.now())
        self.changed(awaited)

    @rule(vm=vms, pod=pods)
    def release(self, vm: str, pod: str) -> None:
        known = self.entries.get(f"{vm}-{pod}")
        released = known is not None and known.phase in (Phase.REQUESTED, Phase.UNKNOWN)
        assert self.ledger.release(f"{vm}-{pod}") is released
        if released:
            del self.entries[f"{vm}-{pod}"]
        self.changed(released)

    @rule(vm=vms, pod=pods, phase=st.sampled_from(list(Phase)), stale=st.booleans())
    def observe(self, vm: str, pod: str, phase: Phase, stale: bool) -> None:
        known = {e.pod_uid: e for e in self.ledger.view().entries}.get(f"{vm}-{pod}")
        if known is None or (known.phase is Phase.SETTLING and phase not in ENDED):
            return  # what settles does not take off again
        before = replace(known) if stale else known
        after = replace(known, phase=phase)
        assert self.ledger.observe(before, after) is not stale
        if not stale and after.open:
            self.entries[known.pod_uid] = after
        elif not stale:
            del self.entries[known.pod_uid]
        self.changed(not stale)

    @rule(vm=vms, number=st.integers(0, 9), at=minutes, succeeded=st.booleans(), source=nodes)
    def remember(self, vm: str, number: int, at: Any, succeeded: bool, source: str) -> None:
        news = self.ledger.remember(
            finished(f"vmim-{number}", vm=vm, at=at, succeeded=succeeded, source=source)
        )
        self.news[vm, f"vmim-{number}"] += news
        self.changed(news)

    @rule(vm=vms)
    def refuse(self, vm: str) -> None:
        self.ledger.refuse(f"vmi-{vm}", Refusal("no", START))
        self.changed(True)

    @rule()
    def alarm(self) -> None:
        self.ledger.raise_alarm(Alarm("down", "digest"))
        self.changed(True)

    @rule(
        found=st.lists(
            st.builds(entry, vms, pod_uid=st.text("xyz", min_size=1), phase=st.sampled_from(Phase))
        )
    )
    def start_afresh(self, found: list[Entry]) -> None:
        self.ledger.replace_all(found, [])
        self.entries = {}
        for new in found:  # the first of each VM, so that the guarantees hold from the start
            if new.open and new.pod_uid not in self.entries and not self.in_flight(new.vm.name):
                self.entries[new.pod_uid] = new
        self.news.clear()
        self.changed(True)

    @rule()
    def keep_a_view(self) -> None:
        view = self.ledger.view()
        self.frozen.append((view, view.entries, len(view.finished)))

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert {e.pod_uid: e for e in self.ledger.view().entries} == self.entries

    @invariant()
    def at_most_one_entry_in_flight_per_vmi(self) -> None:
        flying = Counter(e.vmi_uid for e in self.ledger.view().entries if e.in_flight)
        assert all(count == 1 for count in flying.values())

    @invariant()
    def keeps_no_ended_entry(self) -> None:
        assert all(e.open for e in self.ledger.view().entries)

    @invariant()
    def remembers_each_migration_once_in_order(self) -> None:
        for remembered in self.ledger.view().finished.values():
            assert len({f.vmim_uid for f in remembered}) == len(remembered)
            assert [f.at for f in remembered] == sorted(f.at for f in remembered)
        assert all(count <= 1 for count in self.news.values())

    @invariant()
    def views_handed_out_never_change(self) -> None:
        for view, entries, finished_vms in self.frozen:
            assert view.entries == entries
            assert len(view.finished) == finished_vms


AnyLedger.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyLedger = AnyLedger.TestCase
