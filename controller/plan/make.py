"""From a look to the report of it. Pure."""

from controller.cluster.objects import Node
from controller.evictions.select import Choice, Ground
from controller.plan.look import Look, Planned
from controller.report import Head, Move, NodePlan, NodeRow, PlanReport, Why
from controller.reporting import badness, class_of, edges_of, grouped, move_of, node_row, on_the_move, rounded


def plan_report(look: Look) -> PlanReport:
    rows = [_row(look, node) for node in (look.view.node(name) for name in look.view.node_names()) if node]
    return PlanReport(
        head=head_of(look),
        nodes=tuple(sorted(rows, key=lambda row: badness(row.node_class, row.excess, row.name))),
        on_the_move=tuple(on_the_move(look.ledger.entries)),
        plans=tuple(_node_plan(look, planned) for planned in look.plans.values()),
    )


def head_of(look: Look) -> Head:
    classification = look.classification
    return Head(
        cluster=look.cluster.name,
        taken_at=look.at,
        metrics_at=look.snapshots[-1].taken_at if look.measured else None,
        mode=str(look.policy.mode),
        policy_digest=look.policy.digest,
        sustain=look.sustain,
        judged_by=look.policy.thresholds.sustain,
        eligible=len(classification.nodes),
        coverage=rounded(classification.coverage),
        thresholds=edges_of(classification) if look.measured else {},
        skipped=classification.skipped,
        notes=look.notes,
    )


def expected_move(look: Look, choice: Choice, ground: Ground) -> Move:
    return move_of(choice, ground.source, look.view.node(choice.target), ground.picture)


def _row(look: Look, node: Node) -> NodeRow:
    return node_row(
        node,
        class_of(node, look.classification, look.policy.node_selector),
        look.classification.nodes.get(node.name),
        look.snapshots,
        look.survey.slots_of(node.name, look.policy, look.ledger),
        len(look.view.vms_on(node.name)),
    )


def _node_plan(look: Look, planned: Planned) -> NodePlan:
    plan, ground, afterwards = planned
    selected = afterwards or plan
    return NodePlan(
        node=plan.node,
        at=plan.at,
        move=expected_move(look, selected.choice, ground) if selected.choice is not None else None,
        rest=Why(code=plan.rest.code, text=plan.rest.text) if plan.rest is not None else None,
        passed_over=tuple(grouped(selected.passed_over)),
    )
