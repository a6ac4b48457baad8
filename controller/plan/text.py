"""A report as text for people. Pure: rich renderables from a report; colours only repeat what words say."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from controller.plan.parts import (
    EXAMPLES,
    GIB,
    add_row,
    ago,
    effects,
    expected,
    head_text,
    new_table,
    number,
    on_the_move,
    percent,
    span,
    without_control,
)
from controller.plan.story_text import story_text
from controller.report import (
    Decisions,
    Ended,
    Head,
    NodePlan,
    NodeRow,
    PassedOver,
    PlanReport,
    Trend,
    VmStory,
)
from controller.taints.desired import PREFIX

DECISIONS = 3
"""Of each kind; wide shows all."""
STEADY = 0.01
"""A value that has changed by less has not changed."""
_UNBOUNDED = 100_000
"""Columns."""
_PADDING = re.compile(r" +((?:\x1b\[0m)?)$")
_CLASSES = {
    "Over": ("over-utilised", "bold red"),
    "Appropriate": ("appropriate", ""),
    "Under": ("under-utilised", "green"),
    "Unknown": ("unknown", "yellow"),
    "NotEligible": ("not eligible", "dim"),
}


def text_of(shown: PlanReport | Decisions | VmStory, *, wide: bool) -> Iterator[RenderableType]:
    """One renderable after the other; ``wide`` leaves nothing out.

    Whatever names and messages hold, none of it is more than text to a terminal.
    """
    safe = without_control(shown)
    match safe:
        case PlanReport():
            return _report_text(safe, wide=wide)
        case Decisions():
            return _decisions_text(safe, wide=wide)
        case VmStory():
            return story_text(safe, wide=wide)


def as_plain_text(parts: Iterable[RenderableType]) -> str:
    """Without colours; a line stays a line, however long it is."""
    return _written(parts, Console(file=StringIO(), width=_UNBOUNDED, color_system=None, highlight=False))


def as_coloured_text(parts: Iterable[RenderableType], terminal: Console) -> str:
    """With what colours the terminal has and wants. Lines are as long as they are: it can break them itself."""
    colours: Any = terminal.color_system  # its own name of them
    same = Console(
        file=StringIO(),
        width=_UNBOUNDED,
        force_terminal=True,
        color_system=colours,
        no_color=terminal.no_color,
        highlight=False,
    )
    return _written(parts, same)


def _written(parts: Iterable[RenderableType], console: Console) -> str:
    """Columns are padded; at the end of a line that would make a narrow terminal break it for nothing."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(_PADDING.sub(r"\1", line) for line in capture.get().splitlines())


def _report_text(report: PlanReport, *, wide: bool) -> Iterator[RenderableType]:
    """Head, nodes, what is on the move, and what would be done next."""
    yield from head_text(report.head)
    yield from _nodes(report.nodes, report.head, wide=wide)
    yield Text()
    yield from on_the_move(report.on_the_move, report.head.taken_at)
    yield from _plans(report, wide=wide)


def _decisions_text(decisions: Decisions, *, wide: bool) -> Iterator[RenderableType]:
    """Head, nodes, what is on the move, the last decisions, and what became of the last moves."""
    now = decisions.head.taken_at
    yield from head_text(decisions.head)
    if decisions.alarm:
        yield Text(f"ALARM: {decisions.alarm}", "bold red")
        yield Text()
    yield from _nodes(decisions.nodes, decisions.head, wide=wide)
    if decisions.nodes_left_out:
        yield Text(f"and {decisions.nodes_left_out} more nodes, which are less busy", "dim")
    yield Text()
    yield from on_the_move(decisions.on_the_move, now)
    yield from _decided("Last decision on each node", decisions.plans, now, wide=wide)
    yield from _decided("Moves decided on, latest first", decisions.chosen, now, wide=wide)
    yield Text("Moves that are over, latest first", "bold")
    if decisions.ended:
        yield _ended(decisions.ended, now)
    else:
        yield Text("  none since it began to decide")


# --- the nodes ---


def _shown(row: NodeRow, *, wide: bool) -> bool:
    """Nodes that the selector leaves out are for wide only; a cordoned one explains itself."""
    return wide or row.node_class != "NotEligible" or row.reason in ("cordoned", "not ready")


def _nodes(rows: Sequence[NodeRow], head: Head, *, wide: bool) -> Iterator[RenderableType]:
    yield _table_of_nodes(rows, head, wide=wide)
    if not wide and (hidden := sum(not _shown(row, wide=False) for row in rows)):
        yield Text(f"and {hidden} nodes that do not take part (-o wide shows them)", "dim")


