"""The descheduler: finds over-utilised nodes, evicts one VM, follows its live migration to the end.

The story, top to bottom: metrics are refreshed, nodes are classified, each over-utilised node is considered, a VM is
chosen, a slot is reserved in the ledger, the eviction is sent as a dry run and then for real, the migration is
followed until the metrics show it, and a freed slot wakes the nodes that wait. Every handler looks at the stores and
may run at any time, any number of times; every decision is a pure function elsewhere.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import Vmi
from controller.cluster.view import ClusterView
from controller.evictions.answers import NOT_THE_VMS_FAULT, PASSING, EvictionAnswer, Verdict
from controller.evictions.entry import Entry, Phase
from controller.evictions.foreign import marked_by_another
from controller.evictions.gate import why_closed
from controller.evictions.ledger import Ledger
from controller.evictions.plan import Plan, closed_gate, entry_for, plan_node
from controller.evictions.select import Choice, weigh, why_not
from controller.evictions.views import Alarm, LedgerView, Refusal
from controller.following import Following
from controller.keys import (
    Consider,
    Follow,
    ForeignMark,
    Key,
    Reclassify,
    Refresh,
    is_urgent,
    keys_of_node,
    keys_of_vmi,
    keys_of_vmim,
)
from controller.monitor import Monitor
from controller.policy.model import Mode, Policy
from controller.ports import DescheduleObserver, EvictionApi, MetricsSource
from controller.survey import Survey
from controller.utilization.classify import Classification, NodeClass
from controller.utilization.reading import MetricsError
from informers.clock import Clock
from informers.store import Change
from informers.workers import Again, Workers
from informers.workqueue import WorkQueue

WAIT_FOR_POLICY = timedelta(seconds=5)
WAIT_FOR_REBUILD = timedelta(seconds=1)
PLAN_AGAIN = timedelta(seconds=1)
MOST_PATIENCE = timedelta(minutes=5)
"""However long the API server asks us to wait: one odd answer must not stop all evicting for a day."""


class Descheduler:
    """Handlers of the queue keys. State lives in the stores, the monitor and the ledger, not here.

    ``start`` is called once, when the caches have synced (and the lease is held). Nothing is decided before there is a
    policy and the ledger has been rebuilt from the caches.
    """

    def __init__(
        self,
        caches: ClusterCaches,
        metrics: MetricsSource,
        evictions: EvictionApi,
        observer: DescheduleObserver,
        current_policy: Callable[[], Policy | None],
        clock: Clock,
    ) -> None:
        self._view = ClusterView.over(caches)
        self._api = evictions
        self._observer = observer
        self._current_policy = current_policy
        self._clock = clock
        self._monitor = Monitor(metrics, caches.nodes.lister, clock, with_vms=True)
        self._ledger = Ledger(clock)
        self._rebuilt = False  # set once, by the handler of Refresh
        # Whose time-outs the entries wait for. Handlers that classify; a lost update costs one look too many.
        self._followed_under: Policy | None = None
        # Until when the API server asked us to be patient. Any handler; a lost update costs one request too early.
        self._patience_until = clock.now()
        self._survey = Survey(self._view, self._monitor, clock)
        self._following = Following(
            self._view, self._survey, self._ledger, evictions, observer, clock, self._wake_nodes
        )
        self.workers: Workers[Key] = Workers(WorkQueue(urgent=is_urgent), self.handle, clock, observer.failed)
        caches.nodes.add_handler(keys_of_node, self.workers.add)
        caches.vmis.add_handler(keys_of_vmi, self.workers.add)
        caches.vmis.add_handler(self._keys_of_foreign_mark, self.workers.add)
        caches.vmims.add_handler(keys_of_vmim, self.workers.add)

    @property
    def ledger(self) -> LedgerView:
        return self._ledger.view()

    def _keys_of_foreign_mark(self, change: Change[Vmi]) -> list[Key]:
        """Judged at once: later the ledger may know of the VM for another reason. Who stands by cannot tell."""
        if not self._rebuilt or change.new is None or not change.new.evacuation_node_name:
            return []  # as nearly always
        vm = marked_by_another(change.old, change.new, self._ledger.view())
        return [ForeignMark(vm)] if vm is not None else []

    def start(self, alarm: Alarm | None = None) -> None:
        """Begin to refresh. ``alarm``: one that was raised before a restart."""
        if alarm is not None:
            self._ledger.raise_alarm(alarm)
        self.workers.add(Refresh())

    def handle(self, key: Key) -> Again | None:
        policy = self._current_policy()
        if policy is None:
            return Again(WAIT_FOR_POLICY) if isinstance(key, Refresh) else None
        if isinstance(key, Refresh):
            return self._refresh(policy)
        if self._rebuilt:
            match key:
                case Reclassify():
                    self._reclassify(policy)
                    return None
                case Consider(node):
                    return self._consider(node, policy)
                case Follow(vm):
                    return self._following.follow(vm, policy)
                case ForeignMark(vm):
                    self._observer.foreign_mark(vm)
                    return None
        return Again(WAIT_FOR_REBUILD)

    # --- metrics ---

    def _refresh(self, policy: Policy) -> Again:
        self._ledger.forget_alarm(unless_under=policy.digest)
        self._observer.refreshing()
        try:
            self._observer.refreshed(self._monitor.refresh(policy))
        except MetricsError as error:
            self._observer.metrics_failed(str(error))
        if not self._rebuilt:
            moving = self._following.rebuild(policy)
            self._rebuilt = True
            for vm in moving:
                self.workers.add(Follow(vm))
        self._reclassify(policy)
        return Again(policy.metrics.refresh_interval)

    def _reclassify(self, policy: Policy) -> None:
        classification = self._monitor.reclassify(policy)
        self._observer.classified(classification)
        other_times, self._followed_under = self._followed_under is not policy, policy
        for entry in self._ledger.view().entries:
            if other_times or entry.phase is Phase.SETTLING:
                self.workers.add(Follow(entry.vm))
        self._wake_nodes()

    def _wake_nodes(self) -> None:
        """Let every over-utilised node be considered, worst first."""
        policy = self._current_policy()
        classification = self._monitor.classification(policy) if policy is not None else None
        if classification is not None and not classification.skipped:
            for node in classification.over_utilised():
                self.workers.add(Consider(node))

    # --- deciding and evicting ---

    def _consider(self, node: str, policy: Policy) -> Again | None:
        if (patience := self._patience_until - self._clock.now()) > timedelta(0):
            return Again(patience)
        plan, view = self._plan(node, policy)
        if plan is None:
            return None
        self._observer.planned(plan)
        if plan.choice is None or policy.mode is Mode.PREDICTIVE:
            return None  # a freed slot, a settled move or the next refresh asks again
        known = frozenset(m.metadata.uid for m in self._view.migrations_of(plan.choice.candidate.vmi))
        entry = entry_for(plan.choice, node, known, self._clock.now())
        if not self._ledger.try_open(entry, view.version):
            self._plan_again(node)  # the ledger has changed since the view
            return None
        self._observer.transition(None, entry)  # before anybody tells what became of it
        self.workers.add(Follow(entry.vm))  # whatever happens now, the entry is looked after
        return self._evict(plan, entry, policy)

    def _plan(self, node: str, policy: Policy) -> tuple[Plan | None, LedgerView]:
        """The plan for a node as everything stands now; ``None`` if it is not, or no longer, over-utilised."""
        view, classification = self._ledger.view(), self._monitor.classification(policy)
        if classification is None or not self._is_over(node, classification, policy):
            return None, view
        verdict, slots = classification.nodes[node], self._survey.slots_of(node, policy, view)
        # A freed slot wakes all nodes that wait, and most find the gate closed again: they need no look at their VMs.
        if (closed := closed_gate(verdict, slots, view, policy, self._clock.now())) is not None:
            return closed, view
        ground = self._survey.ground(node, policy, view)
        return (plan_node(verdict, slots, ground) if ground is not None else None), view

    def _is_over(self, node: str, classification: Classification, policy: Policy) -> bool:
        """Whether a classification that may still be decided on has it over-utilised.

        Values were young enough when it was made; while a refresh hangs, nobody makes a newer one.
        """
        current = self._clock.now() - classification.at <= policy.metrics.max_age
        return current and not classification.skipped and classification.class_of(node) is NodeClass.OVER

    def _evict(self, plan: Plan, entry: Entry, policy: Policy) -> Again | None:
        """Dry run, then the request; the slot is reserved already and is released unless the VM moves."""
        assert plan.choice is not None  # noqa: S101 - the caller has looked
        pod = plan.choice.candidate.pod
        accepted = {Verdict.TRIGGERED}
        if policy.evictions.allow_shutdown:
            accepted.add(Verdict.GRANTED)
        for dry_run in (True, False):
            if not self._still_right(entry, policy):
                self._release(entry)
                return Again(PLAN_AGAIN)
            answer = self._api.evict(pod, dry_run=dry_run)
            self._observer.answered(entry, answer, dry_run=dry_run)
            if answer.verdict in accepted:
                continue
            if dry_run or answer.verdict not in (Verdict.NO_ANSWER, Verdict.GRANTED):
                return self._refused(entry, answer, policy)
            self._may_be_moving(entry, answer, policy)
        self._ledger.confirm(entry.pod_uid)
        self.workers.add(Follow(entry.vm))  # its time to show a sign begins now
        self._plan_again(entry.source)  # there may be room for another
        return None

    def _may_be_moving(self, entry: Entry, answer: EvictionAnswer, policy: Policy) -> None:
        """The request may have been carried out: the entry stays, and ``Follow`` finds out."""
        if answer.verdict is Verdict.GRANTED:
            pod = self._view.launcher(entry.pod_uid)
            if pod is not None and pod.finished:
                self._release(entry)  # it had finished meanwhile: only the pod goes
            else:
                self._alarm(entry, self._current_policy() or policy)
        elif (unknown := self._ledger.lose_answer(entry.pod_uid)) is not None:
            self._observer.transition(entry, unknown)

    def _still_right(self, entry: Entry, policy: Policy) -> bool:
        """The plan once more against the stores as they are now; only our own reservation has come since."""
        view, classification = self._ledger.view(), self._monitor.classification(policy)
        if self._current_policy() is not policy or classification is None:
            return False
        if not self._is_over(entry.source, classification, policy):
            return False
        others = replace(view, entries=tuple(e for e in view.entries if e.pod_uid != entry.pod_uid))
        slots = self._survey.slots_of(entry.source, policy, others)
        if why_closed(entry.source, slots, others, policy, self._clock.now()) is not None:
            return False
        ground = self._survey.ground(entry.source, policy, others)
        if ground is None or ground.source.unschedulable or not ground.source.ready:
            return False
        same = [c for c in ground.candidates if c.pod.metadata.uid == entry.pod_uid]
        return bool(same) and why_not(same[0], ground) is None and isinstance(weigh(same[0], ground), Choice)

    def _refused(self, entry: Entry, answer: EvictionAnswer, policy: Policy) -> Again | None:
        """Give the slot back. A verdict on the VM is remembered, so that it is not asked again and again."""
        now, rest = self._clock.now(), None
        if answer.verdict is Verdict.NO_ANSWER:
            rest = Refusal.after("no answer came", policy.metrics.refresh_interval, now)
        elif answer.verdict not in PASSING | NOT_THE_VMS_FAULT:
            why = f"the API refused: {answer.message or answer.verdict}"
            # An older KubeVirt's webhook out of reach looks like a budget of each VM: none may be held against it long.
            by_budget = answer.verdict is Verdict.DISRUPTION_BUDGET
            rests = policy.effective_settle if by_budget else policy.evictions.cooldown.base
            rest = Refusal.after(why, rests, now)
        if rest is not None:  # before the slot is free, lest somebody picks the same VM again
            self._ledger.refuse(entry.vmi_uid, rest)
        if answer.retry_after is not None:
            self._patience_until = now + min(answer.retry_after, MOST_PATIENCE)
        self._release(entry)
        if answer.verdict in PASSING:
            return None  # the stores will show why
        if answer.verdict in NOT_THE_VMS_FAULT:
            return Again(min(answer.retry_after or policy.metrics.refresh_interval, MOST_PATIENCE))
        # Another VM of this node may do, or another node waits for the slot. After trouble of the API nobody is woken:
        # two nodes would wake each other without end.
        self._wake_nodes()
        return None

    def _plan_again(self, node: str) -> None:
        self.workers.add(Consider(node))

    def _release(self, entry: Entry) -> None:
        if self._ledger.release(entry.pod_uid):
            self._observer.transition(entry, None)

    def _alarm(self, entry: Entry, policy: Policy) -> None:
        reason = f"the eviction of {entry.vm} was granted, so the VM goes down instead of migrating"
        alarm = Alarm(reason, policy.digest)
        self._ledger.raise_alarm(alarm)
        self._observer.alarmed(alarm, entry)
