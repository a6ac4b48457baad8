"""A report as text for people. Pure: rich renderables from a report; colours only repeat what words say."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from controller.plan.report import (
    Head,
    Move,
    NodePlan,
    NodeRow,
    OnTheMove,
    PassedOver,
    PlanReport,
    RuleVerdict,
    VmStory,
)
from controller.taints.desired import PREFIX

EXAMPLES = 3
"""VMs named for each reason; wide names all."""
MIGRATIONS = 5
NODES = 5
_GIB = float(1 << 30)
_UNBOUNDED = 100_000
"""Columns."""
_CLASSES = {
    "Over": ("over-utilised", "bold red"),
    "Appropriate": ("appropriate", ""),
    "Under": ("under-utilised", "green"),
    "Unknown": ("unknown", "yellow"),
    "NotEligible": ("not eligible", "dim"),
}
_VERDICTS = {True: ("yes", "green"), False: ("no", "red"), None: ("?", "yellow")}


def text_of(shown: PlanReport | VmStory, *, wide: bool) -> Iterator[RenderableType]:
    """One renderable after the other; ``wide`` leaves nothing out."""
    if isinstance(shown, PlanReport):
        return report_text(shown, wide=wide)
    return story_text(shown, wide=wide)


def as_plain_text(parts: Iterable[RenderableType]) -> str:
    """Without colours; a line stays a line, however long it is."""
    out = StringIO()
    console = Console(file=out, width=_UNBOUNDED, color_system=None, force_terminal=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def report_text(report: PlanReport, *, wide: bool) -> Iterator[RenderableType]:
    """Head, nodes, what is on the move, and what would be done next."""
    yield from _head(report.head)
    yield _nodes(report, wide=wide)
    if not wide and (hidden := sum(not _shown(row, wide=False) for row in report.nodes)):
        yield Text(f"and {hidden} nodes that do not take part (-o wide shows them)", "dim")
    yield Text()
    if report.on_the_move:
        yield Text("On the move", "bold")
        yield _movements(report.on_the_move, report.head.taken_at)
        yield Text()
    yield from _plans(report, wide=wide)


def story_text(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    """Everything about one VM, the verdict first."""
    yield from _head(story.head)
    yield Text.assemble((story.vm, "bold"), ": ", plain(story.summary))
    yield Text()
    yield _facts(story)
    yield Text()
    if story.on_the_move:
        yield Text("On the move", "bold")
        yield _movements(story.on_the_move, story.head.taken_at)
        yield Text()
    yield Text("Rules", "bold")
    yield _rules((*story.rules_of_node, *story.rules_of_vm))
    yield Text()
    yield from _placement(story, wide=wide)
    yield Text()
    yield from _migrations(story, wide=wide)


def plain(text: str) -> str:
    """Somebody else's text on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


# --- parts of both ---


def _head(head: Head) -> Iterator[RenderableType]:
    at = head.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    yield Text(f"{plain(head.cluster)} at {at}; policy {head.policy_digest}, {head.mode}", "bold")
    known = round(head.coverage * head.eligible)
    yield Text(f"{known} of {head.eligible} eligible nodes have a value.")
    if head.judged_by < head.sustain:
        looks = "One look" if head.judged_by == 1 else f"{head.judged_by} looks"
        yield Text(
            f"{looks} cannot tell whether it lasts: the descheduler asks for {head.sustain} snapshots in a row; "
            "classes are as if it lasted."
        )
    for query, edge in head.thresholds.items():
        yield Text(f"{plain(query)}: over above {edge.over:.3f}, under at or below {edge.under:.3f}")
    if head.skipped:
        yield Text(f"Nothing is decided: {plain(head.skipped)}", "yellow")
    for note in head.notes:
        yield Text(f"Note: {plain(note)}", "yellow")
    yield Text()


