"""Whole runs as a simulation might leave them, made up from a few numbers, for the report's tests."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.record import (
    DecisionRecord,
    FollowedRecord,
    MigrationRecord,
    NodeInfo,
    RunRecord,
    ShutdownRecord,
    WhyNot,
)
from tests.simulator.builders import GIB, migration, run_record, samples

STEP_S = 30.0
TROUBLE_S = 600.0

WHY_NOT = {
    "NoUsefulMove": WhyNot(212, "worker-03: no VM would lower the busier node by 0.01"),
    "Settling": WhyNot(131, "worker-02: 2 arrivals are not in the metrics yet"),
    "NodeLimit": WhyNot(58, "worker-02: 1 VM is on the move from it, limit 1"),
    "Cooldown": WhyNot(17, "shop/web-1-03: moved 4 min ago, rests for 15 min"),
    "NotMigratable": WhyNot(6, "shop/database-7: DisksNotLiveMigratable"),
}


def hotspot_record(label: str = "rebalancer", seed: int = 1, **changes: Any) -> RunRecord:
    """Two hot nodes of ten, relieved by 26 migrations one after the other (13 from each)."""
    relief = Relief(node_count=10, hot=(1, 6), moves=13, pause_s=82.0, seed=seed)
    return relief.record(label=label, **changes)


def baseline_record(seed: int = 1, **changes: Any) -> RunRecord:
    """The same, more slowly: 34 migrations, three failed, two VMs sent back, two VMs shut down."""
    relief = Relief(node_count=10, hot=(1, 6), moves=17, pause_s=115.0, seed=seed, asked_by="baseline")
    record = relief.record(label="baseline", **changes)
    for failed in record.migrations[4:22:8]:
        failed.outcome, failed.failure = "Failed", "Live migration stuck for 150 seconds and has been aborted"
    for back in record.migrations[6:8]:
        created_s = (back.ended_s or 0.0) + 300.0
        record.migrations.append(
            migration(
                back.vm, str(back.target), back.source, created_s, created_s + 70.0, asked_by="baseline"
            )
        )
    record.shutdowns += [
        ShutdownRecord(900.0, "shop/database-7", "worker-02", "evicted; strategy None does not migrate"),
        ShutdownRecord(1080.0, "shop/cache-1", "worker-07", "evicted; not live-migratable"),
    ]
    return record


def large_record(node_count: int = 1000, times: int = 240, **changes: Any) -> RunRecord:
    """A thousand nodes, 25 of them hot."""
    hot = tuple(range(3, node_count, 40))
    return Relief(node_count=node_count, hot=hot, moves=4, pause_s=240.0, times=times).record(**changes)


def many_record() -> RunRecord:
    """Two hundred evictions off twenty of forty nodes."""
    return Relief(node_count=40, hot=tuple(range(0, 40, 2)), moves=10, pause_s=120.0).record()


@dataclass(frozen=True)
class Relief:
    """Nodes that turn hot after ten minutes, and from each of them a move every ``pause_s`` to the next cool node."""

    node_count: int
    hot: tuple[int, ...]
    moves: int
    pause_s: float
    times: int = 145
    seed: int = 1
    asked_by: str = "rebalancer"

    def record(self, **changes: Any) -> RunRecord:
        rng = np.random.default_rng(self.seed)
        times_s = np.arange(self.times) * STEP_S
        demand = (
            0.12 + 0.02 * rng.random(self.node_count) + rng.normal(0.0, 0.008, (self.times, self.node_count))
        )
        for i in self.hot:
            demand[times_s >= TROUBLE_S, i] += 1.02
        moves = self.migrations(rng)
        for move in moves:
            arrived = times_s >= (move.ended_s or 0.0)
            demand[arrived, number_of(move.source)] -= 0.75 / self.moves
            demand[arrived, number_of(str(move.target))] += 0.75 / self.moves
        fields: dict[str, Any] = {
            "seed": self.seed,
            "minutes": times_s[-1] / 60.0,
            "trouble_start_s": TROUBLE_S,
            "nodes": [NodeInfo(name_of(i), 128.0, 2355 * GIB) for i in range(self.node_count)],
            "vm_count": 15 * self.node_count,
            "samples": samples(demand, step_s=STEP_S, in_flight=in_flight(moves, times_s)),
            "migrations": moves,
            "followed": [followed(move) for move in moves] if self.asked_by == "rebalancer" else [],
            "decisions": [decision(move) for move in moves],
            "why_not": WHY_NOT,
            "command": f"vm-rebalancer simulate hotspot --seed {self.seed}",
            **integrals(demand, times_s),
            **changes,
        }
        return run_record(**fields)

    def migrations(self, rng: np.random.Generator) -> list[MigrationRecord]:
        cool = [i for i in range(self.node_count) if i not in self.hot]
        moves = []
        for n in range(self.moves):
            for k, i in enumerate(self.hot):
                created_s = TROUBLE_S + 120.0 + n * self.pause_s + 7.0 * k + 4.0 * rng.random()
                ended_s = created_s + 12.0 + 0.55 * self.pause_s * (0.5 + 0.5 * rng.random())
                target = cool[(n * len(self.hot) + k) % len(cool)]
                move = migration(
                    f"shop/web-{i}-{n:02d}",
                    name_of(i),
                    name_of(target),
                    created_s,
                    ended_s,
                    asked_by=self.asked_by,
                )
                entered = zip(
                    (0.0, 2.0, 6.0, 10.0),
                    ("Pending", "Scheduling", "PreparingTarget", "Running"),
                    strict=True,
                )
                move.phases = [
                    *((created_s + after_s, phase) for after_s, phase in entered),
                    (ended_s, "Succeeded"),
                ]
                moves.append(move)
        return moves


def name_of(node: int) -> str:
    return f"worker-{node + 1:02d}"


def number_of(name: str) -> int:
    return int(name.removeprefix("worker-")) - 1


def decision(move: MigrationRecord) -> DecisionRecord:
    reasons = ["over-utilised: 1.00 > 0.43", "gain 0.061 of a node, copies in 31 s"]
    return DecisionRecord(move.created_s - 1.0, move.source, move.vm, "evict", reasons)


def followed(move: MigrationRecord) -> FollowedRecord:
    arrived_s = move.ended_s or 0.0
    return FollowedRecord(move.vm, move.created_s - 1.0, move.vmim_uid, arrived_s, arrived_s + 140.0)


def in_flight(moves: list[MigrationRecord], times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    counts = np.zeros(len(times_s), dtype=np.int64)
    for move in moves:
        counts += (times_s >= move.created_s) & (times_s < (move.ended_s or np.inf))
    return counts


def integrals(demand: npt.NDArray[np.float64], times_s: npt.NDArray[np.float64]) -> dict[str, Any]:
    over = demand > 0.8
    return {
        "overutilized_node_seconds": float(over.sum() * STEP_S),
        "pressure_node_seconds": float(np.clip(demand - 0.7, 0.0, 0.4).sum() * STEP_S),
        "starved_core_seconds": float(np.clip(demand - 1.0, 0.0, None).sum() * STEP_S * 128.0),
        "utilization_stddev": float(np.minimum(demand, 1.0).std(axis=1).mean()),
        "over_intervals": {
            name_of(i): [(float(times_s[over[:, i]][0]), float(times_s[over[:, i]][-1] + STEP_S))]
            for i in np.flatnonzero(over.any(axis=0)).tolist()
        },
    }


def week_record(**changes: Any) -> RunRecord:
    """Ten nodes for a week: quiet nights, busy days, and 800 migrations."""
    times, nodes = 7 * 24 * 120, 10
    hours = np.arange(times) / 120.0
    demand = 0.2 + 0.15 * np.clip(np.sin((hours / 24.0 - 0.3) * 2.0 * np.pi), 0.0, 1.0)[:, None]
    return run_record(
        scenario="week",
        minutes=7 * 1440.0,
        nodes=[NodeInfo(f"node-{i}", 128.0, 2355 * GIB) for i in range(nodes)],
        samples=samples(demand + 0.01 * np.arange(nodes)),
        migrations=[
            migration(
                f"shop/web-{i % 60}",
                f"node-{i % 10}",
                f"node-{(3 * i + 1) % 10}",
                i * 700.0,
                i * 700.0 + 90.0,
            )
            for i in range(800)
        ],
        **changes,
    )
