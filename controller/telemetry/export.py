"""Sends spans by OTLP, as OpenTelemetry's standard environment variables say. Without an endpoint nothing is sent."""

import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from threading import Lock
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.sdk.resources import (
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import Attributes

from controller.telemetry.otlp import SCOPE
from controller.telemetry.sending import Sending
from controller.telemetry.spans import Span, nanoseconds
from informers.clock import Clock
from informers.errors import as_shown

log = logging.getLogger("vm-rebalancer")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PARSES_HEADERS = "opentelemetry.util.re"
"""The logger of what reads those; it quotes them."""
_LONGEST = 300
"""Characters of a library's text that a message repeats."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_QUEUE_SIZE = 2048
_BATCH_SIZE = 512
_DELAY_MS = 100.0
"""Not the usual 5 s: what a leader has not sent when it is killed, nobody can tell."""
_LARGEST = 1_000_000


class ConfigurationError(Exception):
    """An environment variable that holds what it may not; the text says which, and what is allowed.

    Without secrets, those in ``known`` and what looks like one.
    """

    def __init__(self, text: str, known: Iterable[str] = ()) -> None:
        super().__init__(as_shown(text, _LONGEST, known))


class SpanExport:
    """Takes spans; made by :func:`exporting`."""

    def __init__(self, resource: Resource, sending: Sending) -> None:
        self._lock = Lock()  # held from telling the IDs until the span has them
        self._ids = _GivenIds()
        # Its default sampler is the one that the environment names; asked, it must not see the ID itself.
        self._sampler = _ByHash(TracerProvider(shutdown_on_exit=False).sampler)
        self._provider = TracerProvider(
            sampler=self._sampler, resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._sending = sending
        self._provider.add_span_processor(sending)
        self._tracer = self._provider.get_tracer(SCOPE, _version())

    def send(self, span: Span) -> None:
        """Hand it on, unless its trace is not sampled. Returns at once."""
        decision = self._sampler.should_sample(None, span.trace_id, span.name).decision
        if decision is not Decision.RECORD_AND_SAMPLE:
            return
        parent = Context()
        if span.parent:
            parent = set_span_in_context(NonRecordingSpan(_context(span.trace_id, span.parent)), parent)
        with self._lock:
            self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
            started = self._tracer.start_span(
                span.name,
                parent,
                SpanKind.CLIENT if span.calls else SpanKind.INTERNAL,
                dict(span.attributes),
                [Link(_context(*link)) for link in span.links],
                nanoseconds(span.start),
            )
        for event in span.events:
            started.add_event(event.name, dict(event.attributes), nanoseconds(event.at))
        if span.error:
            started.set_status(Status(StatusCode.ERROR, span.error))
        started.end(nanoseconds(span.end))

    def start(self) -> None:
        """Begin to send; until then spans are kept."""
        self._sending.start()

    def stop(self, within: timedelta) -> bool:
        """Send what is left, for no longer than this; whether it has ended. What comes later is dropped."""
        return self._sending.stop(within)


def exporting(
    environment: Mapping[str, str],
    service: str,
    instance: str,
    clock: Clock,
    count_dropped: Callable[[int], None],
) -> SpanExport | None:
    """``None`` unless an OTLP endpoint is set. The exporters and the SDK read the process' environment themselves.

    ``service`` and ``instance`` are the service's name and instance where the environment names none. Raises
    ConfigurationError.
    """
    if not any(environment.get(name) for name in _ENDPOINTS):
        return None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    wanted = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if wanted == "none":
        return None
    if wanted not in ("", "otlp"):
        raise ConfigurationError(f"OTEL_TRACES_EXPORTER: found {wanted!r}; allowed: otlp, none")
    queue_size = _number(environment, "OTEL_BSP_MAX_QUEUE_SIZE", _QUEUE_SIZE)
    batch_size = _number(environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH_SIZE)
    delay_ms = _number(environment, "OTEL_BSP_SCHEDULE_DELAY", _DELAY_MS)
    known = _secrets_in(environment)
    _listen_to_libraries()
    try:
        exporter = _exporter(environment)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the libraries make of the environment
        raise ConfigurationError(f"OTEL_EXPORTER_OTLP_…: {error}", known) from None
    sending = Sending(
        exporter,
        clock,
        count_dropped,
        lambda: _TROUBLE.last,
        known,
        queue_size=int(queue_size),
        batch_size=min(int(batch_size), int(queue_size)),
        delay_s=delay_ms / 1000,
    )
    made = SpanExport(_resource(service, instance), sending)
    _say_what_libraries_said(environment, known)
    return made


def _listen_to_libraries() -> None:
    """From now on they say nothing themselves: what they say at each try, we say once, and they quote headers."""
    said_by_libraries = logging.getLogger("opentelemetry")
    said_by_libraries.addHandler(_TROUBLE)
    said_by_libraries.propagate = False
    _TROUBLE.last, _TROUBLE.of_headers = "", False


def _say_what_libraries_said(environment: Mapping[str, str], known: Sequence[str]) -> None:
    """While all was built."""
    if _TROUBLE.of_headers:
        name = next((n for n in _HEADERS if environment.get(n)), _HEADERS[-1])
        log.warning("%s holds something that is not name=value", name)
    if _TROUBLE.last:
        log.warning("traces: %s", as_shown(_TROUBLE.last, _LONGEST, known))


def _secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Values of headers, as they stand there and as they are sent, and who we are in endpoints."""
    headers = [part for name in _HEADERS for part in environment.get(name, "").split(",")]
    values = [header.partition("=")[2] or header for header in headers]
    users = [environment.get(name, "").rpartition("@")[0].rpartition("//")[2] for name in _ENDPOINTS]
    found = [*values, *users, *(user.partition(":")[2] for user in users)]
    return [each.strip() for text in found for each in (text, unquote(text))]


def _exporter(environment: Mapping[str, str]) -> SpanExporter:
    """By gRPC unless told otherwise, as in OpenTelemetry's SDK for Python. Each is loaded only if it is used."""
    name = next((n for n in _PROTOCOLS if environment.get(n)), _PROTOCOLS[-1])
    protocol = environment.get(name, "").strip() or "grpc"
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as by_grpc

        return by_grpc.OTLPSpanExporter()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as by_http

        return by_http.OTLPSpanExporter()
    raise ConfigurationError(f"{name}: found {protocol!r}; allowed: grpc, http/protobuf")


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    try:
        number = float(text) if text else default
    except ValueError:
        number = 0.0
    if not 1 <= number <= _LARGEST:
        raise ConfigurationError(f"{name}: found {text!r}; allowed: a number from 1 to {_LARGEST}")
    return number


def _resource(service: str, instance: str) -> Resource:
    """What the environment says goes before what we know."""
    ours = {SERVICE_NAME: service, SERVICE_VERSION: _version(), SERVICE_INSTANCE_ID: instance}
    told = OTELResourceDetector().detect().attributes
    return Resource.create({key: value for key, value in ours.items() if key not in told})


def _version() -> str:
    return importlib.metadata.version("vm-rebalancer")


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)


class _GivenIds(IdGenerator):
    """Hands out the IDs that it was told last."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _ByHash(Sampler):
    """Asks the sampler about a hash of the trace ID: a UUID's bits are not uniform, and a ratio would be missed."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        digest = sha256(trace_id.to_bytes(16)).digest()
        hashed = int.from_bytes(digest[:16])
        return self._sampler.should_sample(parent_context, hashed, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"by a hash of the trace ID: {self._sampler.get_description()}"


class _Trouble(logging.Handler):
    """Keeps what the exporters said last; they return no reason. Of headers only that something is wrong with them."""

    last = ""
    of_headers = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _PARSES_HEADERS:
            self.of_headers = True
        else:
            self.last = record.getMessage()


_TROUBLE = _Trouble()
