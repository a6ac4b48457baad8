"""Which nodes the report shows one by one, and in which order: the same for all runs that it compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.record import UNKNOWN, Floats, RunRecord
from simulator.report.style import OVER_AT, TimeAxis, left_px, safe, shorten

MAX_ROWS = 40
"""Rows of a heat map; of a larger cluster the busiest nodes are shown, and how all are spread."""
HEAT_TIMES = 600
"""Columns of a heat map: about one for two pixels of a wide screen."""
MAX_LINES = 6
"""Lines with a colour of their own; the other nodes are a band."""


@dataclass(frozen=True)
class View:
    time: TimeAxis
    rows: tuple[str, ...]
    """Nodes of heat maps and lanes, from top to bottom."""
    highlighted: tuple[str, ...]
    """Nodes with a line of their own."""
    node_count: int
    any_over: bool
    """Whether any node ever was over-utilised."""
    columns: int
    """How many plots stand side by side on a wide screen."""

    @property
    def left(self) -> int:
        return left_px(self.rows)

    def legend_px(self, names: Sequence[str]) -> int:
        """Room above a plot for its legend; generous, since the window's width is unknown."""
        widths = [48 + 6.5 * len(name) for name in names]
        available = 1150 if self.columns == 1 else 490
        if sum(widths) <= available:
            return 41
        per_row = max(1, int(available / max(widths)))  # in several rows all entries are equally wide
        return 22 + 19 * -(-len(names) // per_row)

    @property
    def row_gap(self) -> int:
        """Pixels between rows; without them when there are many."""
        return 1 if len(self.rows) <= 20 else 0

    @property
    def complete(self) -> bool:
        return len(self.rows) == self.node_count


def view_of(runs: Sequence[RunRecord]) -> View:
    """Choose the nodes: the longest over-utilised first, then those with the highest demand."""
    badness: dict[str, tuple[float, float]] = {}
    for run in runs:
        over_s = np.nansum(run.samples.demand > OVER_AT, axis=0)
        peaks = np.max(np.nan_to_num(run.samples.demand), axis=0)
        for node, over, peak in zip(run.nodes, over_s, peaks, strict=True):
            worst = badness.get(node.name, (0.0, 0.0))
            badness[node.name] = max(worst, (float(over), float(peak)))
    ranked = sorted(badness, key=lambda name: badness[name], reverse=True)
    over_once = [name for name in ranked if badness[name][0] > 0]
    rows = list(badness) if len(badness) <= MAX_ROWS else ranked[:MAX_ROWS]
    return View(
        time=TimeAxis(max(run.end_s for run in runs)),
        rows=tuple(rows),
        highlighted=tuple((over_once or ranked[:2])[:MAX_LINES]),
        node_count=len(badness),
        any_over=bool(over_once),
        columns=min(2, len(runs)),
    )


def columns(run: RunRecord, values: Any, names: Sequence[str]) -> Any:
    """The columns of these nodes from a TxN array; a node that this run does not have is NaN (or UNKNOWN)."""
    index = {node.name: i for i, node in enumerate(run.nodes)}
    missing = np.nan if values.dtype.kind == "f" else UNKNOWN
    empty = np.full(len(values), missing, dtype=values.dtype)
    picked = [values[:, index[name]] if name in index else empty for name in names]
    return np.stack(picked, axis=1) if picked else np.empty((len(values), 0))


def rest_of(run: RunRecord, values: Floats, names: Sequence[str]) -> Floats | None:
    """The columns of all other nodes; ``None`` if there are no others."""
    others = [i for i, node in enumerate(run.nodes) if node.name not in set(names)]
    return values[:, others] if others else None


def node_axis(view: View) -> dict[str, Any]:
    """Nodes from top to bottom, by row number: names may be shortened, and then they need not be unique."""
    return {
        "range": [len(view.rows) - 0.5, -0.5],
        "tickvals": list(range(len(view.rows))),
        "ticktext": [safe(shorten(name)) for name in view.rows],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "ticks": "",
        "ticklabelstandoff": 6,
        "tickfont": {"size": 11 if len(view.rows) <= 20 else 9},
    }


def heat_cells(view: View, times_s: Floats) -> dict[str, Any]:
    """A heat map of the view's nodes without its values; the hover text has full node names."""
    return {
        "type": "heatmap",
        "x": view.time.at(times_s),
        "y": list(range(len(view.rows))),
        "customdata": [[safe(name)] * len(times_s) for name in view.rows],
        "ygap": view.row_gap,
    }


def rows_height(view: View) -> int:
    """Pixels for a heat map of the view's nodes with its margins."""
    row_px = 22 if len(view.rows) <= 12 else 16 if len(view.rows) <= 24 else 13
    return 72 + row_px * max(3, len(view.rows))
