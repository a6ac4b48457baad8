"""What an eviction request gets: the API server's checks, KubeVirt's webhook, and the PDBs behind it."""

from typing import Literal, NamedTuple

from simulator.kubevirt.evacuation import Evacuation
from simulator.kubevirt.machines import Machines
from simulator.kubevirt.manifests import APP, CREATED_BY, DOMAIN, HOTPLUG, LAUNCHER
from simulator.kubevirt.migrations import Migrations
from simulator.kubevirt.objectstore import POD, RESOURCES, Json, NotFound, at
from simulator.kubevirt.plane import Plane, Vm, is_finished, is_live_migratable
from simulator.kubevirt.pods import Pods
from simulator.record import AskedBy, ShutdownRecord

DISRUPTION_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
_DENIED = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
_UNREACHABLE = (
    'Internal error occurred: failed calling webhook "virt-launcher-eviction-interceptor.kubevirt.io": failed to call '
    'webhook: Post "https://virt-api.kubevirt.svc:443/launcher-eviction-validate?timeout=10s": no endpoints available '
    'for service "virt-api"'
)


class EvictionAnswer(NamedTuple):
    status: int
    message: str = ""
    """As in the API's Status object; empty if the eviction was granted."""
    retry_after_s: float | None = None
    """Of the header Retry-After, if the answer has one."""


class Verdict(NamedTuple):
    """The webhook's answer; ``marks``: it marks the VMI for evacuation."""

    allowed: bool
    message: str = ""
    marks: bool = False


_ALLOWED = Verdict(allowed=True)


class Request(NamedTuple):
    dry_run: bool = False
    uid: str = ""
    """``deleteOptions.preconditions.uid``; empty: none."""
    requested_by: str = ""
    """The Eviction's annotation ``requested-by``."""
    asked_by: AskedBy = "other"


def launcher_verdict(
    pod: Json, vmi: Json, strategy: str | None, generation: Literal["newer", "older"]
) -> Verdict:
    """The webhook's table for a launcher that has not finished (KubeVirt's pod-eviction-admitter)."""
    evacuation = (
        f'Eviction triggered evacuation of VMI "{vmi["metadata"]["namespace"]}/{vmi["metadata"]["name"]}"'
    )
    if strategy in (None, "None"):
        return _ALLOWED
    if at(vmi, "status", "evacuationNodeName"):
        # older KubeVirt lets it through, to be stopped by the PDB
        return _ALLOWED if generation == "older" else Verdict(False, f"Evacuation in progress: {evacuation}")
    if strategy == "LiveMigrate" and not is_live_migratable(vmi):
        name = vmi["metadata"]["name"]
        return Verdict(
            False, f"VMI {name} is configured with an eviction strategy but is not live-migratable"
        )
    if strategy == "LiveMigrateIfPossible" and not is_live_migratable(vmi):
        return _ALLOWED
    if at(vmi, "status", "nodeName") != pod["spec"].get("nodeName"):
        return Verdict(False, "Eviction request for target Pod")
    return Verdict(False, evacuation, marks=True)


class Evictions:
    """Answers eviction requests and does what follows from them.

    Order of the checks: throttling, webhook reachable, pod exists, its UID, webhook, PDBs.
    """

    def __init__(
        self, plane: Plane, pods: Pods, machines: Machines, migrations: Migrations, evacuation: Evacuation
    ) -> None:
        self._plane = plane
        self._pods = pods
        self._machines = machines
        self._migrations = migrations
        self._evacuation = evacuation
        self.webhook_down = plane.options.webhook_down

    def evict(self, namespace: str, name: str, request: Request) -> EvictionAnswer:
        """See `ControlPlane.evict`."""
        options = self._plane.options
        if options.throttle_probability and self._plane.rng.random() < options.throttle_probability:
            return EvictionAnswer(429, "Too many requests, please try again later.", 1.0)
        if self.webhook_down and options.webhook == "newer":
            return EvictionAnswer(500, _UNREACHABLE)
        pod = self._plane.store.get(POD, namespace, name)
        if pod is None:
            return EvictionAnswer(404, NotFound(POD, name).message)
        uid = pod["metadata"]["uid"]
        if request.uid not in ("", uid):
            return EvictionAnswer(
                409,
                f'Operation cannot be fulfilled on {RESOURCES[POD]} "{name}": Precondition failed: '
                f"UID in precondition: {request.uid}, UID in object meta: {uid}",
            )
        vm = self._vm_of(pod)
        verdict = _ALLOWED if self.webhook_down else self._verdict(pod, vm)
        if verdict.marks and vm is not None and not request.dry_run:
            self._evacuation.mark(vm, pod["spec"]["nodeName"], request.requested_by, request.asked_by)
        if not verdict.allowed:
            return EvictionAnswer(429, _DENIED + verdict.message)
        if vm is not None and not is_finished(pod) and self._machines.has_budget(vm):
            return EvictionAnswer(429, DISRUPTION_BUDGET)
        if not request.dry_run:
            self._remove(pod, vm, request.asked_by)
        return EvictionAnswer(201)

    def delete(self, namespace: str, name: str) -> None:
        """See `ControlPlane.delete_pod`."""
        pod = self._plane.store.get(POD, namespace, name)
        if pod is None:
            raise NotFound(POD, name)
        self._remove(pod, self._vm_of(pod), "other")

    def _verdict(self, pod: Json, vm: Vm | None) -> Verdict:
        labels = pod["metadata"].get("labels") or {}
        if labels.get(APP) == HOTPLUG:
            return self._hotplug_verdict(pod)
        vmi = None if vm is None else self._plane.vmi(vm)
        if labels.get(APP) != LAUNCHER or is_finished(pod) or vmi is None:
            return _ALLOWED
        strategy = self._plane.eviction_strategy(vmi)
        return launcher_verdict(pod, vmi, strategy, self._plane.options.webhook)

    def _hotplug_verdict(self, pod: Json) -> Verdict:
        metadata = pod["metadata"]
        owner = self._plane.store.get(POD, metadata["namespace"], metadata["ownerReferences"][0]["name"])
        if owner is None or is_finished(owner) or (vm := self._vm_of(owner)) is None:
            return _ALLOWED
        return Verdict(
            False,
            f"cannot evict hotplug pod: {metadata['name']} associated with running vmi: {vm.spec.name} in namespace "
            f"{metadata['namespace']}",
        )

    def _vm_of(self, pod: Json) -> Vm | None:
        """The VM whose present VMI a launcher belongs to."""
        metadata = pod["metadata"]
        name = at(metadata, "annotations", DOMAIN)
        vm = self._plane.vms.get(f"{metadata['namespace']}/{name}")
        return vm if vm is not None and vm.uid == at(metadata, "labels", CREATED_BY) else None

    def _remove(self, pod: Json, vm: Vm | None, asked_by: AskedBy) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if vm is None or is_finished(pod) or name != vm.pod:
            if vm is not None:
                self._migrations.target_gone(vm, name)
            self._pods.delete(namespace, name)
            return
        if vm.node:
            self._plane.shutdowns.append(ShutdownRecord(self._plane.agenda.now_s, vm.key, vm.node, asked_by))
        self._machines.take_down(vm, phase="Succeeded", restart=vm.wanted)