def _movements(moves: Sequence[OnTheMove], now: datetime) -> Table:
    table = _table("VM", "FROM", "TO", "PHASE", "SINCE", "ASKED BY")
    for move in moves:
        asked_by = "a descheduler" if move.ours else "-"
        since = f"{_span((now - move.since).total_seconds())} ago"
        _row(table, plain(move.vm), move.source, move.target or "?", move.phase, since, asked_by)
    return table


# --- the nodes ---


def _shown(row: NodeRow, *, wide: bool) -> bool:
    """Nodes that the selector leaves out are for wide only; a cordoned one explains itself."""
    return wide or row.node_class != "NotEligible" or row.reason in ("cordoned", "not ready")


def _nodes(report: PlanReport, *, wide: bool) -> Table:
    queries = list(report.head.thresholds)
    values = ["VALUE"] if len(queries) == 1 else [plain(query) for query in queries]
    more = ("CORES", "GIB", "VMS", "SAMPLE", "WHY") if wide else ()
    table = _table("NODE", "CLASS", *values, "CPU", "MEMORY", "PRESSURE", "TAINTS", "LEAVING", *more)
    for row in report.nodes:
        if not _shown(row, wide=wide):
            continue
        words, style = _CLASSES[row.node_class]
        load = row.load
        cells: list[str | Text] = [
            row.name,
            Text(words, style),
            *(_number(row.values.get(query)) for query in queries),
            _percent(load.cpu if load else None),
            _percent(load.memory if load else None),
            _percent(load.pressure if load else None),
            ", ".join(key.removeprefix(f"{PREFIX}/") for key in row.taints) or "-",
            f"{row.leaving}/{row.leaving_limit}",
        ]
        if wide:
            cells += _more_cells(row, report.head.taken_at)
        _row(table, *cells)
    return table


def _more_cells(row: NodeRow, now: datetime) -> list[str]:
    cores = f"{row.load.cpu_cores:.1f}/{row.cores:g}" if row.load else f"-/{row.cores:g}"
    used = f"{row.load.memory_bytes / _GIB:.0f}" if row.load else "-"
    age = f"{_span((now - row.sampled_at).total_seconds())} old" if row.sampled_at else "-"
    return [cores, f"{used}/{row.memory_bytes / _GIB:.0f}", str(row.vms), age, plain(row.reason)]


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
        yield _headline(plan)
        if plan.move is not None:
            yield from (Text(f"    {line}") for line in _effects(plan.move))
        if plan.passed_over:
            count = sum(len(group.vms) for group in plan.passed_over)
            yield Text(f"    {count} {'VM' if count == 1 else 'VMs'} passed over:")
            yield _passed_over(plan.passed_over, wide=wide)


def _headline(plan: NodePlan) -> Text:
    move = plan.move
    why = plain(plan.rest.text) if plan.rest is not None else ""
    if move is None:
        return Text.assemble("  ", (plan.node, "bold"), f": nothing moves: {why}")
    if why:
        first = f": nothing moves now: {why}; as things stand the next is "
        return Text.assemble(
            "  ", (plan.node, "bold"), first, (plain(move.vm), "bold cyan"), f" to {_expected(move)}"
        )
    return Text.assemble(
        "  ", (plan.node, "bold"), ": ", (plain(move.vm), "bold cyan"), f" to {_expected(move)}"
    )


def _expected(move: Move) -> str:
    cost = f", about {_span(move.cost_s)} of copying" if move.cost_s else ", cost not known"
    return f"{move.target}: gains {move.gain:.1%} of a node{cost}, priority {move.priority}"


def _effects(move: Move) -> Iterator[str]:
    for e in move.effects:
        yield (
            f"{e.node}: CPU {e.cpu_before:.1%} to {e.cpu_after:.1%}, "
            f"memory {e.memory_before:.1%} to {e.memory_after:.1%}"
        )


