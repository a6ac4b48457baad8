"""What scheduler and kubelet do with a launcher pod from its creation to its end."""

from collections.abc import Callable

from simulator.agenda import rfc3339
from simulator.kubevirt.manifests import EVICT_ONLY, hotplug_pod, pod_condition, running_status
from simulator.kubevirt.objectstore import POD, Json, at
from simulator.kubevirt.plane import Plane, Vm, is_finished

_RETRY_S = 10.0
"""How soon the scheduler looks at an unschedulable pod again, if room may have appeared."""
_GRACE_S = 30.0


class Pods:
    """Runs pods. A pod that was deleted or has finished is left alone by everything planned for it before."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def start(
        self, pod: Json, on_scheduled: Callable[[Json], None], on_ready: Callable[[Json], None]
    ) -> Json:
        """Create a pod without a node; it is placed and becomes ready in time, if there is a place for it."""
        created = self._plane.store.create(POD, pod)

        def schedule(freed: int = -1) -> None:
            current = self._waiting(created)
            if current is None:
                return
            scheduler = self._plane.scheduler
            if freed != scheduler.freed:
                freed = scheduler.freed
                placement = scheduler.place(current)
                if placement.node is not None:
                    on_scheduled(self._bind(current, placement.node))
                    self._plane.after(self._plane.options.pod_start_s, ready)
                    return
                self._refuse(current, placement.message)
            self._plane.agenda.after(_RETRY_S, lambda: schedule(freed))

        def ready() -> None:
            current = self._waiting(created)
            if current is not None and self._runs_pods(current["spec"]["nodeName"]):
                on_ready(self._become_ready(current))

        self._plane.after(self._plane.options.pod_scheduling_s, schedule)
        return created

    def complete(self, namespace: str, name: str) -> None:
        """The pod's process has ended by itself."""
        pod = self._plane.store.get(POD, namespace, name)
        if pod is None or is_finished(pod):
            return
        others = [c for c in at(pod, "status", "conditions") or [] if c["type"] != "Ready"]
        conditions = [*others, pod_condition("Ready", "False", self._plane.agenda.now_s, "PodCompleted")]
        self._plane.store.update(
            POD, namespace, name, {("status", "phase"): "Succeeded", ("status", "conditions"): conditions}
        )

    def delete(self, namespace: str, name: str) -> None:
        """Ask for a pod's deletion; it is gone after its shutdown. Nothing happens if it is gone or going."""
        pod = self._plane.store.get(POD, namespace, name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        uid = pod["metadata"]["uid"]
        deadline = rfc3339(self._plane.agenda.now_s + _GRACE_S)
        self._plane.store.update(POD, namespace, name, {("metadata", "deletionTimestamp"): deadline})

        def remove() -> None:
            current = self._plane.store.get(POD, namespace, name)
            if current is not None and current["metadata"]["uid"] == uid:
                self._plane.store.delete(POD, namespace, name)

        self._plane.after(self._plane.options.pod_shutdown_s, remove)

    def delete_later(self, namespace: str, name: str) -> None:
        """Delete a completed pod when it has lingered for a while."""
        self._plane.after(self._plane.options.source_linger_s, lambda: self.delete(namespace, name))

    def attach_hotplug(self, vm: Vm, launcher: Json) -> None:
        """Create the pod with the VM's hotplugged volumes beside a launcher."""
        name = self._plane.store.new_name(POD, vm.spec.namespace, "hp-volume-")
        self._plane.store.create(POD, hotplug_pod(vm.spec, name, launcher))
        vm.pods[name] = None

    def remove_hotplug(self, vm: Vm, launcher: str) -> None:
        """Delete the hotplug pods of a launcher."""
        for pod in self._plane.pods_of(vm):
            if pod["metadata"]["ownerReferences"][0]["name"] == launcher:
                self.delete(vm.spec.namespace, pod["metadata"]["name"])

    def _waiting(self, created: Json) -> Json | None:
        """The pod as it is now, if it is still to be brought up."""
        metadata = created["metadata"]
        pod = self._plane.store.get(POD, metadata["namespace"], metadata["name"])
        if pod is None or pod["metadata"]["uid"] != metadata["uid"] or "deletionTimestamp" in pod["metadata"]:
            return None
        return pod if pod["status"]["phase"] == "Pending" else None

    def _runs_pods(self, node: str) -> bool:
        return self._plane.node(node) is not None and node not in self._plane.lost_nodes

    def _bind(self, pod: Json, node: str) -> Json:
        scheduled = pod_condition("PodScheduled", "True", self._plane.agenda.now_s)
        return self._change(pod, {("spec", "nodeName"): node, ("status", "conditions"): [scheduled]})

    def _refuse(self, pod: Json, message: str) -> None:
        conditions = at(pod, "status", "conditions") or []
        if [condition["message"] for condition in conditions] == [message]:
            return
        refused = pod_condition("PodScheduled", "False", self._plane.agenda.now_s, "Unschedulable", message)
        self._change(pod, {("status", "conditions"): [refused]})

    def _become_ready(self, pod: Json) -> Json:
        status = running_status(self._plane.agenda.now_s)
        return self._change(pod, {("status",): status, ("metadata", "annotations", EVICT_ONLY): ""})

    def _change(self, pod: Json, changes: dict[tuple[str, ...], object]) -> Json:
        metadata = pod["metadata"]
        return self._plane.store.update(POD, metadata["namespace"], metadata["name"], changes)
