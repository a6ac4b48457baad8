"""The simulator shows what was measured with the real upstream descheduler: real control plane, emulated KubeVirt.

Every 90 s, two evictions per node and five in all, an external soft-tainter, ten nodes of 128 cores, 36 minutes. What
was measured are single runs, so it is compared with the median of a few seeds.
"""

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import median

import pytest

from simulator.build import build
from simulator.engine.run import Run, policy_for, run, run_baseline
from simulator.record import MigrationRecord, RunRecord
from simulator.scenario.loading import load_scenario

DATA = Path(__file__).parent / "data"
DUMP = Path(__file__).parents[1] / "data" / "cluster-dump.json"
SEEDS = range(1, 8)
FACTOR = 1.5
COMPRESSED = 6
"""In the measured cluster, times were a sixth of what they stand for."""


@functools.cache
def classic(name: str, seed: int, *, soft_tainter: bool = True) -> RunRecord:
    scenario = load_scenario(str(DATA / f"measured-{name}.yaml"))
    asked = Run(scenario, seed, policy_for(scenario), "", "baseline", soft_tainter, baseline_interval_s=90.0)
    return run_baseline(asked).record


@functools.cache
def ours(name: str, seed: int) -> RunRecord:
    scenario = load_scenario(str(DATA / f"measured-{name}.yaml"))
    return run(Run(scenario, seed, policy_for(scenario), "")).record


def typical(of: Callable[[RunRecord], float], name: str, *, soft_tainter: bool = True) -> float:
    return median(of(classic(name, seed, soft_tainter=soft_tainter)) for seed in SEEDS)


def migrations(record: RunRecord) -> int:
    return len(record.migrations)


def over_s(record: RunRecord) -> float:
    return record.overutilized_node_seconds


def arrived(record: RunRecord) -> Counter[str]:
    return Counter(m.vm for m in record.migrations if m.outcome == "Succeeded")


def moved_twice(record: RunRecord) -> int:
    return sum(times > 1 for times in arrived(record).values())


def close(measured: float, factor: float = FACTOR) -> object:
    """What lies within a factor of what was measured."""
    low, high = measured / factor, measured * factor
    return pytest.approx((low + high) / 2, abs=(high - low) / 2)


# Without any rebalancer


@pytest.mark.parametrize(
    ("name", "measured_over_s", "measured_starved_core_s"), [("hotspot", 4314, 65_663), ("pilot", 1881, 1742)]
)
def test_hot_nodes_starve_as_much_as_measured(
    name: str, measured_over_s: float, measured_starved_core_s: float
) -> None:
    ends = []
    for seed in SEEDS:
        simulation = build(load_scenario(str(DATA / f"measured-{name}.yaml")), seed)
        simulation.agenda.run_until(36 * 60)
        ends.append(simulation.world.totals())
    assert median(float(end.over_s) for end in ends) == close(measured_over_s, 1.1)
    assert median(float(end.starved_core_s) for end in ends) == close(measured_starved_core_s, 1.1)


# The classic loop


@pytest.mark.parametrize(
    ("name", "measured", "measured_over_s"), [("hotspot", 33, 1164), ("failing", 51, 1560), ("calm", 23, 0)]
)
def test_the_classic_loop_moves_and_relieves_as_measured(
    name: str, measured: int, measured_over_s: float
) -> None:
    assert typical(migrations, name) == close(measured)
    assert typical(over_s, name) == close(measured_over_s)


def test_bursts_make_the_classic_loop_run_after_them_as_measured() -> None:
    """Two runs were measured: 47 and 32 migrations. They bring some VMs to nodes that the next burst hits."""
    assert typical(migrations, "pilot") == close((47 + 32) / 2)
    assert typical(moved_twice, "pilot") >= 2


def test_failed_migrations_are_as_many_as_measured() -> None:
    assert typical(lambda r: sum(m.outcome == "Failed" for m in r.migrations), "failing") == close(13)


def test_the_classic_loop_shuts_down_what_cannot_migrate() -> None:
    assert typical(lambda r: len(r.shutdowns), "unmovable") == close(14)
    assert typical(migrations, "unmovable") == close(18)
    assert typical(over_s, "unmovable") == close(744)


