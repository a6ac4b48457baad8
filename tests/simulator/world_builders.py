"""Small worlds, for tests of the world and of the metrics."""

from typing import Any

from simulator.agenda import Agenda
from simulator.specs import GIB, NodeSpec, VmSpec
from simulator.world.world import World


def node(name: str, **changes: Any) -> NodeSpec:
    """Ten cores, 100 GiB, nothing on it; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "name": name,
        "cores": 10.0,
        "memory_bytes": 100 * GIB,
        "nic_bytes_per_s": 1.25e9,
        **changes,
    }
    return NodeSpec(**fields)


def vm(**changes: Any) -> VmSpec:
    """Ten vCPUs, so that demand as a fraction is that of a node too; idle; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "namespace": "vms",
        "name": "vm",
        "vcpus": 10.0,
        "guest_bytes": 10 * GIB,
        "dirty_bytes_per_s": 1e6,
        "demand": 0.0,
        "touched": 0.5,
        **changes,
    }
    return VmSpec(**fields)


def world_of(*nodes: str) -> tuple[Agenda, World]:
    agenda = Agenda()
    world = World(agenda)
    for name in nodes:
        world.add_node(node(name))
    return agenda, world
