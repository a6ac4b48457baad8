"""What is really the case in the simulated cluster, for tests that must not believe any client."""

from datetime import datetime
from typing import Any

from simulator.build import Simulation


def truth(simulation: Simulation, now: datetime, speed: float) -> dict[str, Any]:
    """Times are the world's seconds since the start: ``now_s`` is what they compare with."""
    world, control_plane = simulation.world, simulation.control_plane
    world.advance()
    layout, totals = world.layout(), world.totals()
    columns = {
        "cores": layout.cores,
        "demand_cores": world.node_demand_cores(),
        "vm_demand_cores": world.node_vm_demand_cores(),
        "used_cores": world.node_used_cores(),
        "cpu_pressure": world.node_cpu_pressure(),
        "memory_bytes": world.node_memory_bytes(),
    }
    return {
        "now_s": simulation.agenda.now_s,
        "time": now.isoformat(),
        "speed": speed,
        "resource_version": simulation.store.resource_version,
        "migrations": control_plane.migrations,
        "shutdowns": control_plane.shutdowns,
        "nodes": {
            name: {column: float(values[number]) for column, values in columns.items()}
            for number, name in enumerate(layout.node_names)
        },
        "vms": {key: world.node_of(key) for key in layout.vm_keys},
        "over_node_seconds": float(totals.over_s),
        "starved_core_seconds": float(totals.starved_core_s),
    }
