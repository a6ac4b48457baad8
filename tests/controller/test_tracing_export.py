"""What arrives at a collector, and that none, however bad, holds anything up."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from threading import Thread
from uuid import UUID

import pytest

from controller.telemetry.export import ConfigurationError, SpanExport, exporting
from controller.telemetry.otlp import SERVICE
from controller.telemetry.spans import Event, Link, Span
from e2e.collectors import Collected, Collector, by_grpc, by_http
from informers.clock import SystemClock
from tests.builders import START

WITHIN_S = 20.0
"""How long a busy machine may take for what takes no time."""
LONG = timedelta(seconds=WITHIN_S)
ENDS_WITHIN_S = 1.0
SPAN = Span(
    trace_id=UUID("7f0c5b1e-3c7e-4b0e-9a53-2f1d6a7c9e10").int,
    span_id=7,
    name="request",
    start=START,
    end=START + timedelta(seconds=1, microseconds=1),
    parent=5,
    attributes={"k8s.pod.uid": "pod", "vm_rebalancer.gain": 0.25, "n": 3, "yes": True, "list": ["a", "b"]},
    events=(Event("answered", START, {"vm_rebalancer.verdict": "Triggered"}),),
    links=(Link(11, 12),),
    error="NotMigratable: no",
    calls=True,
)

Start = Callable[..., SpanExport]


@pytest.fixture(params=[by_grpc, by_http], ids=["grpc", "http"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    make: Callable[[], AbstractContextManager[Collector]] = request.param
    with make() as made:
        yield made


@pytest.fixture
def dropped() -> list[int]:
    return []


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, dropped: list[int]) -> Iterator[Start]:
    """Start exporting, with these variables in the environment."""
    made: list[SpanExport] = []

    def begin(collector: Collector | None = None, **variables: str) -> SpanExport:
        if collector is not None:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", collector.protocol)
        for name, value in {"OTEL_BSP_SCHEDULE_DELAY": "1", **variables}.items():
            monkeypatch.setenv(name, value)
        export = exporting(os.environ, SERVICE, "replica-1", SystemClock(), dropped.append)
        assert export is not None
        export.start()
        made.append(export)
        return export

    yield begin
    for export in made:
        export.stop(timedelta(seconds=0.1))


def until(claim: Callable[[], object], what: str) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not claim():
        assert time.monotonic() < ends_s, what
        time.sleep(0.01)


def numbered(count: int) -> list[Span]:
    return [replace(SPAN, span_id=number + 1) for number in range(count)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What our own lines say; pytest hears those of the libraries as well, which go nowhere."""
    return [record.getMessage() for record in caplog.records if record.name == "vm-rebalancer"]


def arrived(collected: Collected, count: int = 1) -> None:
    until(lambda: len(collected.spans) >= count, f"{count} spans have arrived")


# --- what arrives ---


def test_everything_arrives_as_it_was_told(collector: Collector, start: Start) -> None:
    start(collector).send(SPAN)
    arrived(collector.collected)
    (span,) = collector.collected.spans
    assert span.trace_id == "7f0c5b1e3c7e4b0e9a532f1d6a7c9e10"
    assert (span.span_id, span.parent_id, span.name) == ("0" * 15 + "7", "0" * 15 + "5", "request")
    assert span.end_ns - span.start_ns == 1_000_001_000
    assert span.attributes == SPAN.attributes
    assert (span.error, span.events) == ("NotMigratable: no", ("answered",))
    assert span.links == ((f"{11:032x}", f"{12:016x}"),)


def test_a_root_has_no_parent_even_if_others_of_its_trace_were_sent_before(
    collector: Collector, start: Start
) -> None:
    export = start(collector)
    export.send(SPAN)
    export.send(replace(SPAN, span_id=5, parent=0))
    arrived(collector.collected, 2)
    assert [(s.span_id[-1], s.parent_id[-1:]) for s in collector.collected.spans] == [("7", "5"), ("5", "")]
    assert len({s.trace_id for s in collector.collected.spans}) == 1


def test_the_resource_is_ours_where_the_environment_names_none(collector: Collector, start: Start) -> None:
    start(collector).send(SPAN)
    arrived(collector.collected)
    resource = collector.collected.spans[0].resource
    assert (resource["service.name"], resource["service.instance.id"]) == (SERVICE, "replica-1")
    assert resource["service.version"]


def test_the_environment_goes_before_what_we_know(collector: Collector, start: Start) -> None:
    start(
        collector,
        OTEL_SERVICE_NAME="balancer",
        OTEL_RESOURCE_ATTRIBUTES="service.instance.id=mine,k8s.cluster.name=east",
    ).send(SPAN)
    arrived(collector.collected)
    resource = collector.collected.spans[0].resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("balancer", "mine")
    assert resource["k8s.cluster.name"] == "east"


