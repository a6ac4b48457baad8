"""Spans as OTLP JSON: what a collector takes, and what Jaeger's UI opens as a file. Pure."""

from collections.abc import Iterable

import msgspec

from controller.telemetry.spans import Attributes, AttributeValue, Event, Link, Span, nanoseconds

SCOPE = "vm-rebalancer"
SERVICE = "vm-rebalancer-descheduler"
"""The service's name, unless the environment names another."""
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2


def otlp_json(spans: Iterable[Span], resource: Attributes) -> bytes:
    """The document of one ``ExportTraceServiceRequest``. Source of the form: OTLP 1.x, section "JSON Protobuf
    Encoding": IDs in hexadecimal, 64-bit numbers as strings.
    """
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": SCOPE}, "spans": [_span(span) for span in spans]}],
            }
        ]
    }
    return msgspec.json.encode(document)


def _span(span: Span) -> dict[str, object]:
    found: dict[str, object] = {
        **_ids(Link(span.trace_id, span.span_id)),
        "name": span.name,
        "kind": _CLIENT if span.calls else _INTERNAL,
        "startTimeUnixNano": str(nanoseconds(span.start)),
        "endTimeUnixNano": str(nanoseconds(span.end)),
        "attributes": _attributes(span.attributes),
        "events": [_event(event) for event in span.events],
        "links": [_ids(link) for link in span.links],
        "status": {"code": _ERROR, "message": span.error} if span.error else {},
    }
    if span.parent:
        found["parentSpanId"] = f"{span.parent:016x}"
    return found


def _ids(link: Link) -> dict[str, object]:
    return {"traceId": f"{link.trace_id:032x}", "spanId": f"{link.span_id:016x}"}


def _event(event: Event) -> dict[str, object]:
    at = str(nanoseconds(event.at))
    return {"timeUnixNano": at, "name": event.name, "attributes": _attributes(event.attributes)}


def _attributes(attributes: Attributes) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: AttributeValue) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}
