"""Turns what the programs see and do into log lines: one of the observers.

A line is written when something changes, and again after an hour if it still holds; nothing is said of nothing. Beside
its words a line carries the things it speaks of, for the JSON format.
"""

import logging
import re
from collections.abc import Callable, Sequence
from datetime import timedelta

from controller.cluster.objects import Node
from controller.evictions.answers import EvictionAnswer
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.lease import NotLeaderError
from controller.telemetry.news import News
from controller.utilization.classify import Classification
from controller.utilization.reading import Dropped, Snapshot
from informers.clock import Clock
from informers.errors import ApiError, as_shown

log = logging.getLogger("vm-rebalancer")

_LONGEST = 300
"""Characters of somebody else's text that a line repeats."""
_VARYING = re.compile(r"(?<=^no node is called ).+|(?<=^value )(?!is )\S+|(?<=^value is ).+", re.DOTALL)
"""Of the reason why a sample is not used: what differs from sample to sample."""
_FIRST_STEPS = (Phase.REQUESTED, Phase.UNKNOWN, Phase.PENDING, Phase.SCHEDULING, Phase.PREPARING)
"""Said for debugging only, if one comes after the other: that the migration runs tells enough."""
_WORRYING = frozenset({Phase.UNKNOWN, Phase.STUCK, Phase.LOST})


class Emitter:
    """Observer of both programs; may be called from any thread."""

    def __init__(self, clock: Clock, on_alarm: Callable[[Alarm], None]) -> None:
        self._is_news = News(clock).is_news
        self._on_alarm = on_alarm

    # --- what the programs stand on ---

    def informer_failed(self, name: str, error: Exception) -> None:
        """Something went wrong in an informer, which tries again."""
        kind = type(error).__name__
        if self._is_news(("informer", name, kind)):
            said = as_shown(str(error), _LONGEST)
            _say(logging.WARNING, "informer %s: %s", name, said, resource=name, error=kind)

    # --- both programs ---

    def refreshing(self) -> None:
        """Nothing to say yet."""

    def metrics_failed(self, reason: str) -> None:
        if self._is_news("metrics", reason):
            _say(logging.WARNING, "no metrics: %s", reason, reason=reason)

    def failed(self, key: object, error: Exception, retry_after: timedelta) -> None:
        if self._is_news(("failed", key), str(error)):
            happens = isinstance(error, ApiError | NotLeaderError)  # where it came from says nothing then
            log.log(
                logging.WARNING if happens else logging.ERROR,
                "%s failed, again in %.1f s: %s",
                key,
                retry_after.total_seconds(),
                error,
                exc_info=None if happens else error,
                extra={"fields": {"key": str(key), "error": type(error).__name__}},
            )

    # --- descheduler ---

    def refreshed(self, snapshot: Snapshot) -> None:
        self._is_news("metrics", "")
        self._say_dropped(snapshot.dropped)
        if snapshot.warnings and self._is_news("warnings", snapshot.warnings):
            _say(logging.WARNING, "metrics are incomplete: %s", "; ".join(snapshot.warnings))

    def _say_dropped(self, samples: Sequence[Dropped]) -> None:
        """A line for each query and reason, however many VMs there are."""
        alike: dict[tuple[str, str], list[Dropped]] = {}
        for sample in samples:
            alike.setdefault((sample.query, _VARYING.sub("…", sample.reason)), []).append(sample)
        for (query, reason), all_of_them in alike.items():
            if self._is_news(("dropped", query, reason)):
                count, (_, subject, why) = len(all_of_them), all_of_them[0]
                what = f"{count} samples" if count > 1 else "1 sample"
                shown = (as_shown(text, _LONGEST) for text in (subject, why))
                text = "%s of %s not used, such as that for %s: %s"
                _say(logging.WARNING, text, what, query, *shown, query=query, reason=reason)

    def classified(self, classification: Classification) -> None:
        over = classification.over_utilised()
        if self._is_news("classification", (tuple(over), classification.skipped)):
            if classification.skipped:
                _say(logging.INFO, "nothing is decided: %s", classification.skipped)
            else:
                _say(logging.INFO, "over-utilised nodes: %s", ", ".join(over) or "none", nodes=over)

    def planned(self, plan: Plan) -> None:
        if plan.rest is not None:
            if self._is_news(("plan", plan.node, plan.rest.code)):
                text = "node %s sends nothing: %s"
                _say(logging.INFO, text, plan.node, plan.rest, node=plan.node, reason=plan.rest.code)
        elif (choice := plan.choice) is not None and self._is_news(("plan", plan.node, choice.candidate.key)):
            _say(
                logging.INFO,
                "node %s should send VM %s: %s",
                plan.node,
                choice.candidate.key,
                choice.why,
                node=plan.node,
                vm=str(choice.candidate.key),
                target=choice.target,
            )

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None:
        _say(
            logging.DEBUG if dry_run else logging.INFO,
            "%s of VM %s: %s: %s",
            "dry run of the eviction" if dry_run else "eviction",
            entry.vm,
            answer.verdict,
            as_shown(answer.message, _LONGEST),
            vm=str(entry.vm),
            pod=entry.pod,
            node=entry.source,
            result=str(answer.verdict),
        )

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        if after is None or (before is not None and after.phase is before.phase):
            return
        _say(
            _level(before, after),
            "VM %s from %s to %s: %s%s",
            after.vm,
            after.source,
            after.target or "?",
            after.phase,
            "" if after.ours else " (not asked for by us)",
            vm=str(after.vm),
            node=after.source,
            target=after.target,
            phase=str(after.phase),
            migration=after.vmim_uid,
        )

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        text = "all evicting has stopped until the policy changes: %s"
        _say(logging.CRITICAL, text, alarm.reason, vm=str(entry.vm), node=entry.source, reason=alarm.reason)
        self._on_alarm(alarm)

    def foreign_mark(self, vm: VmKey) -> None:
        if self._is_news(("foreign", vm)):
            text = "VM %s was evicted by another descheduler: two of them undo each other's work"
            _say(logging.WARNING, text, vm, vm=str(vm))

    # --- soft-tainter ---

    def tainting(self, node: Node, keys: frozenset[str]) -> None:
        if self._is_news(("taints", node.name), keys):
            wanted = sorted(keys)
            text = "node %s should carry %s"
            _say(
                logging.INFO,
                text,
                node.name,
                ", ".join(wanted) or "no taint of ours",
                node=node.name,
                taints=wanted,
            )


def _level(before: Entry | None, after: Entry) -> int:
    """How loud a transition is said. A step back is news: it begins anew."""
    if after.phase in _WORRYING:
        return logging.WARNING
    if after.phase not in _FIRST_STEPS:
        return logging.INFO
    steps = _FIRST_STEPS[: _FIRST_STEPS.index(after.phase)]
    return logging.DEBUG if before is None or before.phase in steps else logging.INFO


def _say(level: int, text: str, *words: object, **fields: object) -> None:
    """``fields``: for whoever reads lines by machine; strings and lists of strings."""
    log.log(level, text, *words, extra={"fields": fields})
