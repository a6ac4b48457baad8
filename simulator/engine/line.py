"""The way between the controller and the API server, in virtual time: it takes time, and loses things."""

import random
from collections.abc import Callable, Sequence

from controller.evictions.entry import REQUEST_WITHIN
from informers.errors import NoAnswer, Unreachable
from simulator.agenda import Agenda
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.evictions import EvictionAnswer
from simulator.kubevirt.objectstore import NODE, Json, ObjectStore, at
from simulator.scenario.cluster_schema import bounds
from simulator.scenario.schema import Api

_NO_ANSWER = EvictionAnswer(0, "no answer came")


class Line:
    """Stands before control plane and store, with what the ports ask of them.

    ``api`` says what the way is like, and may be replaced at any time. ``wait`` lets so many seconds of the world pass
    while a request is under way, and the other handlers work. ``patched`` is told a node's taints before and after each
    patch. What has been sent arrives, even if whoever has sent it is no longer there. ``open_requests`` are the UIDs of
    the pods whose eviction was sent and not yet answered.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        store: ObjectStore,
        agenda: Agenda,
        rng: random.Random,
        api: Api,
        wait: Callable[[float], None],
        patched: Callable[[str, Sequence[Json], Sequence[Json]], None],
    ) -> None:
        self._control_plane = control_plane
        self._store = store
        self._agenda = agenda
        self._rng = rng
        self._wait = wait
        self._patched = patched
        self.api = api
        self.open_requests: set[str] = set()
        self.troubled_s = float("-inf")
        """When a request or an answer was last lost."""

    def evict(self, namespace: str, pod: str, uid: str, *, dry_run: bool) -> EvictionAnswer:
        """Status 0: no answer came."""
        answers: list[EvictionAnswer] = []

        def arrive() -> None:
            answers.append(
                self._control_plane.evict(
                    namespace,
                    pod,
                    dry_run=dry_run,
                    uid=uid,
                    requested_by="sigs.k8s.io/descheduler",
                    asked_by="rebalancer",
                )
            )

        way_s = self._way_s()
        if not self._lost(self.api.lost_request_probability):
            if way_s > 0:
                self._agenda.after(way_s, arrive)
            else:
                arrive()
        if not dry_run:
            self.open_requests.add(uid)
        try:
            if way_s > 0:
                self._wait(min(2 * way_s, REQUEST_WITHIN.total_seconds()))
        finally:
            self.open_requests.discard(uid)
        in_time = bool(answers) and 2 * way_s <= REQUEST_WITHIN.total_seconds()
        if self._lost(self.api.lost_answer_probability) or not in_time:
            self.troubled_s = self._agenda.now_s
            return _NO_ANSWER
        return answers[0]

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """An object as it is now. Raises ``Unreachable``."""
        if self._lost(self.api.lost_request_probability):
            raise Unreachable("connection refused")
        return self._store.get(kind, namespace, name)

    def replace_taints(self, node: str, expected_resource_version: str, taints: list[Json]) -> bool:
        """As of the control plane. Raises ``Unreachable``, or ``NoAnswer``, though it was carried out."""
        if self._lost(self.api.lost_request_probability):
            raise Unreachable("connection refused")
        before = at(self._store.get(NODE, "", node) or {}, "spec", "taints") or ()
        done = self._control_plane.replace_taints(node, expected_resource_version, taints)
        self._patched(node, before, at(self._store.get(NODE, "", node) or {}, "spec", "taints") or ())
        if self._lost(self.api.lost_answer_probability):
            raise NoAnswer("no answer came")
        return done

    def _way_s(self) -> float:
        """Nothing is drawn where nothing is asked for: then a run is what it is without a line."""
        shortest_s, longest_s = bounds(self.api.answer_seconds)
        return self._rng.uniform(shortest_s, longest_s) / 2 if longest_s > 0 else 0.0

    def _lost(self, probability: float) -> bool:
        lost = probability > 0 and self._rng.random() < probability
        if lost:
            self.troubled_s = self._agenda.now_s
        return lost
