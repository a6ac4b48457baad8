"""What writes do beyond the store: requests to the control plane, and controllers that react to a change."""

from simulator.agenda import Agenda
from simulator.apiserver.refusals import Subject, denied
from simulator.apiserver.resources import Resource
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.manifests import VMI_NAME
from simulator.kubevirt.migrations import Refused
from simulator.kubevirt.objectstore import NODE, POD, VMI, VMIM, Json, NotFound, ObjectStore, at

_REACTION_S = 0.2
"""Until the node lifecycle controller has seen a cordon and written its taint."""
_CREATE_WEBHOOK = 'admission webhook "migration-create-validator.kubevirt.io" denied the request: '


class Effects:
    """Kinds whose objects stand for more than themselves."""

    def __init__(self, control_plane: ControlPlane, store: ObjectStore, agenda: Agenda) -> None:
        self._control_plane = control_plane
        self._store = store
        self._agenda = agenda

    def creates(self, resource: Resource) -> bool:
        """Whether objects of the kind are created by the control plane."""
        return resource.kind == VMIM

    def create_migration(self, wanted: Json, subject: Subject) -> Json:
        """A person's VMIM; its spec says which VMI. Raises `Refusal` as KubeVirt's webhook does."""
        metadata, vmi = dict(wanted["metadata"]), at(wanted, "spec", "vmiName") or ""
        metadata["labels"] = {**(metadata.get("labels") or {}), VMI_NAME: vmi}
        try:
            name = self._control_plane.create_migration(metadata["namespace"], vmi, metadata=metadata)
        except NotFound:
            message = f'{_CREATE_WEBHOOK}the VMI "{metadata["namespace"]}/{vmi}" does not exist'
            raise denied(message, subject) from None
        except Refused as error:
            raise denied(_CREATE_WEBHOOK + error.message, subject) from None
        created = self._store.get(VMIM, metadata["namespace"], name)
        assert created is not None  # noqa: S101  it was created just now
        return created

    def changed(self, resource: Resource, old: Json, new: Json) -> None:
        """A node was cordoned, or the other way round: its taint follows."""
        if resource.kind != NODE:
            return
        is_on = bool(at(new, "spec", "unschedulable"))
        if is_on == bool(at(old, "spec", "unschedulable")):
            return
        name = new["metadata"]["name"]

        def follow() -> None:
            node = self._store.get(NODE, "", name)
            if node is None or bool(at(node, "spec", "unschedulable")) != is_on:
                return
            if is_on:
                self._control_plane.cordon(name)
            else:
                self._control_plane.uncordon(name)

        self._agenda.after(_REACTION_S, follow)

    def deletes(self, resource: Resource) -> bool:
        """Whether deletion is up to the control plane: objects that go when their machine or process has ended."""
        return resource.kind in (NODE, POD, VMI, VMIM)

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """Ask for a deletion. Raises `NotFound`.

        A VMI that is deleted goes down and comes up again: there is a VM behind it that its owner wants to run.
        """
        if resource.kind == NODE:
            self._control_plane.remove_node(name)
        elif resource.kind == POD:
            self._control_plane.delete_pod(namespace, name)
        elif resource.kind == VMIM:
            self._control_plane.delete_migration(namespace, name)
        else:
            self._control_plane.stop_vm(namespace, name)
            self._control_plane.start_vm(namespace, name)
