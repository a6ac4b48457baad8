"""Plots of the migrations: from node to node, and how many at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.record import DecisionRecord, MigrationRecord, RunRecord
from simulator.report.scores import repeated, undone
from simulator.report.style import (
    BLUE,
    FAINT,
    GRID,
    INK,
    ORANGE,
    VERMILLION,
    Figure,
    Thinning,
    frame,
    level_line,
    numbers,
    safe,
    trouble_line,
)
from simulator.report.view import View, node_axis

MAX_MIGRATIONS = 1500
THIN_ABOVE = 100
"""With more bars than that, they are drawn thinner."""


@dataclass(frozen=True)
class Look:
    """How migrations of one outcome are named and drawn."""

    title: str
    colour: str
    end_mark: str
    dash: str


LOOKS = {
    "Succeeded": Look("moved", BLUE, "triangle-right", "solid"),
    "Failed": Look("failed", VERMILLION, "x", "dash"),
    "Cancelled": Look("cancelled", ORANGE, "square-open", "dot"),
    "": Look("on its way at the end", FAINT, "circle-open", "dot"),
}
MARKS_ALONG = 5
"""Points along a bar where the mouse finds it."""


def lanes(run: RunRecord, view: View) -> Figure:
    """Each migration as a bar from its source's lane to its target's.

    One that failed stays in its lane, and so does one to or from a node that has none. Without any lane it is
    not drawn.
    """
    row = {name: i for i, name in enumerate(view.rows)}
    hover = _hover_texts(run, view)
    drawn = [
        (m, text) for m, text in zip(run.migrations, hover, strict=True) if m.source in row or m.target in row
    ]
    drawn = drawn[:MAX_MIGRATIONS]
    data = []
    for outcome, look in LOOKS.items():
        group = [(m, text) for m, text in drawn if m.outcome == outcome]
        if group:
            data.append(_bars(group, look, row, run.end_s, view))
    if run.shutdowns:
        data.append(_shutdowns(run, view, row))
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    top_px = view.legend_px([trace["name"] for trace in data])
    height = top_px + 56 + (24 if len(view.rows) <= 12 else 16) * max(3, len(view.rows))
    layout = frame(height, left=view.left, top=top_px, showlegend=True, shapes=shapes, annotations=notes)
    layout |= {"xaxis": view.time.layout(), "yaxis": node_axis(view) | {"showgrid": True, "gridcolor": GRID}}
    return {"data": data, "layout": layout}


def in_flight(run: RunRecord, view: View) -> Figure:
    """VMs on the move at once, against the limit."""
    thin = Thinning(run.samples.times_s)
    counts = thin.highest(run.samples.in_flight)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "in flight",
        "x": view.time.at(thin.kept_s),
        "y": counts.tolist(),
        "line": {"color": BLUE, "width": 1.5, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": "rgba(0,114,178,0.22)",
        "hovertemplate": f"%{{y}} on the move<br>{view.time.hover}<extra></extra>",
    }
    shapes, notes = trouble_line(view.time, run.trouble_start_s)
    shape, note = level_line(run.limits.total, f"limit {run.limits.total}", colour=INK)
    layout = frame(190, left=view.left, shapes=[*shapes, shape], annotations=[*notes, note])
    top = max(run.limits.total, int(counts.max(initial=0))) + 0.6
    layout |= {
        "xaxis": view.time.layout(),
        "yaxis": {
            "range": [0, top],
            "gridcolor": GRID,
            "zeroline": False,
            "nticks": 6,
            "tickformat": "d",
            "ticklabelstandoff": 4,
        },
    }
    return {"data": [trace], "layout": layout}


def describe(run: RunRecord, view: View) -> list[dict[str, Any]]:
    """Every migration in words, in the order of the record: for hover texts and for the table."""
    again, back = repeated(run), undone(run)
    reasons = _Reasons(run.decisions)
    answer = []
    for i, move in enumerate(run.migrations):
        took = "" if move.ended_s is None else f"{move.ended_s - move.created_s:.0f} s"
        notes = [text for text, found in (("repeated", again), ("undone", back)) if i in found]
        if move.attempt > 1:
            notes.append(f"retry {move.attempt - 1}")
        if move.asked_by == "other":
            notes.append("asked for by others")
        answer.append(
            {
                "at": view.time.say(move.created_s),
                "vm": move.vm,
                "source": move.source,
                "target": move.target or "–",
                "took": took,
                "outcome": LOOKS[move.outcome].title,
                "notes": notes,
                "why": move.failure or reasons.of(move),
            }
        )
    return answer


class _Reasons:
    """Finds the decision that led to a migration: the last one for that VM before it was created."""

    def __init__(self, decisions: Iterable[DecisionRecord]) -> None:
        self._by_vm: dict[str, list[DecisionRecord]] = {}
        for decision in sorted(decisions, key=lambda d: d.time_s):
            if decision.vm is not None:
                self._by_vm.setdefault(decision.vm, []).append(decision)

    def of(self, move: MigrationRecord) -> str:
        earlier = [d for d in self._by_vm.get(move.vm, ()) if d.time_s <= move.created_s]
        return "; ".join(filter(None, earlier[-1].reasons)) if earlier else ""


def _bars(
    group: list[tuple[MigrationRecord, str]], look: Look, row: dict[str, int], end_s: float, view: View
) -> Figure:
    shares = np.linspace(0.0, 1.0, MARKS_ALONG)
    x: list[float | None] = []
    y: list[float | None] = []
    texts: list[str | None] = []
    for move, text in group:
        target = row.get(move.target or "")
        start = row.get(move.source, target)
        arrived = move.outcome == "Succeeded" and target is not None
        end = target if arrived else start
        if start is None or end is None:
            continue
        ended_s = end_s if move.ended_s is None else move.ended_s
        x += [*view.time.at(move.created_s + shares * (ended_s - move.created_s)), None]
        y += [*numbers(start + shares * (end - start)), None]
        texts += [text] * MARKS_ALONG + [None]
    width, start_px, end_px = (2.5, 5, 9) if len(group) <= THIN_ABOVE else (1.2, 3, 6)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{look.title} ({len(group)})",
        "x": x,
        "y": y,
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": look.colour, "width": width, "dash": look.dash},
        "marker": {
            "color": look.colour,
            "size": ([start_px] + [0] * (MARKS_ALONG - 2) + [end_px, 0]) * len(group),
            "symbol": (["circle"] * (MARKS_ALONG - 1) + [look.end_mark, "circle"]) * len(group),
            "opacity": 1,
            "line": {"width": 0},
        },
    }


def _shutdowns(run: RunRecord, view: View, row: dict[str, int]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"VM shut down ({len(run.shutdowns)})",
        "x": [view.time.at(s.time_s) for s in run.shutdowns],
        "y": [row.get(s.node) for s in run.shutdowns],
        "text": [
            f"<b>{safe(s.vm)}</b> shut down<br>{view.time.say(s.time_s)}, {safe(s.node)}<br>{safe(s.cause)}"
            for s in run.shutdowns
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": INK, "size": 13, "symbol": "x"},
    }


def _hover_texts(run: RunRecord, view: View) -> list[str]:
    """What is shown over each migration: itself, why, and where its VM has been."""
    words = describe(run, view)
    histories: dict[str, list[str]] = {}
    for move, word in zip(run.migrations, words, strict=True):
        target = f"→ {safe(move.target or '–')}" if move.outcome == "Succeeded" else word["outcome"]
        histories.setdefault(move.vm, [safe(move.source)]).append(f"{target} ({word['at']})")
    texts = []
    for move, word in zip(run.migrations, words, strict=True):
        lines = [
            f"<b>{safe(move.vm)}</b>",
            f"{safe(move.source)} → {safe(word['target'])}",
            f"{word['at']}, {word['outcome']}" + (f" after {word['took']}" if word["took"] else ""),
            *(safe(note) for note in word["notes"]),
            *_wrapped(word["why"]),
        ]
        if len(histories[move.vm]) > 2:
            lines.append("all its moves: " + " ".join(histories[move.vm][:8]))
        texts.append("<br>".join(lines))
    return texts


def _wrapped(text: str, width: int = 70) -> list[str]:
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f"{word} "
    return [safe(line.strip()) for line in lines if line.strip()]
