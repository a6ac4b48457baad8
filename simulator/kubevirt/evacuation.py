"""Marks for evacuation: what carries them, and the migrations that KubeVirt makes of them."""

from typing import Final

from simulator.kubevirt.flights import Migration
from simulator.kubevirt.manifests import EVICTION_SOURCE, IN_PROGRESS
from simulator.kubevirt.migrations import Migrations
from simulator.kubevirt.objectstore import POD, REMOVE, at
from simulator.kubevirt.plane import Plane, Vm
from simulator.record import AskedBy

_DESCHEDULER: Final = {"sigs.k8s.io/descheduler": "descheduler"}
"""An Eviction's annotation ``requested-by`` -> the VMI's annotation ``kubevirt.io/eviction-source``."""


class Evacuation:
    """The evacuation controller: a VMIM for each marked, migratable VMI that has none.

    It looks at a VMI whenever it is marked and whenever one of its migrations has ended, so a failed one is followed
    by the next at once; `Migrations` holds that one back.
    """

    def __init__(self, plane: Plane, migrations: Migrations) -> None:
        self._plane = plane
        self._migrations = migrations
        migrations.on_end.append(self._migration_ended)
        migrations.on_attempt.append(self._sync_annotation)

    def mark(self, vm: Vm, node: str, requested_by: str, asked_by: AskedBy) -> None:
        """Mark the VMI; the source annotation stays from an earlier mark if this one brings none."""
        changes: dict[tuple[str, ...], object] = {("status", "evacuationNodeName"): node}
        if requested_by in _DESCHEDULER:
            changes["metadata", "annotations", EVICTION_SOURCE] = _DESCHEDULER[requested_by]
        self._plane.change_vmi(vm, changes)
        vm.asked_by = asked_by
        vm.attempts = 0
        self._plane.soon(lambda: self._sync_annotation(vm))
        self._plane.soon(lambda: self._look_at(vm))

    def cancel(self, vm: Vm) -> None:
        """Subresource evacuatecancel: empty the mark. An unfinished migration goes on, the source annotation stays."""
        if vm.uid:
            self._plane.change_vmi(vm, {("status", "evacuationNodeName"): REMOVE})
            self._plane.soon(lambda: self._sync_annotation(vm))

    def _look_at(self, vm: Vm) -> None:
        vmi = self._plane.vmi(vm)
        if vmi is None or vm.going_down or self._migrations.unfinished(vm) is not None:
            return
        marked = at(vmi, "status", "evacuationNodeName")
        if not marked or marked != at(vmi, "status", "nodeName") or not self._plane.evicting_migrates(vmi):
            return
        ours = at(vmi, "metadata", "annotations", EVICTION_SOURCE) == "descheduler"
        vm.attempts += 1
        priority = "system-maintenance" if ours else "system-critical"
        self._migrations.create(
            vm, priority, evacuated_node=marked, asked_by=vm.asked_by, attempt=vm.attempts
        )

    def _migration_ended(self, migration: Migration) -> None:
        vm = migration.vm
        if migration.record.outcome == "Failed":
            self._sync_annotation(vm, attempt_failed=True)
        self._plane.soon(lambda: self._look_at(vm))

    def _sync_annotation(self, vm: Vm, *, attempt_failed: bool = False) -> None:
        """Launchers of marked VMIs carry eviction-in-progress; in older KubeVirt not between two attempts."""
        vmi, pod = self._plane.vmi(vm), self._plane.pod(vm, vm.pod)
        if vmi is None or pod is None:
            return
        paused = attempt_failed and self._plane.options.annotation == "older"
        value = "true" if at(vmi, "status", "evacuationNodeName") and not paused else REMOVE
        path = ("metadata", "annotations", IN_PROGRESS)
        self._plane.store.update(POD, vm.spec.namespace, vm.pod, {path: value})
