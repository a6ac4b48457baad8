"""Objects for tests of the list/watch machinery, and recorded answers of a real API server."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from informers.errors import from_status
from informers.testing import ManualClock
from informers.watchstate import INITIAL_EVENTS_END, Event, Failed

DATA = Path(__file__).parent / "data"
START = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Meta:
    name: str
    namespace: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Thing:
    metadata: Meta
    colors: tuple[str, ...] = ()


def thing(
    name: str, *, uid: str = "uid-1", version: str = "1", colors: tuple[str, ...] = (), namespace: str = "ns"
) -> Thing:
    return Thing(Meta(name, namespace, uid, version), colors)


def by_color(obj: Thing) -> tuple[str, ...]:
    return obj.colors


def stamp(obj: Thing, version: str) -> Thing:
    return replace(obj, metadata=replace(obj.metadata, resource_version=version))


def manual_clock() -> ManualClock:
    return ManualClock(START)


def recorded_answer(name: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body, headers."""
    answer = json.loads((DATA / f"{name}.json").read_text())["response"]
    return answer["status"], json.dumps(answer["body"]).encode(), answer.get("headers", {})


def recorded_watch(name: str) -> Iterator[Event[Thing] | Failed]:
    for line in (DATA / f"{name}.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        body = event["object"]
        if event["type"] == "ERROR":
            yield Failed(from_status(body))
            continue
        metadata = body["metadata"]
        yield Event(
            event["type"],
            None if event["type"] == "BOOKMARK" else decoded(body),
            metadata["resourceVersion"],
            metadata.get("annotations", {}).get(INITIAL_EVENTS_END) == "true",
        )


def decoded(body: dict[str, Any]) -> Thing:
    metadata = body["metadata"]
    return Thing(
        Meta(metadata["name"], metadata.get("namespace", ""), metadata["uid"], metadata["resourceVersion"])
    )
