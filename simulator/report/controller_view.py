"""The plot of what the controller saw and did to the nodes: their classes and their soft taints."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.record import RunRecord
from simulator.report.style import (
    VERMILLION,
    Figure,
    Thinning,
    colour_bar,
    frame,
    panel_title,
    stacked_domains,
    trouble_line,
)
from simulator.report.view import HEAT_TIMES, View, columns, heat_cells, node_axis, rows_height

CLASS_COLOURS = ("#ffffff", "#8cc5ec", "#e3e9ee", VERMILLION)
"""Of UNKNOWN, UNDER, APPROPRIATE and OVER, in this order."""
CLASS_NAMES = ("no value", "under-utilised", "appropriate", "over-utilised")

Domain = tuple[float, float]


def controller_eyes(run: RunRecord, view: View) -> Figure:
    """Class of each node as the controller saw it, and below how many of our soft taints it carried."""
    thin = Thinning(run.samples.times_s, HEAT_TIMES)
    height = 2 * rows_height(view) - 28
    upper, lower = stacked_domains(2, 44 / (height - 72))
    common = heat_cells(view, thin.kept_s)
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    notes += [panel_title("Class", upper[1]), panel_title("Soft taints", lower[1])]
    layout = frame(height, left=view.left, shapes=shapes, annotations=notes)
    layout |= {
        "xaxis": view.time.layout() | {"anchor": "y2"},
        "yaxis": node_axis(view) | {"domain": upper},
        "yaxis2": node_axis(view) | {"domain": lower},
    }
    traces = [_classes(run, view, thin, upper), _taints(run, view, thin, lower)]
    return {"data": [common | trace for trace in traces], "layout": layout}


def _classes(run: RunRecord, view: View, thin: Thinning, domain: Domain) -> Figure:
    classes = thin.highest(columns(run, run.samples.node_class, view.rows)).T.tolist()
    bar = colour_bar(tickvals=[-1, 0, 1, 2], ticktext=["none", "under", "appr.", "over"])
    return {
        "z": classes,
        "text": [[CLASS_NAMES[c + 1] for c in row] for row in classes],
        "colorscale": _steps(CLASS_COLOURS),
        "zmin": -1.5,
        "zmax": 2.5,
        "colorbar": bar | {"len": domain[1] - domain[0], "y": 1.0, "yanchor": "top"},
        "hovertemplate": f"<b>%{{customdata}}</b><br>{view.time.hover}<br>%{{text}}<extra></extra>",
    }


def _taints(run: RunRecord, view: View, thin: Thinning, domain: Domain) -> Figure:
    taints = thin.highest(np.maximum(columns(run, run.samples.taints, view.rows), 0)).T
    most = max(1, int(taints.max(initial=0)))
    bar = colour_bar(tickvals=list(range(most + 1)) if most <= 6 else [0, most])
    return {
        "z": taints.tolist(),
        "yaxis": "y2",
        "colorscale": _steps(_fading(most + 1)),
        "zmin": -0.5,
        "zmax": most + 0.5,
        "colorbar": bar | {"len": domain[1] - domain[0], "y": 0.0, "yanchor": "bottom"},
        "hovertemplate": f"<b>%{{customdata}}</b><br>{view.time.hover}<br>%{{z}} taints<extra></extra>",
    }


def _steps(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale with hard edges: one step a colour."""
    share = 1.0 / len(colours)
    scale: list[list[Any]] = []
    for i, colour in enumerate(colours):
        scale += [[i * share, colour], [(i + 1) * share, colour]]
    return scale


def _fading(count: int) -> list[str]:
    """``count`` colours from almost white to dark purple."""
    light, dark = np.array([244, 240, 244]), np.array([110, 44, 92])
    mixed = [light + (dark - light) * (i / max(1, count - 1)) for i in range(count)]
    return ["#" + "".join(f"{int(c):02x}" for c in colour) for colour in mixed]
