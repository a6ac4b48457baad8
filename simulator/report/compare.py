"""Plots that lay several runs over each other: programs by colour, their seeds as a band."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.record import Floats, RunRecord
from simulator.report.style import (
    DASHES,
    FAINT,
    GRID,
    INK,
    LABEL_COLOURS,
    OVER_AT,
    Figure,
    Thinning,
    band,
    frame,
    numbers,
    safe,
)
from simulator.report.view import View


@dataclass(frozen=True)
class Panel:
    title: str
    curve: Callable[[RunRecord], Floats]
    """A value for each of the run's sample times."""
    ticks: str
    counts: bool = False
    """Whole numbers that jump."""
    level: float | None = None


def _migrations_so_far(run: RunRecord) -> Floats:
    created = np.sort([m.created_s for m in run.migrations if m.asked_by != "other"])
    return np.searchsorted(created, run.samples.times_s, side="right").astype(float)


PANELS = (
    Panel(
        "CPU demand of the hottest node",
        lambda run: np.max(np.nan_to_num(run.samples.demand), axis=1),
        ".0%",
        level=OVER_AT,
    ),
    Panel(
        "Nodes above 80 %",
        lambda run: np.sum(run.samples.demand > OVER_AT, axis=1).astype(float),
        ".1~f",
        counts=True,
    ),
    Panel("CPU pressure, summed over nodes", lambda run: np.nansum(run.samples.cpu_pressure, axis=1), ".1f"),
    Panel("Migrations so far", _migrations_so_far, ".1~f", counts=True),
)


def comparison(groups: Mapping[str, Sequence[RunRecord]], view: View) -> Figure:
    """Four panels, two by two: a line for each label, or a band and its mean if it has several seeds."""
    trouble_s = next(iter(groups.values()))[0].trouble_start_s
    layout = frame(440, left=56, top=54, hovermode="x unified", showlegend=True)
    layout["margin"]["r"] = 20
    layout |= {"shapes": [], "annotations": []}
    data: list[Figure] = []
    for number, panel in enumerate(PANELS):
        suffix = "" if number == 0 else str(number + 1)
        x_domain = (0.0, 0.47) if number % 2 == 0 else (0.53, 1.0)
        y_domain = (0.57, 1.0) if number < 2 else (0.0, 0.42)
        x_axis = view.time.layout(titled=number >= 2) | {"domain": x_domain, "anchor": f"y{suffix}"}
        layout[f"xaxis{suffix}"] = x_axis | ({"matches": "x"} if number else {})
        layout[f"yaxis{suffix}"] = {
            "domain": y_domain,
            "anchor": f"x{suffix}",
            "rangemode": "tozero",
            "tickformat": panel.ticks,
            "gridcolor": GRID,
            "zeroline": False,
            "nticks": 5,
            "ticklabelstandoff": 4,
        }
        if panel.counts:
            layout[f"yaxis{suffix}"] |= {"tick0": 0, "dtick": _whole_step(panel, groups)}
        layout["annotations"].append(_title(panel.title, x_domain[0], y_domain[1]))
        if panel.level is not None:
            layout["shapes"].append(_line(suffix, "y", panel.level))
        if trouble_s > 0.0:
            layout["shapes"].append(_line(suffix, "x", view.time.at(trouble_s)))
        for i, (label, runs) in enumerate(groups.items()):
            data += _of_label(panel, label, runs, view, i, suffix)
    return {"data": data, "layout": layout}


def _of_label(
    panel: Panel, label: str, runs: Sequence[RunRecord], view: View, i: int, suffix: str
) -> list[Figure]:
    thin = Thinning(runs[0].samples.times_s)
    x = view.time.at(thin.kept_s)
    colour = LABEL_COLOURS[i % len(LABEL_COLOURS)]
    # Runs of one scenario are sampled alike; interpolation only serves those that are not.
    curves = np.stack(
        [np.interp(runs[0].samples.times_s, run.samples.times_s, panel.curve(run)) for run in runs]
    )
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    hover = {"hovertemplate": f"%{{y:{panel.ticks}}}"}
    if len(runs) > 1:
        traces = band(
            x,
            thin.lowest(curves.min(axis=0)),
            thin.highest(curves.max(axis=0)),
            thin.highest(curves.mean(axis=0)),
            name=f"{safe(label)}: mean and range of {len(runs)} seeds",
            colour=colour,
            legend=not suffix,
        )
        traces[-1]["line"]["dash"] = DASHES[i % len(DASHES)]
        traces[-1] |= hover
        return [trace | axes for trace in traces]
    line: dict[str, Any] = {"color": colour, "width": 2, "dash": DASHES[i % len(DASHES)]}
    if panel.counts:
        line["shape"] = "hv"
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": safe(label),
        "legendgroup": safe(label),
        "showlegend": not suffix,
        "x": x,
        "y": numbers(thin.highest(curves[0])),
        "line": line,
    }
    return [trace | axes | hover]


def _whole_step(panel: Panel, groups: Mapping[str, Sequence[RunRecord]]) -> int:
    """Distance of the ticks: 1, 2 or 5 times a power of ten, at most six of them."""
    most = max(float(panel.curve(run).max(initial=0.0)) for runs in groups.values() for run in runs)
    steps: Iterator[int] = (step * 10**power for power in range(9) for step in (1, 2, 5))
    return next(step for step in steps if most <= 6 * step)


def _title(text: str, x: float, y: float) -> dict[str, Any]:
    return {
        "xref": "paper",
        "yref": "paper",
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": "bottom",
        "text": f"<b>{text}</b>",
        "showarrow": False,
        "font": {"size": 12, "color": INK},
    }


def _line(suffix: str, along: str, at: float) -> dict[str, Any]:
    """A line through one panel: at a height (``along="y"``) or at a time (``along="x"``)."""
    other = "x" if along == "y" else "y"
    return {
        "type": "line",
        f"{along}ref": f"{along}{suffix}",
        f"{along}0": at,
        f"{along}1": at,
        f"{other}ref": f"{other}{suffix} domain",
        f"{other}0": 0,
        f"{other}1": 1,
        "line": {"color": FAINT, "width": 1.2, "dash": "dash" if along == "y" else "dot"},
    }
