"""The migration controller: which VMIMs exist, which of them may go ahead, and what is left of them.

Waiting VMIMs are taken by priority, then age, as long as slots are free: a migration holds its slot from the creation
of its target pod until its final phase. Evacuations wait out a back-off after failed ones: 20 s, doubling with each
failed one that is still there, and only the newest five finished VMIMs of a VMI are. What happens to a migration
that may go ahead stands in `flights`.
"""

from collections.abc import Callable

from simulator.agenda import Handle
from simulator.kubevirt import manifests
from simulator.kubevirt.flights import Flights, Migration
from simulator.kubevirt.manifests import APP, LAUNCHER
from simulator.kubevirt.objectstore import KUBEVIRT, VMIM, ApiError, Json, NotFound, WatchEvent, at
from simulator.kubevirt.plane import Finished, Plane, Vm, is_finished, is_live_migratable
from simulator.record import AskedBy, MigrationRecord

PRIORITIES = {"system-critical": 100, "user-triggered": 50, "system-maintenance": 20}
"""KubeVirt's migration priorities; higher goes first."""
_HELD_BY_BACKUP = PRIORITIES["system-maintenance"]
_FIRST_BACKOFF_S = 20.0
_KEPT_FINISHED = 5


class Refused(ApiError):  # noqa: N818  the API's wording
    """KubeVirt's admission webhook does not let a migration be created."""

    status = 403
    reason = "Forbidden"


