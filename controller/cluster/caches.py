"""The informers a program watches the cluster with. Adding a resource is a line here and one in the"""

from typing import Any

from controller.cluster.objects import KubeVirt, Node, PlacedPod, Pod, Vmi, Vmim
from controller.cluster.view import LAUNCHER_INDEXES, PLACED_INDEXES, VMI_INDEXES, VMIM_INDEXES
from informers.informer import Informer


class ClusterCaches:
    """One informer per resource. Whoever composes the program drives them; handlers are added by the program."""

    def __init__(self) -> None:
        self.nodes: Informer[Node] = Informer("nodes")
        self.launchers: Informer[Pod] = Informer("launchers", LAUNCHER_INDEXES)
        self.placed: Informer[PlacedPod] = Informer("placed", PLACED_INDEXES)
        self.vmis: Informer[Vmi] = Informer("vmis", VMI_INDEXES)
        self.vmims: Informer[Vmim] = Informer("vmims", VMIM_INDEXES)
        self.kubevirts: Informer[KubeVirt] = Informer("kubevirts")

    def informers(self) -> dict[str, Informer[Any]]:
        """By name, in the order in which they should be listed: what refers to others comes last."""
        every = (self.kubevirts, self.nodes, self.vmis, self.vmims, self.launchers, self.placed)
        return {informer.name: informer for informer in every}
