"""What is said in Kubernetes Events, on the VMI, the node or the policy that it is about.

Some things happen, and each of them is said. Others are states that last, such as a VM that cannot be migrated: those
are notices, said only if a person can act on them, and at most once an hour per object and reason. Reasons are those
of the metrics ``vms_passed_over`` and ``nodes_at_rest`` where there is one.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import Lock
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from controller.cluster.queries import Obstacle
from controller.cluster.resources import ConfigMap
from controller.cluster.view import ClusterView
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.select import PassedOver
from controller.evictions.views import Alarm
from controller.policy.durations import format_duration
from controller.policy.model import Mode, Policy
from controller.policy.problems import Problem
from controller.policy.watch import PolicyState
from controller.telemetry.news import News
from controller.utilization.classify import Classification, NodeClass
from controller.utilization.reading import Snapshot
from informers.clock import Clock
from informers.secrets import without_secrets
from informers.store import Lister

MOST_BYTES = 1024
"""Of a message: Kubernetes' own limit."""
LASTS_S = 300.0
"""A node that has just joined, lost a scrape, or sent a VM and does not show it yet, is no news."""
_NO_METRICS = "NoMetrics"
_NO_USEFUL_MOVE = "NoUsefulMove"
_MOVES = 1_000

SKIPPED = frozenset(
    {
        Obstacle.NOT_LIVE_MIGRATABLE,
        Obstacle.NO_EVICTION_STRATEGY,
        Obstacle.UNKNOWN_EVICTION_STRATEGY,
        "FitsNowhere",
        "Breaker",
    }
)
"""Why a VM is passed over, as far as a person can act on it; the rest is wanted, or passes by itself."""
_REFUSED = frozenset({Verdict.NOT_MIGRATABLE, Verdict.DISRUPTION_BUDGET, Verdict.REFUSED})
_API_TROUBLE = frozenset({Verdict.WEBHOOK_DOWN, Verdict.FORBIDDEN})


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class Subject(NamedTuple):
    """The object that an Event is about; ``namespace`` is empty for a node."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """``message`` is one printable line of at most ``MOST_BYTES``. A ``notice`` can wait: it is said of what lasts."""

    subject: Subject
    type: EventType
    reason: str
    message: str
    notice: bool = False


class EventSink(Protocol):
    def say(self, event: Event) -> bool:
        """Take it to be sent, at once; False if it will not be. Must not raise."""


def vmi_subject(vm: VmKey, uid: str) -> Subject:
    return Subject("kubevirt.io/v1", "VirtualMachineInstance", vm.namespace, vm.name, uid)


def as_message(text: str) -> str:
    """A text, which may hold parts of somebody else's, as a message: printable, bounded, and without secrets."""
    text = without_secrets(" ".join(text[: 8 * MOST_BYTES].split()))
    text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text.encode()) <= MOST_BYTES:
        return text
    return text.encode()[: MOST_BYTES - len("…".encode())].decode(errors="ignore") + "…"


class _Wish(NamedTuple):
    """What we hoped for when a VM was chosen."""

    target: str
    why: str


