"""Collectors that only keep what they get, by OTLP over gRPC and over HTTP, and that may misbehave."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

WHOLE = [
    "decide",
    "eviction",
    "migration/pending",
    "migration/preparing",
    "migration/running",
    "migration/scheduling",
    "request",
    "settle",
]
"""The names of the spans of an eviction whose VM has arrived."""
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Received:
    """One span as it has arrived."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    error: str
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


@dataclass
class Collected:
    """What has come so far. While it ``refuses`` nothing is kept; after ``hang`` none is answered until ``go_on``."""

    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request, with lower-case names."""
    raw: list[bytes] = field(default_factory=list)
    refuses: bool = False
    asked: Event = field(default_factory=Event)
    """Set by the first request, however it is answered."""
    _go_on: Event = field(default_factory=Event)
    _spans: list[Received] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._go_on.set()

    def hang(self) -> None:
        self._go_on.clear()

    def go_on(self) -> None:
        self._go_on.set()

    def take(self, body: bytes, headers: dict[str, str]) -> bool:
        """False if it is refused."""
        self.asked.set()
        self._go_on.wait()
        request = messages.ExportTraceServiceRequest.FromString(body)
        with self._lock:
            self.headers.append(headers)
            if not self.refuses:
                self.raw.append(body)
                self._spans.extend(_spans(request))
        return not self.refuses

    @property
    def spans(self) -> list[Received]:
        with self._lock:
            return list(self._spans)

    def trace(self, trace_id: str) -> list[Received]:
        return [span for span in self.spans if span.trace_id == trace_id]


@dataclass(frozen=True, slots=True)
class Collector:
    """One that runs; ``endpoint`` and ``protocol`` are what the standard variables want."""

    collected: Collected
    endpoint: str
    protocol: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a program that sends its traces here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol,
        }


@contextmanager
def by_grpc() -> Iterator[Collector]:
    collected = Collected()

    class Servicer(service.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
            headers = {key: str(value) for key, value in context.invocation_metadata()}
            if not collected.take(request.SerializeToString(), headers):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
            return messages.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(_THREADS))
    service.add_TraceServiceServicer_to_server(Servicer(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Collector(collected, f"http://127.0.0.1:{port}", "grpc")
    finally:
        collected.go_on()
        server.stop(grace=None).wait()


@contextmanager
def by_http() -> Iterator[Collector]:
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            taken = self.path == "/v1/traces" and collected.take(body, headers)
            answer = messages.ExportTraceServiceResponse().SerializeToString()
            try:
                self.send_response(200 if taken else 400)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                return  # it did not wait for the answer

        def log_message(self, *_: object) -> None:
            """Tests have their own output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Collector(collected, f"http://127.0.0.1:{server.server_address[1]}", "http/protobuf")
    finally:
        collected.go_on()
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(request: Any) -> Iterator[Received]:
    for group in request.resource_spans:
        resource = _attributes(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Received(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    resource,
                    span.status.message if span.status.code == _ERROR else "",
                    tuple(event.name for event in span.events),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                )


_ERROR = 2


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind is not None else None
