"""What all plots of the report have in common: colours, the time axis, thinning, the frame.

Plots are plotly.js figures as plain dicts (``{"data": …, "layout": …}``); the Python side of plotly is only
used for the library that it ships. Colours are of the Okabe-Ito palette, or go from light to dark in one
direction, so that they can be told apart by colour-blind people and in greyscale; lines differ in dashes too.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.agenda import to_wall_time
from simulator.record import Floats, Integers

Figure = dict[str, Any]

INK, FAINT, GRID = "#1f2933", "#52606d", "#e4e7eb"
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
LABEL_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
NODE_COLOURS = (VERMILLION, BLUE, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', sans-serif"

MAX_TIMES = 1500
"""Points of a line; more cannot be told apart on a screen, and would only make the file larger."""
RIGHT_PX = 96

OVER_AT = 0.8
"""Demand above this share of a node's cores is what scores call over-utilised."""
HEAT_TOP = 1.25
HEAT = [
    [0.0, "#f7fbfe"],
    [0.4 / HEAT_TOP, "#cfe3f2"],
    [OVER_AT / HEAT_TOP - 1e-6, "#7fb8dd"],
    [OVER_AT / HEAT_TOP, "#f2a65a"],
    [1.0 / HEAT_TOP, "#d55e00"],
    [1.0, "#6b2400"],
]
"""Shares of a node: blue below 80 %, orange above, and ever darker."""
DARKENING = [[0.0, "#fdfbf2"], [0.25, "#d9d08f"], [0.5, "#9a9a78"], [0.75, "#555c6d"], [1.0, "#00224e"]]
"""Cividis from light to dark: no threshold in it."""


