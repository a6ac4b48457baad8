"""Plain load of nodes with the moves charged that the metrics do not show yet: pure.

While a VM is on the move, and until a snapshot shows it at its new node, its own measured use is taken off its
source and put onto its destination, so that neither is decided on twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from controller.cluster.objects import Resources
from controller.evictions.entry import Entry, Phase
from controller.policy.model import Floor
from controller.utilization.reading import NodeLoad, VmLoad


class Use(NamedTuple):
    """Fractions of a node's allocatable CPU and memory; may exceed 1, since demand counts."""

    cpu: float
    memory: float

    def plus(self, load: VmLoad, size: Resources, sign: int = 1) -> "Use":
        return Use(
            self.cpu + sign * _share(load.cpu_cores, size.cpu_cores),
            self.memory + sign * _share(load.memory_bytes, size.memory_bytes),
        )


def _share(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """Charged load per node; a node whose load is unknown is absent, and so is one with an arrival of unknown load."""

    loads: Mapping[str, NodeLoad]
    departing: frozenset[str] = frozenset()
    """Nodes with departures that the metrics do not show yet."""

    def use(self, node: str, size: Resources) -> Use | None:
        load = self.loads.get(node)
        if load is None:
            return None
        return Use(_share(load.cpu_cores, size.cpu_cores), _share(load.memory_bytes, size.memory_bytes))

    def hurts(self, node: str, size: Resources, floor: Floor) -> bool:
        """Whether the node still feels its load once the moves are charged.

        Pressure cannot be charged: while there are departures that the metrics do not show, it is old news and does
        not count.
        """
        use = self.use(node, size)
        if use is None:
            return False
        pressed = node not in self.departing and self.loads[node].pressure >= floor.pressure
        return use.cpu >= floor.cpu or use.memory >= floor.memory or pressed


def charge(loads: Mapping[str, NodeLoad], entries: Iterable[Entry]) -> Picture:
    """The picture that decisions see.

    Entries without a known load cannot be charged: their slot is held instead, and nothing more is sent to where they
    go, or several nodes would fill the same idle one.
    """
    departing, filling = set(), set()
    moved: dict[str, list[tuple[int, VmLoad]]] = {}
    for entry in entries:
        if entry.phase is Phase.STUCK:
            continue  # for ever it would be: the VM is where the metrics show it
        departing.add(entry.source)
        if entry.load is not None:
            moved.setdefault(entry.source, []).append((-1, entry.load))
            moved.setdefault(entry.target, []).append((1, entry.load))
        else:
            filling.add(entry.target)
    charged = {node: load for node, load in loads.items() if node not in filling}
    for node, moves in moved.items():
        if (at := charged.get(node)) is not None:
            # All of them before what is left is kept from falling below zero: in any order the same.
            cpu_cores = fsum((at.cpu_cores, *(sign * load.cpu_cores for sign, load in moves)))
            memory_bytes = fsum((at.memory_bytes, *(sign * load.memory_bytes for sign, load in moves)))
            charged[node] = at._replace(cpu_cores=max(cpu_cores, 0.0), memory_bytes=max(memory_bytes, 0.0))
    return Picture(charged, frozenset(departing))
