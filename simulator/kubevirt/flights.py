"""A migration on its way: what virt-controller, virt-handler and libvirt do from its target pod to its final phase.

Phases: target pod created (Scheduling), ready (Scheduled), handed over by the VMI's migrationState (PreparingTarget),
prepared (TargetReady), copying (Running). Then the guest runs on the target, and one after the other: the VMI's
nodeName moves and its mark goes; its migrationState gets the end; its active pods change; the source pod completes; the
VMIM is Succeeded; the VMIM gets a copy of migrationState.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.kubevirt import manifests
from simulator.kubevirt.copying import Copy, Copying
from simulator.kubevirt.manifests import EVICTION_SOURCE, MIGRATION_TARGET, NODE_NAME
from simulator.kubevirt.objectstore import REMOVE, VMIM, Json, Path, at
from simulator.kubevirt.options import Range
from simulator.kubevirt.plane import Plane, Vm
from simulator.kubevirt.pods import Pods
from simulator.record import MigrationRecord

PHASES = (
    "",
    "Pending",
    "Scheduling",
    "Scheduled",
    "PreparingTarget",
    "TargetReady",
    "Running",
    "Succeeded",
    "Failed",
)
_UNSCHEDULABLE_S = 300.0
_PENDING_S = 900.0

Stage = Literal["waiting", "going", "arriving", "failing", "over"]
"""Arriving: the guest runs on the target. Failing: it stays on the source, and the API does not say so yet."""
_STATE: Path = ("status", "migrationState")


@dataclass(slots=True, eq=False)
class Migration:
    """A VMIM and what KubeVirt knows about it."""

    vm: Vm
    vmi_uid: str
    name: str
    uid: str
    priority: int
    evacuation: bool
    source: str
    record: MigrationRecord
    stage: Stage = "waiting"
    phase: str = ""
    accepted: bool = False
    """It is Pending, so it may be given a slot."""
    not_before_s: float = 0.0
    target_pod: str = ""
    target: str = ""
    handed_over: bool = False
    """The VMI's migrationState is this migration's."""
    copy: Copy | None = None
    deleted: bool = False
    """The VMIM's deletion was asked for."""


