"""A collector that is not ours understands what we send, over both protocols and as a file."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from controller.telemetry.export import exporting
from controller.telemetry.otlp import SERVICE, otlp_json
from controller.telemetry.spans import Span
from e2e.ports import Ports
from e2e.processes import Process, Processes
from e2e.waiting import until
from informers.clock import SystemClock
from tests.controller.decision_builders import MINUTE
from tests.controller.traced_cluster import TracedCluster

WITHIN_S = 30.0


def rotel() -> str:
    """PyPI's package `rotel` brings it; CI must have it, elsewhere a test without it is skipped."""
    found = find_spec("rotel")
    if found is not None and found.origin is not None:
        return str(Path(found.origin).parent / "rotel-agent")
    if os.environ.get("CI") == "true":
        pytest.fail("rotel is not installed: pip install rotel")
    pytest.skip("rotel is not installed")


class Rotel:
    def __init__(self, folder: Path) -> None:
        ports = Ports()
        self.grpc, self.http = f"127.0.0.1:{ports.free()}", f"127.0.0.1:{ports.free()}"
        command = [
            *(rotel(), "start", "--exporter", "blackhole"),
            *("--debug-log", "traces", "--debug-log-verbosity", "detailed"),
            *("--otlp-grpc-endpoint", self.grpc, "--otlp-http-endpoint", self.http),
            *("--pid-file", str(folder / "pid")),
        ]
        self.processes = Processes(folder)
        self._process: Process = self.processes.start("rotel", command)
        self.until_said("Starting Rotel")
        until(self._listens, within_s=WITHIN_S, what="it listens", meanwhile=self.processes.check)

    def _listens(self) -> bool:
        try:
            self.post(b"")
        except urllib.error.HTTPError:
            return True  # an answer, whatever it says
        return True

    def until_said(self, *texts: str) -> str:
        def all_there() -> str:
            said = self._process.output()
            return said if all(text in said for text in texts) else ""

        return until(all_there, within_s=WITHIN_S, what=f"it says {texts}", meanwhile=self.processes.check)

    def post(self, body: bytes) -> int:
        request = urllib.request.Request(
            f"http://{self.http}/v1/traces", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310
            status: int = answer.status
        return status


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Rotel]:
    made = Rotel(tmp_path)
    yield made
    made.processes.end()


def an_eviction() -> list[Span]:
    cluster = TracedCluster("vm-1")
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.work()
    cluster.arrive("vm-1")
    cluster.pass_time(5 * MINUTE)
    return cluster.evictions


def as_it_says(spans: list[Span]) -> list[str]:
    return [
        *(f"Trace ID       : {span.trace_id:032x}" for span in spans),
        *(f"ID             : {span.span_id:016x}" for span in spans),
        *(f"Name           : {span.name}" for span in spans),
        "k8s.pod.uid: Str(pod-vm-1)",
        "vm_rebalancer.result: Str(Done)",
        "SpanEvent #1",
    ]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_real_collector_takes_an_eviction(
    collector: Rotel, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = collector.grpc if protocol == "grpc" else collector.http
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    dropped: list[int] = []
    export = exporting(os.environ, SERVICE, "replica-1", SystemClock(), dropped.append)
    assert export is not None
    export.start()
    spans = an_eviction()
    for span in spans:
        export.send(span)
    export.stop(timedelta(seconds=WITHIN_S))
    assert dropped == []
    collector.until_said(f"service.name: Str({SERVICE})", *as_it_says(spans))


def test_a_real_collector_takes_the_file_as_well(collector: Rotel) -> None:
    spans = an_eviction()
    assert collector.post(otlp_json(spans, {"service.name": SERVICE})) == 200
    collector.until_said(f"service.name: Str({SERVICE})", *as_it_says(spans))
