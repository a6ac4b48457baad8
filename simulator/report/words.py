"""The report's texts: what each run came to, in a line, in tiles and in a table."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simulator.record import OVER, RunRecord
from simulator.report.scores import Scores
from simulator.report.style import LABEL_COLOURS
from simulator.report.table import MEASURES, Cell, cell, ratio

TILES = (
    "minutes_to_balance",
    "vms_shut_down",
    "migrations",
    "overutilized_node_minutes",
    "starved_cpu_minutes",
    "pressure_node_minutes",
)
BY_KEY = {measure.key: measure for measure in MEASURES}

GOOD, MIND, BAD, PLAIN = "good", "mind", "bad", "plain"
"""How a fact is marked; each has a sign of its own besides its colour."""


def verdicts(groups: Mapping[str, Sequence[Scores]]) -> list[dict[str, Any]]:
    """For each label, the facts that decide whether one would let it near a cluster, worst kind first."""
    answer = []
    for i, (label, seeds) in enumerate(groups.items()):
        facts = [_shutdowns(seeds), _balance(seeds), _migrations(seeds), *_for_nothing(seeds)]
        answer.append({"label": label, "colour": LABEL_COLOURS[i % len(LABEL_COLOURS)], "facts": facts})
    return answer


def tiles(groups: Mapping[str, Sequence[Scores]]) -> list[dict[str, Any]]:
    """The main scores of the first label, and beside them those of the others."""
    labels = list(groups)
    answer = []
    for measure in (BY_KEY[key] for key in TILES):
        cells = [cell(measure, groups[label]) for label in labels]
        others = [
            {"label": label, "text": c.text, "ratio": ratio(cells[0], c)}
            for label, c in zip(labels[1:], cells[1:], strict=True)
        ]
        answer.append({"measure": measure, "cell": cells[0], "others": others})
    return answer


def score_rows(groups: Mapping[str, Sequence[Scores]]) -> list[dict[str, Any]]:
    """Every score of every label, and with two labels how they compare."""
    answer = []
    for measure in MEASURES:
        cells = [cell(measure, seeds) for seeds in groups.values()]
        answer.append({"measure": measure, "cells": cells, **_compared(cells)})
    return answer


def why_nothing(run: RunRecord) -> str:
    """In place of reasons, where there are none."""
    if run.decisions or np.any(run.samples.node_class == OVER):
        return "No reasons were recorded."
    return "No node was judged to be over-utilised, so no VM was considered."


def why_not_rows(run: RunRecord) -> list[dict[str, Any]]:
    """What kept nodes and VMs from moving, most frequent first; ``share`` is relative to the first."""
    ranked = sorted(run.why_not.items(), key=lambda item: (-item[1].count, item[0]))
    most = max((why.count for _, why in ranked), default=1)
    return [
        {
            "reason": _spaced(code),
            "count": f"{why.count:,}",
            "share": f"{why.count / max(1, most):.4f}",
            "example": why.example,
        }
        for code, why in ranked
    ]


def _spaced(code: str) -> str:
    """``NoUsefulMove`` as "no useful move"; abbreviations stay as they are."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[^A-Za-z0-9_\s-]+", code)
    return " ".join(word if len(word) > 1 and word.isupper() else word.lower() for word in words)


def _compared(cells: Sequence[Cell]) -> dict[str, str]:
    if len(cells) != 2:
        return {"ratio": "", "mark": ""}
    ours, theirs = cells
    if ours.mean == theirs.mean:
        return {"ratio": ratio(ours, theirs), "mark": ""}
    better = ours.mean is not None and (theirs.mean is None or ours.mean < theirs.mean)
    return {"ratio": ratio(ours, theirs), "mark": "less" if better else "more"}


def _fact(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "text": text}


def _said(key: str, seeds: Sequence[Scores]) -> str:
    one = cell(BY_KEY[key], seeds)
    return f"{one.text} ({one.spread})" if one.spread else one.text


def _count(key: str, seeds: Sequence[Scores], one: str, many: str) -> str:
    total = sum(getattr(s, key) for s in seeds)
    return f"{_said(key, seeds)} {one if total == len(seeds) == 1 else many}"


def _shutdowns(seeds: Sequence[Scores]) -> dict[str, str]:
    if not any(s.vms_shut_down for s in seeds):
        return _fact(GOOD, "no VM shut down")
    return _fact(BAD, _count("vms_shut_down", seeds, "VM", "VMs") + " shut down")


def _balance(seeds: Sequence[Scores]) -> dict[str, str]:
    never = sum(s.minutes_to_balance is None for s in seeds)
    if never == len(seeds):
        return _fact(MIND, "still over-utilised at the end")
    if never:
        return _fact(MIND, f"still over-utilised at the end with {never} of {len(seeds)} seeds")
    if not any(s.overutilized_node_minutes for s in seeds):
        return _fact(GOOD, "no node ever over 80 %")
    return _fact(GOOD, f"balanced after {_said('minutes_to_balance', seeds)} min")


def _migrations(seeds: Sequence[Scores]) -> dict[str, str]:
    if not any(s.migrations for s in seeds):
        return _fact(PLAIN, "nothing moved")
    text = _count("migrations", seeds, "migration", "migrations")
    if any(s.migrations_failed for s in seeds):
        text += f", {_said('migrations_failed', seeds)} failed"
    return _fact(PLAIN, text)


def _for_nothing(seeds: Sequence[Scores]) -> list[dict[str, str]]:
    if not any(s.migrations for s in seeds):
        return []
    kinds = {"repeated_migrations": "repeated", "undone_migrations": "undone"}
    found = [
        f"{_said(key, seeds)} {word}" for key, word in kinds.items() if any(getattr(s, key) for s in seeds)
    ]
    return [_fact(MIND, ", ".join(found)) if found else _fact(GOOD, "none repeated or undone")]
