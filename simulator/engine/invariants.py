"""What must never happen in a run, checked all along against the world's truth."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from controller.cluster.objects import Node, Pod
from controller.evictions.entry import AWAITING_SIGN, Phase
from controller.evictions.views import LedgerView
from controller.policy.model import Mode, Policy
from informers.store import Lister
from simulator.agenda import Agenda, to_wall_time
from simulator.engine.ports import BrokenInvariant
from simulator.engine.watches import MOST_LAG_S
from simulator.kubevirt.control_plane import ControlPlane
from simulator.record import MigrationRecord

_GRACE = timedelta(seconds=10)


class Invariants:
    """Limits hold, no VM is shut down by an eviction of ours, Predictive writes nothing, cached objects stay as they
    came."""

    def __init__(self, policy: Policy, control_plane: ControlPlane, agenda: Agenda, repeat: str) -> None:
        self._policy = policy
        self._control_plane = control_plane
        self._agenda = agenda
        self._repeat = repeat
        self._seen: dict[int, tuple[object, bytes]] = {}

    def before_eviction(self, pod: Pod) -> None:
        """Called with the pod that is about to be evicted for real."""
        self._writes(f"eviction of {pod.metadata.name}")
        moving = [m for m in self._control_plane.migrations if self._counts(m)]
        limits = self._policy.evictions.limits
        node = [m for m in moving if m.source == pod.node_name]
        if len({m.vm for m in node}) >= limits.node:
            self._fail(f"{pod.metadata.name}: already {len(node)} on the move from {pod.node_name}")
        if len({m.vm for m in moving}) >= limits.total:
            self._fail(f"{pod.metadata.name}: already {len(moving)} VMs on the move in the cluster")

    def before_patch(self, node: Node) -> None:
        self._writes(f"patch of node {node.name}")

    def after_step(self) -> None:
        """Called whenever the world has moved on."""
        if self._control_plane.shutdowns and not self._policy.evictions.allow_shutdown:
            ours = [s for s in self._control_plane.shutdowns if s.cause == "rebalancer"]
            if ours:
                self._fail(f"VM {ours[0].vm} was shut down on {ours[0].node} at {ours[0].time_s:.0f} s")

    def watch(self, listers: Iterable[Lister[Any]]) -> None:
        """Remember what the cached objects look like now."""
        for lister in listers:
            for obj in lister.list():
                self._seen.setdefault(id(obj), (obj, msgspec.json.encode(obj, order="deterministic")))

    def unchanged(self) -> None:
        """Cached objects are shared: nobody may have changed one."""
        for obj, before in self._seen.values():
            if msgspec.json.encode(obj, order="deterministic") != before:
                self._fail(f"a cached object was changed: {before[:200]!r}")

    def entries(self, ledger: LedgerView) -> None:
        """Every entry ends, or says that it is stuck: none waits for ever for a sign or an end."""
        evictions, now = self._policy.evictions, to_wall_time(self._agenda.now_s)
        for entry in ledger.entries:
            limit = (
                evictions.acknowledge_timeout if entry.phase in AWAITING_SIGN else evictions.migration_timeout
            )
            waiting = entry.in_flight and entry.phase is not Phase.STUCK
            if waiting and now - entry.opened_at > limit + _GRACE:
                self._fail(f"{entry.vm} is {entry.phase} since {entry.opened_at:%H:%M:%S}")

    def _writes(self, what: str) -> None:
        if self._policy.mode is Mode.PREDICTIVE:
            self._fail(f"{what} in Predictive mode")

    def _counts(self, migration: MigrationRecord) -> bool:
        """Ours at once; others' only once the controller could have seen them. A stuck one counts no more."""
        if migration.outcome:
            return False
        age_s = self._agenda.now_s - migration.created_s
        # API times are whole seconds, rounded down: for the controller it began up to one second earlier.
        timeout_s = self._policy.evictions.migration_timeout.total_seconds() - 1.0
        return age_s < timeout_s and (migration.asked_by != "other" or age_s > 2 * MOST_LAG_S)

    def _fail(self, what: str) -> None:
        raise BrokenInvariant(f"at {self._agenda.now_s:.1f} s: {what}\nrepeat it with: {self._repeat}")
