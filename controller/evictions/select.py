"""Which VM to evict from a node, and why not the others: pure.

The score of the classification only says which nodes are out of line. The choice is made on plain load: a move must
lower the greater of source and predicted destination by at least ``minGain`` of a node, in a dimension that hurts the
source, and must not overload the destination in another. Candidates that pass are ordered by priority, then by gain
per second of copying (``BestFit``), or by priority, requests and age (``LowestPriority``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple

from controller.cluster.objects import KubeVirt, Node, Pod, Vmi
from controller.cluster.placement import Placement
from controller.cluster.queries import Obstacle, Reason, why_not_movable
from controller.evictions.entry import VmKey
from controller.evictions.picture import Picture, Use
from controller.evictions.views import LedgerView
from controller.policy.model import Order, Policy
from controller.utilization.reading import VmLoad

ASSUMED_BANDWIDTH_BYTES_PER_S = 1e9
"""Of one migration where KubeVirt sets no ``bandwidthPerMigration``: a 10 Gb/s network, nearly."""
LEAST_BANDWIDTH_LEFT = 0.05
"""Of the bandwidth: a VM that dirties memory faster than it is copied is dear, not impossible (it may be throttled)."""

_SHUTS_DOWN = frozenset({Obstacle.NO_EVICTION_STRATEGY, Obstacle.NOT_LIVE_MIGRATABLE})
"""What ``allowShutdown`` overrides."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A VM on the source node with its active launcher pod; ``load`` is ``None`` where it was not measured."""

    vmi: Vmi
    pod: Pod
    load: VmLoad | None
    migrating: bool = False
    settling: bool = False

    @property
    def key(self) -> VmKey:
        return VmKey(self.vmi.namespace, self.vmi.name)


@dataclass(frozen=True, slots=True)
class PassedOver:
    vm: VmKey
    reason: Reason


