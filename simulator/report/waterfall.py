"""The waterfall of the evictions: a row each, and how long it spent in which phase."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.record import FollowedRecord, MigrationRecord, RunRecord
from simulator.report.style import BLUE, FAINT, GRID, ORANGE, PURPLE, SKY, Figure, frame, safe, shorten
from simulator.report.view import View

MAX_ROWS = 40
REQUESTED, SETTLING = "requested", "settling"
PHASES = {
    REQUESTED: FAINT,
    "pending": "#b8c0c8",
    "scheduling": SKY,
    "preparing": ORANGE,
    "running": BLUE,
    SETTLING: "#a6dccb",
}
"""In the order of their bars; what a VMIM calls otherwise comes before the last."""
OF_VMIM = {
    "Pending": "pending",
    "Scheduling": "scheduling",
    "Scheduled": "scheduling",
    "PreparingTarget": "preparing",
    "TargetReady": "preparing",
    "Running": "running",
}
LABEL = 26
"""Characters of a VM's name."""
RIGHT_PX = 24
"""Nothing stands there, and its axis is not that of the other plots."""
_WIDTH, _SETTLING_WIDTH = 0.75, 0.3
"""Of a row. Settling takes no bandwidth and mostly no slot, but longer than all else."""


@dataclass
class _Row:
    vm: str
    note: str
    began_s: float
    spans: dict[str, float] = field(default_factory=dict)

    @property
    def moving_s(self) -> float:
        return sum(seconds for phase, seconds in self.spans.items() if phase != SETTLING)


def waterfall(run: RunRecord, view: View) -> Figure | None:
    """A row a migration, attempts that failed too; of many the longest, below their median. ``None`` without phases."""
    timed = [m for m in run.migrations if m.phases and m.ended_s is not None]
    if not timed:
        return None
    followed = _Followed(run.followed)
    rows = [_row(m, followed, run.end_s) for m in timed]
    longest = sorted(rows, key=lambda row: row.moving_s, reverse=True)[:MAX_ROWS]
    shown = sorted(longest, key=lambda row: row.began_s)
    if len(shown) < len(rows):
        shown.insert(0, _median(rows))
    return _figure(shown, view)


def _row(move: MigrationRecord, followed: "_Followed", end_s: float) -> _Row:
    """The phases of the VMIM are the cluster's; before and after it, it is the rebalancer that waits."""
    requested_s = followed.requested_s(move)
    began_s = move.created_s if requested_s is None else requested_s
    row = _Row(move.vm, move.outcome if move.outcome != "Succeeded" else "", began_s)
    spans = [(REQUESTED, move.created_s - began_s), *_spans(move), *followed.settling(move, end_s)]
    for phase, seconds in spans:
        if seconds > 0.0:
            row.spans[phase] = row.spans.get(phase, 0.0) + seconds
    return row


def _spans(move: MigrationRecord) -> Iterator[tuple[str, float]]:
    """(phase, seconds spent in it) until the migration ended."""
    end_s = move.ended_s if move.ended_s is not None else move.phases[-1][0]
    entered = [*move.phases, (end_s, "")]
    for (at, phase), (after, _) in itertools.pairwise(entered):
        yield OF_VMIM.get(phase, phase), after - at


class _Followed:
    """What the rebalancer noted of an eviction, found by its VMIM."""

    def __init__(self, records: Sequence[FollowedRecord]) -> None:
        self._by_vm: dict[str, list[FollowedRecord]] = {}
        self._by_vmim = {record.vmim_uid: record for record in records}
        for record in sorted(records, key=lambda r: r.requested_s):
            self._by_vm.setdefault(record.vm, []).append(record)

    def requested_s(self, move: MigrationRecord) -> float | None:
        """When it was asked for; ``None`` for retries, which KubeVirt makes, and for what others asked for."""
        if move.attempt > 1 or move.asked_by != "rebalancer":
            return None
        earlier = [r.requested_s for r in self._by_vm.get(move.vm, ()) if r.requested_s <= move.created_s]
        return earlier[-1] if earlier else None

    def settling(self, move: MigrationRecord, end_s: float) -> Iterator[tuple[str, float]]:
        record = self._by_vmim.get(move.vmim_uid)
        if record is not None and record.arrived_s is not None and move.outcome == "Succeeded":
            settled_s = end_s if record.settled_s is None else record.settled_s
            yield SETTLING, settled_s - (move.ended_s or record.arrived_s)


def _median(rows: Sequence[_Row]) -> _Row:
    phases = dict.fromkeys(phase for row in rows for phase in row.spans)
    spans = {phase: statistics.median(row.spans.get(phase, 0.0) for row in rows) for phase in phases}
    return _Row(f"median of {len(rows)}", "", 0.0, {phase: s for phase, s in spans.items() if s > 0.0})


def _figure(rows: Sequence[_Row], view: View) -> Figure:
    known = dict.fromkeys(phase for row in rows for phase in row.spans)
    others = [phase for phase in known if phase not in PHASES]
    first, last = [p for p in PHASES if p in known and p != SETTLING], [SETTLING] * (SETTLING in known)
    phases = [*first, *others, *last]
    labels = [shorten(row.vm, LABEL) + (f" {row.note.lower()}" if row.note else "") for row in rows]
    top_px = view.legend_px(phases)
    left = 6 * max(map(len, labels)) + 16
    layout = frame(64 + top_px + 15 * len(rows), left=left, top=top_px, barmode="stack", showlegend=True)
    layout["margin"]["r"] = RIGHT_PX
    layout["legend"]["traceorder"] = "normal"
    layout |= {
        "xaxis": {"title": {"text": "seconds", "standoff": 6}, "gridcolor": GRID},
        "yaxis": {
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [safe(label) for label in labels],
            "tickfont": {"size": 10},
            "fixedrange": True,
            "ticklabelstandoff": 6,
        },
    }
    return {"data": [_bars(phase, rows) for phase in phases], "layout": layout}


def _bars(phase: str, rows: Sequence[_Row]) -> dict[str, Any]:
    what = "waiting until the metrics show it" if phase == SETTLING else safe(phase)
    return {
        "type": "bar",
        "orientation": "h",
        "name": safe(phase),
        "y": list(range(len(rows))),
        "x": [round(row.spans.get(phase, 0.0), 2) for row in rows],
        "width": _SETTLING_WIDTH if phase == SETTLING else _WIDTH,
        "marker": {"color": PHASES.get(phase, PURPLE), "line": {"color": "#ffffff", "width": 0.5}},
        "customdata": [safe(" ".join(filter(None, (row.vm, row.note.lower())))) for row in rows],
        "hovertemplate": f"<b>%{{customdata}}</b><br>{what} %{{x:.1f}} s<extra></extra>",
    }