def _passed_over(groups: Sequence[PassedOver], *, wide: bool) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for group in groups:
        if wide:
            for vm in group.vms:
                _row(table, "     ", group.code, plain(vm.vm), plain(vm.text))
            continue
        names = ", ".join(plain(vm.vm) for vm in group.vms[:EXAMPLES])
        more = ", ..." if len(group.vms) > EXAMPLES else ""
        text = plain(group.vms[0].text)
        # Each has numbers of its own, so what is said of the first must not pass for all.
        shared = all(vm.text == group.vms[0].text for vm in group.vms)
        said = text if shared else f"such as: {text}"
        _row(table, f"    {len(group.vms):>3}", group.code, f"{names}{more}", said)
    return table


# --- one VM ---


def _facts(story: VmStory) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    now = story.head.taken_at
    facts = {
        "node": story.node or "none",
        "phase": story.phase or "not set",
        "pod": story.pod or "none",
        "priority": str(story.priority) if story.priority is not None else "-",
        "age": _span((now - story.created_at).total_seconds()) if story.created_at else "-",
        "eviction strategy": story.eviction_strategy or "none",
        "load": _vm_load(story),
        "rests until": f"{story.resting_until:%Y-%m-%d %H:%M} UTC"
        if story.resting_until
        else "does not rest",
    }
    for name, value in facts.items():
        _row(table, name, plain(value))
    return table


def _vm_load(story: VmStory) -> str:
    if story.load is None:
        return "not known"
    dirty = f", dirties {story.dirty_bytes_per_s / 1e6:.0f} MB/s" if story.dirty_bytes_per_s else ""
    return f"{story.load.cpu_cores:.1f} cores, {story.load.memory_bytes / _GIB:.1f} GiB{dirty}"


def _rules(rules: Sequence[RuleVerdict]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for rule in rules:
        word, style = _VERDICTS[rule.holds]
        _row(table, Text(f"{word:>5}", style), rule.claim, plain(rule.text))
    return table


def _placement(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    yield Text("Where the scheduler would put it", "bold")
    if story.move is not None:
        yield Text(f"  to {_expected(story.move)}")
        yield from (Text(f"    {line}") for line in _effects(story.move))
    if not story.fits_on:
        yield Text("  it fits on no other node" if story.misfits else "  not known")
    shown = story.fits_on if wide else story.fits_on[:NODES]
    for scored in shown:
        yield Text(f"  {scored.node}: score {scored.score}")
    if len(shown) < len(story.fits_on):
        yield Text(f"  and {len(story.fits_on) - len(shown)} more with lower or equal scores")
    for misfits in story.misfits:
        nodes = misfits.nodes if wide else misfits.nodes[:EXAMPLES]
        more = ", ..." if len(nodes) < len(misfits.nodes) else ""
        yield Text(
            f"  not on {len(misfits.nodes)} ({misfits.code}; {', '.join(nodes)}{more}): {plain(misfits.text)}"
        )


def _migrations(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    yield Text("Migrations that are still recorded", "bold")
    if not story.migrations:
        yield Text("  none")
        return
    table = _table("NAME", "FROM", "TO", "PHASE", "CREATED", "TOOK", "FAILURE")
    shown = story.migrations if wide else story.migrations[:MIGRATIONS]
    for m in shown:
        created = f"{m.created_at:%Y-%m-%d %H:%M:%S}" if m.created_at else "-"
        took = _span(m.took_s) if m.took_s is not None else "-"
        _row(table, m.name, m.source or "-", m.target or "-", m.phase, created, took, plain(m.failure) or "-")
    yield table
    if len(shown) < len(story.migrations):
        yield Text(f"and {len(story.migrations) - len(shown)} older ones")


# --- words and numbers ---


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def _row(table: Table, *cells: str | Text) -> None:
    """As ``Text``, so that no name is taken for markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _number(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else "-"


def _percent(value: float | None) -> str:
    return f"{value:.1%}" if value is not None else "-"


def _span(seconds: float) -> str:
    """Two units at most: 45s, 3m20s, 5h10m, 12d3h."""
    whole = max(round(seconds), 0)
    for unit, size, smaller, small_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size}{unit}{rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"
