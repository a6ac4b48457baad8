"""``simulate --traces``: a file that Jaeger opens, with the whole of every eviction, at virtual dates."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from controller.cli import main

Spans = list[dict[str, Any]]
MONDAY_NS = 1767571200 * 10**9
"""5 January 2026, when simulated time begins."""


def simulate(folder: Path, *arguments: str) -> dict[str, Any]:
    path = folder / "traces.json"
    command = ["simulate", *arguments, "--no-report", "-o", "json", "--traces", str(path)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert f"traces: {path}" in result.stderr
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def spans_of(document: dict[str, Any]) -> Spans:
    spans: Spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def evictions(document: dict[str, Any]) -> list[Spans]:
    by_trace: dict[str, Spans] = defaultdict(list)
    for span in spans_of(document):
        by_trace[span["traceId"]].append(span)
    return [spans for spans in by_trace.values() if any(s["name"] == "decide" for s in spans)]


@pytest.fixture(scope="module")
def hotspot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return simulate(tmp_path_factory.mktemp("hotspot"), "hotspot", "--minutes", "25")


def test_it_has_the_shape_of_otlp(hotspot: dict[str, Any]) -> None:
    """Unknown fields and wrong types would be refused. IDs are hexadecimal, against Protobuf's own rules."""
    request = json_format.ParseDict(hotspot, ExportTraceServiceRequest())
    assert len(request.resource_spans[0].scope_spans[0].spans) == len(spans_of(hotspot))
    for span in spans_of(hotspot):
        assert (len(bytes.fromhex(span["traceId"])), len(bytes.fromhex(span["spanId"]))) == (16, 8)


def test_the_service_and_what_was_run_are_named(hotspot: dict[str, Any]) -> None:
    attributes = hotspot["resourceSpans"][0]["resource"]["attributes"]
    named = {pair["key"]: next(iter(pair["value"].values())) for pair in attributes}
    assert named["service.name"] == "vm-rebalancer-descheduler"
    assert (named["vm_rebalancer.scenario"], named["vm_rebalancer.seed"]) == ("hotspot", "1")


def test_every_migration_of_ours_is_a_whole_trace(hotspot: dict[str, Any]) -> None:
    found = evictions(hotspot)
    assert len(found) > 10
    whole = [spans for spans in found if any(span["name"] == "eviction" for span in spans)]
    assert len(found) - len(whole) <= 2, "but for those that are on the move at the end"
    for spans in whole:
        phases = [f"migration/{name}" for name in ("pending", "preparing", "running", "scheduling")]
        assert sorted(s["name"] for s in spans) == ["decide", "eviction", *phases, "request", "settle"]


def test_spans_lie_within_their_root_and_after_the_virtual_start(hotspot: dict[str, Any]) -> None:
    for spans in evictions(hotspot):
        for root in (s for s in spans if s["name"] == "eviction"):
            for span in spans:
                start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                assert MONDAY_NS <= int(root["startTimeUnixNano"]) <= start <= end
                assert end <= int(root["endTimeUnixNano"])
                assert span is root or span["parentSpanId"] == root["spanId"]


def test_decisions_point_to_rounds_that_are_there(hotspot: dict[str, Any]) -> None:
    rounds = {(s["traceId"], s["spanId"]) for s in spans_of(hotspot) if s["name"] == "round"}
    decisions = [s for spans in evictions(hotspot) for s in spans if s["name"] == "decide"]
    assert {(link["traceId"], link["spanId"]) for s in decisions for link in s["links"]} <= rounds
    assert all(len(s["links"]) == 1 for s in decisions)


def test_trace_ids_are_uids_of_pods(hotspot: dict[str, Any]) -> None:
    for spans in evictions(hotspot):
        (request,) = (s for s in spans if s["name"] == "request")
        uids = [a["value"]["stringValue"] for a in request["attributes"] if a["key"] == "k8s.pod.uid"]
        assert [UUID(uid).hex for uid in uids] == [request["traceId"]]


def test_ids_are_unique_where_migrations_fail(tmp_path: Path) -> None:
    spans = spans_of(simulate(tmp_path, "failing", "--minutes", "30"))
    assert len({(s["traceId"], s["spanId"]) for s in spans}) == len(spans)
    assert any(s["status"].get("code") == 2 for s in spans if s["name"] == "migration/running")


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    one = simulate(tmp_path, "pilot", "--minutes", "16")
    assert simulate(tmp_path, "pilot", "--minutes", "16") == one


def test_only_the_first_of_several_runs_is_told(tmp_path: Path) -> None:
    """The pods of another have the same UIDs: their spans would be mixed up."""
    several = simulate(tmp_path, "hotspot", "--minutes", "14", "--seeds", "2", "--against", "baseline")
    assert several == simulate(tmp_path, "hotspot", "--minutes", "14")


RESTARTS = """
extends: failing
description: The descheduler is killed again and again.
happenings:
  - {kind: restart, start_minute: 12.5, every_minutes: 5, away_seconds: 20}
"""


def test_a_controller_that_is_killed_again_and_again_tells_each_migration_once(tmp_path: Path) -> None:
    """What is told twice, since it was perhaps not sent, is the same."""
    scenario = tmp_path / "killed.yaml"
    scenario.write_text(RESTARTS, encoding="utf-8")
    document = simulate(tmp_path, str(scenario), "--minutes", "40")
    told: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for span in spans_of(document):
        if span["name"] not in ("eviction", "settle"):
            told[span["traceId"], span["spanId"]].append(span)
    assert all(spans.count(spans[0]) == len(spans) for spans in told.values())
    assert sum(len(spans) > 1 for spans in told.values()) <= 8
    taken_over = [
        root
        for spans in evictions(document)
        for root in spans
        if {"key": "vm_rebalancer.decided_elsewhere", "value": {"boolValue": True}} in root["attributes"]
    ]
    assert taken_over
    for root in taken_over:
        trace = [s for s in spans_of(document) if s["traceId"] == root["traceId"]]
        whole = {"decide", "eviction", "request", *(f"migration/{p}" for p in ("pending", "running"))}
        assert whole <= {s["name"] for s in trace}
        assert all(s is root or s["parentSpanId"] == root["spanId"] for s in trace)
