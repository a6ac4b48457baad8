"""Scores in words and columns, for the terminal and for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from simulator.report.scores import Scores


class Measure(msgspec.Struct, frozen=True):
    """How one score is shown. Of all of them, less is better."""

    key: str
    title: str
    unit: str
    digits: int
    meaning: str


MEASURES = (
    Measure("vms_shut_down", "VMs shut down", "", 0, "VMs that an eviction took down instead of moving them"),
    Measure("minutes_to_balance", "Time to balance", "min", 1, "until no node is over 80 % for good"),
    Measure("migrations", "Migrations", "", 0, "asked for, KubeVirt's retries included"),
    Measure("migrations_failed", "… that failed", "", 0, "migrations that ended without moving the VM"),
    Measure("repeated_migrations", "… repeated", "", 0, "the same VM again inside its cool-down"),
    Measure(
        "undone_migrations", "… undone", "", 0,
        "back on a node left within the hour, or target over-utilised within 10 min",
    ),
    Measure("max_outbound_per_node", "Most off one node at once", "", 0, "VMs leaving one node together"),
    Measure("max_in_flight", "Most in flight at once", "", 0, "VMs on the move together"),
    Measure("overutilized_node_minutes", "Over-utilised", "node-min", 1, "demand above 80 % of its cores"),
    Measure("pressure_node_minutes", "CPU pressure", "node-min", 1, "PSI, summed over nodes"),
    Measure("starved_cpu_minutes", "Starved CPU", "core-min", 1, "CPU time wanted and not given"),
    Measure("utilization_stddev", "Spread of utilisation", "", 3, "deviation over nodes, mean over time"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One score of one program, over all its seeds, as text."""

    text: str
    """The value, or the mean of the seeds."""
    spread: str
    """``24 – 29`` over several seeds, how many never got there, or empty."""
    mean: float | None
    """``None``: never, with at least one seed."""


def cell(measure: Measure, seeds: Sequence[Scores]) -> Cell:
    """Sum up one score over the seeds of one program."""
    values = [getattr(one, measure.key) for one in seeds]
    known = [float(v) for v in values if v is not None]
    never = len(values) - len(known)
    if not known:
        return Cell("never", "", None)
    mean = sum(known) / len(known)
    spread = ""
    if len(values) > 1:
        low, high = _number(min(known), measure.digits), _number(max(known), measure.digits)
        parts = [f"{low} – {high}"] if low != high else []
        if never:
            parts.append(f"never in {never} of {len(values)}")
        spread = ", ".join(parts)
    digits = measure.digits if min(known) == max(known) else max(measure.digits, 1)
    return Cell(_number(mean, digits), spread, None if never else mean)


def ratio(ours: Cell, theirs: Cell) -> str:
    """Ours as a multiple of theirs: ``0.79x``, ``same``; empty where a ratio says nothing."""
    if ours.mean is None or theirs.mean is None:
        return ""
    if ours.mean == theirs.mean:
        return "same"
    if theirs.mean == 0.0:
        return ""
    return f"{ours.mean / theirs.mean:.2f}x" if ours.mean > 0.0 else "0x"


def table(runs: Mapping[str, Sequence[Scores]]) -> Table:
    """Scores by label as a table: a column for each, and of two labels the first as a multiple of the second.

    Nothing in it is told by colour alone.
    """
    labels = list(runs)
    answer = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    answer.add_column("score", no_wrap=True)
    for label in labels:
        answer.add_column(Text(label), justify="right")
    if len(labels) == 2:
        answer.add_column("ratio", justify="right")
    answer.add_column("unit")
    for measure in MEASURES:
        cells = [cell(measure, runs[label]) for label in labels]
        texts = [f"{c.text} ({c.spread})" if c.spread else c.text for c in cells]
        ratios = [ratio(*cells)] if len(cells) == 2 else []
        answer.add_row(measure.title, *texts, *ratios, measure.unit)
    return answer


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"
