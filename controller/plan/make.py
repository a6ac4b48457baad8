"""From a look to the report of it. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from controller.cluster.objects import Node
from controller.evictions.entry import Entry
from controller.evictions.picture import Use
from controller.evictions.select import Choice, Ground
from controller.evictions.select import PassedOver as Passed
from controller.plan.look import Look, Planned
from controller.plan.report import (
    Edge,
    Effect,
    Head,
    Load,
    Move,
    NodePlan,
    NodeRow,
    OnTheMove,
    PassedOver,
    PassedOverVm,
    PlanReport,
    Why,
)
from controller.taints.desired import our_keys
from controller.utilization.classify import NodeClass
from controller.utilization.reading import VmLoad

NOT_ELIGIBLE = "NotEligible"
DIGITS = 4
"""Of fractions; more would only be noise to whoever compares two reports."""


def plan_report(look: Look) -> PlanReport:
    rows = [_row(look, node) for node in (look.view.node(name) for name in look.view.node_names()) if node]
    return PlanReport(
        head=head_of(look),
        nodes=tuple(sorted(rows, key=_badness)),
        on_the_move=tuple(on_the_move(look.ledger.entries)),
        plans=tuple(_node_plan(planned) for planned in look.plans.values()),
    )


def head_of(look: Look) -> Head:
    classification = look.classification
    return Head(
        cluster=look.cluster.name,
        taken_at=look.at,
        mode=str(look.policy.mode),
        policy_digest=look.policy.digest,
        sustain=look.sustain,
        judged_by=look.policy.thresholds.sustain,
        eligible=len(classification.nodes),
        coverage=rounded(classification.coverage),
        thresholds={
            query: Edge(under=rounded(edges.under), over=rounded(edges.over))
            for query, edges in classification.limits.items()
            if look.measured
        },
        skipped=classification.skipped,
        notes=look.notes,
    )


def on_the_move(entries: Sequence[Entry]) -> Iterator[OnTheMove]:
    for entry in sorted(entries, key=lambda e: (e.ended_at or e.opened_at, e.vm)):
        yield OnTheMove(
            vm=str(entry.vm),
            source=entry.source,
            target=entry.target,
            phase=str(entry.phase),
            since=entry.ended_at or entry.opened_at,
            ours=entry.ours,
        )


def move_of(choice: Choice, ground: Ground) -> Move:
    candidate = choice.candidate
    return Move(
        vm=str(candidate.key),
        source=ground.source.name,
        target=choice.target,
        gain=rounded(choice.gain),
        cost_s=round(choice.cost_s, 1),
        priority=candidate.pod.priority,
        why=choice.why,
        effects=tuple(_effects(choice, candidate.load, ground)) if candidate.load is not None else (),
    )


def rounded(value: float) -> float:
    return round(value, DIGITS)


def node_load(look: Look, node: Node) -> Load | None:
    """As it was measured, with no move charged."""
    load = look.snapshot.loads.get(node.name)
    if load is None:
        return None
    size = node.allocatable
    return Load(
        cpu_cores=rounded(load.cpu_cores),
        memory_bytes=load.memory_bytes,
        cpu=rounded(load.cpu_cores / size.cpu_cores) if size.cpu_cores else None,
        memory=rounded(load.memory_bytes / size.memory_bytes) if size.memory_bytes else None,
        pressure=rounded(load.pressure),
    )


def class_of(look: Look, node: Node) -> tuple[str, str]:
    """The node's class and the reason in words."""
    verdict = look.classification.nodes.get(node.name)
    if verdict is not None:
        return verdict.node_class.name.capitalize(), verdict.reason
    if not look.policy.node_selector.matches(node.labels):
        return NOT_ELIGIBLE, f"does not match nodeSelector {look.policy.node_selector}"
    return NOT_ELIGIBLE, "not ready" if not node.ready else "cordoned"


def _row(look: Look, node: Node) -> NodeRow:
    verdict = look.classification.nodes.get(node.name)
    known = verdict is not None and bool(verdict.values)
    node_class, reason = class_of(look, node)
    slots = look.survey.slots_of(node.name, look.policy, look.ledger)
    return NodeRow(
        name=node.name,
        node_class=node_class,
        reason=reason,
        values={query: rounded(value) for query, value in verdict.values.items()} if verdict else {},
        excess=rounded(verdict.excess) if verdict is not None and known else None,
        sampled_at=verdict.last_seen if verdict is not None else None,
        load=node_load(look, node),
        cores=node.allocatable.cpu_cores,
        memory_bytes=node.allocatable.memory_bytes,
        vms=len(look.view.vms_on(node.name)),
        taints=tuple(sorted(our_keys(node.taints))),
        leaving=slots.node_used,
        leaving_limit=slots.node_limit,
    )


def _badness(row: NodeRow) -> tuple[int, float, str]:
    """Over-utilised first, then by excess, then what has no value, then what does not take part."""
    if row.node_class == NOT_ELIGIBLE:
        return (3, 0.0, row.name)
    if row.excess is None:
        return (2, 0.0, row.name)
    over = row.node_class == NodeClass.OVER.name.capitalize()
    return (0 if over else 1, -row.excess, row.name)


def _node_plan(planned: Planned) -> NodePlan:
    plan, ground, afterwards = planned
    selected = afterwards or plan
    return NodePlan(
        node=plan.node,
        move=move_of(selected.choice, ground) if selected.choice is not None else None,
        rest=Why(code=plan.rest.code, text=plan.rest.text) if plan.rest is not None else None,
        passed_over=tuple(_grouped(selected.passed_over)),
    )


def _grouped(passed: Sequence[Passed]) -> Iterator[PassedOver]:
    groups: dict[str, list[PassedOverVm]] = defaultdict(list)
    for vm, reason in ((p.vm, p.reason) for p in passed):
        groups[reason.code].append(PassedOverVm(vm=str(vm), text=reason.text))
    for code, vms in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        yield PassedOver(code=code, vms=tuple(vms))


def _effects(choice: Choice, load: VmLoad, ground: Ground) -> Iterator[Effect]:
    target = next((n for n in ground.place(choice.candidate.pod).best if n.name == choice.target), None)
    for node, sign in ((ground.source, -1), (target, 1)):
        use = ground.picture.use(node.name, node.allocatable) if node is not None else None
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
