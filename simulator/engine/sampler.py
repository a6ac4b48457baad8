"""Looks at the world every so often and keeps what the report plots."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.agenda import Agenda
from simulator.kubevirt.objectstore import NODE, VMIM, ObjectStore, at
from simulator.record import UNKNOWN, Samples
from simulator.specs import NodeSpec
from simulator.world.world import World

MOST_SAMPLES = 3000
LEAST_PERIOD_S = 15.0


class Opinion(NamedTuple):
    """What the judged program thinks of the nodes at this moment."""

    values: dict[str, float]
    classes: dict[str, int]
    under: float
    over: float
    taint_prefix: str


NO_OPINION = Opinion({}, {}, float("nan"), float("nan"), "-")


class Sampler:
    """One row per look; nodes get a column when they are first seen."""

    def __init__(
        self,
        agenda: Agenda,
        world: World,
        store: ObjectStore,
        opinion: Callable[[], Opinion],
        minutes: float,
    ) -> None:
        self._agenda = agenda
        self._world = world
        self._store = store
        self._opinion = opinion
        self.nodes: dict[str, NodeSpec] = {}
        self._rows: list[dict[str, tuple[float, ...]]] = []
        self._cluster: list[tuple[float, float, float, int]] = []
        period_s = max(LEAST_PERIOD_S, minutes * 60.0 / MOST_SAMPLES)
        agenda.every(period_s, self.look, first_s=0.0)

    def look(self) -> None:
        world, opinion = self._world, self._opinion()
        specs = world.node_specs()
        cores = np.array([s.cores for s in specs])
        memory = np.array([s.memory_bytes for s in specs])
        columns = (
            world.node_used_cores() / cores,
            world.node_demand_cores() / cores,
            world.node_cpu_pressure(),
            world.node_memory_bytes() / memory,
            world.node_memory_pressure(),
        )
        row = {}
        for spec, *truth in zip(specs, *(c.tolist() for c in columns), strict=True):
            self.nodes.setdefault(spec.name, spec)
            seen = opinion.values.get(spec.name, float("nan"))
            node_class = opinion.classes.get(spec.name, UNKNOWN)
            row[spec.name] = (*truth, seen, node_class, self._taints(spec.name, opinion.taint_prefix))
        self._rows.append(row)
        self._cluster.append((self._agenda.now_s, opinion.under, opinion.over, self._in_flight()))

    def _taints(self, node: str, prefix: str) -> int:
        taints = at(self._store.get(NODE, "", node) or {}, "spec", "taints") or ()
        return sum(taint["key"].startswith(f"{prefix}/") for taint in taints)

    def _in_flight(self) -> int:
        return sum(at(m, "status", "phase") not in ("Succeeded", "Failed") for m in self._store.list(VMIM))

    def samples(self) -> Samples:
        absent = (*[float("nan")] * 6, UNKNOWN, 0)
        cells = np.array([[row.get(node, absent) for node in self.nodes] for row in self._rows])
        cluster = np.array(self._cluster)
        return Samples(
            times_s=cluster[:, 0],
            utilization=cells[:, :, 0],
            demand=cells[:, :, 1],
            cpu_pressure=cells[:, :, 2],
            memory_utilization=cells[:, :, 3],
            memory_pressure=cells[:, :, 4],
            value=cells[:, :, 5],
            node_class=cells[:, :, 6].astype(int),
            taints=cells[:, :, 7].astype(int),
            threshold_under=cluster[:, 1],
            threshold_over=cluster[:, 2],
            in_flight=cluster[:, 3].astype(int),
        )
