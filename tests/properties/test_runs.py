"""Random clusters, loads, troubles and policies: the invariants hold in every run.

A run that breaks one is printed as a scenario; saved to a file, ``vm-rebalancer simulate FILE`` repeats it. Such
scenarios are kept in ``tests/regressions``.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

from simulator.engine.run import Run, policy_for, run
from simulator.scenario import ScenarioErrors, load_scenario, parse_scenario
from simulator.schema import Scenario
from simulator.scores import scores

IMPOSSIBLE = ("fit on none of the nodes", "may not share a node")
REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.yaml"))


def ranged(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda x: round(x, 2))


def optional(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Absent in two of three cases: what is odd should be the exception, or nothing ever moves."""
    return st.one_of(st.just({}), st.just({}), values.map(lambda value: {name: value}))


@st.composite
def merged(draw: st.DrawFn, *parts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for part in parts:
        answer |= draw(part)
    return answer


NODES = st.integers(3, 6)
VM_GROUP = merged(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 12),
            "vcpus": st.sampled_from([1, 2, 4, 8]),
            "memory_gib": st.sampled_from([2, 8, 16, 48]),
            "dirty_mb_per_s": st.sampled_from([5, 50, [20, 600]]),
        }
    ),
    optional("eviction_strategy", st.sampled_from(["LiveMigrateIfPossible", "None", "External", None])),
    optional("migratable", st.booleans()),
    optional("opted_out", st.just(True)),
    optional("pinned", st.just(True)),
    optional("priority", st.integers(-10, 10)),
    optional("age_minutes", st.sampled_from([1, 4, 100])),
    st.one_of(
        st.just({}),
        st.just({"placement": ["node-00"]}),
        st.just({"placement": ["node-00", "node-01"]}),
        st.just({"anti_affine_sets_of": 2}),
    ),
    optional("demand", ranged(0, 1)),
)
HOT = st.fixed_dictionaries(
    {
        "count": st.integers(5, 12),
        "vcpus": st.sampled_from([4, 8]),
        "memory_gib": st.just(8),
        "demand": ranged(0.5, 1),
        "placement": st.just(["node-00"]),
    }
)
LOAD = merged(
    st.fixed_dictionaries({"demand": ranged(0.2, 1), "touched": ranged(0.1, 0.9)}),
    optional(
        "hotspots",
        st.lists(
            st.fixed_dictionaries(
                {
                    "vms": st.sampled_from(
                        [{"nodes": {"hottest": 1}}, {"nodes": {"random": 1}}, {"count": 4}]
                    ),
                    "start_minute": st.integers(0, 10),
                    "every_minutes": st.integers(6, 9),
                    "for_minutes": st.integers(2, 5),
                    "demand": ranged(0.5, 1),
                }
            ),
            min_size=1,
            max_size=2,
        ),
    ),
    optional("noise", st.just([{"std": 0.1}])),
    optional("spikes", st.just([{"per_minute": 3}])),
)
KUBEVIRT = merged(
    optional("webhook", st.just("older")),
    optional("webhook_down", st.just(True)),
    optional("annotation", st.just("older")),
    optional("cluster_eviction_strategy", st.sampled_from(["LiveMigrate", "LiveMigrateIfPossible", "None"])),
    optional("parallel_migrations_per_cluster", st.integers(1, 5)),
    optional("parallel_outbound_migrations_per_node", st.integers(1, 3)),
    optional("failure_probability", ranged(0, 0.7)),
    optional("stuck_probability", ranged(0, 0.3)),
    optional("slow_factor", st.just(10)),
    optional("throttle_probability", ranged(0, 0.5)),
)
HAPPENINGS = st.lists(
    st.sampled_from(
        [
            {"kind": "migrate", "vms": {"count": 1}, "every_minutes": 3},
            {"kind": "cordon", "nodes": ["node-01"], "start_minute": 6, "for_minutes": 5},
            {"kind": "drain", "nodes": ["node-00"], "at_minute": 5, "reboot_minutes": 2},
            {"kind": "lose-nodes", "nodes": ["node-01"], "start_minute": 8},
            {"kind": "remove-nodes", "nodes": ["node-01"], "at_minute": 7},
            {"kind": "abort", "start_minute": 3, "every_minutes": 2},
            {"kind": "abort", "way": "evacuate-cancel", "start_minute": 3, "every_minutes": 2},
            {"kind": "backup", "vms": {"count": 3}, "start_minute": 3, "for_minutes": 5},
            {"kind": "webhook-down", "start_minute": 4, "for_minutes": 3},
            {"kind": "not-ready", "nodes": ["node-00"], "start_minute": 4, "for_minutes": 4},
            {"kind": "stop-vms", "vms": {"count": 2}, "at_minute": 7},
            {"kind": "join-nodes", "group": "node", "count": 1, "at_minute": 6},
            {"kind": "churn", "group": "a", "starts_per_minute": 0.3, "stops_per_minute": 0.3},
        ]
    ),
    max_size=3,
    unique_by=lambda happening: happening["kind"],
)
TROUBLES = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(
                [
                    "missing",
                    "nan",
                    "infinite",
                    "out-of-range",
                    "stale",
                    "duplicate",
                    "partial",
                    "outage",
                    "late",
                ]
            ),
            "start_minute": st.integers(0, 12),
            "for_minutes": st.integers(1, 4),
            "every_minutes": st.integers(5, 8),
            "probability": ranged(0.1, 1),
        }
    ),
    max_size=2,
)
POLICY = merged(
    st.sampled_from([{}, {"mode": "Predictive"}]),
    optional(
        "evictions",
        merged(
            optional(
                "limits",
                st.sampled_from([{"node": 2, "total": 3}, {"node": 1, "total": 1}, {"node": 5, "total": 9}]),
            ),
            optional("order", st.just("LowestPriority")),
            optional("minVmAge", st.just("1m")),
            optional("minGain", st.sampled_from([0.0, 0.05])),
            optional("settle", st.sampled_from(["30s", "5m"])),
            optional("migrationTimeout", st.just("2m")),
            optional("cooldown", st.just({"base": "1m", "max": "4m", "window": "1h"})),
            optional("breaker", st.just({"failures": 2, "within": "5m", "rest": "5m"})),
            optional("priorityThreshold", st.integers(-5, 5)),
        ),
    ),
    optional(
        "thresholds",
        merged(
            st.sampled_from([{}, {"utilizationThresholds": "Low"}, {"deviationThresholds": "Medium"}]),
            optional("sustain", st.integers(1, 3)),
            optional("floor", st.just({"cpu": 0.1, "memory": 0.1, "pressure": 0.01})),
        ),
    ),
    optional(
        "softTaints", st.sampled_from([{"scheme": "Single"}, {"scheme": "Graded"}, {"mode": "CleanupOnly"}])
    ),
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "description": "drawn at random",
        "minutes": draw(st.sampled_from([12, 25])),
        "nodes": {
            "node": {"count": draw(NODES), "cores": draw(st.sampled_from([16, 32])), "memory_gib": 1024}
        },
        "vms": {"hot": draw(HOT)} | {name: draw(VM_GROUP) for name in ("a", "b", "c")},
        "load": draw(LOAD),
        "kubevirt": draw(KUBEVIRT),
        "happenings": draw(HAPPENINGS),
        "troubles": draw(TROUBLES),
        "policy": draw(POLICY),
    }


