"""Plots of the nodes over time: heat maps, and curves with thresholds."""

import math
from typing import Any

import numpy as np

from simulator.record import Floats, RunRecord
from simulator.report.style import (
    DARKENING,
    DASHES,
    GRID,
    HEAT,
    HEAT_TOP,
    INK,
    NODE_COLOURS,
    OVER_AT,
    SKY,
    Figure,
    Thinning,
    band,
    colour_bar,
    frame,
    level_line,
    numbers,
    panel_title,
    safe,
    shorten,
    stacked_domains,
    trouble_line,
)
from simulator.report.view import HEAT_TIMES, View, columns, heat_cells, node_axis, rest_of, rows_height

REST = "other {} nodes (range, mean)"


def heat_views(run: RunRecord, view: View) -> dict[str, Figure]:
    """What the buttons above the heat map put into it: title -> the trace's changed properties."""
    samples = run.samples
    thin = Thinning(samples.times_s, HEAT_TIMES)
    percent = {"tickformat": ".0%", "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]}
    shares: dict[str, tuple[Floats, list[Any], float, dict[str, Any]]] = {
        "CPU demand": (samples.demand, HEAT, HEAT_TOP, percent),
        "CPU used": (samples.utilization, HEAT, HEAT_TOP, percent),
        "CPU pressure": (samples.cpu_pressure, DARKENING, 0.0, {"tickformat": ".0%"}),
        "Memory used": (samples.memory_utilization, HEAT, HEAT_TOP, percent),
        "Memory pressure": (samples.memory_pressure, DARKENING, 0.0, {"tickformat": ".0%"}),
        "Controller's score": (samples.value, DARKENING, 1.0, {"tickformat": ".1f"}),
    }
    answer = {}
    for title, (values, scale, top, ticks) in shares.items():
        z = numbers(thin.highest(columns(run, values, view.rows)).T)
        highest = np.nanmax(values) if np.isfinite(values).any() else 0.0
        answer[title] = {
            "z": z,
            "colorscale": scale,
            "zmin": 0.0,
            "zmax": top or max(0.1, float(highest)),
            "colorbar": colour_bar(**ticks),
            "hovertemplate": f"<b>%{{customdata}}</b><br>{view.time.hover}"
            f"<br>{title.lower()} %{{z:.3~f}}<extra></extra>",
        }
    return answer


def heat_map(run: RunRecord, view: View) -> Figure:
    """Nodes by time, coloured by CPU demand; buttons change what is shown (``heat_views``)."""
    thin = Thinning(run.samples.times_s, HEAT_TIMES)
    trace = heat_cells(view, thin.kept_s) | heat_views(run, view)["CPU demand"]
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    layout = frame(rows_height(view), left=view.left, shapes=shapes, annotations=notes)
    layout |= {"xaxis": view.time.layout(), "yaxis": node_axis(view)}
    return {"data": [trace], "layout": layout}


def spread(run: RunRecord, view: View) -> Figure:
    """All nodes of a large cluster: how many have which CPU demand, over time."""
    thin = Thinning(run.samples.times_s, HEAT_TIMES)
    edges = np.arange(0.0, HEAT_TOP + 0.0501, 0.05)
    demand = np.clip(run.samples.demand[thin.starts], 0.0, HEAT_TOP + 0.04)
    counts = np.stack([np.histogram(row[np.isfinite(row)], edges)[0] for row in demand], axis=1)
    # A single hot node among a thousand must be seen: the colour follows the logarithm, 0 stays white.
    colour = np.where(counts > 0, np.log10(np.maximum(counts, 1)) + 0.5, 0.0)
    powers = [p for p in (1, 10, 100, 1000, 10_000) if p <= max(1, counts.max())]
    trace = {
        "type": "heatmap",
        "x": view.time.at(thin.kept_s),
        "y": numbers((edges[:-1] + edges[1:]) / 2),
        "z": numbers(colour, 2),
        "customdata": counts.tolist(),
        "colorscale": [[0.0, "#ffffff"], [0.05, "#f3ecb4"], *DARKENING[1:]],
        "zmin": 0.0,
        "colorbar": colour_bar(
            tickvals=[math.log10(p) + 0.5 for p in powers], ticktext=[str(p) for p in powers]
        ),
        "hovertemplate": f"%{{customdata}} nodes at %{{y:.1%}} ± 2.5 %<br>{view.time.hover}<extra></extra>",
    }
    shape, _ = level_line(OVER_AT, "")
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    layout = frame(260, left=view.left, shapes=[*shapes, shape], annotations=notes)
    layout |= {
        "xaxis": view.time.layout(),
        "yaxis": _share_axis(HEAT_TOP) | {"fixedrange": True},
    }
    return {"data": [trace], "layout": layout}


def curves(run: RunRecord, view: View) -> Figure:
    """CPU demand, CPU pressure, memory and score: hot nodes as lines, the others as a band."""
    samples = run.samples
    panels: list[tuple[str, Floats, float]] = [
        ("CPU demand", samples.demand, HEAT_TOP),
        ("CPU pressure", samples.cpu_pressure, 0.0),
        ("Memory used", samples.memory_utilization, 1.0),
        ("Score", samples.value, 1.0),
    ]
    if np.nanmax(samples.memory_pressure, initial=0.0) > 0.0:
        panels.insert(3, ("Memory pressure", samples.memory_pressure, 0.0))
    domains = stacked_domains(len(panels), 0.06)
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    top_px = view.legend_px([REST, *map(shorten, view.highlighted)])
    layout = frame(
        150 * len(panels) + 4 + top_px,
        left=view.left,
        top=top_px,
        hovermode="x unified",
        showlegend=True,
        annotations=notes,
    )
    layout["xaxis"] = view.time.layout() | {"anchor": f"y{len(panels)}"}
    data: list[Figure] = []
    for number, ((title, values, top), domain) in enumerate(zip(panels, domains, strict=True), start=1):
        axis = "" if number == 1 else str(number)
        limit = top or max(0.1, float(np.nanmax(values, initial=0.0)) * 1.08)
        layout[f"yaxis{axis}"] = _share_axis(limit) | {"domain": domain}
        notes.append(panel_title(title, domain[1]))
        data += _lines(run, view, values, f"y{axis}", legend=number == 1)
        if title == "CPU demand":
            shape, note = level_line(OVER_AT, "80 %")
            shapes.append(shape)
            notes.append(note)
        if title == "Score":
            data += _thresholds(run, view, f"y{axis}")
            notes += _threshold_names(run, axis)
    layout["shapes"] = shapes
    return {"data": data, "layout": layout}


def _lines(run: RunRecord, view: View, values: Floats, axis: str, *, legend: bool) -> list[Figure]:
    """Highlighted nodes as lines in front of the others' band and mean."""
    thin = Thinning(run.samples.times_s)
    x = view.time.at(thin.kept_s)
    data: list[Figure] = []
    others = rest_of(run, values, view.highlighted)
    if others is not None:
        count = others.shape[1]
        known = np.isfinite(others).sum(axis=1)
        mean = np.divide(np.nansum(others, axis=1), known, out=np.full(len(others), np.nan), where=known > 0)
        data += band(
            x,
            thin.lowest(np.fmin.reduce(others, axis=1)),
            thin.highest(np.fmax.reduce(others, axis=1)),
            thin.highest(mean),
            name=REST.format(count) if count > 1 else "other node",
            colour="#8a94a0",
            axis=axis,
            legend=legend,
        )
    picked = thin.highest(columns(run, values, view.highlighted))
    for i, name in enumerate(view.highlighted):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": safe(shorten(name)),
                "legendgroup": safe(name),
                "showlegend": legend,
                "x": x,
                "y": numbers(picked[:, i]),
                "yaxis": axis,
                "line": {"color": NODE_COLOURS[i], "dash": DASHES[i], "width": 2},
                "hovertemplate": "%{y:.1%}",
            }
        )
    return data


