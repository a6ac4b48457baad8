"""From verdicts, plans and entries to their report: what a look and the running descheduler's memory share. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from controller.cluster.objects import Node
from controller.cluster.selectors import LabelSelector
from controller.evictions.entry import Entry
from controller.evictions.gate import Slots
from controller.evictions.picture import Picture, Use
from controller.evictions.select import Choice
from controller.evictions.select import PassedOver as Passed
from controller.report import (
    Edge,
    Effect,
    Load,
    Move,
    NodeRow,
    OnTheMove,
    PassedOver,
    PassedOverVm,
    Trend,
)
from controller.taints.desired import our_keys
from controller.utilization.classify import Classification, NodeClass, NodeVerdict
from controller.utilization.reading import NodeLoad, Snapshot, VmLoad

NOT_ELIGIBLE = "NotEligible"
DIGITS = 4
"""Of fractions; more would only be noise to whoever compares two reports."""
TREND_SNAPSHOTS = 5


def rounded(value: float) -> float:
    return round(value, DIGITS)


# --- nodes ---


def class_of(node: Node, classification: Classification, selector: LabelSelector) -> tuple[str, str]:
    """The node's class and the reason in words."""
    verdict = classification.nodes.get(node.name)
    if verdict is not None:
        return verdict.node_class.name.capitalize(), verdict.reason
    if not selector.matches(node.labels):
        return NOT_ELIGIBLE, f"does not match nodeSelector {selector}"
    return NOT_ELIGIBLE, "not ready" if not node.ready else "cordoned"


def node_row(
    node: Node,
    classed: tuple[str, str],
    verdict: NodeVerdict | None,
    snapshots: Sequence[Snapshot],
    slots: Slots,
    vms: int,
) -> NodeRow:
    """``classed``: class and reason; ``snapshots``: the last few, newest last."""
    known = verdict is not None and bool(verdict.values)
    load = snapshots[-1].loads.get(node.name) if snapshots else None
    return NodeRow(
        name=node.name,
        node_class=classed[0],
        reason=classed[1],
        values={query: rounded(value) for query, value in verdict.values.items()} if verdict else {},
        excess=rounded(verdict.excess) if verdict is not None and known else None,
        trend=trend_of(node.name, snapshots) if known else None,
        sampled_at=verdict.last_seen if verdict is not None else None,
        load=node_load(node, load) if load is not None else None,
        cores=node.allocatable.cpu_cores,
        memory_bytes=node.allocatable.memory_bytes,
        vms=vms,
        taints=tuple(sorted(our_keys(node.taints))),
        leaving=slots.node_used,
        leaving_limit=slots.node_limit,
    )


def node_load(node: Node, load: NodeLoad) -> Load:
    """As it was measured, with no move charged."""
    size = node.allocatable
    return Load(
        cpu_cores=rounded(load.cpu_cores),
        memory_bytes=load.memory_bytes,
        cpu=rounded(load.cpu_cores / size.cpu_cores) if size.cpu_cores else None,
        memory=rounded(load.memory_bytes / size.memory_bytes) if size.memory_bytes else None,
        pressure=rounded(load.pressure),
    )


def trend_of(node: str, snapshots: Sequence[Snapshot]) -> Trend | None:
    """The change of the greatest of the node's values from the oldest of the snapshots to the newest.

    A sample that was seen twice is one; ``None`` where fewer than two are left.
    """
    seen = []
    for snapshot in snapshots[-TREND_SNAPSHOTS:]:
        values = [by_node[node] for by_node in snapshot.values.values() if node in by_node]
        if values:
            seen.append((min(value.at for value in values), max(value.value for value in values)))
    if not seen or seen[0][0] >= seen[-1][0]:
        return None
    (first_at, first), (last_at, last) = seen[0], seen[-1]
    return Trend(change=rounded(last - first), over_s=(last_at - first_at).total_seconds())


def badness(node_class: str, excess: float | None, name: str) -> tuple[int, float, str]:
    """Sorts over-utilised nodes first, then by excess, then what has no value, then what does not take part."""
    if node_class == NOT_ELIGIBLE:
        return (3, 0.0, name)
    if excess is None:
        return (2, 0.0, name)
    over = node_class == NodeClass.OVER.name.capitalize()
    return (0 if over else 1, -excess, name)


def edges_of(classification: Classification) -> Mapping[str, Edge]:
    return {
        query: Edge(under=rounded(edges.under), over=rounded(edges.over))
        for query, edges in classification.limits.items()
    }


# --- moves ---


def on_the_move(entries: Iterable[Entry]) -> Iterator[OnTheMove]:
    for entry in sorted(entries, key=lambda e: (e.ended_at or e.opened_at, e.vm)):
        yield OnTheMove(
            vm=str(entry.vm),
            source=entry.source,
            target=entry.target,
            phase=str(entry.phase),
            since=entry.ended_at or entry.opened_at,
            ours=entry.ours,
        )


def move_of(choice: Choice, source: Node, target: Node | None, picture: Picture) -> Move:
    """``picture``: the load of both nodes as the choice saw it."""
    candidate = choice.candidate
    effects = _effects(candidate.load, source, target, picture) if candidate.load is not None else ()
    return Move(
        vm=str(candidate.key),
        source=source.name,
        target=choice.target,
        gain=rounded(choice.gain),
        cost_s=round(choice.cost_s, 1),
        priority=candidate.pod.priority,
        why=choice.why,
        effects=tuple(effects),
    )


def grouped(
    passed: Iterable[Passed], most: int | None = None, width: int | None = None
) -> Iterator[PassedOver]:
    """By reason, most frequent first; ``most`` VMs are named for each, and texts end after ``width`` characters."""
    groups: dict[str, list[Passed]] = defaultdict(list)
    for each in passed:
        groups[each.reason.code].append(each)
    for code, found in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        named = tuple(PassedOverVm(vm=str(p.vm), text=cut(p.reason.text, width)) for p in islice(found, most))
        yield PassedOver(code=code, count=len(found), vms=named)


def cut(text: str, width: int | None) -> str:
    """Somebody else's text may be of any length."""
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def _effects(load: VmLoad, source: Node, target: Node | None, picture: Picture) -> Iterator[Effect]:
    for node, sign in ((source, -1), (target, 1)):
        use = picture.use(node.name, node.allocatable) if node is not None else None
        if node is not None and use is not None:
            yield _effect(node.name, use, use.plus(load, node.allocatable, sign))


def _effect(node: str, before: Use, after: Use) -> Effect:
    return Effect(
        node=node,
        cpu_before=rounded(before.cpu),
        cpu_after=rounded(after.cpu),
        memory_before=rounded(before.memory),
        memory_after=rounded(after.memory),
    )
