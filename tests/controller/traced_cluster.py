"""A controlled cluster whose descheduler is traced, and may be started anew in the middle of everything."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from controller.cluster.metadata import ObjectMeta
from controller.cluster.objects import ANNOTATION_EVACUATION_MIGRATION, MigrationState, PhaseTransition, Vmim
from controller.descheduler import Descheduler
from controller.telemetry.fanout import DescheduleFanout
from controller.telemetry.spans import Span
from controller.telemetry.tracing import Tracer
from tests.builders import node
from tests.controller.controlled_cluster import ControlledCluster
from tests.controller.decision_builders import MINUTE, SECOND

FAILED_EARLY = ["migration/pending", "migration/scheduling"]


class TracedCluster(ControlledCluster):
    """VMIMs carry the times of their phases, as KubeVirt's do. ``spans`` is what all starts together have told."""

    def __init__(self, *vms: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.spans: list[Span] = []
        self.starts = 0
        self.killed_at: datetime | None = None
        for name in vms:
            self.add_vm(name)
        self.restart()

    def standby(self) -> Tracer:
        """The tracer of another process, which is there already and does nothing yet."""
        return Tracer(
            self.caches, self.clock, self.spans.append, f"replica-{self.starts}", lambda: self.killed_at
        )

    def restart(self, tracer: Tracer | None = None) -> None:
        """A fresh process on the same cluster, or one that stood by; the one before has told its last."""
        self.killed_at = self.clock.now() if self.starts else None
        self.starts += 1
        self.tracer = tracer or self.standby()
        self.descheduler = Descheduler(
            self.caches,
            self.metrics,
            self.api,
            DescheduleFanout(self.clock, self.observer, self.tracer),
            lambda: self.policy,
            self.clock,
        )
        self.start()

    def attempt(
        self,
        name: str,
        phase: str,
        *,
        number: int = 1,
        target: str = "",
        failure: str = "",
        begun: datetime | None = None,
        noted_end: bool = True,
    ) -> Vmim:
        """``begun``: when KubeVirt's clock says that it entered the phase. How it went is noted a little later."""
        uid, now = f"vmim-{name}-{number}", begun or self.clock.now()
        before = self.caches.vmims.lister.get("vms", f"m-{name}-{number}")
        noted = before.phase_transition_timestamps if before is not None else ()
        created = before.metadata.creation_timestamp if before is not None else now
        state = MigrationState(
            source_node=self._node_of(name),
            target_node=target,
            migration_uid=uid,
            failure_reason=failure,
            end_timestamp=now if phase in ("Succeeded", "Failed") and noted_end else None,
        )
        migration = Vmim(
            metadata=ObjectMeta(
                name=f"m-{name}-{number}",
                namespace="vms",
                uid=uid,
                resource_version=self._next(),
                creation_timestamp=created,
                annotations={ANNOTATION_EVACUATION_MIGRATION: self._node_of(name)},
            ),
            vmi_name=name,
            priority="system-maintenance",
            phase=phase,
            phase_transition_timestamps=(*noted, PhaseTransition(phase, now)),
            migration_state=state,
        )
        self.caches.vmims.apply("MODIFIED", migration)
        return migration

    def add_idle(self, name: str) -> None:
        self.caches.nodes.apply("ADDED", node(name))

    def add_hot(self, name: str) -> None:
        self.heat(name)
        self.caches.nodes.apply("ADDED", node(name))

    def clear_note(self, name: str) -> None:
        """As KubeVirt does once the VM has arrived."""
        self._change(name, annotations={})

    def remove_pod(self, name: str) -> None:
        pod = self.caches.launchers.lister.get("vms", name)
        assert pod is not None
        self.caches.launchers.apply("DELETED", pod)

    def drain(self, name: str, target: str = "node-9") -> None:
        """Somebody else has it migrated, with the priority that goes with it."""
        self.mark(name, ours=False)
        for phase in ("Pending", "Running"):
            self._drained(self.attempt(name, phase))
            self.pass_time(timedelta(seconds=1))
        self.arrive(name, target)
        self._drained(self.attempt(name, "Succeeded", target=target))
        self.work()

    def _drained(self, migration: Vmim) -> None:
        metadata = msgspec.structs.replace(migration.metadata, resource_version=self._next())
        changed = msgspec.structs.replace(migration, metadata=metadata, priority="system-critical")
        self.caches.vmims.apply("MODIFIED", changed)

    # --- what was told ---

    def told(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        (span,) = self.told(name)
        return span

    @property
    def evictions(self) -> list[Span]:
        """All spans of evictions' traces."""
        rounds = {span.trace_id for span in self.told("round")}
        return [span for span in self.spans if span.trace_id not in rounds]


def names(spans: list[Span]) -> list[str]:
    return sorted(span.name for span in spans)


def by_id(spans: list[Span]) -> Mapping[tuple[int, int], Span]:
    return {(span.trace_id, span.span_id): span for span in spans}


def migrate(cluster: TracedCluster, name: str = "vm-1", *, number: int = 1) -> None:
    """All phases, a second each, and then the metrics show it."""
    for phase in ("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"):
        cluster.attempt(name, phase, number=number, target="node-9")
        cluster.pass_time(SECOND)
    cluster.arrive(name, number=number)
    cluster.pass_time(5 * MINUTE)


def fail(cluster: TracedCluster, number: int = 1, *, failure: str = "") -> None:
    for phase in ("Pending", "Scheduling", "Failed"):
        cluster.attempt("vm-1", phase, number=number, failure=failure)
        cluster.pass_time(SECOND)


def evicted() -> TracedCluster:
    """The request was accepted a second ago."""
    cluster = TracedCluster("vm-1")
    cluster.pass_time(SECOND)
    cluster.mark("vm-1")
    return cluster


def until_asked_again(cluster: TracedCluster) -> None:
    """A VM rests after an eviction that moved nothing."""
    before = len(cluster.api.evicted)
    while len(cluster.api.evicted) == before:
        cluster.pass_time(MINUTE)
