"""How objects are shown to a client: as they are, as rows of a table, or as their metadata alone."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from simulator.apiserver.eventforms import to_core, to_events_group
from simulator.apiserver.refusals import Refusal
from simulator.apiserver.resources import Resource
from simulator.apiserver.tables import cells, columns_of
from simulator.kubevirt.objectstore import EVENT, Json

Shape = Literal["object", "table", "partial"]

_META = "meta.k8s.io/v1"
_SHAPES: dict[str, Shape] = {
    "Table": "table",
    "PartialObjectMetadata": "partial",
    "PartialObjectMetadataList": "partial",
}


class Form(NamedTuple):
    """Of one resource, in one shape; ``include`` says what a table's rows carry besides cells."""

    resource: Resource
    shape: Shape = "object"
    include: str = "Metadata"

    @property
    def cache_key(self) -> tuple[str, str, str]:
        """Equal for forms that show every object alike; tables show ages, so theirs hold for a moment only."""
        return (self.resource.group, self.shape, self.include)

    def one(self, obj: Json, now: datetime) -> Json:
        if self.shape == "table":
            return self._table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, now)
        return self._partial(obj) if self.shape == "partial" else to_wire(self.resource, obj)

    def many(self, objects: Sequence[Json], metadata: Json, now: datetime) -> Json:
        if self.shape == "table":
            return self._table(objects, metadata, now)
        if self.shape == "partial":
            return {
                "kind": "PartialObjectMetadataList",
                "apiVersion": _META,
                "metadata": metadata,
                "items": [{"metadata": obj["metadata"]} for obj in objects],
            }
        return {
            "kind": f"{self.resource.kind}List",
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
            "items": [self._item(obj) for obj in objects],
        }

    def watched(self, obj: Json, now: datetime, *, first: bool) -> Json:
        """An object inside a watch event; only a table's first one repeats the columns."""
        shown = self.one(obj, now)
        return shown if first or self.shape != "table" else {**shown, "columnDefinitions": None}

    def bookmark(self, version: int, now: datetime, *, initial_events_end: bool) -> Json:
        metadata: Json = {"resourceVersion": str(version)}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self.resource
        empty = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self.shape == "table":
            return self._table([], metadata, now)
        return self._partial(empty) if self.shape == "partial" else empty | (resource.empty or {})

    def _item(self, obj: Json) -> Json:
        shown = to_wire(self.resource, obj)
        if self.resource.custom:
            return shown
        return {key: value for key, value in shown.items() if key not in ("kind", "apiVersion")}

    def _partial(self, obj: Json) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}

    def _table(self, objects: Sequence[Json], metadata: Json, now: datetime) -> Json:
        columns = columns_of(self.resource.kind)
        rows: list[Json] = []
        for obj in objects:
            row: Json = {"cells": cells(columns, obj, now)}
            if self.include == "Object":
                row["object"] = to_wire(self.resource, obj)
            elif self.include != "None":
                row["object"] = self._partial(obj)
            rows.append(row)
        return {
            "kind": "Table",
            "apiVersion": _META,
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in columns],
            "rows": rows,
        }


def asked_form(resource: Resource, accept: str, include: str) -> Form:
    """The first form of an Accept header that there is. Raises `Refusal` (406)."""
    for option in (accept or "*/*").split(","):
        media_type, *parameters = (part.strip() for part in option.split(";"))
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        if "as" not in wanted:
            return Form(resource)
        if wanted.get("g") == "meta.k8s.io" and wanted["as"] in _SHAPES:
            return Form(resource, _SHAPES[wanted["as"]], include or "Metadata")
    raise Refusal(406, "only the following media types are accepted: application/json", details={})


def to_wire(resource: Resource, obj: Json) -> Json:
    """A stored object in the resource's API version."""
    return to_events_group(obj) if resource.kind == EVENT and resource.group else obj


def from_wire(resource: Resource, obj: Json) -> Json:
    """An object as clients send it, as it is stored."""
    return to_core(obj) if resource.kind == EVENT and resource.group else obj