def test_without_soft_taints_vms_go_to_and_fro_between_the_hot_nodes() -> None:
    assert typical(moved_twice, "hotspot", soft_tainter=False) == close(14)
    assert typical(moved_twice, "hotspot") <= 2
    assert typical(migrations, "hotspot", soft_tainter=False) == close(60)
    assert typical(over_s, "hotspot", soft_tainter=False) == close(1272)


# The course of one measured run, as its VMIMs tell it


@functools.cache
def recorded() -> list[tuple[float, float | None, int]]:
    """(created, succeeded, GiB) of each migration, in seconds since the first was created."""
    items = json.loads(DUMP.read_text())["items"]
    guests = {
        vmi["metadata"]["name"]: int(vmi["spec"]["domain"]["memory"]["guest"].removesuffix("Gi"))
        for vmi in items
        if vmi["kind"] == "VirtualMachineInstance"
    }
    rows = []
    for vmim in items:
        if vmim["kind"] != "VirtualMachineInstanceMigration":
            continue
        phases = {
            step["phase"]: _seconds(step["phaseTransitionTimestamp"])
            for step in vmim["status"]["phaseTransitionTimestamps"]
        }
        created_s = _seconds(vmim["metadata"]["creationTimestamp"])
        rows.append((created_s, phases.get("Succeeded"), guests[vmim["spec"]["vmiName"]]))
    first_s = min(created_s for created_s, _, _ in rows)
    return [(at - first_s, None if end is None else end - first_s, gib) for at, end, gib in sorted(rows)]


def _seconds(text: str) -> float:
    return COMPRESSED * datetime.fromisoformat(text).timestamp()


def since_first(record: RunRecord, until_s: float) -> int:
    first_s = min(m.created_s for m in record.migrations)
    return sum(m.created_s <= first_s + until_s for m in record.migrations)


def size_gib(migration: MigrationRecord) -> int:
    return {"huge": 80, "large": 64, "medium": 32, "small": 16, "tiny": 8}[migration.vm.split("/")[1][:-4]]


@pytest.mark.parametrize("minute", [2, 6, 10, 14, 18])
def test_evictions_follow_each_other_at_the_recorded_pace(minute: int) -> None:
    seen = sum(created_s <= 60 * minute for created_s, _, _ in recorded())
    assert typical(lambda r: since_first(r, 60 * minute), "hotspot") == close(seen, 1.25)


def test_migrations_of_hot_vms_take_as_long_as_recorded() -> None:
    measured, simulated = defaultdict(list), defaultdict(list)
    for created_s, ended_s, gib in recorded():
        if ended_s is not None:
            measured[gib].append(ended_s - created_s)
    for seed in SEEDS:
        for migration in classic("hotspot", seed).migrations:
            if migration.ended_s is not None and not migration.vm.startswith("vms/idle"):
                simulated[size_gib(migration)].append(migration.ended_s - migration.created_s)
    for gib in (16, 64, 80):
        assert median(simulated[gib]) == close(median(measured[gib]), 1.25)


def test_the_hot_nodes_are_relieved_as_long_after_the_first_eviction_as_recorded() -> None:
    def relieved_s(record: RunRecord) -> float:
        last_s = max(end_s for node in ("node-00", "node-01") for _, end_s in record.over_intervals[node])
        return last_s - min(m.created_s for m in record.migrations)

    assert typical(relieved_s, "hotspot") == close(486, 1.25)


# This rebalancer, on the same clusters


@pytest.mark.parametrize(
    ("name", "moves", "limit_s"), [("hotspot", 26, 1055), ("failing", 26, 1560), ("unmovable", 22, 1273)]
)
def test_it_relieves_in_time_with_fewer_migrations_than_the_classic_loop(
    name: str, moves: int, limit_s: float
) -> None:
    records = [ours(name, seed) for seed in SEEDS]
    assert median(arrived(record).total() for record in records) <= moves
    assert median(over_s(record) for record in records) <= limit_s
    assert not any(moved_twice(record) or record.shutdowns for record in records)
    assert median(map(migrations, records)) < typical(migrations, name)


def test_it_leaves_a_calm_cluster_alone_where_the_classic_loop_does_not() -> None:
    assert not any(ours("calm", seed).migrations for seed in SEEDS)
    assert typical(migrations, "calm") > 0
