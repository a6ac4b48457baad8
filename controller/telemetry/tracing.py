"""Turns what the descheduler sees and does into traces: an observer beside the one for metrics and logs.

It only puts together what it hears and what the VMIMs tell; what becomes of the spans is the exporter's business.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock, local
from typing import NamedTuple

from cachetools import TTLCache

from controller.cluster.metadata import ObjectMeta
from controller.cluster.objects import MigrationState, Pod, Vmim
from controller.cluster.view import Caches, ClusterView
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import AWAITING_SIGN, Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.rebuild import asked_for_by_us
from controller.evictions.views import Alarm
from controller.telemetry.attempts import (
    before_last_move,
    complete,
    ended,
    failure,
    in_order,
    newest_attempt_from_pod,
    spans_of_attempt,
    with_state,
)
from controller.telemetry.evictions import (
    FIRST,
    Answered,
    Decision,
    Eviction,
    closing,
    opening,
    refused,
)
from controller.telemetry.rounds import Round, spans_of_round
from controller.telemetry.spans import Link, Span
from controller.utilization.classify import Classification, Edges
from controller.utilization.reading import Snapshot
from informers.clock import Clock
from informers.store import Change

_PODS = 20_000
_REMEMBERED_S = 48 * 3600.0
_POD_S = 3600.0
_LAG = timedelta(seconds=5)
"""From the end of an attempt, by KubeVirt's clock, until its spans have certainly been sent."""
_LATE_S = 600.0
"""No worker is as far behind another in telling of the same eviction."""
_PER_POD = 20
"""Evictions of a pod that left different VMIMs behind."""

_ACCEPTED = frozenset({Verdict.TRIGGERED, Verdict.GRANTED})


class Departed(NamedTuple):
    """A launcher that has been removed."""

    vmi_uid: str
    node: str
    pod_uid: str
    pod: str


def _departed(change: Change[Pod]) -> list[Departed]:
    pod = change.old
    if pod is None or change.new is not None or not pod.node_name:
        return []
    return [Departed(pod.vmi_uid, pod.node_name, pod.metadata.uid, pod.metadata.name)]


class _Thread(local):
    """What the handler that runs in this thread has said so far."""

    def __init__(self) -> None:
        self.round: Round | None = None
        self.plan: Plan | None = None


