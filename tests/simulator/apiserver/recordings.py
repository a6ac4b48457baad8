"""Recordings of a real API server (Kubernetes 1.36), made comparable: its names replaced by ours."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def recorded(name: str, renamed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """request and response of a transcript."""
    text = (DATA / f"{name}.json").read_text()
    for theirs, ours in (renamed or {}).items():
        text = text.replace(theirs, ours)
    found: dict[str, Any] = json.loads(text)
    return found


def recorded_lines(name: str) -> list[dict[str, Any]]:
    """The events of a recorded watch."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines() if line]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Where values stand in a document, whatever their position in lists; not what a server keeps for itself."""
    if path.endswith(".managedFields"):
        return
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from paths(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from paths(item, f"{path}[]")
    else:
        yield path
