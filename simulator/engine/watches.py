"""Delivers the object store's changes to the controller's informers, as watches do: in order, a little later."""

import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from controller.cluster.objects import KubeVirt, Node, PlacedPod, Pod, Vmi, Vmim
from informers.informer import Informer
from simulator.agenda import Agenda
from simulator.kubevirt.objectstore import KUBEVIRT, NODE, POD, VMI, VMIM, Json, ObjectStore, WatchEvent, at

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

LEAST_LAG_S, MOST_LAG_S = 0.02, 0.5


class Stream:
    """One list-and-watch: an informer, and which objects of a kind it selects (label and field selectors).

    It may stall, as a half-open connection does: nothing arrives until it goes on, and then all of it, or until it is
    listed anew. Invariant: events are delivered in the store's order, whatever lag each of them got.
    """

    def __init__(
        self,
        informer: Informer[Any],
        decode: type[Any],
        kind: str,
        selects: Callable[[Json], bool],
        agenda: Agenda,
        rng: random.Random,
    ) -> None:
        self.name = informer.name
        self._informer = informer
        self._decode = decode
        self._kind = kind
        self._selects = selects
        self._agenda = agenda
        self._rng = rng
        self._last_due_s = 0.0
        self._selected: set[str] = set()
        self._held: list[Callable[[], None]] | None = None
        """What has arrived since it stalled; ``None``: it does not."""
        self._listed = 0  # what was on its way when it was listed belongs to the watch before
        self._complete_s = 0.0

    def list(self, store: ObjectStore) -> None:
        """All anew, as of now; what the watch before still had to bring is forgotten, and a stall is over."""
        self._held, self._listed = None, self._listed + 1
        self._complete_s = self._last_due_s = self._agenda.now_s
        found = [obj for obj in store.list(self._kind) if self._selects(obj)]
        self._selected = {obj["metadata"]["uid"] for obj in found}
        self._informer.replace([msgspec.convert(obj, self._decode) for obj in found])

    def stall(self) -> None:
        """From now on nothing arrives."""
        if self._held is None:
            self._complete_s = self.complete_s
            self._held = []

    def go_on(self) -> None:
        """What was held back arrives, in order."""
        held, self._held = self._held or [], None
        for apply in held:
            apply()

    @property
    def complete_s(self) -> float:
        """What happened up to then has arrived, whatever came after."""
        if self._held is not None:
            return self._complete_s
        return max(self._complete_s, self._agenda.now_s - MOST_LAG_S)

    def receive(self, event: WatchEvent) -> None:
        if event.kind != self._kind:
            return
        event_type = self._event_type(event)
        if event_type is None:
            return
        lag_s = self._rng.uniform(LEAST_LAG_S, MOST_LAG_S)
        self._last_due_s = max(self._last_due_s, self._agenda.now_s + lag_s)
        obj, listed = msgspec.convert(event.object, self._decode), self._listed

        def arrive() -> None:
            if listed != self._listed:
                return
            if self._held is not None:
                self._held.append(lambda: self._informer.apply(event_type, obj))
            else:
                self._informer.apply(event_type, obj)

        self._agenda.at(self._last_due_s, arrive)

    def _event_type(self, event: WatchEvent) -> EventType | None:
        """As the API server does for selectors: an object that stops matching is deleted from this watch."""
        uid = event.object["metadata"]["uid"]
        known = uid in self._selected
        if event.type != "DELETED" and self._selects(event.object):
            self._selected.add(uid)
            return "MODIFIED" if known else "ADDED"
        self._selected.discard(uid)
        return "DELETED" if known else None


def streams(informers: dict[str, Informer[Any]], agenda: Agenda, rng: random.Random) -> list[Stream]:
    """One stream for each informer; the keys are those of ``CACHES``."""
    return [Stream(informers[name], *CACHES[name], agenda, rng) for name in CACHES if name in informers]


def _everything(_: Json) -> bool:
    return True


def _launcher(pod: Json) -> bool:
    return bool(at(pod, "metadata", "labels", "kubevirt.io") == "virt-launcher")


def _placed(pod: Json) -> bool:
    return not _launcher(pod) and at(pod, "status", "phase") not in ("Succeeded", "Failed")


CACHES: dict[str, tuple[type[Any], str, Callable[[Json], bool]]] = {
    "nodes": (Node, NODE, _everything),
    "launchers": (Pod, POD, _launcher),
    "placed": (PlacedPod, POD, _placed),
    "vmis": (Vmi, VMI, _everything),
    "vmims": (Vmim, VMIM, _everything),
    "kubevirts": (KubeVirt, KUBEVIRT, _everything),
}