class EventObserver:
    """Implements :class:`controller.ports.DescheduleObserver`; may be called from any thread.

    Says nothing unless the policy in force is an Automatic one.
    """

    def __init__(
        self, sink: EventSink, view: ClusterView, current_policy: Callable[[], Policy | None], clock: Clock
    ) -> None:
        self._sink = sink
        self._view = view
        self._current_policy = current_policy
        self._clock = clock
        self._news = News(clock)
        # Guards what follows.
        self._lock = Lock()
        self._wishes: LRUCache[str, _Wish] = LRUCache(_MOVES)  # pod UID ->
        self._since_s: dict[tuple[str, str], float] = {}  # (node, reason) -> since when it is so

    def refreshing(self) -> None:
        """Nothing to say."""

    def refreshed(self, snapshot: Snapshot) -> None:
        """Nothing to say."""

    def metrics_failed(self, reason: str) -> None:
        """It is about no object of the cluster; there is an alert."""

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        """Nothing that a user of the cluster could do about it."""

    # --- nodes ---

    def classified(self, classification: Classification) -> None:
        if not self._speaks():
            return
        unknown = {n: v for n, v in classification.nodes.items() if v.node_class is NodeClass.UNKNOWN}
        over = {n for n, v in classification.nodes.items() if v.node_class is NodeClass.OVER}
        with self._lock:  # forget what is over
            still = {_NO_METRICS: unknown.keys(), _NO_USEFUL_MOVE: over}
            self._since_s = {key: s for key, s in self._since_s.items() if key[0] in still[key[1]]}
        missing_altogether = len(unknown) == len(classification.nodes)
        for name, verdict in unknown.items():
            if self._lasts(name, _NO_METRICS) and not missing_altogether:
                text = f"Neither sends nor gets VMs: {verdict.reason}"
                self._notice_on_node(name, EventType.WARNING, _NO_METRICS, text)

    def planned(self, plan: Plan) -> None:
        if not self._speaks():
            return
        for passed in plan.passed_over:
            if passed.reason.code in SKIPPED:
                text = f"Not moved off over-utilised node {plan.node}: {passed.reason.text}"
                self._notice_on_vm(passed.vm, passed.reason.code, text)
        if plan.choice is not None:
            uid = plan.choice.candidate.pod.metadata.uid
            with self._lock:
                self._wishes[uid] = _Wish(plan.choice.target, plan.choice.why)
        self._at_rest(plan)

    def _at_rest(self, plan: Plan) -> None:
        code = plan.rest.code if plan.rest is not None else ""
        if code == _NO_USEFUL_MOVE:
            kind, said = EventType.NORMAL, self._lasts(plan.node, code)
        else:
            kind, said = EventType.WARNING, code in ("NodeBreaker", "ShutdownAlarm")
            with self._lock:
                self._since_s.pop((plan.node, _NO_USEFUL_MOVE), None)
        if said:
            text = f"Over-utilised ({plan.verdict.reason}), and sends no VM: {plan.rest}"
            self._notice_on_node(plan.node, kind, code, text + _in_groups(plan.passed_over))

    def _lasts(self, node: str, reason: str) -> bool:
        """Whether that has been so for a while by now."""
        now_s = self._clock.monotonic()
        with self._lock:
            return now_s - self._since_s.setdefault((node, reason), now_s) >= LASTS_S

    # --- evictions ---

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        policy = self._speaks()
        if policy is None:
            return
        verdict, said = answer.verdict, answer.message or answer.verdict
        if verdict is Verdict.TRIGGERED and not dry_run:
            text = f"Evicted from over-utilised node {entry.source}, expected at {entry.target}"
            self._say_on_vm(entry, EventType.NORMAL, "RebalanceStarted", text, self._wish(entry).why)
        elif verdict is Verdict.GRANTED:
            self._shut_down(entry, policy, dry_run=dry_run)
        elif verdict in _REFUSED:
            self._notice_on_vm(entry.vm, "EvictionRefused", f"The API refused its eviction: {said}")
        elif verdict in _API_TROUBLE:
            text = f"VM {entry.vm} could not be evicted: {said}"
            self._notice_on_node(entry.source, EventType.WARNING, "EvictionFailed", text)

    def _shut_down(self, entry: Entry, policy: Policy, *, dry_run: bool) -> None:
        if dry_run and not policy.evictions.allow_shutdown:
            text = "A dry run of its eviction says that the VM would go down"
            self._notice_on_vm(entry.vm, "EvictionRefused", text)
        elif not dry_run and policy.evictions.allow_shutdown:
            text = f"Evicted from over-utilised node {entry.source}: it goes down, which evictions.allowShutdown allows"
            self._say_on_vm(entry, EventType.WARNING, "ShutDown", text)

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        if self._speaks():
            text = f"{alarm.reason}; all evicting has stopped until the policy changes"
            self._say_on_vm(entry, EventType.WARNING, "ShutdownAlarm", text)

    def foreign_mark(self, vm: VmKey) -> None:
        """There is an alert: it is about the cluster, not about this VM."""

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        """Of evictions that we asked for; KubeVirt speaks of the others.

        One that is first seen when its VM has arrived did so while nobody watched, such as during a restart.
        """
        if after is None or not after.ours or not self._speaks():
            return
        if before is None:
            if after.phase is Phase.SETTLING:
                self._moved_on(after)
            return
        if after.attempts_failed > before.attempts_failed:
            again = "KubeVirt tries again" if after.in_flight else ""
            text = f"Attempt {after.attempts_failed} to migrate it from {after.source} failed"
            self._say_on_vm(after, EventType.WARNING, "MigrationFailed", text, self._why_failed(after), again)
        if after.phase is not before.phase:
            self._moved_on(after)

    def _moved_on(self, entry: Entry) -> None:
        so_far = _in_seconds((entry.ended_at or entry.changed_at) - entry.opened_at)
        match entry.phase:
            case Phase.SETTLING:
                wished = self._wish(entry).target
                aside = f"it was expected at {wished}" if wished not in ("", entry.target) else ""
                text = f"Live migration from {entry.source} to {entry.target} took {so_far}"
                self._say_on_vm(entry, EventType.NORMAL, "Rebalanced", text, aside)
            case Phase.STUCK:
                text = f"Still on the move from {entry.source} after {so_far}"
                self._say_on_vm(entry, EventType.WARNING, "MigrationStuck", text, self._why_failed(entry))
            case Phase.CANCELLED:
                text = (
                    f"Its evacuation from {entry.source} was taken back after {so_far}, and it did not move"
                )
                self._say_on_vm(entry, EventType.WARNING, "MigrationCancelled", text)
            case Phase.LOST:
                text = f"{so_far} after its eviction from {entry.source}, nothing in the cluster shows it"
                self._say_on_vm(entry, EventType.WARNING, "EvictionLost", text)

    def _why_failed(self, entry: Entry) -> str:
        """What KubeVirt says of the last attempt that failed, if it says anything."""
        vmi = self._view.vmi(entry.vm)
        migrations = self._view.migrations_of(vmi) if vmi is not None else []
        failed = [
            (m.metadata.creation_timestamp or entry.opened_at, m.migration_state.failure_reason)
            for m in migrations
            if m.phase == "Failed" and m.metadata.uid not in entry.before and m.migration_state is not None
        ]
        return max(failed, default=(entry.opened_at, ""))[1]

    # --- saying ---

    def _speaks(self) -> Policy | None:
        policy = self._current_policy()
        return policy if policy is not None and policy.mode is Mode.AUTOMATIC else None

    def _wish(self, entry: Entry) -> _Wish:
        """Empty if the VM was chosen before a restart."""
        with self._lock:
            return self._wishes.get(entry.pod_uid, _Wish("", ""))

    def _say_on_vm(self, entry: Entry, kind: EventType, reason: str, *texts: str) -> None:
        text = as_message("; ".join(filter(None, texts)))
        self._sink.say(Event(vmi_subject(entry.vm, entry.vmi_uid), kind, reason, text))

    def _notice_on_vm(self, vm: VmKey, reason: str, text: str) -> None:
        def subject() -> Subject | None:
            vmi = self._view.vmi(vm)
            return vmi_subject(vm, vmi.uid) if vmi is not None else None

        self._notice((vm, reason), subject, EventType.WARNING, text)

    def _notice_on_node(self, name: str, kind: EventType, reason: str, text: str) -> None:
        def subject() -> Subject | None:
            node = self._view.node(name)
            return Subject("v1", "Node", "", name, node.metadata.uid) if node is not None else None

        self._notice((name, reason), subject, kind, text)

    def _notice(
        self, said: tuple[Hashable, str], subject: Callable[[], Subject | None], kind: EventType, text: str
    ) -> None:
        """Unless it was said within the hour. One that is not taken is said when it is heard of again."""
        if not self._news.is_news(said):
            return
        about = subject()
        if about is None or not self._sink.say(Event(about, kind, said[1], as_message(text), notice=True)):
            self._news.unsay(said)


