"""A scenario's YAML as plain data: read without surprises, extended, overridden."""

import copy
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from simulator.scenario.checking import Problem, ScenarioErrors

Document = dict[str, Any]
NOT_INHERITED = ("name", "description", "expectation", "expect")
"""What a scenario says about itself; one that extends another says it anew."""

POLICY_SECTIONS = frozenset({"mode", "nodeSelector", "metrics", "thresholds", "evictions", "softTaints"})
"""What an override may begin with for short: no scenario has fields of these names."""
_STEP = re.compile(r"""\.?([^.\[\]="]+)|\[(\d+)\]|\["([^"]+)"\]""")


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key given twice is an error instead of the last one winning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"key {key!r} given twice", problem_mark=key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_document(text: str, source: str, directory: Path) -> Document:
    """YAML text as a mapping; the files it names become paths relative to ``directory``.

    Raises ``ScenarioErrors`` with line and column where it is no YAML, or no mapping.
    """
    try:
        document = yaml.load(text, _Loader)  # noqa: S506  a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"
        raise ScenarioErrors(source, [Problem(where, error.problem or "broken", "YAML")]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ScenarioErrors(source, [Problem("", str(error).replace("\n", " "), "YAML")]) from None
    if not isinstance(document, dict):
        found = "empty" if document is None else type(document).__name__
        raise ScenarioErrors(source, [Problem("", found, "a mapping")])
    _resolve(document, "cluster", directory)
    load = document.get("load")
    if isinstance(load, dict) and isinstance(load.get("replay"), dict):
        _resolve(load["replay"], "file", directory)
    return cast(Document, document)


def extended(base: Mapping[str, Any], document: Mapping[str, Any]) -> Document:
    """``document`` on top of ``base``: mappings merged key by key, everything else replaced."""
    inherited = {key: value for key, value in base.items() if key not in NOT_INHERITED}
    return _merged(inherited, document)


def override(document: Mapping[str, Any], assignment: str) -> Document:
    """The document with ``path=value`` set, e.g. ``load.hotspots[0].factor=3``; the value is YAML.

    Mappings on the way come into being; list positions must exist. A key with dots is written ``["a.b/c"]``. A path
    that begins with a section of the policy means that one: ``softTaints.scheme`` is ``policy.softTaints.scheme``.
    Raises ``ScenarioErrors``.
    """
    path, equals, text = assignment.partition("=")
    steps = _steps(path.strip())
    if steps and steps[0] in POLICY_SECTIONS:
        steps.insert(0, "policy")
    if not equals or not steps:
        raise ScenarioErrors(
            "--set", [Problem(assignment, "no assignment", "path=value, path like load.hotspots[0].factor")]
        )
    try:
        value = yaml.load(text, _Loader)  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise ScenarioErrors(
            "--set", [Problem(path, str(error).replace("\n", " "), "a YAML value")]
        ) from None
    result = copy.deepcopy(dict(document))
    place: Any = result
    walked = ""
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        place = _enter(place, step, walked, value if last else {}, replace=last)
        walked += f"[{step}]" if isinstance(step, int) else f".{step}" if walked else step
    return result


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return []
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name or quoted)
        position = match.end()
    return steps


def _enter(place: Any, step: str | int, walked: str, value: Any, *, replace: bool) -> Any:
    if isinstance(step, int):
        if not isinstance(place, list):
            raise ScenarioErrors(
                "--set", [Problem(walked, f"no list to take [{step}] of", "a key of a mapping")]
            )
        if step >= len(place):
            allowed = f"[0] to [{len(place) - 1}]" if place else "none: the list is empty"
            raise ScenarioErrors("--set", [Problem(f"{walked}[{step}]", "out of range", allowed)])
        if replace:
            place[step] = value
        return place[step]
    if not isinstance(place, dict):
        allowed = (
            f"{walked}[0] to [{len(place) - 1}]" if isinstance(place, list) and place else "nothing below it"
        )
        raise ScenarioErrors("--set", [Problem(walked, f"no mapping to take {step!r} of", allowed)])
    if replace or place.get(step) is None:
        place[step] = value
    return place[step]


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> Document:
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(cast(Mapping[str, Any], below), value) if both else value
    return result


def _resolve(document: Document, key: str, directory: Path) -> None:
    if isinstance(document.get(key), str) and document[key]:
        document[key] = str(directory / document[key])