def _thresholds(run: RunRecord, view: View, axis: str) -> list[Figure]:
    """The controller's thresholds: they move with the cluster's average."""
    thin = Thinning(run.samples.times_s)
    data = []
    for name, values, colour in (
        ("over-utilised above", run.samples.threshold_over, INK),
        ("under-utilised up to", run.samples.threshold_under, SKY),
    ):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "showlegend": False,
                "x": view.time.at(thin.kept_s),
                "y": numbers(thin.highest(values)),
                "yaxis": axis,
                "line": {"color": colour, "width": 1.5, "dash": "dash", "shape": "hv"},
                "hovertemplate": "%{y:.1%}",
            }
        )
    return data


def _threshold_names(run: RunRecord, axis: str) -> list[dict[str, Any]]:
    """The thresholds' names in the right margin, where their lines end."""
    notes = []
    ends = (("over", run.samples.threshold_over, 5), ("under", run.samples.threshold_under, -5))
    for name, values, shift_px in ends:
        known = values[np.isfinite(values)]
        if len(known):
            _, note = level_line(float(known[-1]), name, axis=axis)
            notes.append(note | {"yshift": shift_px})
    return notes


def _share_axis(top: float) -> dict[str, Any]:
    return {
        "range": [0.0, top],
        "tickformat": ".0%",
        "gridcolor": GRID,
        "zeroline": False,
        "nticks": 6,
        "ticks": "",
        "ticklabelstandoff": 4,
    }
