"""Records of made-up runs, for tests of the scores and of the report."""

from typing import Any

import numpy as np

from simulator.record import (
    APPROPRIATE,
    OVER,
    UNDER,
    UNKNOWN,
    LimitsInfo,
    MigrationRecord,
    NodeInfo,
    RunRecord,
    Samples,
)
from simulator.report.scores import Scores

GIB = float(1 << 30)

POLICY = """\
apiVersion: vm-rebalancer.io/v1alpha1
kind: RebalancePolicy
mode: Automatic
evictions:
  limits: {node: 1, total: 5}
"""


def migration(
    vm: str, source: str, target: str | None, created_s: float, ended_s: float | None, **changes: Any
) -> MigrationRecord:
    """A migration; one that has ended has succeeded unless ``outcome`` says otherwise."""
    fields: dict[str, Any] = {
        "started_s": created_s + 5.0,
        "outcome": "" if ended_s is None else "Succeeded",
        "vmim_uid": f"vmim-{vm}-{created_s:.0f}",
        **changes,
    }
    return MigrationRecord(
        vm=vm, source=source, target=target, created_s=created_s, ended_s=ended_s, **fields
    )


def samples(demand: Any, *, step_s: float = 30.0, **changes: Any) -> Samples:
    """Samples that follow from the nodes' demand (TxN); pressure starts at 70 % as in the simulated world."""
    demand = np.asarray(demand, dtype=float)
    average = np.nanmean(demand, axis=1)
    value = np.clip(demand, 0.0, 1.0)
    over = value > average[:, None] + 0.1
    under = value <= average[:, None]
    known = np.where(over, OVER, np.where(under, UNDER, APPROPRIATE))
    node_class = np.where(np.isnan(demand), UNKNOWN, known)
    fields: dict[str, Any] = {
        "times_s": np.arange(len(demand)) * step_s,
        "utilization": np.minimum(demand, 1.0),
        "demand": demand,
        "cpu_pressure": np.clip((demand - 0.7) ** 2 * 2.0, 0.0, 1.0) * (demand > 0.7),
        "memory_utilization": 0.5 + 0.1 * demand,
        "memory_pressure": np.zeros_like(demand),
        "value": value,
        "node_class": node_class,
        "taints": np.where(node_class == OVER, 2, np.where(node_class == APPROPRIATE, 1, 0)),
        "threshold_under": average,
        "threshold_over": average + 0.1,
        "in_flight": np.zeros(len(demand), dtype=int),
        **changes,
    }
    return Samples(**fields)


def run_record(**changes: Any) -> RunRecord:
    """Two idle nodes for an hour; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "scenario": "hotspot",
        "description": "Two of ten nodes turn hot after ten minutes.",
        "expectation": "Relieve both within 20 minutes and move nothing twice.",
        "label": "rebalancer",
        "seed": 1,
        "minutes": 60.0,
        "policy_digest": "3f9a1c20",
        "policy_yaml": POLICY,
        "command": "vm-rebalancer simulate hotspot --seed 1",
        "limits": LimitsInfo(node=1, total=5),
        "nodes": [NodeInfo("node-a", 128.0, 2355 * GIB), NodeInfo("node-b", 128.0, 2355 * GIB)],
        "vm_count": 20,
        "samples": samples(np.full((121, 2), 0.2)),
        "migrations": [],
        "overutilized_node_seconds": 0.0,
        "pressure_node_seconds": 0.0,
        "starved_core_seconds": 0.0,
        "utilization_stddev": 0.0,
        **changes,
    }
    return RunRecord(**fields)


def some_scores(**changes: Any) -> Scores:
    """Scores of a good run; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "scenario": "hotspot",
        "seed": 1,
        "policy_digest": "3f9a1c20",
        "vms_shut_down": 0,
        "migrations": 26,
        "migrations_failed": 0,
        "repeated_migrations": 0,
        "undone_migrations": 0,
        "max_outbound_per_node": 1,
        "max_in_flight": 2,
        "overutilized_node_minutes": 17.583,
        "pressure_node_minutes": 6.817,
        "starved_cpu_minutes": 1117.7,
        "utilization_stddev": 0.09208,
        "minutes_to_balance": 11.5,
        **changes,
    }
    return Scores(**fields)
