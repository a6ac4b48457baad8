"""How trouble begins and ends, as functions of a scene."""

from typing import Any

from e2e.faults.row import Deed
from e2e.faults.scene import Scene

PROGRAMS = "system:serviceaccount:*"
"""Not the admin, who is the suite."""


def fault(kind: str, **what: Any) -> Deed:
    """Requests of the programs are hit from now on (docs/serve.md)."""

    def begin(scene: Scene) -> None:
        scene.lab.cluster.fault(kind, **{"users": [PROGRAMS], **what})

    return begin


def control(action: str, **body: Any) -> Deed:
    """``watches``, ``compact``, ``restart``, ``tokens``, ``clock``, ``exporter`` …"""
    return lambda scene: scene.lab.cluster.control(action, **body)


def act(do: str, **arguments: Any) -> Deed:
    """Somebody does something to the cluster."""
    return lambda scene: scene.lab.cluster.act(do, **arguments)


def watches(do: str) -> Deed:
    """Of the programs, those that are open."""
    return control("watches", do=do, users=[PROGRAMS])


def all_of(*deeds: Deed) -> Deed:
    """One after the other."""

    def begin(scene: Scene) -> None:
        for deed in deeds:
            deed(scene)

    return begin


def end_faults(scene: Scene) -> None:
    scene.lab.cluster.end_faults()


def without_streams(scene: Scene) -> None:
    """Watches end as soon as they have begun, so that whoever wants to know something has to list."""
    fault("watch", do="empty")(scene)
    watches("end")(scene)


def of_vm(do: str) -> Deed:
    """To the VM that was on the move."""

    def begin(scene: Scene) -> None:
        namespace, name = scene.vm
        is_called = "vmi" if do == "evacuate_cancel" else "name"
        scene.lab.cluster.act(do, namespace=namespace, **{is_called: name})

    return begin


def of_node(do: str, which: str) -> Deed:
    """To the ``source`` or the ``target`` of the VM that was on the move."""

    def begin(scene: Scene) -> None:
        scene.lab.cluster.act(do, name=scene.node(which))

    return begin
