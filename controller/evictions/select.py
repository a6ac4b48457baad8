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
    blind = bool(allowed) and all(candidate.load is None for candidate in allowed)
    ranked = (
        _ByPriority(ground, blind=blind)
        if blind or ground.policy.evictions.order is Order.LOWEST_PRIORITY
        else _ByGain(ground)
    )
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
    """Why this VM may not be evicted now, wherever it would go; cheap rules first."""
    vmi, pod, policy, now = candidate.vmi, candidate.pod, ground.policy.evictions, ground.now
    if not policy.namespaces.allows(vmi.namespace):
        return Reason("NamespaceExcluded", f"namespace {vmi.namespace} is excluded by the policy")
    if not policy.label_selector.matches(vmi.metadata.labels):
        return Reason("LabelSelector", f"its labels do not match {policy.label_selector}")
    if policy.priority_threshold is not None and pod.priority >= policy.priority_threshold:
        return Reason("Priority", f"priority {pod.priority} is not below {policy.priority_threshold}")
    created = vmi.metadata.creation_timestamp
    if created is not None and now - created < policy.min_vm_age:
        return Reason("TooYoung", f"younger than {policy.min_vm_age}")
    if candidate.settling:
        return Reason("Settling", "its last move does not show in the metrics yet")
    reason = why_not_movable(vmi, pod, ground.kubevirt, migrating=candidate.migrating)
    if reason is not None and not (policy.allow_shutdown and reason.code in _SHUTS_DOWN):
        return reason
    return _why_resting(vmi.uid, ground)


def _why_resting(vmi_uid: str, ground: Ground) -> Reason | None:
    ledger, policy, now = ground.ledger, ground.policy.evictions, ground.now
    if until := ledger.cooling_until(vmi_uid, policy.cooldown, now):
        return Reason("CoolDown", f"moved lately; rests until {until:%Y-%m-%d %H:%M} UTC")
    if until := ledger.vm_resting_until(vmi_uid, policy.breaker, now):
        return Reason("Breaker", f"its migrations keep failing; rests until {until:%Y-%m-%d %H:%M} UTC")
    if refusal := ledger.refusal(vmi_uid, now):
        return Reason("Refused", f"the API refused: {refusal.reason}")
    return None


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
                "DestinationUnknown", f"would go to {placement.best[0].name}, whose load is unknown"
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


def copying_time_s(load: VmLoad, kubevirt: KubeVirt | None) -> float:
    """Seconds to copy the VM's memory over the bandwidth that its dirty rate leaves."""
    bandwidth = (kubevirt.bandwidth_per_migration if kubevirt else 0.0) or ASSUMED_BANDWIDTH_BYTES_PER_S
    left = max(bandwidth - load.dirty_bytes_per_s, bandwidth * LEAST_BANDWIDTH_LEFT)
    return max(load.memory_bytes / left, 1.0)