@dataclass(frozen=True)
class TimeAxis:
    """Turns seconds since the start into what people read: minutes, hours, or days of the week."""

    end_s: float

    @property
    def unit(self) -> str:
        if self.end_s <= 3 * 3600.0:
            return "min"
        return "h" if self.end_s <= 48 * 3600.0 else "d"

    @property
    def unit_s(self) -> float:
        return {"min": 60.0, "h": 3600.0, "d": 86_400.0}[self.unit]

    def at(self, time_s: Any) -> Any:
        """Seconds (number or array) on this axis, as numbers that JSON can hold."""
        return (np.round(np.asarray(time_s, dtype=float) / self.unit_s, 4)).tolist()

    def length(self) -> str:
        """How long the run is, in words."""
        return f"{self.end_s / self.unit_s:.3g} { {'min': 'minutes', 'h': 'hours', 'd': 'days'}[self.unit] }"

    @property
    def hover(self) -> str:
        """The time under the mouse, for a plotly hover template."""
        return f"%{{x:.2f}} {self.unit}"

    def say(self, time_s: float) -> str:
        """An instant in words."""
        if self.unit == "d":
            return to_wall_time(time_s).strftime("%a %H:%M")
        return f"{time_s / self.unit_s:.1f} {self.unit}"

    def layout(self, *, titled: bool = True) -> dict[str, Any]:
        names = {"min": "minutes since the start", "h": "hours since the start", "d": "day (UTC)"}
        axis: dict[str, Any] = {
            "range": [0.0, self.at(self.end_s)],
            "showgrid": True,
            "gridcolor": GRID,
            "zeroline": False,
            "ticks": "outside",
            "ticklen": 4,
            "tickcolor": GRID,
            "title": {"text": names[self.unit], "standoff": 6} if titled else {},
        }
        if self.unit == "d":
            days = range(int(self.end_s // 86_400.0) + 1)
            axis |= {"tickvals": list(days), "ticktext": [self.say(d * 86_400.0)[:3] for d in days]}
        return axis


@dataclass(frozen=True)
class Thinning:
    """Merges neighbouring samples so that at most ``limit`` remain."""

    times_s: Floats
    limit: int = MAX_TIMES

    @property
    def starts(self) -> Integers:
        step = -(-len(self.times_s) // self.limit)
        return np.arange(0, len(self.times_s), step)

    @property
    def merged(self) -> int:
        """How many samples became one point."""
        return -(-len(self.times_s) // self.limit)

    @property
    def kept_s(self) -> Floats:
        return self.times_s[self.starts]

    def highest(self, values: Any) -> Any:
        """The largest of each group (NaN only where all are): a peak must not get lost."""
        return self._reduce(np.fmax if values.dtype.kind == "f" else np.maximum, values)

    def lowest(self, values: Any) -> Any:
        return self._reduce(np.fmin if values.dtype.kind == "f" else np.minimum, values)

    def _reduce(self, function: Any, values: Any) -> Any:
        return function.reduceat(values, self.starts, axis=0)


def numbers(values: Any, digits: int = 3) -> list[Any]:
    """An array as lists for JSON; NaN becomes null when it is encoded."""
    return np.round(np.asarray(values, dtype=float), digits).tolist()  # type: ignore[no-any-return]


def safe(text: str) -> str:
    """Text for plotly, which reads a few HTML tags in labels."""
    return html.escape(text, quote=False)


def shorten(text: str, length: int = 22) -> str:
    """Long names lose their middle: what tells them apart is mostly at the ends."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return text[:head] + "…" + text[len(text) - (length - 1 - head) :]


def left_px(names: Sequence[str]) -> int:
    """Room for the names at the left edge; the same in all plots of a page, so that their times line up."""
    return max(64, 7 * max((len(shorten(name)) for name in names), default=0) + 16)


def frame(height: int, *, left: int, top: int = 28, bottom: int = 44, **more: Any) -> dict[str, Any]:
    """The layout that every plot starts from."""
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": left, "r": RIGHT_PX, "t": top, "b": bottom},
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hoverlabel": {"align": "left", "font": {"family": FONT, "size": 12}},
        "hovermode": "closest",
        "showlegend": False,
        "legend": {
            "orientation": "h",
            "x": 0,
            "yref": "container",
            "y": 1,
            "yanchor": "top",
            "font": {"size": 11},
        },
        **more,
    }


def level_line(
    y: float, text: str, *, axis: str = "", colour: str = FAINT
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dashed line across one panel, and its name in the right margin: (shape, annotation)."""
    shape = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": f"y{axis}",
        "y0": y,
        "y1": y,
        "line": {"color": colour, "width": 1.2, "dash": "dash"},
    }
    note = {
        "xref": "paper",
        "x": 1,
        "xanchor": "left",
        "yref": f"y{axis}",
        "y": y,
        "text": text,
        "showarrow": False,
        "xshift": 6,
        "font": {"size": 11, "color": colour},
    }
    return shape, note


def trouble_line(time: TimeAxis, trouble_start_s: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Marks where the scenario's trouble begins: (shapes, annotations); none if that is the start."""
    if trouble_start_s <= 0.0:
        return [], []
    x = time.at(trouble_start_s)
    line = {"color": INK, "width": 1.2, "dash": "dot"}
    shape = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}
    note = {
        "x": x,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "text": "trouble begins",
        "showarrow": False,
        "font": {"size": 11, "color": INK},
    }
    return [shape], [note]


def stacked_domains(count: int, gap: float) -> list[tuple[float, float]]:
    """The vertical shares of panels above each other, the first one on top."""
    height = (1.0 - gap * (count - 1)) / count
    tops = [1.0 - i * (height + gap) for i in range(count)]
    return [(max(0.0, top - height), top) for top in tops]


def band(
    x: list[float],
    low: Any,
    high: Any,
    mean: Any,
    *,
    name: str,
    colour: str,
    axis: str = "y",
    legend: bool = True,
) -> list[Figure]:
    """A range with its mean: two invisible edges filled between, and a line."""
    common = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "yaxis": axis,
        "legendgroup": name,
        "showlegend": False,
    }
    edge = common | {"line": {"width": 0}, "hoverinfo": "skip"}
    return [
        edge | {"y": numbers(low)},
        edge | {"y": numbers(high), "fill": "tonexty", "fillcolor": _see_through(colour)},
        common
        | {
            "y": numbers(mean),
            "name": name,
            "showlegend": legend,
            "line": {"color": colour, "width": 1.6},
            "hovertemplate": "%{y:.1%}",
        },
    ]


def _see_through(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.22)"


def colour_bar(**ticks: Any) -> dict[str, Any]:
    """The scale at the right of a heat map."""
    return {
        "thickness": 10,
        "outlinewidth": 1,
        "outlinecolor": GRID,
        "ypad": 0,
        "x": 1.01,
        "xpad": 0,
        "tickfont": {"size": 10},
        **ticks,
    }


def panel_title(text: str, top: float) -> dict[str, Any]:
    """The name of a panel, above its right end; ``top`` is the panel's upper edge (share of the plot)."""
    return {
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "yref": "paper",
        "y": top,
        "yanchor": "bottom",
        "text": f"<b>{text}</b>",
        "showarrow": False,
        "font": {"size": 11, "color": FAINT},
    }
