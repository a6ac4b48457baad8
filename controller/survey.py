"""Gathers what decisions look at: the caches, the newest snapshot and the ledger's view, joined for one question."""

from collections.abc import Iterator

from controller.cluster.objects import Vmi
from controller.cluster.view import ClusterView, source_node
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.gate import Movement, Slots, count_slots, effective_limits
from controller.evictions.lifecycle import Evidence, Sighting
from controller.evictions.picture import charge
from controller.evictions.rebuild import Known, source_of
from controller.evictions.select import Candidate, Ground
from controller.evictions.views import LedgerView
from controller.monitor import Monitor
from controller.policy.model import Policy
from controller.utilization.classify import NodeClass
from controller.utilization.reading import VmLoad
from informers.clock import Clock


class Survey:
    """Reads only; holds no state of its own."""

    def __init__(self, view: ClusterView, monitor: Monitor, clock: Clock) -> None:
        self._view = view
        self._monitor = monitor
        self._clock = clock

    def ground(self, node: str, policy: Policy, view: LedgerView) -> Ground | None:
        """Gather what selection looks at; ``None`` if the node has gone or nothing was measured."""
        source, snapshot = self._view.node(node), self._monitor.latest
        classification = self._monitor.classification(policy)
        if source is None or snapshot is None or classification is None:
            return None
        # A node without a value is never a destination, even if its plain load is known.
        loads = {
            n: x for n, x in snapshot.loads.items() if classification.class_of(n) is not NodeClass.UNKNOWN
        }
        settling = {e.vmi_uid for e in view.entries if e.phase is Phase.SETTLING}
        migrating = {e.vmi_uid for e in view.entries if e.in_flight} | self._view.migrating_uids()
        candidates = [
            Candidate(
                vm.vmi,
                vm.pod,
                self.load_of(VmKey(vm.vmi.namespace, vm.vmi.name)),
                migrating=vm.vmi.uid in migrating,
                settling=vm.vmi.uid in settling,
            )
            for vm in self._view.vms_on(node)
        ]
        arriving = [
            (e.pod_uid, e.target)
            for e in view.entries
            if e.in_flight and e.target and e.phase is not Phase.STUCK
        ]
        return Ground(
            source=source,
            candidates=candidates,
            place=self._view.placer(source, arriving),
            picture=charge(loads, view.entries),
            kubevirt=self._view.kubevirt(),
            policy=policy,
            ledger=view,
            now=self._clock.now(),
        )

    def _movements(self) -> list[Movement]:
        """Unfinished migrations as the cluster shows them, whoever asked for them."""
        now = self._clock.now()
        return [
            Movement(vmi.uid, source_node(vmi, migration), migration.metadata.creation_timestamp or now)
            for vmi, migration in self._view.unfinished_migrations()
        ]

    def slots_of(self, node: str, policy: Policy, view: LedgerView) -> Slots:
        """How many VMs are on the move from the node and in the cluster, and how many may be."""
        evictions = policy.evictions
        return count_slots(
            node,
            view,
            self._movements(),
            effective_limits(evictions.limits, self._view.kubevirt()),
            evictions.migration_timeout,
            self._clock.now(),
        )

    def sighting(self, entry: Entry, vmi: Vmi | None) -> Sighting:
        """What the stores show of an entry's VM; another VMI that has taken the name is not it."""
        if vmi is None or vmi.uid != entry.vmi_uid:
            return Sighting(None)
        return Sighting(vmi, self._view.migrations_of(vmi))

    def evidence(self, entry: Entry) -> Evidence:
        """What the newest snapshot shows of the entry's two nodes."""
        snapshot = self._monitor.latest
        if snapshot is None:
            return Evidence({})
        nodes = [n for n in (entry.source, entry.target) if self._view.node(n) is not None]
        times = {n: t for n in nodes if (t := snapshot.sample_time(n)) is not None}
        return Evidence(times, snapshot.taken_at)

    def everything(self) -> Iterator[Known]:
        """All VMIs: for a rebuild only, never for an event."""
        return (self.known(vmi) for vmi in self._view.all_vmis())

    def known(self, vmi: Vmi) -> Known:
        """All there is to know of one VM."""
        load = self.load_of(VmKey(vmi.namespace, vmi.name))
        migrations = tuple(self._view.migrations_of(vmi))
        return Known(vmi, self._view.launcher_on(vmi, source_of(vmi, migrations)), migrations, load)

    def load_of(self, vm: VmKey) -> VmLoad | None:
        """As last measured; ``None`` if it was not."""
        snapshot = self._monitor.latest
        return snapshot.vms.get(vm) if snapshot is not None else None
