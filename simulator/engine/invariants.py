"""What must never happen in a run, checked all along against the world's truth."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NoReturn

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import Node, Pod, Vmi, Vmim
from controller.evictions.entry import AWAITING_SIGN, REQUEST_WITHIN, Entry, Phase
from controller.evictions.views import LedgerView
from controller.policy.model import Mode, Policy
from controller.taints.desired import EFFECT, PREFIX
from informers.informer import Informer
from informers.store import Change
from informers.workqueue import WorkQueueStatistics
from simulator.agenda import Agenda, to_wall_time
from simulator.engine.cached import CachedObjects
from simulator.engine.ports import BrokenInvariant
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.objectstore import VMI, Json, ObjectStore, at

_GRACE = timedelta(seconds=10)
_SETTLES_WITHIN = timedelta(minutes=5, seconds=10)
"""Prometheus goes on giving the last sample of a series for so long; after that the node has none."""
_BACK_OFF = timedelta(seconds=60)
"""The longest after a handler raised until it is called again."""
_API_SECOND_S = 2.0
"""API times are whole seconds, rounded down, at both ends of a duration."""


class Knowledge:
    """What one program can know, from what its caches have shown since its start, and from nowhere else.

    ``complete_s`` says up to when they show everything that has happened.
    """

    def __init__(self, caches: ClusterCaches, complete_s: Callable[[], float]) -> None:
        self.complete_s = complete_s
        self.kubevirts = caches.kubevirts.lister
        self.names: set[object] = set()
        """Of all nodes and VMs that there ever were: each may have a key in the queue."""
        self.succeeded: set[str] = set()
        """UIDs of VMIMs that were seen to have succeeded."""
        caches.nodes.add_handler(self._node, lambda _: None)
        caches.vmis.add_handler(self._vmi, lambda _: None)
        caches.vmims.add_handler(self._vmim, lambda _: None)

    def _node(self, change: Change[Node]) -> tuple[()]:
        self.names.update(("", node.name) for node in (change.new, change.old) if node is not None)
        return ()

    def _vmi(self, change: Change[Vmi]) -> tuple[()]:
        vmi = change.new
        if vmi is not None:
            self.names.add((vmi.namespace, vmi.name))
            state = vmi.migration_state
            if state is not None and state.completed and not state.failed and state.end_timestamp is not None:
                self.succeeded.add(state.migration_uid)
        return ()

    def _vmim(self, change: Change[Vmim]) -> tuple[()]:
        migration = change.new
        if migration is not None:
            self.names.add((migration.metadata.namespace, migration.vmi_name))
            if migration.phase == "Succeeded":
                self.succeeded.add(migration.metadata.uid)
        return ()


class Invariants:
    """Limits hold, no VM is shut down by an eviction of ours, none is asked to move twice or inside its cool-down,
    every entry ends, Predictive writes nothing, others' taints and cached objects stay as they are, the queue stays
    small.
    """

    def __init__(
        self, policy: Policy, control_plane: ControlPlane, store: ObjectStore, agenda: Agenda, repeat: str
    ) -> None:
        self._policy = policy
        self._policy_since_s = 0.0
        self._control_plane = control_plane
        self._store = store
        self._agenda = agenda
        self._repeat = repeat
        self._knowledge = Knowledge(ClusterCaches(), lambda: 0.0)  # nobody has started: nothing is known
        self._cached: dict[str, CachedObjects] = {}
        self._open_requests: set[str] = set()
        self._evicted: dict[str, Pod] = {}
        self._metrics_failed_at: datetime | None = None

    def know(self, caches: ClusterCaches, complete_s: Callable[[], float], open_requests: set[str]) -> None:
        """A descheduler starts, with these caches. ``open_requests``: pods whose eviction has not been answered."""
        self._knowledge = Knowledge(caches, complete_s)
        self._cached["descheduler"] = CachedObjects(caches.informers().values())
        self._open_requests = open_requests

    def know_nodes(self, nodes: Informer[Node]) -> None:
        """A soft-tainter starts, with this cache."""
        self._cached["soft-tainter"] = CachedObjects([nodes])

    def policy_changed(self, policy: Policy) -> None:
        self._policy, self._policy_since_s = policy, self._agenda.now_s

    def metrics_failed(self) -> None:
        self._metrics_failed_at = to_wall_time(self._agenda.now_s)

    # --- before something is written ---

    def asked(self, entry: Entry) -> None:
        """A request about an eviction was answered; in Predictive mode there are none, not even dry runs."""
        self._writes(f"request about {entry.pod}")

    def before_eviction(self, pod: Pod) -> None:
        """Called with the pod that is about to be evicted for real."""
        self._writes(f"eviction of {pod.metadata.name}")
        moving = list(self._moving())
        node_limit, total_limit = self._limits()
        node = {vm for vm, source, _ in moving if source == pod.node_name}
        total = {vm for vm, _, is_stuck in moving if not is_stuck}
        if len(node) >= node_limit:
            self.fail(f"{pod.metadata.name}: already {len(node)} on the move from {pod.node_name}")
        if len(total) >= total_limit:
            self.fail(f"{pod.metadata.name}: already {len(total)} VMs on the move in the cluster")
        if pod.vmi_uid in {vm for vm, _, _ in moving}:
            self.fail(f"{pod.metadata.name}: its VM is on the move already")
        self._not_too_soon(pod)
        self._evicted[pod.metadata.uid] = pod

    def before_patch(self, node: Node) -> None:
        self._writes(f"patch of node {node.name}")

    def patched(self, node: str, before: Sequence[Json], after: Sequence[Json]) -> None:
        """Its taints before and after a patch of ours: those of others stay as they are."""
        others = [[_content(t) for t in taints if not _is_ours(t)] for taints in (before, after)]
        if others[0] != others[1]:
            self.fail(f"taints of others are changed on node {node}: {others[0]} become {others[1]}")

    # --- whenever the world has moved on ---

    def after_step(self) -> None:
        """Called whenever the world has moved on."""
        if self._control_plane.shutdowns and not self._policy.evictions.allow_shutdown:
            ours = [s for s in self._control_plane.shutdowns if s.cause == "rebalancer"]
            if ours:
                self.fail(f"VM {ours[0].vm} was shut down on {ours[0].node} at {ours[0].time_s:.0f} s")

    def unchanged(self) -> None:
        """Cached objects are shared: nobody may have changed one."""
        for program, cached in self._cached.items():
            if before := cached.changed():
                self.fail(f"an object in the cache of the {program} was changed: {before!r}")

    def entries(self, ledger: LedgerView, troubled_s: float) -> None:
        """Every entry ends, or says that it is stuck: none waits for ever. ``troubled_s``: when the API last failed."""
        now = to_wall_time(self._agenda.now_s)
        since = to_wall_time(self._policy_since_s) + self._policy.metrics.refresh_interval
        if self._agenda.now_s - troubled_s < _BACK_OFF.total_seconds():
            return
        for entry in ledger.entries:
            if (until := self._ends_by(entry, since)) is not None and now > until:
                self.fail(f"{entry.vm} is {entry.phase} since {entry.changed_at:%H:%M:%S}")

    def queue(self, statistics: WorkQueueStatistics) -> None:
        """A key for each node and VM at most, and those for the whole cluster."""
        names = len(self._knowledge.names)
        waiting = statistics.ready + statistics.delayed
        if waiting > 2 * (names + 2):
            self.fail(f"{waiting} keys are queued, for {names} nodes and VMs")

    def fail(self, what: str) -> NoReturn:
        """Raises ``BrokenInvariant``."""
        raise BrokenInvariant(f"at {self._agenda.now_s:.1f} s: {what}\nrepeat it with: {self._repeat}")

    # --- how ---

    def _ends_by(self, entry: Entry, since: datetime) -> datetime | None:
        evictions = self._policy.evictions
        if entry.phase is Phase.SETTLING:
            since = max(since, self._metrics_failed_at or since, entry.ended_at or entry.changed_at)
            rounds = 2 * self._policy.metrics.refresh_interval
            return since + self._policy.effective_settle + _SETTLES_WITHIN + rounds + _GRACE
        if entry.phase is Phase.STUCK:
            return None
        limit = evictions.migration_timeout
        if entry.phase in AWAITING_SIGN:  # counted from the answer, and dry run and request have their time
            limit = 2 * REQUEST_WITHIN + evictions.acknowledge_timeout
        return max(since, entry.opened_at) + limit + _GRACE

    def _limits(self) -> tuple[int, int]:
        """Per node and in all: the policy's, but no more than KubeVirt's own."""
        limits = self._policy.evictions.limits
        nodes, total = [limits.node], [limits.total]
        for kubevirt in self._knowledge.kubevirts.list():
            nodes.append(kubevirt.parallel_outbound_migrations_per_node)
            total.append(kubevirt.parallel_migrations_per_cluster)
        return min(nodes), min(total)

    def _moving(self) -> Iterator[tuple[str, str, bool]]:
        """(VMI UID, source, whether it has taken too long) of what the controller must know to be on the move.

        Ours at once; others' only once it could have seen them. One that takes too long counts on its node only.
        """
        complete_s = self._knowledge.complete_s()
        timeout_s = self._policy.evictions.migration_timeout.total_seconds() - 1.0
        for pod in self._on_their_way():
            yield pod.vmi_uid, pod.node_name, False
        began: dict[str, float] = {}
        for migration in self._control_plane.migrations:
            if migration.attempt == 1:
                began[migration.vmi_uid] = migration.created_s
            if migration.outcome:
                continue
            seen = migration.created_s < complete_s
            if seen or migration.asked_by != "other":
                age_s = self._agenda.now_s - began.get(migration.vmi_uid, migration.created_s)
                yield migration.vmi_uid, migration.source, age_s >= timeout_s

    def _on_their_way(self) -> Iterator[Pod]:
        """Pods that we have asked to evict: the request is under way, or it has marked the VMI."""
        under_way = {m.vmi_uid for m in self._control_plane.migrations if not m.outcome}
        for uid, pod in list(self._evicted.items()):
            vmi = self._store.get(VMI, pod.metadata.namespace, pod.vmi_name)
            is_marked = (
                vmi is not None
                and vmi["metadata"]["uid"] == pod.vmi_uid
                and at(vmi, "status", "phase") not in ("Succeeded", "Failed")  # it has stopped, mark and all
                and at(vmi, "status", "evacuationNodeName") == pod.node_name
            )
            if uid in self._open_requests or (is_marked and pod.vmi_uid not in under_way):
                yield pod
            elif not is_marked:
                del self._evicted[uid]

    def _not_too_soon(self, pod: Pod) -> None:
        """Not while it rests from moves that the controller has seen, whoever asked for them."""
        moves = sorted(
            (m.ended_s, m.ended_s - m.created_s)
            for m in self._control_plane.migrations
            if m.vmi_uid == pod.vmi_uid and m.vmim_uid in self._knowledge.succeeded and m.ended_s is not None
        )
        cooldown, now_s = self._policy.evictions.cooldown, self._agenda.now_s
        moves = [move for move in moves if move[0] > now_s - cooldown.window.total_seconds() + _API_SECOND_S]
        if not moves:
            return
        ended_s, took_s = moves[-1]
        doubled_s = cooldown.base.total_seconds() * 2.0 ** (len(moves) - 1)
        rest_s = max(min(doubled_s, cooldown.max.total_seconds()), took_s)
        if now_s < ended_s + rest_s - _API_SECOND_S:
            self.fail(f"{pod.metadata.name}: its VM moved at {ended_s:.1f} s and rests for {rest_s:.0f} s")

    def _writes(self, what: str) -> None:
        if self._policy.mode is Mode.PREDICTIVE:
            self.fail(f"{what} in Predictive mode")


def _is_ours(taint: Json) -> bool:
    return bool(taint["effect"] == EFFECT and taint["key"].startswith(f"{PREFIX}/"))


def _content(taint: Json) -> tuple[str, str, str]:
    """All that the patches of a simulated cluster carry: in place of the list, not by position as the real ones."""
    return taint["key"], taint.get("value", ""), taint["effect"]