@dataclass(frozen=True, slots=True)
class Choice:
    """``target`` is where the scheduler will most likely put it; ``gain`` is a fraction of a node."""

    candidate: Candidate
    target: str
    gain: float
    cost_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Selection:
    choice: Choice | None
    passed_over: tuple[PassedOver, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ground:
    """What selection on one source node looks at."""

    source: Node
    candidates: Sequence[Candidate]
    place: Callable[[Pod], Placement]
    """Where the scheduler would put a pod."""
    picture: Picture
    kubevirt: KubeVirt | None
    policy: Policy
    ledger: LedgerView
    now: datetime


def select(ground: Ground) -> Selection:
    """Choose the VM to evict from ``ground.source``, or none, with a reason for every VM passed over."""
    passed: list[PassedOver] = []
    allowed: list[Candidate] = []
    for candidate in ground.candidates:
        reason = why_not(candidate, ground)
        if reason is None:
            allowed.append(candidate)
        else:
            passed.append(PassedOver(candidate.key, reason))
    ranked = _ranking(ground, allowed)
    choices: list[tuple[tuple[float | str, ...], Choice]] = []
    for candidate in allowed:
        weighed = ranked.weigh(candidate)
        if isinstance(weighed, Reason):
            passed.append(PassedOver(candidate.key, weighed))
        else:
            choices.append((ranked.order(weighed), weighed))
    if not choices:
        return Selection(None, tuple(passed), "no useful move" if allowed else "no VM that may be moved")
    choices.sort(key=itemgetter(0))
    best, others = choices[0][1], choices[1:]
    passed.extend(
        PassedOver(c.candidate.key, Reason("NotFirst", "another VM comes first")) for _, c in others
    )
    return Selection(best, tuple(passed))


def why_not(candidate: Candidate, ground: Ground) -> Reason | None:
    """Why this VM may not be evicted now, wherever it would go: the first rule that speaks against it."""
    for rule in RULES:
        if (reason := rule.why_not(candidate, ground)) is not None:
            return reason
    return None


def weigh(candidate: Candidate, ground: Ground) -> Choice | Reason:
    """What moving this VM would bring, or why it would bring nothing, whatever ``why_not`` says of it."""
    return _ranking(ground, [c for c in ground.candidates if why_not(c, ground) is None]).weigh(candidate)


def _why_not_in_namespace(candidate: Candidate, ground: Ground) -> Reason | None:
    namespace = candidate.vmi.namespace
    if ground.policy.evictions.namespaces.allows(namespace):
        return None
    return Reason("NamespaceExcluded", f"namespace {namespace} is excluded by the policy")


def _why_not_selected(candidate: Candidate, ground: Ground) -> Reason | None:
    selector = ground.policy.evictions.label_selector
    if selector.matches(candidate.vmi.metadata.labels):
        return None
    return Reason("LabelSelector", f"its labels do not match {selector}")


def _why_too_important(candidate: Candidate, ground: Ground) -> Reason | None:
    threshold, priority = ground.policy.evictions.priority_threshold, candidate.pod.priority
    if threshold is None or priority < threshold:
        return None
    return Reason("Priority", f"priority {priority} is not below {threshold}")


def _why_too_young(candidate: Candidate, ground: Ground) -> Reason | None:
    created, least = candidate.vmi.metadata.creation_timestamp, ground.policy.evictions.min_vm_age
    if created is None or ground.now - created >= least:
        return None
    return Reason("TooYoung", f"younger than {least}")


def _why_not_settled(candidate: Candidate, _: Ground) -> Reason | None:
    return (
        Reason("Settling", "its last move does not show in the metrics yet") if candidate.settling else None
    )


def _why_not_movable(candidate: Candidate, ground: Ground) -> Reason | None:
    reason = why_not_movable(candidate.vmi, candidate.pod, ground.kubevirt, migrating=candidate.migrating)
    if reason is not None and ground.policy.evictions.allow_shutdown and reason.code in _SHUTS_DOWN:
        return None
    return reason


def _why_cooling(candidate: Candidate, ground: Ground) -> Reason | None:
    cooldown = ground.policy.evictions.cooldown
    if until := ground.ledger.cooling_until(candidate.vmi.uid, cooldown, ground.now):
        return Reason("CoolDown", f"moved lately; rests until {until:%Y-%m-%d %H:%M} UTC")
    return None


def _why_broken(candidate: Candidate, ground: Ground) -> Reason | None:
    breaker = ground.policy.evictions.breaker
    if until := ground.ledger.vm_resting_until(candidate.vmi.uid, breaker, ground.now):
        return Reason("Breaker", f"its migrations keep failing; rests until {until:%Y-%m-%d %H:%M} UTC")
    return None


def _why_refused(candidate: Candidate, ground: Ground) -> Reason | None:
    if refusal := ground.ledger.refusal(candidate.vmi.uid, ground.now):
        return Reason("Refused", f"rests until {refusal.until:%H:%M:%S} UTC: {refusal.reason}")
    return None


class Rule(NamedTuple):
    """What is asked of a VM before it is weighed; ``claim`` is what holds where nothing speaks against it."""

    claim: str
    why_not: Callable[[Candidate, Ground], Reason | None]


REFUSAL = Rule("the API did not refuse its eviction lately", _why_refused)
"""Only the running descheduler's memory can tell."""

RULES = (
    Rule("its namespace takes part", _why_not_in_namespace),
    Rule("its labels match evictions.labelSelector", _why_not_selected),
    Rule("its priority is below evictions.priorityThreshold", _why_too_important),
    Rule("it is as old as evictions.minVmAge", _why_too_young),
    Rule("its last move shows in the metrics", _why_not_settled),
    Rule("an eviction would live-migrate it", _why_not_movable),
    Rule("it does not rest after a move", _why_cooling),
    Rule("its migrations do not keep failing", _why_broken),
    REFUSAL,
)
"""Cheap ones first."""


@dataclass(frozen=True, slots=True)
class _Weigher:
    ground: Ground
    _busiest: dict[int, tuple[Placement, tuple[Node, Use] | None]] = field(default_factory=dict)
    """By identity of the placement, which is kept alive here: pods that are alike share one."""

    def destination(self, candidate: Candidate) -> tuple[Node, Use] | Reason:
        """Where the scheduler would put it. Of several equally likely nodes the busiest: no hoping for luck."""
        placement = self.ground.place(candidate.pod)
        if not placement.best:
            return Reason("FitsNowhere", f"fits on no other node: {placement.why_none()}")
        if id(placement) not in self._busiest:
            self._busiest[id(placement)] = (placement, self._busiest_of(placement))
        _, found = self._busiest[id(placement)]
        if found is None:
            return Reason(
                "DestinationUnknown",
                f"would go to {placement.best[0].name}, whose load is unknown or about to change",
            )
        return found

    def _busiest_of(self, placement: Placement) -> tuple[Node, Use] | None:
        picture = self.ground.picture
        known = [(n, use) for n in placement.best if (use := picture.use(n.name, n.allocatable)) is not None]
        return max(known, key=lambda nu: max(nu[1]), default=None)

    def hurting(self, source: Use) -> Sequence[int]:
        """The dimensions in which the source is at or above its floor; both if it only feels pressure."""
        floor = self.ground.policy.thresholds.floor
        return [d for d, s in enumerate(source) if s >= (floor.cpu, floor.memory)[d]] or (0, 1)

    def gain(self, source: Use, node: Node, use: Use, load: VmLoad) -> float | Reason:
        """How much lower the greater of source and destination gets, as a fraction of a node."""
        floor = self.ground.policy.thresholds.floor
        left = source.plus(load, self.ground.source.allocatable, -1)
        reached = use.plus(load, node.allocatable)
        before = Use(max(source.cpu, use.cpu), max(source.memory, use.memory))
        after = Use(max(left.cpu, reached.cpu), max(left.memory, reached.memory))
        for d, name in enumerate(("CPU", "memory")):
            if after[d] > max(before[d], (floor.cpu, floor.memory)[d]):
                return Reason("WouldOverload", f"{node.name} would be at {reached[d]:.0%} {name}")
        gain = max(before[d] - after[d] for d in self.hurting(source))
        if gain <= 0 or gain < self.ground.policy.evictions.min_gain:
            return Reason(
                "NoGain",
                f"on {node.name} (CPU {use.cpu:.0%}, memory {use.memory:.0%}) it would gain {gain:.1%} of a node",
            )
        return gain


class _ByGain(_Weigher):
    """``BestFit``."""

    def weigh(self, candidate: Candidate) -> Choice | Reason:
        source = self.ground.picture.use(self.ground.source.name, self.ground.source.allocatable)
        if source is None:
            return Reason("NotMeasured", f"the load of {self.ground.source.name} is unknown")
        if candidate.load is None:
            return Reason("NotMeasured", "no metrics of this VM")
        found = self.destination(candidate)
        if isinstance(found, Reason):
            return found
        node, use = found
        gain = self.gain(source, node, use, candidate.load)
        if isinstance(gain, Reason):
            return gain
        cost_s = copying_time_s(candidate.load, self.ground.kubevirt)
        why = (
            f"uses {candidate.load.cpu_cores:.1f} cores; moving it to {node.name} (CPU {use.cpu:.0%}) gains "
            f"{gain:.1%} of a node for about {cost_s:.0f} s of copying"
        )
        return Choice(candidate, node.name, gain, cost_s, why)

    def order(self, choice: Choice) -> tuple[float | str, ...]:
        candidate = choice.candidate
        return (candidate.pod.priority, -choice.gain / choice.cost_s, str(candidate.key))


@dataclass(frozen=True, slots=True)
class _ByPriority(_Weigher):
    """``LowestPriority``; also where no VM is measured, and then with no more than a look at the nodes."""

    blind: bool = field(default=False)

    def weigh(self, candidate: Candidate) -> Choice | Reason:
        found = self.destination(candidate)
        if isinstance(found, Reason):
            return found
        node, use = found
        source = self.ground.picture.use(self.ground.source.name, self.ground.source.allocatable)
        if source is None:
            return Reason("NotMeasured", f"the load of {self.ground.source.name} is unknown")
        if candidate.load is not None:
            gain = self.gain(source, node, use, candidate.load)
        elif not self.blind:
            return Reason("NotMeasured", "no metrics of this VM")
        else:
            gain = self.blind_gain(source, node, use)
        if isinstance(gain, Reason):
            return gain
        cost_s = copying_time_s(candidate.load, self.ground.kubevirt) if candidate.load else 0.0
        why = "lowest priority, least requests, oldest"
        if self.blind:
            why += "; no VM is measured, so the next one waits until the metrics show this move"
        return Choice(candidate, node.name, gain, cost_s, why)

    def blind_gain(self, source: Use, node: Node, use: Use) -> float | Reason:
        """How much less loaded the destination is: more cannot be known of a VM that is not measured."""
        floor = self.ground.policy.thresholds.floor
        gain = max(source[d] - use[d] for d in self.hurting(source))
        if gain <= 0:
            return Reason("NoGain", f"{node.name} is not less loaded")
        for d, name in enumerate(("CPU", "memory")):
            if use[d] > max(source[d], (floor.cpu, floor.memory)[d]):
                return Reason("WouldOverload", f"{node.name} is at {use[d]:.0%} {name} already")
        return gain

    def order(self, choice: Choice) -> tuple[float | str, ...]:
        candidate = choice.candidate
        pod = candidate.pod
        created = pod.metadata.creation_timestamp
        age = created.timestamp() if created is not None else 0.0
        return (pod.priority, pod.requests.cpu_cores, pod.requests.memory_bytes, age, str(candidate.key))


def _ranking(ground: Ground, allowed: Sequence[Candidate]) -> _ByGain | _ByPriority:
    blind = bool(allowed) and all(candidate.load is None for candidate in allowed)
    if blind or ground.policy.evictions.order is Order.LOWEST_PRIORITY:
        return _ByPriority(ground, blind=blind)
    return _ByGain(ground)


def copying_time_s(load: VmLoad, kubevirt: KubeVirt | None) -> float:
    """Seconds to copy the VM's memory over the bandwidth that its dirty rate leaves."""
    bandwidth = (kubevirt.bandwidth_per_migration if kubevirt else 0.0) or ASSUMED_BANDWIDTH_BYTES_PER_S
    left = max(bandwidth - load.dirty_bytes_per_s, bandwidth * LEAST_BANDWIDTH_LEFT)
    return max(load.memory_bytes / left, 1.0)
