"""The table of what the soft-tainter's account may and may not change on nodes, as objects before and after."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controller.taints.desired import PREFIX

Object = dict[str, Any]

TABLE = Path(__file__).parent / "attacks.yaml"
FIELDS = {"name", "taints", "before", "change", "by", "live", "subresource"}


@dataclass(frozen=True, slots=True)
class Case:
    """``old`` changed by the JSON merge patch ``patch`` is ``new``. ``before`` makes any node one to try it on."""

    name: str
    legal: bool
    before: Object
    old: Object
    patch: Object
    new: Object
    by_tainter: bool
    live: bool
    """Whether a client can do this on a real API server."""
    subresource: str


def read_cases(base: Mapping[str, Any] | None = None) -> list[Case]:
    """The table's cases, each on the table's node, or on that one merged into ``base``."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8").replace("OURS", PREFIX))
    node = merge(dict(base or {}), table["node"])
    return [
        _case(row, legal, node)
        for part, legal in (("legal", True), ("attacks", False))
        for row in table[part]
    ]


def merge(document: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _case(row: Mapping[str, Any], legal: bool, base: Mapping[str, Any]) -> Case:
    assert row.keys() <= FIELDS, row
    taints = row.get("taints", {})
    before = merge(row.get("before", {}), {})
    before.setdefault("spec", {})["taints"] = _taints(taints.get("before", "absent"))
    old = merge(copy.deepcopy(dict(base)), before)
    patch = copy.deepcopy(row.get("change", {}))
    if "after" in taints:
        patch.setdefault("spec", {})["taints"] = _taints(taints["after"])
    return Case(
        name=row["name"],
        legal=legal,
        before=before,
        old=old,
        patch=patch,
        new=merge(old, patch),
        by_tainter=row.get("by", "tainter") == "tainter",
        live=row.get("live", True),
        subresource=row.get("subresource", ""),
    )


def _taints(taints: str | list[str | Object]) -> list[Object] | None:
    if taints == "absent":
        return None
    return [_taint(taint) if isinstance(taint, str) else taint for taint in taints]


def _taint(text: str) -> Object:
    """``KEY[=VALUE]:EFFECT``; as in the API, an empty value is no field."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect}
