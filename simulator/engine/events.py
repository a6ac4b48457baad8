"""The event log of a run: everything that happened, in order, as JSON lines. The same seed gives the same bytes."""

from typing import Any

import msgspec

from simulator.agenda import Agenda
from simulator.kubevirt.objectstore import NODE, POD, VMI, VMIM, WatchEvent, at

_FIELDS: dict[str, tuple[tuple[str, ...], ...]] = {
    NODE: (("spec", "taints"), ("spec", "unschedulable")),
    POD: (("spec", "nodeName"), ("status", "phase")),
    VMI: (("status", "phase"), ("status", "nodeName"), ("status", "evacuationNodeName")),
    VMIM: (("spec", "vmiName"), ("status", "phase")),
}
"""Of each kind, what is worth a word."""


class EventLog:
    """Lines in order of time, as bytes; nothing is written to disk here."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._lines: list[bytes] = []
        self._encoder = msgspec.json.Encoder(order="deterministic")

    def add(self, what: str, **details: Any) -> None:
        line = {"time_s": round(self._agenda.now_s, 3), "what": what, **details}
        self._lines.append(self._encoder.encode(line))

    def changed(self, event: WatchEvent) -> None:
        """A change of an object in the API."""
        wanted = _FIELDS.get(event.kind)
        if wanted is None:
            return
        metadata = event.object["metadata"]
        details = {path[-1]: value for path in wanted if (value := at(event.object, *path)) not in (None, "")}
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        self.add(event.type.lower(), kind=event.kind, object=name, **details)

    def text(self) -> bytes:
        return b"".join(line + b"\n" for line in self._lines)
