"""A small cluster in the caches, fed by hand, with the real descheduler on it in virtual time."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import MigrationState, Taint, Vmim
from controller.descheduler import Descheduler
from controller.evictions.entry import Phase, VmKey
from controller.policy.model import Policy
from controller.taints.desired import OVER
from controller.utilization.reading import VmLoad
from informers.testing import ManualClock, step
from tests.builders import GIB, START, kubevirt, launcher, node, vmi, vmim
from tests.controller.decision_builders import HOUR, POLICY, SMALL, load
from tests.controller.fakes import FakeEvictions, FakeMetrics, RecordingObserver

AVOID = Taint(OVER, "", "PreferNoSchedule")
OURS = {"kubevirt.io/eviction-source": "descheduler"}


class ControlledCluster:
    """Nodes of ``hot`` are over-utilised, and tainted as such; those of ``idle`` are not. VMs are an hour old.

    ``mark``, ``attempt`` and ``arrive`` are what KubeVirt would do, one change of one object each.
    """

    def __init__(
        self,
        *,
        hot: Iterable[str] = ("node-1",),
        idle: Iterable[str] = ("node-9",),
        policy: Policy | None = POLICY,
    ) -> None:
        self.policy = policy
        self.clock = ManualClock(START + HOUR)
        self.caches = ClusterCaches()
        self.metrics = FakeMetrics(self.clock)
        self.api = FakeEvictions(self.clock)
        self.observer = RecordingObserver()
        self.descheduler = Descheduler(
            self.caches, self.metrics, self.api, self.observer, lambda: self.policy, self.clock
        )
        self._version = 1
        self.caches.kubevirts.replace([kubevirt()])
        self.caches.nodes.replace([*(node(name, taints=[AVOID]) for name in hot), *map(node, idle)])
        for name in hot:
            self.heat(name)
        for name in idle:
            self.cool(name)

    # --- what the metrics say ---

    def heat(self, name: str, value: float = 0.9) -> None:
        self.metrics.values[name] = value
        self.metrics.loads[name] = load(value * 64.0, 128 * GIB)

    def cool(self, name: str) -> None:
        self.metrics.values[name] = 0.1
        self.metrics.loads[name] = load(6.0, 16 * GIB)

    # --- what KubeVirt does ---

    def add_vm(
        self, name: str, on: str = "node-1", *, measured: VmLoad | None = SMALL, priority: int = 0
    ) -> None:
        added = self.api.vmis[VmKey("vms", name)] = vmi(name, node=on)
        self.caches.vmis.apply("ADDED", added)
        self.caches.launchers.apply("ADDED", launcher(name, node=on, priority=priority))
        if measured is not None:
            self.metrics.vms["vms", name] = measured

    def mark(self, name: str, *, ours: bool = True) -> None:
        self._change(name, evacuation_node_name=self._node_of(name), annotations=OURS if ours else {})

    def unmark(self, name: str) -> None:
        self._change(name, evacuation_node_name="")

    def attempt(self, name: str, phase: str, *, number: int = 1, target: str = "") -> Vmim:
        """The VMI's ``number``-th VMIM enters a phase."""
        state = MigrationState(
            source_node=self._node_of(name), target_node=target, migration_uid=f"vmim-{name}-{number}"
        )
        migration = vmim(
            name,
            name=f"m-{name}-{number}",
            uid=f"vmim-{name}-{number}",
            phase=phase,
            created=self.clock.now(),
            migration_state=state,
            resource_version=self._next(),
        )
        self.caches.vmims.apply("MODIFIED", migration)
        return migration

    def arrive(self, name: str, target: str = "node-9", *, number: int = 1) -> None:
        """The VMI is at its new node, its VMIM final, its mark off; the target pod runs."""
        self.attempt(name, "Succeeded", number=number, target=target)
        state = MigrationState(
            source_node=self._node_of(name),
            target_node=target,
            end_timestamp=self.clock.now(),
            completed=True,
            migration_uid=f"vmim-{name}-{number}",
        )
        pod = launcher(name, node=target, name=f"virt-launcher-{name}-{number}", uid=f"pod-{name}-{number}")
        self.caches.launchers.apply("ADDED", pod)
        self._change(name, node_name=target, evacuation_node_name="", migration_state=state)

    def stop(self, name: str) -> None:
        found = self.caches.vmis.lister.get("vms", name)
        assert found is not None
        self.caches.vmis.apply("DELETED", found)
        del self.api.vmis[VmKey("vms", name)]

    def migrate(self, name: str, target: str = "node-9") -> None:
        """The whole of a successful eviction, seen in one go."""
        self.mark(name)
        self.attempt(name, "Running", target=target)
        self.arrive(name, target)

    # --- time ---

    def start(self) -> None:
        self.descheduler.start()
        self.work()

    def work(self) -> None:
        self.descheduler.workers.work_ready()

    def pass_time(self, by: timedelta) -> None:
        """Work off everything that comes due, and what is ready at the end."""
        workers, end_s = self.descheduler.workers, self.clock.monotonic() + by.total_seconds()
        while (due_s := workers.next_due()) is not None and due_s <= end_s:
            step(self.clock, workers)
        self.clock.set_monotonic(end_s)

    # --- what came of it ---

    def phases(self) -> dict[str, Phase]:
        """VM -> phase of its open entry."""
        return {entry.vm.name: entry.phase for entry in self.descheduler.ledger.entries}

    def rests(self) -> dict[str, str]:
        """Node -> why nothing was chosen when it was last considered; "" if something was."""
        return {plan.node: plan.rest.code if plan.rest else "" for plan in self.observer.plans}

    def _node_of(self, name: str) -> str:
        found = self.caches.vmis.lister.get("vms", name)
        assert found is not None
        return found.node_name

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _change(self, name: str, annotations: dict[str, str] | None = None, **fields: Any) -> None:
        before = self.caches.vmis.lister.get("vms", name)
        assert before is not None
        metadata = msgspec.structs.replace(before.metadata, resource_version=self._next())
        if annotations is not None:
            metadata = msgspec.structs.replace(metadata, annotations=annotations)
        changed = msgspec.structs.replace(before, metadata=metadata, **fields)
        self.caches.vmis.apply("MODIFIED", changed)
        self.api.vmis[VmKey("vms", name)] = changed


def pod(vm: str) -> str:
    """The name of the launcher a VM starts with."""
    return f"virt-launcher-{vm}"


def with_vms(*names: str, **fields: Any) -> ControlledCluster:
    """A cluster with these VMs on ``node-1``."""
    cluster = ControlledCluster(**fields)
    for name in names:
        cluster.add_vm(name)
    return cluster


def with_evictions(policy: Policy, **fields: Any) -> Policy:
    return replace(policy, evictions=replace(policy.evictions, **fields))