class Migrations:
    """All VMIMs. `on_end` is called when one has reached its final phase, `on_attempt` when its target pod exists."""

    def __init__(self, plane: Plane, flights: Flights) -> None:
        self._plane = plane
        self._flights = flights
        self._unfinished: dict[str, Migration] = {}
        """By VMI UID (KubeVirt allows one per VMI); oldest first."""
        self._look_again: Handle | None = None
        self.on_end: list[Callable[[Migration], None]] = []
        self.on_attempt: list[Callable[[Vm], None]] = []
        flights.on_final = self._finish
        plane.store.subscribe(self._observe)

    def create(
        self,
        vm: Vm,
        priority: str,
        *,
        evacuated_node: str | None,
        asked_by: AskedBy,
        attempt: int = 1,
        metadata: Json | None = None,
    ) -> Migration:
        """Create a VMIM for a running VMI. Raises `Refused` as KubeVirt's admission webhook does.

        ``metadata`` are a person's own words in place of ours.
        """
        vmi = self._plane.vmi(vm)
        if vmi is None or vm.going_down or at(vmi, "status", "phase") != "Running":
            raise Refused("Cannot migrate VMI in finalized state.")
        if (other := self.unfinished(vm)) is not None:
            raise Refused(
                f"in-flight migration detected. Active migration job ({other.uid}) is currently already in progress "
                f"for VMI {vm.spec.name}."
            )
        if not is_live_migratable(vmi):
            condition = manifests.live_migratable(vm.spec)
            raise Refused(
                f"Cannot migrate VMI, Reason: {condition['reason']}, Message: {condition['message']}"
            )
        manifest = manifests.vmim(vm.spec.namespace, vm.spec.name, priority, evacuated_node)
        created = self._plane.store.create(
            VMIM, manifest if metadata is None else manifest | {"metadata": metadata}
        )
        source, uid = vmi["status"]["nodeName"], created["metadata"]["uid"]
        record = MigrationRecord(
            vm=vm.key,
            source=source,
            target=None,
            created_s=self._plane.agenda.now_s,
            asked_by=asked_by,
            attempt=attempt,
            vmim_uid=uid,
            vmi_uid=vm.uid,
        )
        self._plane.migrations.append(record)
        migration = Migration(
            vm=vm,
            vmi_uid=vm.uid,
            name=created["metadata"]["name"],
            uid=uid,
            priority=PRIORITIES[priority],
            evacuation=evacuated_node is not None,
            source=source,
            record=record,
        )
        self._unfinished[vm.uid] = migration
        self._plane.soon(lambda: self._accept(migration))
        return migration

    def delete(self, namespace: str, name: str) -> None:
        """A person deletes a VMIM: an unfinished one is cancelled, if it is not too late. Raises `NotFound`."""
        for migration in self._unfinished.values():
            if (migration.vm.spec.namespace, migration.name) == (namespace, name):
                self._flights.cancel(migration)
                return
        obj = self._plane.store.get(VMIM, namespace, name)
        if obj is None:
            raise NotFound(VMIM, name)
        vm = self._plane.vms.get(f"{namespace}/{obj['spec']['vmiName']}")
        if vm is not None:
            vm.finished = [item for item in vm.finished if item.name != name]
        self._plane.store.delete(VMIM, namespace, name)

    def unfinished(self, vm: Vm) -> Migration | None:
        """The VMI's migration that has not ended."""
        return self._unfinished.get(vm.uid)

    def target_gone(self, vm: Vm, pod: str) -> None:
        """Somebody removes a pod of the VM that is not its launcher."""
        migration = self.unfinished(vm)
        if migration is not None and migration.target_pod == pod:
            self._flights.fail(migration, "Migration target pod was removed during active migration.")

    def vm_down(self, vm: Vm) -> None:
        """The VM goes down."""
        migration = self.unfinished(vm)
        if migration is not None:
            self._flights.fail(migration, "Migration failed vmi shutdown during migration.")

    def vmi_gone(self, vm: Vm) -> None:
        """The VMI is being deleted: its VMIMs go with it."""
        migration = self.unfinished(vm)
        if migration is not None:
            self._flights.end(migration, "Migration failed because vmi does not exist.")
        for item in vm.finished:
            self._plane.store.delete(VMIM, vm.spec.namespace, item.name)
        vm.finished = []

    def node_lost(self, node: str) -> None:
        """A node does not answer any more: what copies from or to it fails."""
        for migration in list(self._unfinished.values()):
            if migration.copy is not None and node in (migration.copy.source, migration.copy.target):
                self._flights.fail(migration, f"Live migration failed: node {node} does not answer")

    def look_for_slots(self) -> None:
        """Let waiting migrations go ahead, in order, as far as limits allow."""
        limits = self._plane.configuration().get("migrations") or {}
        in_all = int(limits.get("parallelMigrationsPerCluster", 5))
        off_one_node = int(limits.get("parallelOutboundMigrationsPerNode", 2))
        held_up = False
        in_slots = [m for m in self._unfinished.values() if m.target_pod]
        waiting = [
            m for m in self._unfinished.values() if m.stage == "waiting" and m.accepted and not m.deleted
        ]
        for migration in sorted(waiting, key=lambda m: -m.priority):
            if migration.not_before_s > self._plane.agenda.now_s:
                continue
            if len(in_slots) >= in_all:
                break
            if sum(self._is_outbound(m, migration.source) for m in in_slots) >= off_one_node:
                continue
            if self._must_wait(migration):
                held_up = True
                continue
            self._flights.begin(migration)
            in_slots.append(migration)
            for tell in self.on_attempt:
                tell(migration.vm)
        if held_up and self._look_again is None:
            self._look_again = self._plane.after(self._plane.options.slot_poll_s, self._look_once_more)

    def _look_once_more(self) -> None:
        self._look_again = None
        self.look_for_slots()

    def _is_outbound(self, migration: Migration, node: str) -> bool:
        """KubeVirt judges by the VMI: by its migration's source, and by where it is now."""
        vmi = self._plane.vmi(migration.vm) or {}
        return migration.source == node or at(vmi, "status", "nodeName") == node

    def _must_wait(self, migration: Migration) -> bool:
        """A backup runs, or an earlier target pod has not ended yet."""
        if migration.vm.backup and migration.priority <= _HELD_BY_BACKUP:
            return True
        launchers = [
            pod
            for pod in self._plane.pods_of(migration.vm)
            if pod["metadata"]["labels"][APP] == LAUNCHER and not is_finished(pod)
        ]
        return len(launchers) != 1

    def _accept(self, migration: Migration) -> None:
        if migration.stage != "waiting":
            return
        migration.accepted = True
        self._flights.enter(migration, "Pending")
        if migration.evacuation:
            migration.not_before_s = _backoff_until(migration.vm)
        if migration.not_before_s > self._plane.agenda.now_s:
            self._plane.agenda.at(migration.not_before_s, self.look_for_slots)
        else:
            self._plane.soon(self.look_for_slots)

    def _finish(self, migration: Migration) -> None:
        """The VMIM has its final phase; the slot is free."""
        vm, record = migration.vm, migration.record
        del self._unfinished[migration.vmi_uid]
        if not migration.deleted:
            succeeded = record.outcome == "Succeeded"
            item = Finished(migration.name, migration.evacuation, succeeded, self._plane.agenda.now_s)
            vm.finished.append(item)
        self._plane.soon(lambda: self._tidy_up(migration))
        self._plane.after(self._plane.options.slot_poll_s, self.look_for_slots)
        for tell in self.on_end:
            tell(migration)

    def _tidy_up(self, migration: Migration) -> None:
        vm = migration.vm
        if migration.deleted:
            if self._plane.store.get(VMIM, vm.spec.namespace, migration.name) is not None:
                self._plane.store.delete(VMIM, vm.spec.namespace, migration.name)
            return
        self._flights.keep_state(migration)
        while len(vm.finished) > _KEPT_FINISHED:
            self._plane.store.delete(VMIM, vm.spec.namespace, vm.finished.pop(0).name)

    def _observe(self, event: WatchEvent) -> None:
        if event.kind == KUBEVIRT:  # limits may have changed
            self._plane.soon(self.look_for_slots)


def _backoff_until(vm: Vm) -> float:
    """When the next evacuation of the VM may begin, from its failed ones since the last success."""
    failed: list[Finished] = []
    for item in reversed([item for item in vm.finished if item.evacuation]):
        if item.succeeded:
            break
        failed.append(item)
    return failed[0].ended_s + _FIRST_BACKOFF_S * 2.0 ** (len(failed) - 1) if failed else 0.0