def test_a_header_is_sent_and_stands_in_no_span(collector: Collector, start: Start) -> None:
    start(collector, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20s3cr3t").send(SPAN)
    arrived(collector.collected)
    assert collector.collected.headers[0]["authorization"] == "Bearer s3cr3t"
    assert b"s3cr3t" not in b"".join(collector.collected.raw)


def test_spans_of_several_workers_do_not_get_each_others_ids(start: Start) -> None:
    with by_http() as collector:
        export = start(collector)
        told = [replace(span, trace_id=1000 + span.span_id, name=str(span.span_id)) for span in numbered(400)]
        threads = [Thread(target=lambda k=k: [export.send(s) for s in told[k::4]]) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        export.stop(LONG)
        got = {(int(s.trace_id, 16), int(s.span_id, 16), s.name) for s in collector.collected.spans}
    assert got == {(span.trace_id, span.span_id, span.name) for span in told}


# --- whether, where and how ---


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x:4317"},
    ],
)
def test_nothing_is_exported_unless_it_is_wanted(environment: dict[str, str]) -> None:
    assert exporting(environment, SERVICE, "replica-1", SystemClock(), lambda _: None) is None


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "allowed: grpc, http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "allowed: otlp, none"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "allowed: a number from 1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon", "allowed: a number from 1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "OTEL_EXPORTER_OTLP_…: could not convert"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=allowed) as caught:
        exporting(os.environ, SERVICE, "replica-1", SystemClock(), lambda _: None)
    assert name in str(caught.value) or "OTEL_EXPORTER_OTLP_" in str(caught.value)


def test_the_endpoint_and_protocol_for_traces_go_before_the_general_ones(start: Start) -> None:
    with by_http() as collector:
        start(
            OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.endpoint}/v1/traces",
            OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        ).send(SPAN)
        arrived(collector.collected)


# --- sampling ---


def uuid_like(number: int) -> int:
    """UUIDs of a generator that counts in the low bits, which a ratio sampler looks at."""
    return UUID(int=(0x7F0C5B1E_3C7E_4B0E << 64) | (0b10 << 62) | number).int


@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio"])
def test_a_ratio_is_met_although_the_bits_of_a_uuid_are_not_uniform(start: Start, sampler: str) -> None:
    """Its variant bits alone would have every one, or none, sampled."""
    with by_http() as collector:
        export = start(collector, OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG="0.25")
        for number in range(400):
            export.send(replace(SPAN, trace_id=uuid_like(number)))
        export.stop(LONG)
        assert 70 <= len(collector.collected.spans) <= 130


def test_a_trace_is_sampled_as_a_whole_and_alike_by_every_replica(start: Start) -> None:
    with by_http() as collector:
        for _ in range(2):
            export = start(
                collector, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0.5"
            )
            for number in range(50):
                for span in (SPAN, replace(SPAN, span_id=5, parent=0)):
                    export.send(replace(span, trace_id=uuid_like(number)))
            export.stop(LONG)
        found = [span.trace_id for span in collector.collected.spans]
    assert 0 < len(set(found)) < 50
    assert {found.count(trace) for trace in found} == {4}


def test_nothing_is_sent_where_nothing_is_sampled(start: Start, dropped: list[int]) -> None:
    with by_http() as collector:
        export = start(collector, OTEL_TRACES_SAMPLER="always_off")
        export.send(SPAN)
        export.stop(LONG)
        assert (collector.collected.spans, dropped) == ([], [])


# --- bad collectors ---


def ends_in_time(export: SpanExport) -> None:
    """The bound itself is what is promised, so it is measured; what is added is for a busy machine."""
    begun_s = time.monotonic()
    export.stop(timedelta(seconds=ENDS_WITHIN_S))
    assert time.monotonic() - begun_s < ENDS_WITHIN_S + WITHIN_S


def test_what_is_left_is_sent_at_the_end(collector: Collector, start: Start, dropped: list[int]) -> None:
    export = start(collector, OTEL_BSP_SCHEDULE_DELAY="600000")
    for span in numbered(40):
        export.send(span)
    assert export.stop(LONG)
    assert (len(collector.collected.spans), dropped) == (40, [])


def test_a_hanging_collector_holds_up_neither_the_program_nor_its_end(
    collector: Collector, start: Start, dropped: list[int]
) -> None:
    collector.collected.hang()
    patience_s = f"{10 * WITHIN_S:g}"
    export = start(collector, OTEL_BSP_MAX_QUEUE_SIZE="50", OTEL_EXPORTER_OTLP_TIMEOUT=patience_s)
    export.send(SPAN)
    until(collector.collected.asked.is_set, "it was asked")
    begun_s = time.monotonic()
    for span in numbered(1000):
        export.send(span)
    assert time.monotonic() - begun_s < WITHIN_S
    assert sum(dropped) == 950, "the queue is bounded, and what did not fit was counted"
    ends_in_time(export)
    assert sum(dropped) == 1001


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_that_is_not_there_holds_up_nothing(
    protocol: str, start: Start, dropped: list[int]
) -> None:
    export = start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    for span in numbered(10):
        export.send(span)
    ends_in_time(export)
    assert sum(dropped) == 10


def test_what_is_refused_is_dropped_counted_and_said_once(
    collector: Collector, start: Start, dropped: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    collector.collected.refuses = True
    export = start(collector)
    with caplog.at_level(logging.INFO):
        for count in (1, 2):
            export.send(SPAN)
            until(lambda count=count: sum(dropped) == count, f"{count} were dropped")
        collector.collected.refuses = False
        export.send(SPAN)
        arrived(collector.collected)
        until(lambda: len(said(caplog)) == 2, "both were said")
    failed, again = said(caplog)
    assert failed.startswith("traces cannot be sent: Failed to export")
    assert again == "traces can be sent again"


def test_a_replica_that_only_stood_by_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has never begun to send."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    export = exporting(os.environ, SERVICE, "replica-2", SystemClock(), lambda _: None)
    assert export is not None
    assert export.stop(timedelta(0))


def test_what_comes_after_the_end_is_dropped(collector: Collector, start: Start, dropped: list[int]) -> None:
    export = start(collector)
    export.stop(LONG)
    export.send(SPAN)
    assert dropped == [1]
