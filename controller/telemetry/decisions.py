"""What the running descheduler has decided lately, and why: the page ``/debug/decisions``.

The answer has the form of ``vm-rebalancer plan``'s report. It is bounded, whatever the cluster's size and whatever
others put into their names and messages, and holds no more of the policy than its digest and the names of queries.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import islice
from threading import Lock
from typing import NamedTuple

import msgspec

from controller.cluster.objects import Node
from controller.cluster.view import ClusterView
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Entry, VmKey
from controller.evictions.gate import Slots, count_slots, effective_limits, stopped
from controller.evictions.picture import charge
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm, LedgerView
from controller.policy.model import Policy
from controller.report import Decisions, Ended, Head, Move, NodePlan, NodeRow, StandBy, Why
from controller.reporting import (
    TREND_SNAPSHOTS,
    badness,
    class_of,
    cut,
    edges_of,
    grouped,
    move_of,
    node_row,
    on_the_move,
    rounded,
)
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from informers.clock import Clock
from informers.errors import SHORT, as_shown

MOST_NODES = 300
MOST_PLANS = 50
MOST_CHOSEN = 20
MOST_MOVING = 200
MOST_ENDED = 50
MOST_NAMES = 3
"""VMs named for each reason."""
MOST_CHARACTERS = 200
"""Of a text that others may make as long as they like."""

Content = tuple[HTTPStatus, str, bytes]


class _Planned(NamedTuple):
    """``excess``: of the node, at that time."""

    excess: float
    shown: NodePlan


class DecisionLog:
    """Observer of the descheduler; may be called, and asked, from any thread.

    ``may_decide``: whether this replica decides now; ``holder``: who holds the lease, "" if that is not known.
    """

    def __init__(
        self,
        view: ClusterView,
        ledger: Callable[[], LedgerView],
        current_policy: Callable[[], Policy | None],
        clock: Clock,
        identity: str,
        may_decide: Callable[[], bool],
        holder: Callable[[], str],
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._current_policy = current_policy
        self._clock = clock
        self._identity = identity
        self._may_decide = may_decide
        self._holder = holder
        self._lock = Lock()  # guards all below; what they hold is never changed
        self._snapshots: deque[Snapshot] = deque(maxlen=TREND_SNAPSHOTS)
        self._trouble = ""
        self._classification: Classification | None = None
        self._plans: dict[str, _Planned] = {}  # by node, the latest last
        self._chosen: deque[NodePlan] = deque(maxlen=MOST_CHOSEN)
        self._ended: deque[Ended] = deque(maxlen=MOST_ENDED)
        self._refusals: dict[str, str] = {}  # of open entries, by pod UID

    # --- what the descheduler tells ---

    def refreshing(self) -> None:
        """Its end is what counts."""

    def refreshed(self, snapshot: Snapshot) -> None:
        with self._lock:
            if self._snapshots and self._snapshots[-1].values.keys() != snapshot.values.keys():
                self._snapshots.clear()  # another policy asks for something else
            self._snapshots.append(snapshot)
            self._trouble = ""

    def metrics_failed(self, reason: str) -> None:
        with self._lock:
            self._trouble = cut(reason, MOST_CHARACTERS)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        """A matter for the log."""

    def classified(self, classification: Classification) -> None:
        with self._lock:
            self._classification = classification
            if not classification.skipped:
                over = set(classification.over_utilised())
                self._plans = {node: planned for node, planned in self._plans.items() if node in over}

    def planned(self, plan: Plan) -> None:
        shown = self._shown(plan)
        with self._lock:
            before = self._plans.pop(plan.node, None)
            if (
                plan.gate_closed and before is not None
            ):  # most of the time: else nobody would see why VMs stay
                shown = _as_looked_at(shown, before.shown)
            self._plans[plan.node] = _Planned(plan.verdict.excess, shown)
            if len(self._plans) > MOST_PLANS:
                del self._plans[min(self._plans, key=lambda node: self._plans[node].excess)]
            if shown.move is not None:
                self._note_choice(shown, shown.move)

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        if answer.verdict is not Verdict.TRIGGERED:
            asked = "dry run" if dry_run else "eviction"
            said = f"{asked}: {answer.verdict}: {as_shown(answer.message, SHORT)}"
            with self._lock:
                self._refusals[entry.pod_uid] = cut(said, MOST_CHARACTERS)
                if len(self._refusals) > MOST_MOVING:
                    del self._refusals[next(iter(self._refusals))]

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        last = after or before
        if last is None or (after is not None and after.open):
            return
        ended_at = self._clock.now() if after is None else after.ended_at or after.changed_at
        with self._lock:
            answer = self._refusals.pop(last.pod_uid, "")
            self._ended.append(
                Ended(
                    vm=str(last.vm),
                    source=last.source,
                    target=last.target,
                    phase=str(after.phase) if after is not None else "Released",
                    at=ended_at,
                    took_s=(ended_at - last.opened_at).total_seconds(),
                    failed_attempts=last.attempts_failed,
                    ours=last.ours,
                    answer=answer,
                )
            )

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        """The ledger keeps it."""

    def foreign_mark(self, vm: VmKey) -> None:
        """No decision of ours."""

    # --- what it answers ---

    def page(self, _: str) -> Content:
        """For the health port. A replica that does not decide answers 503 and says who may."""
        shown: Decisions | StandBy = self.decisions() if self._may_decide() else self._standing_by()
        status = HTTPStatus.OK if isinstance(shown, Decisions) else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", msgspec.json.encode(shown) + b"\n"

    def decisions(self) -> Decisions:
        policy, ledger, now = self._current_policy(), self._ledger(), self._clock.now()
        with self._lock:
            snapshots, classification = tuple(self._snapshots), self._classification
            plans = [planned.shown for planned in self._plans.values()]
            chosen, ended = [*self._chosen], [*self._ended]
            trouble = self._trouble
        rows = self._rows(policy, classification, snapshots, ledger, now) if policy is not None else ()
        alarm = stopped(ledger, policy) if policy is not None else None
        newest = sorted(ledger.entries, key=lambda e: e.changed_at, reverse=True)[:MOST_MOVING]
        shown_rows = tuple(islice(rows, MOST_NODES))
        return Decisions(
            head=self._head(policy, classification, snapshots, trouble, now),
            alarm=cut(alarm.text, 2 * MOST_CHARACTERS) if alarm is not None else "",
            nodes=shown_rows,
            nodes_left_out=max(0, len(self._view.node_names()) - len(shown_rows)) if policy else 0,
            on_the_move=tuple(on_the_move(newest)),
            plans=tuple(reversed(plans)),
            chosen=tuple(reversed(chosen)),
            ended=tuple(sorted(ended, key=lambda e: (e.at, e.vm), reverse=True)),
        )

    def _standing_by(self) -> StandBy:
        return StandBy(identity=self._identity, holder=self._holder())

    def _note_choice(self, shown: NodePlan, move: Move) -> None:
        """In Predictive mode, and while a request fails, the same is chosen again and again: that is one choice."""
        for i, earlier in enumerate(self._chosen):
            known = earlier.move
            if known is not None and (known.vm, known.source) == (move.vm, move.source):
                del self._chosen[i]
                break
        self._chosen.append(shown)

    def _shown(self, plan: Plan) -> NodePlan:
        return NodePlan(
            node=plan.node,
            at=plan.at,
            move=self._move(plan),
            rest=Why(code=plan.rest.code, text=cut(plan.rest.text, MOST_CHARACTERS)) if plan.rest else None,
            passed_over=tuple(grouped(plan.passed_over, MOST_NAMES, MOST_CHARACTERS)),
        )

    def _move(self, plan: Plan) -> Move | None:
        """With the effects as they are expected on the moves under way: nobody has reserved this one yet."""
        choice, source = plan.choice, self._view.node(plan.node)
        if choice is None or source is None:
            return None
        with self._lock:
            loads = self._snapshots[-1].loads if self._snapshots else {}
        both = {name: loads[name] for name in (source.name, choice.target) if name in loads}
        return move_of(choice, source, self._view.node(choice.target), charge(both, self._ledger().entries))

    def _head(
        self,
        policy: Policy | None,
        classification: Classification | None,
        snapshots: tuple[Snapshot, ...],
        trouble: str,
        now: datetime,
    ) -> Head:
        skipped = classification.skipped if classification is not None else "nothing was classified yet"
        return Head(
            cluster=f"descheduler {self._identity}",
            taken_at=now,
            metrics_at=snapshots[-1].taken_at if snapshots else None,
            mode=str(policy.mode) if policy is not None else "",
            policy_digest=policy.digest if policy is not None else "",
            sustain=policy.thresholds.sustain if policy is not None else 0,
            judged_by=policy.thresholds.sustain if policy is not None else 0,
            eligible=len(classification.nodes) if classification is not None else 0,
            coverage=rounded(classification.coverage) if classification is not None else 0.0,
            thresholds=edges_of(classification) if classification is not None else {},
            skipped=skipped if policy is not None else "no valid policy was seen yet",
            notes=(f"no fresh metrics: {trouble}",) if trouble else (),
        )

    def _rows(
        self,
        policy: Policy,
        classification: Classification | None,
        snapshots: tuple[Snapshot, ...],
        ledger: LedgerView,
        now: datetime,
    ) -> Iterator[NodeRow]:
        """Worst first; each is made when it is asked for."""
        if classification is None:
            return
        limits = effective_limits(policy.evictions.limits, self._view.kubevirt())
        for node, classed in self._worst_first(policy, classification):
            slots: Slots = count_slots(
                node.name, ledger, (), limits, policy.evictions.migration_timeout, now
            )  # the ledger has everybody's migrations
            yield node_row(
                node,
                (classed[0], cut(classed[1], MOST_CHARACTERS)),
                classification.nodes.get(node.name),
                snapshots,
                slots,
                len(self._view.vms_on(node.name)),
            )

    def _worst_first(
        self, policy: Policy, classification: Classification
    ) -> Iterable[tuple[Node, tuple[str, str]]]:
        ranked = []
        for node in filter(None, map(self._view.node, self._view.node_names())):
            classed = class_of(node, classification, policy.node_selector)
            verdict = classification.nodes.get(node.name)
            excess = verdict.excess if verdict is not None and verdict.values else None
            ranked.append((badness(classed[0], excess, node.name), node, classed))
        ranked.sort(key=lambda each: each[0])
        return [(node, classed) for _, node, classed in ranked]


def _as_looked_at(shown: NodePlan, before: NodePlan) -> NodePlan:
    """With the VMs that were passed over when they were last looked at."""
    if not before.passed_over:
        return shown
    at = before.passed_over_at or before.at
    return msgspec.structs.replace(shown, passed_over=before.passed_over, passed_over_at=at)