class _Open:
    """An eviction that is followed. Changed only with the tracer's lock held."""

    def __init__(self, eviction: Eviction, left: str, before: frozenset[str]) -> None:
        self.eviction = eviction
        """Without its attempts, which follow."""
        self.left = left
        """The UID of the VMIM that the evictions of this pod before it have left behind, if any."""
        self.attempts: dict[str, Vmim] = {}
        """By UID, as last seen; those that have not been told."""
        self.told: dict[str, Vmim] = {}
        """By UID; of those that have been told, what the end of the eviction has to tell."""
        self.before = before
        """UIDs of VMIMs that are not its attempts."""
        self.opening_told = False

    def note_told(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.told[uid] = _essence(self.attempts.pop(uid))

    def whole(self) -> Eviction:
        return replace(self.eviction, attempts={**self.told, **self.attempts})


def _essence(attempt: Vmim) -> Vmim:
    """When it began and ended, and why it failed: a mark may stand for days, and each attempt leaves a VMIM."""
    noted = [(t.phase_transition_timestamp, t) for t in attempt.phase_transition_timestamps]
    known = [t for _, t in sorted(((at, t) for at, t in noted if at is not None), key=lambda each: each[0])]
    ends = [t for t in known if t.phase == attempt.phase]
    state = attempt.migration_state
    return Vmim(
        metadata=ObjectMeta(
            name=attempt.metadata.name,
            uid=attempt.metadata.uid,
            creation_timestamp=attempt.metadata.creation_timestamp,
        ),
        phase=attempt.phase,
        phase_transition_timestamps=(*known[:1], *ends[:1], *known[-1:]),
        migration_state=MigrationState(
            failure_reason=failure(attempt) if attempt.phase == "Failed" else "",
            end_timestamp=state.end_timestamp if state is not None else None,
        ),
    )


class _Past:
    """The evictions of one pod that have ended: which was the first, and how often each has been."""

    def __init__(self, first: str) -> None:
        self.first = first
        self._times: OrderedDict[str, int] = OrderedDict()

    def note(self, left: str) -> None:
        """``left``: the UID of the VMIM that the evictions before it have left behind, if any."""
        self._times[left] = self._times.get(left, 0) + 1
        self._times.move_to_end(left)
        if len(self._times) > _PER_POD:
            self._times.popitem(last=False)

    def next(self, left: str) -> str:
        """The name of the next: if the one before left no VMIM behind, by their order."""
        times = self._times.get(left, 0)
        return f"{left}+{times}" if times else left


class Tracer:
    """Observer of the descheduler; may be called from any thread.

    ``send`` takes each span once it is complete, and must return at once. ``instance`` tells this process' rounds from
    those of others. ``told_until`` is when the controller before this one was last known to be at work: what had ended
    by then it has told. ``None``: that is not known, and what it may have told is told again.

    Only evictions of ours have a trace: whoever asked for another migration knows of it.
    """

    def __init__(
        self,
        caches: Caches,
        clock: Clock,
        send: Callable[[Span], None],
        instance: str,
        told_until: Callable[[], datetime | None],
    ) -> None:
        self._view = ClusterView.over(caches)
        self._clock = clock
        self._send = send
        self._instance = instance
        self._told_until = told_until
        self._thread = _Thread()
        self._lock = Lock()  # guards all that follows
        self._open: dict[str, _Open] = {}  # by pod UID: one eviction at a time, as in the ledger
        # Which evictions of a pod have ended, but for refused requests, which come again and again and left nothing
        # behind. After a restart, the VMIMs tell of the earlier ones.
        self._ended: TTLCache[str, _Past] = TTLCache(_PODS, _REMEMBERED_S, clock.monotonic)
        # When the last eviction of a pod was opened that has been told to its end: two workers may tell of one entry
        # in the wrong order, and what came last in truth must not open it again.
        self._over: TTLCache[str, datetime] = TTLCache(_PODS, _LATE_S, clock.monotonic)
        self._last_round: Link | None = None
        self._limits: Mapping[str, Edges] = {}
        self._rounds = 0
        # Launchers that are gone: (VMI, node) -> (UID, name). A move may settle for longer than its source pod stays.
        self._gone: TTLCache[tuple[str, str], tuple[str, str]] = TTLCache(_PODS, _POD_S, clock.monotonic)
        caches.launchers.add_handler(_departed, self._remember)

    # --- rounds ---

    def refreshing(self) -> None:
        self._thread.round = self._new_round()

    def refreshed(self, snapshot: Snapshot) -> None:
        if (begun := self._thread.round) is not None:
            self._thread.round = replace(begun, refreshed_at=self._clock.now(), snapshot=snapshot)

    def metrics_failed(self, reason: str) -> None:
        if (begun := self._thread.round) is not None:
            self._thread.round = replace(begun, refreshed_at=self._clock.now(), failure=reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:  # noqa: ARG002
        """The handler has ended; what it had begun has not been completed."""
        self._thread.round = None

    def classified(self, classification: Classification) -> None:
        done, self._thread.round = self._thread.round or self._new_round(), None
        with self._lock:
            self._last_round, self._limits = done.link, classification.limits
        self._tell(spans_of_round(done, classification, self._clock.now()))

    def _new_round(self) -> Round:
        now = self._clock.now()
        with self._lock:
            self._rounds += 1
            return Round(f"round {self._rounds} of {self._instance} at {now.isoformat()}", now)

    # --- evictions ---

    def planned(self, plan: Plan) -> None:
        self._thread.plan = plan

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        now = self._clock.now()
        with self._lock:
            known = self._open.get(entry.pod_uid)
            if known is None:
                return  # its end was seen before the answer
            known.eviction = replace(
                known.eviction, answers=(*known.eviction.answers, Answered(answer, dry_run, now))
            )
            seen = known.eviction.entry.phase not in AWAITING_SIGN
            spans = self._opening(known) if not dry_run and (answer.verdict in _ACCEPTED or seen) else []
        self._tell(spans)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        before, after = self._with_pod(before), self._with_pod(after)
        entry = after or before
        if entry is None or not entry.ours or not entry.pod:
            return  # of a pod that was gone before this process began, nobody knows the UID
        migrations, now = self._migrations(entry), self._clock.now()
        with self._lock:
            if self._over.get(entry.pod_uid) == entry.opened_at:
                return
            known = self._open.get(entry.pod_uid)
            new = known is None
            if known is None:
                known = self._begin(before or entry, migrations)
            self._hear(known, entry, migrations)
            if new and (before or entry).phase is not Phase.REQUESTED:
                known.note_told(self._told_before(known))
            if after is None:
                spans = self._end(known, now)
            elif not after.open:
                spans = self._end(known, after.changed_at)
            elif after.phase not in AWAITING_SIGN:
                answered = any(not each.dry_run for each in known.eviction.answers)
                spans = [*(self._opening(known) if answered else ()), *self._attempts_over(known, now)]
            else:
                spans = []
        self._tell(spans)

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        """The answer that raised it is in the span of the request."""

    def foreign_mark(self, vm: VmKey) -> None:
        """Only our own evictions are traced."""

    def _remember(self, departed: Departed) -> None:
        with self._lock:
            self._gone[departed.vmi_uid, departed.node] = departed.pod_uid, departed.pod

    def _with_pod(self, entry: Entry | None) -> Entry | None:
        """An entry that was taken up without its source pod, with that pod if it was here when it went."""
        if entry is None or entry.pod:
            return entry
        with self._lock:
            pod_uid, pod = self._gone.get((entry.vmi_uid, entry.source), ("", ""))
        return replace(entry, pod_uid=pod_uid, pod=pod) if pod else entry

    def _migrations(self, entry: Entry) -> list[Vmim]:
        vmi = self._view.vmi(entry.vm)
        if vmi is None or vmi.uid != entry.vmi_uid:
            return []
        return [with_state(migration, vmi) for migration in self._view.migrations_of(vmi)]

    def _begin(self, entry: Entry, migrations: Iterable[Vmim]) -> _Open:
        """Called with the lock held. An entry heard of only now was taken up: after a restart, say."""
        migrations = list(migrations)
        before = entry.before
        if entry.phase is Phase.SETTLING:
            before = before_last_move(migrations, entry.vmim_uid)
        plan, decision = self._thread.plan, None
        if (
            entry.phase is Phase.REQUESTED
            and plan is not None
            and plan.choice is not None
            and plan.choice.candidate.pod.metadata.uid == entry.pod_uid
        ):
            decision = Decision(plan, self._limits, self._last_round)
        failed = newest_attempt_from_pod(migrations, before, self._view.vmi(entry.vm))
        left = failed.metadata.uid if failed is not None else FIRST
        past = self._ended.get(entry.pod_uid)
        if past is not None:
            first: str | None = past.first
        else:
            first = FIRST if failed is not None and asked_for_by_us(failed) else None
        which = past.next(left) if past is not None else left
        after = (first,) if first is not None else ()
        known = _Open(Eviction(entry, which, after, decision), left, before)
        self._open[entry.pod_uid] = known
        return known

    def _hear(self, known: _Open, entry: Entry, migrations: Iterable[Vmim]) -> None:
        """Called with the lock held. VMIMs are kept as last seen: KubeVirt removes old ones."""
        for migration in migrations:
            if (uid := migration.metadata.uid) not in known.before and uid not in known.told:
                known.attempts[uid] = migration
        stuck_at = known.eviction.stuck_at
        if entry.phase is Phase.STUCK and stuck_at is None:
            stuck_at = entry.changed_at
        known.eviction = replace(known.eviction, entry=entry, stuck_at=stuck_at)

    def _opening(self, known: _Open) -> list[Span]:
        """Told once, and as soon as possible: nobody else can. Called with the lock held."""
        told, known.opening_told = known.opening_told, True
        return [] if told else opening(known.eviction)

    def _told_before(self, known: _Open) -> set[str]:
        """Of an eviction that was taken over: the attempts that were over while the other controller was at work."""
        until = self._told_until()
        ends = {uid: ended(attempt) for uid, attempt in known.attempts.items()}
        return {
            uid for uid, at in ends.items() if at is not None and until is not None and at + _LAG <= until
        }

    def _attempts_over(self, known: _Open, now: datetime) -> list[Span]:
        """Told once: KubeVirt removes old VMIMs, and what fails for hours should be seen. Called with the lock held."""
        over = {uid: attempt for uid, attempt in known.attempts.items() if complete(attempt)}
        if not over:
            return []
        pod_uid, root = known.eviction.entry.pod_uid, known.eviction.root_id
        ordered = in_order([*known.told.values(), *known.attempts.values()])
        spans = [
            span
            for number, attempt in enumerate(ordered, 1)
            if attempt.metadata.uid in over
            for span in spans_of_attempt(pod_uid, root, number, attempt, now)
        ]
        known.note_told(over)
        return spans

    def _end(self, known: _Open, at: datetime) -> list[Span]:
        """Called with the lock held."""
        eviction = known.whole()
        entry = eviction.entry
        del self._open[entry.pod_uid]
        self._over[entry.pod_uid] = entry.opened_at
        if (entry.open or entry.phase is Phase.LOST) and not known.opening_told:
            return refused(replace(eviction, which=f"opened at {entry.opened_at.isoformat()}"), at)
        past = self._ended.get(entry.pod_uid) or _Past(eviction.which)
        past.note(known.left)
        self._ended[entry.pod_uid] = past
        return [*self._opening(known), *closing(eviction, at, known.told.keys())]

    def _tell(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._send(span)
