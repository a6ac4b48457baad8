"""A simulated cluster whose time is real time, times a speed.

One thread owns it. Whoever has something to do with the cluster does it through `LiveCluster.do`, which first brings
the world up to now; in between somebody has to call `catch_up` when something is due. All of it runs in a context
with the cluster's own calendar, so that objects carry the time of day, and times are as short as the speed makes them.
"""

import contextvars
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from informers.clock import Clock
from simulator.agenda import CALENDAR, Calendar
from simulator.build import Simulation, build
from simulator.kubevirt.objectstore import EVENT, NAMESPACE, RESOURCES, ObjectStore, WatchEvent
from simulator.scenario.schema import Scenario

SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_EVENTS_KEPT_S = 3600.0
"""How long Events live (``--event-ttl``), in the world's seconds."""
_LOOK_FOR_OLD_EVENTS_S = 60.0

T = TypeVar("T")


class LiveCluster:
    """Raises ``ScenarioErrors`` when the scenario cannot be built."""

    def __init__(self, scenario: Scenario, seed: int, speed: float, clock: Clock, namespace: str) -> None:
        """``speed``: seconds of the world for each real one. ``namespace``: one more that exists from the start."""
        self.speed = speed
        self._clock = clock
        self._started_at = clock.now()
        self._context = contextvars.copy_context()
        self._set_calendar(self._started_at)
        self.simulation: Simulation = self._context.run(build, scenario, seed)
        self._started_s = clock.monotonic()
        self._context.run(self._prepare, namespace)

    def do(self, action: Callable[[], T]) -> T:
        """Do something to the cluster as it is now."""
        self.catch_up()
        return self._context.run(action)

    def catch_up(self) -> None:
        """Let all happen that is due."""
        world_s = (self._clock.monotonic() - self._started_s) * self.speed
        self._context.run(self.simulation.agenda.run_until, world_s)

    def next_due_in_s(self) -> float | None:
        """Real seconds until something happens by itself; ``None``: nothing is planned."""
        due_s = self.simulation.agenda.next_due()
        if due_s is None:
            return None
        passed_s = self._clock.monotonic() - self._started_s
        return max(due_s / self.speed - passed_s, 0.0)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        """The time of day that the cluster's clocks show."""
        return self._calendar.start + timedelta(seconds=self.simulation.agenda.now_s / self.speed)

    def set_clock_offset(self, offset: timedelta) -> None:
        """Put the cluster's clocks ahead of (or behind) real time, from now on."""
        self._set_calendar(self._started_at + offset)

    def _set_calendar(self, start: datetime) -> None:
        self._calendar = Calendar(start, self.speed)
        self._context.run(CALENDAR.set, self._calendar)

    def _prepare(self, namespace: str) -> None:
        store = self.simulation.store
        objects = [obj for kind in RESOURCES for obj in store.list(kind)]
        used = [obj["metadata"].get("namespace", "") for obj in objects]
        for name in dict.fromkeys((*SYSTEM_NAMESPACES, namespace, *used)):
            _create_namespace(store, name)
        store.subscribe(lambda event: _follow_namespaces(store, event))
        self.simulation.agenda.every(_LOOK_FOR_OLD_EVENTS_S, self._drop_old_events)

    def _drop_old_events(self) -> None:
        store, oldest = self.simulation.store, self.now() - timedelta(seconds=_EVENTS_KEPT_S / self.speed)
        for event in store.list(EVENT):
            metadata = event["metadata"]
            if datetime.fromisoformat(metadata["creationTimestamp"]) < oldest:
                store.delete(EVENT, metadata["namespace"], metadata["name"])


def _follow_namespaces(store: ObjectStore, event: WatchEvent) -> None:
    """The world starts VMs in namespaces that nobody has created."""
    if event.type == "ADDED" and event.kind != NAMESPACE:
        _create_namespace(store, event.object["metadata"].get("namespace", ""))


def _create_namespace(store: ObjectStore, name: str) -> None:
    if name and store.get(NAMESPACE, "", name) is None:
        labels = {"kubernetes.io/metadata.name": name}
        store.create(
            NAMESPACE,
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"labels": labels, "name": name},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )
