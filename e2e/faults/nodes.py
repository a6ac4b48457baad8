"""Nodes that go, one way or another, while a VM leaves them or arrives: rows of the fault matrix."""

from collections.abc import Iterator

from e2e.faults.deeds import of_node
from e2e.faults.kubevirt import is_copied
from e2e.faults.row import Deed, Row, no_deed
from e2e.faults.scene import Scene
from e2e.faults.signs import node_is_out

_DEEDS = {"lost": "lose_node", "cordoned": "cordon", "deleted": "remove_node"}


def rename(which: str) -> Deed:
    """The machine comes back under another name."""

    def begin(scene: Scene) -> None:
        scene.lab.cluster.act("remove_node", name=scene.node(which))
        spec = {
            "name": f"{scene.node(which)}-renamed",
            "cores": 32,
            "memory_bytes": 1024 << 30,
            "nic_bytes_per_s": 10e9 / 8,
            "labels": {"kubevirt.io/schedulable": "true"},
        }
        scene.lab.cluster.act("add_node", spec=spec)

    return begin


def _rows() -> Iterator[Row]:
    for which in ("source", "target"):
        for how, do in _DEEDS.items():
            yield Row(
                name=f"{which} {how}",
                kind="node",
                when=is_copied,
                begins=of_node(do, which),
                ends=of_node("uncordon", which) if how == "cordoned" else no_deed,
                shows=(node_is_out(which),),
                one_of_its_kind=(which, how) == ("source", "lost"),
            )
        yield Row(
            name=f"{which} renamed",
            kind="node",
            when=is_copied,
            begins=rename(which),
            shows=(node_is_out(which),),
        )


ROWS = tuple(_rows())