class Flights:
    """Moves migrations from step to step. A step that was planned in an earlier stage does not happen."""

    def __init__(self, plane: Plane, pods: Pods, copying: Copying) -> None:
        self._plane = plane
        self._pods = pods
        self._copying = copying
        self.on_final: Callable[[Migration], None] = lambda _: None

    def begin(self, migration: Migration) -> None:
        """Create the target pod, and go on from there."""
        vm = migration.vm
        source_pod = self._plane.pod(vm, vm.pod)
        vmim = self._plane.store.get(VMIM, vm.spec.namespace, migration.name)
        if source_pod is None or vmim is None:
            return
        migration.stage = "going"
        name = self._plane.new_launcher_name(vm)
        migration.target_pod = name
        vm.pods[name] = None
        pod = manifests.migration_target(vm.spec, name, vmim, source_pod, self._plane.node(migration.source))
        self._pods.start(
            pod, lambda bound: self._placed(migration, bound), lambda ready: self._ready(migration, ready)
        )
        soon = self._plane.options.reaction_s
        self._then(migration, [(soon, lambda: self.enter(migration, "Scheduling"))])
        self._plane.agenda.after(_UNSCHEDULABLE_S, lambda: self._still_pending(migration, placed=False))
        self._plane.agenda.after(_PENDING_S, lambda: self._still_pending(migration, placed=True))

    def fail(self, migration: Migration, reason: str) -> None:
        """The migration has failed, for a reason in words. Nothing happens if it is too late for that."""
        vm = migration.vm
        if migration.stage == "waiting" or (migration.stage == "arriving" and vm.going_down):
            self._then_end(migration, reason)
        if migration.stage != "going":
            return
        self._stop_copy(migration)
        self._let_go_of_target(migration)
        migration.stage = "failing"
        if migration.handed_over:
            self._then(
                migration, [(self._plane.options.reaction_s, lambda: self._tell_failure(migration, reason))]
            )
        else:
            self._then_end(migration, reason)

    def cancel(self, migration: Migration) -> None:
        """Somebody has deleted the VMIM; it goes when the migration has ended, one way or the other."""
        if migration.deleted:
            return
        migration.deleted = True
        vm = migration.vm
        when: Path = ("metadata", "deletionTimestamp")
        self._plane.store.update(VMIM, vm.spec.namespace, migration.name, {when: self._plane.now_text()})
        soon = self._plane.options.reaction_s
        if migration.stage == "waiting":
            self._then(
                migration, [(soon, lambda: self.fail(migration, "Migration failed due to being canceled"))]
            )
        elif migration.stage == "going":
            self._then(
                migration,
                [
                    (soon, lambda: self._change_state(migration, {"abortRequested": True})),
                    (soon, lambda: self.fail(migration, "Live migration aborted")),
                ],
            )

    def end(self, migration: Migration, reason: str) -> None:
        """Give the VMIM its final phase: Succeeded without a reason, else Failed."""
        if migration.stage == "over":
            return
        self._stop_copy(migration)
        migration.stage = "over"
        self.enter(migration, "Failed" if reason else "Succeeded")
        record = migration.record
        record.ended_s = self._plane.agenda.now_s
        record.failure = reason
        record.outcome = "Succeeded" if not reason else "Cancelled" if migration.deleted else "Failed"
        self.on_final(migration)

    def enter(self, migration: Migration, phase: str) -> None:
        """Set the VMIM's phase; it never goes back."""
        vm = migration.vm
        vmim = self._plane.store.get(VMIM, vm.spec.namespace, migration.name)
        if PHASES.index(phase) <= PHASES.index(migration.phase) or vmim is None:
            return
        migration.phase = phase
        migration.record.phases.append((self._plane.agenda.now_s, phase))
        transition = {"phase": phase, "phaseTransitionTimestamp": self._plane.now_text()}
        transitions = [*(at(vmim, "status", "phaseTransitionTimestamps") or []), transition]
        changes: dict[Path, object] = {
            ("status", "phase"): phase,
            ("status", "phaseTransitionTimestamps"): transitions,
        }
        self._plane.store.update(VMIM, vm.spec.namespace, migration.name, changes)

    def keep_state(self, migration: Migration) -> None:
        """Copy the VMI's migrationState into the finished VMIM, if it is this migration's."""
        vm = migration.vm
        state = at(self._plane.vmi(vm) or {}, *_STATE) or {}
        vmim = self._plane.store.get(VMIM, vm.spec.namespace, migration.name)
        if vmim is not None and state.get("migrationUid") == migration.uid:
            self._plane.store.update(VMIM, vm.spec.namespace, migration.name, {_STATE: state})

    # On the way

    def _placed(self, migration: Migration, pod: Json) -> None:
        if migration.stage == "going":
            migration.target = migration.record.target = pod["spec"]["nodeName"]

    def _ready(self, migration: Migration, pod: Json) -> None:
        if migration.stage != "going":
            return
        if migration.vm.hotplug:
            self._pods.attach_hotplug(migration.vm, pod)
        soon = self._plane.options.reaction_s
        self._then(
            migration,
            [
                (soon, lambda: self.enter(migration, "Scheduled")),
                (soon, lambda: self._hand_over(migration)),
                (soon, lambda: self.enter(migration, "PreparingTarget")),
                (self._plane.options.prepare_s, lambda: self.enter(migration, "TargetReady")),
                (soon, lambda: self._start_copy(migration)),
                (soon, lambda: self.enter(migration, "Running")),
            ],
        )

    def _hand_over(self, migration: Migration) -> None:
        vm = migration.vm
        migration.handed_over = True
        state = {
            "migrationUid": migration.uid,
            "sourceNode": migration.source,
            "sourcePod": vm.pod,
            "targetNode": migration.target,
            "targetPod": migration.target_pod,
        }
        label: Path = ("metadata", "labels", MIGRATION_TARGET)
        self._plane.change_vmi(vm, {_STATE: state, label: migration.target})

    def _start_copy(self, migration: Migration) -> None:
        vm = migration.vm
        if not vm.node:
            self.fail(migration, "Live migration failed: domain is not running")
            return
        self._change_state(migration, {"mode": "PreCopy", "startTimestamp": self._plane.now_text()})
        migration.record.started_s = self._plane.agenda.now_s

        def done(reason: str) -> None:
            migration.copy = None
            if reason:
                self.fail(migration, reason)
            else:
                self._arrive(migration)

        migration.copy = self._copying.start(vm.spec, vm.node, migration.target, done)

    def _still_pending(self, migration: Migration, *, placed: bool) -> None:
        """The target pod's time is up, if it has not been placed, or with ``placed`` if it is not ready."""
        vm = migration.vm
        pod = self._plane.pod(vm, migration.target_pod)
        if migration.stage != "going" or pod is None or pod["status"]["phase"] != "Pending":
            return
        where = f"pod {vm.spec.namespace}/{migration.target_pod} timeout period exceeded"
        if "nodeName" not in pod["spec"]:
            conditions = at(pod, "status", "conditions") or []
            words = " ".join(condition.get("message", "") for condition in conditions)
            self.fail(migration, f"unschedulable {where}: {words}")
        elif placed:
            self.fail(migration, f"pending {where}")

    # The end

    def _arrive(self, migration: Migration) -> None:
        vm = migration.vm
        source_pod = vm.pod
        migration.stage = "arriving"
        self._plane.world.move_vm(vm.key, migration.target)
        vm.node, vm.pod = migration.target, migration.target_pod
        soon = self._plane.options.reaction_s
        self._then(
            migration,
            [
                (self._plane.options.switch_over_s, lambda: self._tell_arrival(migration)),
                (soon, lambda: self._change_state(migration, self._ended())),
                (soon, lambda: self._tell_active_pod(migration)),
                (soon, lambda: self._complete(vm, source_pod, stays=False)),
                (soon, lambda: self.end(migration, "")),
            ],
        )

    def _tell_arrival(self, migration: Migration) -> None:
        self.enter(migration, "Running")
        changes: dict[Path, object] = {
            ("metadata", "labels", NODE_NAME): migration.target,
            ("metadata", "annotations", EVICTION_SOURCE): REMOVE,
            ("status", "nodeName"): migration.target,
            ("status", "evacuationNodeName"): REMOVE,
        }
        self._plane.change_vmi(migration.vm, changes)

    def _tell_active_pod(self, migration: Migration) -> None:
        pod = self._plane.pod(migration.vm, migration.target_pod)
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        changes: dict[Path, object] = {
            ("metadata", "labels", MIGRATION_TARGET): REMOVE,
            ("status", "activePods"): {uid: migration.target},
            ("status", "activePodUID"): uid,
        }
        self._plane.change_vmi(migration.vm, changes)

    def _tell_failure(self, migration: Migration, reason: str) -> None:
        aborted = {"abortRequested": True, "abortStatus": "Succeeded"} if migration.deleted else {}
        failed = {**self._ended(), "failed": True, "failureReason": reason, **aborted}
        self._change_state(migration, failed)
        if self._vmi_is_there(migration):
            self._plane.change_vmi(migration.vm, {("metadata", "labels", MIGRATION_TARGET): REMOVE})
        self._then_end(migration, reason)

    def _then_end(self, migration: Migration, reason: str) -> None:
        migration.stage = "failing"
        self._then(migration, [(self._plane.options.reaction_s, lambda: self.end(migration, reason))])

    def _let_go_of_target(self, migration: Migration) -> None:
        vm = migration.vm
        pod = self._plane.pod(vm, migration.target_pod)
        if pod is None or pod["status"]["phase"] == "Pending":
            self._pods.delete(vm.spec.namespace, migration.target_pod)
            return
        stays = self._plane.rng.random() < self._plane.options.failed_target_stays_probability
        self._plane.soon(lambda: self._complete(vm, migration.target_pod, stays=stays))

    def _complete(self, vm: Vm, pod: str, *, stays: bool) -> None:
        """A launcher that has no guest any more ends by itself."""
        namespace = vm.spec.namespace
        self._pods.complete(namespace, pod)
        self._pods.remove_hotplug(vm, pod)
        if not stays:
            self._pods.delete_later(namespace, pod)

    def _stop_copy(self, migration: Migration) -> None:
        if migration.copy is not None:
            self._copying.stop(migration.copy)
            migration.copy = None

    def _ended(self) -> Json:
        return {"completed": True, "endTimestamp": self._plane.now_text()}

    def _change_state(self, migration: Migration, values: Json) -> None:
        """Set fields of the VMI's migrationState, if it is this migration's."""
        if migration.handed_over and self._vmi_is_there(migration):
            self._plane.change_vmi(migration.vm, {(*_STATE, key): value for key, value in values.items()})

    def _vmi_is_there(self, migration: Migration) -> bool:
        return migration.vm.uid == migration.vmi_uid and self._plane.vmi(migration.vm) is not None

    def _then(self, migration: Migration, steps: Sequence[tuple[Range, Callable[[], None]]]) -> None:
        """Plan steps one after the other, each after its delay, for as long as the stage stays what it is."""
        stage = migration.stage

        def run(position: int) -> None:
            if migration.stage != stage:
                return
            steps[position][1]()
            if position + 1 < len(steps):
                self._plane.after(steps[position + 1][0], lambda: run(position + 1))

        self._plane.after(steps[0][0], lambda: run(0))