def _table_of_nodes(rows: Sequence[NodeRow], head: Head, *, wide: bool) -> Table:
    queries = list(head.thresholds)
    values = ["VALUE"] if len(queries) == 1 else queries
    more = ("TREND", "CORES", "GIB", "VMS", "SAMPLE", "WHY") if wide else ()
    table = new_table("NODE", "CLASS", *values, "CPU", "MEMORY", "PRESSURE", "TAINTS", "LEAVING", *more)
    for row in rows:
        if not _shown(row, wide=wide):
            continue
        words, style = _CLASSES.get(row.node_class, (row.node_class, ""))
        load = row.load
        cells: list[str | Text] = [
            row.name,
            Text(words, style),
            *(number(row.values.get(query)) for query in queries),
            percent(load.cpu if load else None),
            percent(load.memory if load else None),
            percent(load.pressure if load else None),
            ", ".join(key.removeprefix(f"{PREFIX}/") for key in row.taints) or "-",
            f"{row.leaving}/{row.leaving_limit}",
        ]
        if wide:
            cells += _more_cells(row, head.taken_at)
        add_row(table, *cells)
    return table


def _more_cells(row: NodeRow, now: datetime) -> list[str | Text]:
    cores = f"{row.load.cpu_cores:.1f}/{row.cores:g}" if row.load else f"-/{row.cores:g}"
    used = f"{row.load.memory_bytes / GIB:.0f}" if row.load else "-"
    age = f"{span((now - row.sampled_at).total_seconds())} old" if row.sampled_at else "-"
    memory = f"{used}/{row.memory_bytes / GIB:.0f}"
    return [_trend(row.trend), cores, memory, str(row.vms), age, row.reason]


def _trend(trend: Trend | None) -> str | Text:
    if trend is None:
        return "-"
    if abs(trend.change) < STEADY:
        return "steady"
    word, style = ("rising", "red") if trend.change > 0 else ("falling", "green")
    return Text(f"{word} {trend.change:+.3f} in {span(trend.over_s)}", style)


# --- what would be done ---


def _plans(report: PlanReport, *, wide: bool) -> Iterator[RenderableType]:
    if not report.plans:
        if not report.head.skipped:
            yield Text("No node is over-utilised: nothing to move.")
        return
    yield Text("Next, worst node first", "bold")
    if report.head.mode == "Predictive":
        yield Text("The policy is Predictive: the descheduler would only report these moves.")
    for plan in report.plans:
        yield from _plan(plan, None, wide=wide)


def _decided(title: str, plans: Sequence[NodePlan], now: datetime, *, wide: bool) -> Iterator[RenderableType]:
    yield Text(title, "bold")
    if not plans:
        yield Text("  none since it began to decide")
    shown = plans if wide else plans[:DECISIONS]
    for plan in shown:
        yield from _plan(plan, now, wide=wide)
    if len(shown) < len(plans):
        yield Text(f"  and {len(plans) - len(shown)} older ones (-o wide shows them)", "dim")
    yield Text()


def _plan(plan: NodePlan, now: datetime | None, *, wide: bool) -> Iterator[RenderableType]:
    """``now``: how long ago all that was is told, too."""
    yield _headline(plan, f", {ago(plan.at, now)}" if now is not None else "")
    if plan.move is not None:
        yield from (Text(f"    {line}") for line in effects(plan.move))
    if plan.passed_over:
        count = sum(group.count for group in plan.passed_over)
        looked_at = plan.passed_over_at if now is not None else None
        when = f" at the last look, {ago(looked_at, now)}" if looked_at and now else ""
        yield Text(f"    {count} {'VM' if count == 1 else 'VMs'} passed over{when}:")
        yield _passed_over(plan.passed_over, wide=wide)


def _headline(plan: NodePlan, when: str) -> Text:
    move, node = plan.move, (plan.node, "bold")
    why = plan.rest.text if plan.rest is not None else ""
    if move is None:
        return Text.assemble("  ", node, f"{when}: nothing moves: {why}")
    first = f"{when}: nothing moves now: {why}; as things stand the next is " if why else f"{when}: "
    return Text.assemble("  ", node, first, (move.vm, "bold cyan"), f" to {expected(move)}")


def _passed_over(groups: Sequence[PassedOver], *, wide: bool) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for group in groups:
        if wide:
            for vm in group.vms:
                add_row(table, "     ", group.code, vm.vm, vm.text)
            if group.count > len(group.vms):
                add_row(table, "     ", group.code, f"and {group.count - len(group.vms)} more", "")
            continue
        names = ", ".join(vm.vm for vm in group.vms[:EXAMPLES])
        more = ", ..." if group.count > EXAMPLES else ""
        text = group.vms[0].text if group.vms else ""
        # Each has numbers of its own, so what is said of the first must not pass for all.
        shared = all(vm.text == text for vm in group.vms)
        said = text if shared else f"such as: {text}"
        add_row(table, f"    {group.count:>3}", group.code, f"{names}{more}", said)
    return table


def _ended(moves: Sequence[Ended], now: datetime) -> Table:
    table = new_table("VM", "FROM", "TO", "HOW", "WHEN", "TOOK", "WHAT WENT WRONG")
    for move in moves:
        failed = move.failed_attempts
        attempts = f"{failed} failed {'attempt' if failed == 1 else 'attempts'}" if failed else ""
        wrong = "; ".join(filter(None, (attempts, move.answer)))
        how = move.phase if move.ours else f"{move.phase}, of others"
        add_row(
            table,
            move.vm,
            move.source,
            move.target or "?",
            how,
            ago(move.at, now),
            span(move.took_s),
            wrong or "-",
        )
    return table
