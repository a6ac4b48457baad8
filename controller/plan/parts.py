"""Parts that several texts share: the head, moves, and how names and numbers are written. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from controller.report import Head, Move, OnTheMove, Shown

ShownT = TypeVar("ShownT", bound=Shown)

EXAMPLES = 3
"""VMs or nodes named for each reason; wide names all."""
GIB = float(1 << 30)


def plain(text: str) -> str:
    """Somebody else's text on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def without_control(shown: ShownT) -> ShownT:
    """The same with all its texts, and names of queries, made :func:`plain`."""
    raw = msgspec.to_builtins(shown, builtin_types=(datetime,))
    return msgspec.convert(_plain(raw), type(shown))


def _plain(raw: Any) -> Any:
    match raw:
        case str():
            return plain(raw)
        case dict():
            return {_plain(key): _plain(value) for key, value in raw.items()}
        case list() | tuple():
            return [_plain(value) for value in raw]
        case _:
            return raw


def head_text(head: Head) -> Iterator[RenderableType]:
    at = head.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    policy = f"policy {head.policy_digest}, {head.mode}" if head.policy_digest else "no policy"
    yield Text(f"{head.cluster} at {at}; {policy}", "bold")
    known = round(head.coverage * head.eligible)
    yield Text(f"{known} of {head.eligible} eligible nodes have a value.")
    if head.metrics_at is not None and head.taken_at - head.metrics_at >= timedelta(seconds=1):
        yield Text(f"The metrics were asked for {ago(head.metrics_at, head.taken_at)}.")
    if head.judged_by < head.sustain:
        looks = "One look" if head.judged_by == 1 else f"{head.judged_by} looks"
        yield Text(
            f"{looks} cannot tell whether it lasts: the descheduler asks for {head.sustain} snapshots in a row; "
            "classes are as if it lasted."
        )
    for query, edge in head.thresholds.items():
        yield Text(f"{query}: over above {edge.over:.3f}, under at or below {edge.under:.3f}")
    if head.skipped:
        yield Text(f"Nothing is decided: {head.skipped}", "yellow")
    for note in head.notes:
        yield Text(f"Note: {note}", "yellow")
    yield Text()


def on_the_move(moves: Sequence[OnTheMove], now: datetime) -> Iterator[RenderableType]:
    if moves:
        yield Text("On the move", "bold")
        yield _movements(moves, now)
        yield Text()


def _movements(moves: Sequence[OnTheMove], now: datetime) -> Table:
    table = new_table("VM", "FROM", "TO", "PHASE", "SINCE", "ASKED BY")
    for move in moves:
        asked_by = "a descheduler" if move.ours else "-"
        since = ago(move.since, now)
        add_row(table, move.vm, move.source, move.target or "?", move.phase, since, asked_by)
    return table


def expected(move: Move) -> str:
    cost = f", about {span(move.cost_s)} of copying" if move.cost_s else ", cost not known"
    return f"{move.target}: gains {move.gain:.1%} of a node{cost}, priority {move.priority}"


def effects(move: Move) -> Iterator[str]:
    for e in move.effects:
        yield (
            f"{e.node}: CPU {e.cpu_before:.1%} to {e.cpu_after:.1%}, "
            f"memory {e.memory_before:.1%} to {e.memory_after:.1%}"
        )


def new_table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """As ``Text``, so that no name is taken for markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def number(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else "-"


def percent(value: float | None) -> str:
    return f"{value:.1%}" if value is not None else "-"


def ago(at: datetime, now: datetime) -> str:
    return f"{span((now - at).total_seconds())} ago"


def span(seconds: float) -> str:
    """Two units at most: 45s, 3m20s, 5h10m, 12d3h."""
    whole = max(round(seconds), 0)
    for unit, size, smaller, small_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size}{unit}{rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"