def go(scenario: Scenario, seed: int) -> None:
    """Raises BrokenInvariant; checks besides what only the end of a run shows."""
    done = run(
        Run(scenario, seed, policy_for(scenario), f"vm-rebalancer simulate scenario.yaml --seed {seed}")
    )
    result = scores(done.record)
    event("something moved" if result.migrations else "nothing moved")
    assert result.repeated_migrations == 0
    assert not [error for error in done.errors if "ConflictError" not in error]
    assert not [s for s in done.record.shutdowns if s.cause == "rebalancer"]


@given(document=scenarios(), seed=st.integers(1, 1000))
@settings(
    max_examples=200,
    deadline=None,
    phases=[p for p in Phase if p is not Phase.explain],
    suppress_health_check=list(HealthCheck),
)
def test_invariants_hold_in_random_clusters(document: dict[str, Any], seed: int) -> None:
    text = yaml.safe_dump(document, sort_keys=False)
    note(f"vm-rebalancer simulate scenario.yaml --seed {seed}, with this scenario.yaml:\n{text}")
    try:
        go(parse_scenario(text), seed)
    except ScenarioErrors as error:
        if not any(words in str(error) for words in IMPOSSIBLE):
            raise
        event("impossible cluster")


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_broke_an_invariant_does_so_no_more(path: Path) -> None:
    for seed in (1, 2, 3):
        go(load_scenario(str(path)), seed)
