"""The HTML report of one run or of several: a single file that needs no network.

It carries plotly.js (the library ships with the Python package) and the plots' data, both compressed: about
2 MB instead of 5. The browser unpacks them (``DecompressionStream``: every browser since 2023). Text, tables
and scores do not need JavaScript. Plots are bounded, whatever the cluster's size and the run's length: see
``view`` and ``style.Thinning``.
"""

import base64
import functools
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from plotly.offline import get_plotlyjs

from simulator.record import RunRecord
from simulator.report import compare, controller_view, moves, nodes, waterfall, words
from simulator.report.scores import by_label
from simulator.report.style import LABEL_COLOURS, Figure, shorten
from simulator.report.view import View, view_of

MAX_TABLE_ROWS = 500


class ReportError(OSError):
    """The report could not be written; the message says where and why, in a line."""


def write_report(path: str | os.PathLike[str], runs: Sequence[RunRecord]) -> None:
    """Write the report of these runs, see ``render``. Raises ``ReportError`` if that is not possible."""
    text = render(runs)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"cannot write the report to {os.fspath(path)}: {error.strerror or error}"
        ) from error


def render(runs: Sequence[RunRecord]) -> str:
    """The report as HTML text.

    Runs with the same label and different seeds become a band; of each label one run is shown in detail.
    Different labels are laid side by side, in the order in which they come. ``ValueError`` without runs.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    shown = _examples(groups)
    page = _Page(view_of(shown), shown)
    _sections(page, groups)
    scores = by_label(runs)
    return _template("report.html").render(
        first=shown[0],
        labels=list(groups),
        colours=LABEL_COLOURS,
        seeds={label: [run.seed for run in of_label] for label, of_label in groups.items()},
        shown=shown,
        verdicts=words.verdicts(scores),
        tiles=words.tiles(scores),
        score_rows=words.score_rows(scores),
        sections=page.sections,
        why_not=[words.why_not_rows(run) for run in shown],
        why_nothing=[words.why_nothing(run) for run in shown],
        moves=[moves.describe(run, page.view)[:MAX_TABLE_ROWS] for run in shown],
        max_rows=MAX_TABLE_ROWS,
        view=page.view,
        style=_file("report.css"),
        script=_file("report.js"),
        library=_packed_library(),
        payload=_pack(msgspec.json.encode({"figures": page.figures, "choices": page.choices})),
    )


@dataclass
class _Page:
    """Collects sections and their plots."""

    view: View
    shown: Sequence[RunRecord]
    figures: dict[str, Figure] = field(default_factory=dict)
    choices: dict[str, dict[str, Figure]] = field(default_factory=dict)
    """Plot -> what its buttons change: title -> properties of the trace."""
    sections: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, title: str, help_text: str, figures: Sequence[Figure | None]) -> None:
        """Append a section with one plot for each label; ``None`` leaves a plot out."""
        plots = []
        for i, figure in enumerate(figures):
            if figure is not None:
                name = f"{kind}-{i}"
                self.figures[name] = figure
                plots.append(
                    {"id": name, "run": self.shown[i], "height": figure["layout"]["height"], "index": i}
                )
        if plots:
            buttons = list(self.choices.get(str(plots[0]["id"]), ()))
            self.sections.append(
                {"kind": kind, "title": title, "help": help_text, "plots": plots, "buttons": buttons}
            )


def _examples(groups: dict[str, list[RunRecord]]) -> list[RunRecord]:
    """The run of each label that is shown in detail: the same seed for all, the first label's median one."""
    first = next(iter(groups.values()))
    ranked = sorted(first, key=lambda run: (run.overutilized_node_seconds, run.seed))
    seed = ranked[(len(ranked) - 1) // 2].seed
    return [next((run for run in runs if run.seed == seed), runs[0]) for runs in groups.values()]


def _sections(page: _Page, groups: dict[str, list[RunRecord]]) -> None:
    """Put the sections onto the page, in the order in which they are read."""
    view, shown = page.view, page.shown
    if sum(map(len, groups.values())) > 1:
        page.add(
            "comparison", "Side by side", "The same cluster and load. Dotted: the trouble begins.",
            [compare.comparison(groups, view)],
        )  # fmt: skip
    _nodes(page)
    lanes = "" if view.complete else " or goes to a node not shown"
    page.add(
        "lanes",
        "Migrations",
        "From the source's lane, when it was asked for, to the target's lane, when the VM was there. "
        f"One that failed{lanes} stays in its lane.",
        [moves.lanes(run, view) if run.migrations or run.shutdowns else None for run in shown],
    )
    page.add(
        "flight", "In flight", "VMs on the move at the same time.",
        [moves.in_flight(run, view) for run in shown],
    )  # fmt: skip
    which = "that were over 80 % longest" if view.any_over else "with the highest demand"
    page.add(
        "curves", "Utilisation and pressure", f"Coloured: the nodes {which}. Grey: the range of all others.",
        [nodes.curves(run, view) for run in shown],
    )  # fmt: skip
    page.add(
        "eyes",
        "What the controller saw",
        "Each node's class by its score, which trails reality by a minute or two, and its soft taints.",
        [controller_view.controller_eyes(run, view) for run in shown],
    )
    page.add(
        "waterfall",
        "Phases of the evictions",
        "Where the time went since it was asked for, a row an attempt (of many, the "
        f"{waterfall.MAX_ROWS} longest, and the median of all). Settling, drawn thin: the VM has arrived, and the "
        "metrics do not show it yet.",
        [waterfall.waterfall(run, view) for run in shown],
    )


def _nodes(page: _Page) -> None:
    view, shown = page.view, page.shown
    for i, run in enumerate(shown):
        page.choices[f"heat-{i}"] = nodes.heat_views(run, view)
    rows = "" if view.complete else f" The {len(view.rows)} busiest of {view.node_count:,} nodes."
    page.add(
        "heat",
        "Nodes over time",
        f"A row is a node. Orange and darker: the VMs want more than 80 % of its cores.{rows}",
        [nodes.heat_map(run, view) for run in shown],
    )
    if not view.complete:
        page.add(
            "spread", "All nodes", "How many nodes have which CPU demand; a single hot one still shows.",
            [nodes.spread(run, view) for run in shown],
        )  # fmt: skip


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)  # fmt: skip
    environment.filters["shorten"] = shorten
    return environment.from_string(_file(name))


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@functools.cache
def _packed_library() -> str:
    return _pack(get_plotlyjs().encode())


def _pack(data: bytes) -> str:
    """Compressed and in base64: harmless inside a ``<script>``. The same data gives the same text."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()
