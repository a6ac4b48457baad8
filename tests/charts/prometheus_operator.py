"""Schemas of what the Prometheus Operator reads, as far as the chart uses it: any other field is a mistake of ours.

Source: the API reference of monitoring.coreos.com/v1. The operator's own schemas drop unknown fields without a word.
"""

from typing import Any

Schema = dict[str, Any]


def _object(required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


TEXT: Schema = {"type": "string", "minLength": 1}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: Schema = {
    "type": "string",
    "minLength": 1,
    "pattern": "^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$",
}
METADATA = _object("name namespace labels", name=TEXT, namespace=TEXT, labels=LABELS)
RECORDING_RULE = _object("record expr", record=TEXT, expr=TEXT, labels=LABELS)
ALERTING_RULE = _object(
    "alert expr",
    alert=TEXT,
    expr=TEXT,
    **{"for": DURATION},
    keep_firing_for=DURATION,
    labels=LABELS,
    annotations=LABELS,
)
GROUP = _object(
    "name rules",
    name=TEXT,
    interval=DURATION,
    rules={"type": "array", "minItems": 1, "items": {"oneOf": [RECORDING_RULE, ALERTING_RULE]}},
)
ENDPOINT = _object("port", port=TEXT, interval=DURATION)


def _kind(kind: str, spec: Schema) -> Schema:
    return _object(
        "apiVersion kind metadata spec",
        apiVersion={"const": "monitoring.coreos.com/v1"},
        kind={"const": kind},
        metadata=METADATA,
        spec=spec,
    )


SCHEMAS = {
    "PrometheusRule": _kind("PrometheusRule", _object("groups", groups={"type": "array", "items": GROUP})),
    "ServiceMonitor": _kind(
        "ServiceMonitor",
        _object(
            "selector endpoints",
            selector=_object("matchLabels", matchLabels={**LABELS, "minProperties": 1}),
            endpoints={"type": "array", "minItems": 1, "items": ENDPOINT},
        ),
    ),
}
