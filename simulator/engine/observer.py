"""Hears the controller's decisions and keeps them for the report and the event log."""

from collections import Counter
from datetime import timedelta

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.taints.desired import PREFIX
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from simulator.agenda import EPOCH, Agenda
from simulator.engine.events import EventLog
from simulator.engine.invariants import Invariants
from simulator.engine.sampler import NO_OPINION, Opinion
from simulator.record import DecisionRecord, FollowedRecord, WhyNot


class RunObserver:
    """Both programs' observer. What a node's plan says is logged only when it changes."""

    def __init__(self, agenda: Agenda, log: EventLog, invariants: Invariants) -> None:
        self._agenda = agenda
        self._log = log
        self._invariants = invariants
        self.alarm: Alarm | None = None
        """The last one, which the Lease would keep."""
        self.opinion: Opinion = NO_OPINION
        self.decisions: list[DecisionRecord] = []
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._last: dict[str, tuple[str, str]] = {}
        self._followed: dict[str, FollowedRecord] = {}  # by UID of the source pod
        self.errors: list[str] = []

    def refreshing(self) -> None:
        """Takes no time here."""

    def metrics_failed(self, reason: str) -> None:
        self._invariants.metrics_failed()
        self._log.add("metrics failed", reason=reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        self.errors.append(f"{key}: {type(error).__name__}: {error}")
        self._log.add(
            "handler failed", key=str(key), error=str(error), retry_after_s=retry_after.total_seconds()
        )

    def refreshed(self, snapshot: Snapshot) -> None:
        for dropped in snapshot.dropped:
            self._count("SampleDropped", f"{dropped.query} {dropped.subject}: {dropped.reason}")
        if snapshot.warnings:
            self._log.add("metrics incomplete", warnings=list(snapshot.warnings))

    def classified(self, classification: Classification) -> None:
        query = next(iter(classification.limits), "")
        edges = classification.limits.get(query)
        self.opinion = Opinion(
            {n: v.values[query] for n, v in classification.nodes.items() if query in v.values},
            {n: int(v.node_class) for n, v in classification.nodes.items()},
            edges.under if edges else float("nan"),
            edges.over if edges else float("nan"),
            PREFIX,
        )
        over = classification.over_utilised()
        said = (classification.skipped, ",".join(over))
        if self._last.get("") != said:
            self._last[""] = said
            self._log.add("classified", over=over, skipped=classification.skipped)

    def planned(self, plan: Plan) -> None:
        for passed in plan.passed_over:
            self._count(passed.reason.code, f"{passed.vm}: {passed.reason.text}")
        if plan.rest is not None:
            self._count(plan.rest.code, f"{plan.node}: {plan.rest.text}")
        choice = plan.choice
        vm = str(choice.candidate.key) if choice else None
        outcome = "evict" if choice else (plan.rest.code if plan.rest else "")
        why = choice.why if choice else (plan.rest.text if plan.rest else "")
        if self._last.get(plan.node) == (outcome, vm or why):
            return
        self._last[plan.node] = (outcome, vm or why)
        reasons = [plan.verdict.reason, why]
        self.decisions.append(DecisionRecord(self._agenda.now_s, plan.node, vm, outcome, reasons))
        self._log.add("planned", node=plan.node, vm=vm, outcome=outcome, why=why)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        self._invariants.asked(entry)
        verdict = str(answer.verdict)
        self._log.add("answered", vm=str(entry.vm), dry_run=dry_run, verdict=verdict, message=answer.message)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        entry = after or before
        if entry is not None and (before is None or after is None or before.phase is not after.phase):
            phase = str(after.phase) if after else "Released"
            self._log.add("entry", vm=str(entry.vm), source=entry.source, target=entry.target, phase=phase)
        if after is not None and after.ours:
            self._follow(after)

    def _follow(self, entry: Entry) -> None:
        requested_s = (entry.opened_at - EPOCH).total_seconds()
        record = self._followed.setdefault(entry.pod_uid, FollowedRecord(str(entry.vm), requested_s))
        record.vmim_uid = entry.vmim_uid
        if entry.phase is Phase.SETTLING and record.arrived_s is None:
            record.arrived_s = self._agenda.now_s
        if entry.phase is Phase.DONE:
            record.settled_s = self._agenda.now_s

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        self.alarm = alarm
        self._log.add("alarm", vm=str(entry.vm), reason=alarm.reason)

    def foreign_mark(self, vm: VmKey) -> None:
        self._log.add("foreign mark", vm=str(vm))

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        self._log.add("tainting", node=node.name, keys=sorted(keys))

    def followed(self) -> list[FollowedRecord]:
        return list(self._followed.values())

    def why_not(self) -> dict[str, WhyNot]:
        return {code: WhyNot(count, self._examples[code]) for code, count in sorted(self._counts.items())}

    def _count(self, code: str, example: str) -> None:
        self._counts[code] += 1
        self._examples.setdefault(code, example)