class PolicyEvents:
    """Says on the policy's ConfigMap that its text is not in force, and when it is again.

    ``changed`` is for :meth:`controller.policy.watch.PolicyWatch.subscribe`, ``catch_up`` for whoever may speak from
    now on: a replica that stands by is not heard.
    """

    def __init__(self, sink: EventSink, config_maps: Lister[ConfigMap], namespace: str, name: str) -> None:
        self._sink = sink
        self._config_maps = config_maps
        self._namespace = namespace
        self._name = name
        # Guards what follows.
        self._lock = Lock()
        self._state: PolicyState | None = None
        self._said: tuple[
            Problem, ...
        ] = ()  # the problems that were taken last, until it was said that they are over

    def changed(self, state: PolicyState) -> None:
        """On the reloading thread."""
        with self._lock:
            self._state = state
            self._say_state(state)

    def catch_up(self) -> None:
        """Say what was not taken when it was changed; from any thread, and as often as one likes."""
        with self._lock:
            if self._state is not None:
                self._say_state(self._state)

    def _say_state(self, state: PolicyState) -> None:
        if state.problems == self._said:
            return
        if state.problems:
            problems = "; ".join(f"line {p.line}: {p}" if p.line else str(p) for p in state.problems)
            text = f"Refused, the last good one stays in force: {problems}"
            taken = self._say(EventType.WARNING, "PolicyInvalid", text)
        else:
            digest = state.policy.digest if state.policy is not None else ""
            taken = self._say(EventType.NORMAL, "PolicyValid", f"In force: policy {digest}")
        if taken:
            self._said = state.problems

    def _say(self, kind: EventType, reason: str, text: str) -> bool:
        config_map = self._config_maps.get(self._namespace, self._name)
        uid = config_map.metadata.uid if config_map is not None else ""
        subject = Subject("v1", "ConfigMap", self._namespace, self._name, uid)
        return self._sink.say(Event(subject, kind, reason, as_message(text)))


def _in_groups(passed_over: Sequence[PassedOver]) -> str:
    """Why VMs were passed over, most frequent reasons first, one example each."""
    counts = Counter(passed.reason.code for passed in passed_over)
    examples = {passed.reason.code: passed.reason.text for passed in passed_over}
    return "".join(f"; {count} x {code} ({examples[code]})" for code, count in counts.most_common())


def _in_seconds(duration: timedelta) -> str:
    return format_duration(timedelta(seconds=max(round(duration.total_seconds()), 0)))
