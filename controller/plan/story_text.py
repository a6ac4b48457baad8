"""The story of one VM as text for people. Pure."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from controller.plan.parts import (
    EXAMPLES,
    GIB,
    add_row,
    effects,
    expected,
    head_text,
    new_table,
    on_the_move,
    span,
)
from controller.report import RuleVerdict, VmStory

MIGRATIONS = 5
NODES = 5
_VERDICTS = {True: ("yes", "green"), False: ("no", "red"), None: ("?", "yellow")}


def story_text(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    """Everything about one VM, the verdict first."""
    yield from head_text(story.head)
    yield Text.assemble((story.vm, "bold"), ": ", story.summary)
    yield Text()
    yield _facts(story)
    yield Text()
    yield from on_the_move(story.on_the_move, story.head.taken_at)
    yield Text("Rules", "bold")
    yield _rules((*story.rules_of_node, *story.rules_of_vm))
    yield Text()
    yield from _placement(story, wide=wide)
    yield Text()
    yield from _migrations(story, wide=wide)


def _facts(story: VmStory) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    now = story.head.taken_at
    facts = {
        "node": story.node or "none",
        "phase": story.phase or "not set",
        "pod": story.pod or "none",
        "priority": str(story.priority) if story.priority is not None else "-",
        "age": span((now - story.created_at).total_seconds()) if story.created_at else "-",
        "eviction strategy": story.eviction_strategy or "none",
        "load": _vm_load(story),
        "rests until": f"{story.resting_until:%Y-%m-%d %H:%M} UTC"
        if story.resting_until
        else "does not rest",
    }
    for name, value in facts.items():
        add_row(table, name, value)
    return table


def _vm_load(story: VmStory) -> str:
    if story.load is None:
        return "not known"
    dirty = f", dirties {story.dirty_bytes_per_s / 1e6:.0f} MB/s" if story.dirty_bytes_per_s else ""
    return f"{story.load.cpu_cores:.1f} cores, {story.load.memory_bytes / GIB:.1f} GiB{dirty}"


def _rules(rules: Sequence[RuleVerdict]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for rule in rules:
        word, style = _VERDICTS[rule.holds]
        add_row(table, Text(f"{word:>5}", style), rule.claim, rule.text)
    return table


def _placement(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    yield Text("Where the scheduler would put it", "bold")
    if story.move is not None:
        yield Text(f"  to {expected(story.move)}")
        yield from (Text(f"    {line}") for line in effects(story.move))
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
            f"  not on {len(misfits.nodes)} ({misfits.code}; {', '.join(nodes)}{more}): {misfits.text}"
        )


def _migrations(story: VmStory, *, wide: bool) -> Iterator[RenderableType]:
    yield Text("Migrations that are still recorded", "bold")
    if not story.migrations:
        yield Text("  none")
        return
    table = new_table("NAME", "FROM", "TO", "PHASE", "CREATED", "TOOK", "FAILURE")
    shown = story.migrations if wide else story.migrations[:MIGRATIONS]
    for m in shown:
        created = f"{m.created_at:%Y-%m-%d %H:%M:%S}" if m.created_at else "-"
        took = span(m.took_s) if m.took_s is not None else "-"
        add_row(table, m.name, m.source or "-", m.target or "-", m.phase, created, took, m.failure or "-")
    yield table
    if len(shown) < len(story.migrations):
        yield Text(f"and {len(story.migrations) - len(shown)} older ones")
