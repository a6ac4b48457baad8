"""Events have two API versions for one stored object: ``v1`` and ``events.k8s.io/v1``. Stored is ``v1``."""

from collections.abc import Mapping

from simulator.kubevirt.objectstore import Json

_NEW_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Core field -> field of events.k8s.io; all others have the same name in both."""
_OLD_NAMES: Mapping[str, str] = {new: old for old, new in _NEW_NAMES.items()}


def to_events_group(event: Json) -> Json:
    return {_NEW_NAMES.get(key, key): value for key, value in event.items()} | {
        "apiVersion": "events.k8s.io/v1"
    }


def to_core(event: Json) -> Json:
    renamed = {_OLD_NAMES.get(key, key): value for key, value in event.items()}
    empty: Json = {"source": {}, "firstTimestamp": None, "lastTimestamp": None}
    return empty | renamed | {"apiVersion": "v1"}
