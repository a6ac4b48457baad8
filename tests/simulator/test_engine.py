"""The engine: the controller's real code on simulated clusters, in virtual time."""

import functools
from itertools import pairwise

import msgspec
import pytest
import yaml

from simulator.engine.ports import BrokenInvariant
from simulator.engine.run import Finished, Run, policy_for, run, run_baseline
from simulator.record import RunRecord
from simulator.report.scores import Scores, scores
from simulator.scenario.expect import unmet
from simulator.scenario.loading import list_scenarios, load_scenario, parse_scenario

SEEDS = (1, 2, 3)


@functools.cache
def finished(
    name: str, seed: int = 1, *, baseline: bool = False, policy: str = "", soft_tainter: bool = True
) -> Finished:
    scenario = load_scenario(name)
    go = run_baseline if baseline else run
    chosen = policy_for(scenario, policy or None)
    label = "baseline" if baseline else "rebalancer"
    return go(Run(scenario, seed, chosen, f"simulate {name} --seed {seed}", label, soft_tainter=soft_tainter))


def record(name: str, seed: int = 1, **how: bool) -> RunRecord:
    return finished(name, seed, **how).record


def judged(name: str, seed: int = 1, **how: bool) -> Scores:
    return scores(record(name, seed, **how))


QUICK = [name for name, _ in list_scenarios() if name not in ("large", "week")]


@pytest.mark.parametrize("name", QUICK)
def test_a_scenario_goes_as_it_says_a_good_rebalancer_makes_it_go(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.expect, "a scenario says what is to be expected"
    assert unmet(scenario.expect, msgspec.structs.asdict(judged(name))) == []
    assert not finished(name).errors


@pytest.mark.parametrize("seed", SEEDS)
def test_hotspot_is_relieved_sooner_and_with_fewer_moves_than_by_the_classic_loop(seed: int) -> None:
    ours, theirs = judged("hotspot", seed), judged("hotspot", seed, baseline=True)
    assert ours.vms_shut_down == 0
    assert ours.minutes_to_balance is not None
    assert ours.minutes_to_balance <= 20
    assert ours.migrations <= 1.1 * theirs.migrations
    assert ours.repeated_migrations == ours.undone_migrations == 0
    assert ours.starved_cpu_minutes <= 0.7 * theirs.starved_cpu_minutes


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["balanced", "calm", "hopeless"])
def test_nothing_is_evicted_where_nothing_helps(name: str, seed: int) -> None:
    assert judged(name, seed).migrations == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_unmovable_vms_stay_up_where_the_classic_loop_takes_them_down(seed: int) -> None:
    ours, theirs = judged("unmovable", seed), judged("unmovable", seed, baseline=True)
    assert ours.vms_shut_down == 0
    assert theirs.vms_shut_down > 0
    assert ours.migrations > 0
    assert ours.minutes_to_balance is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_failing_migrations_do_not_keep_it_from_balancing(seed: int) -> None:
    ours = judged("failing", seed)
    assert ours.migrations_failed > 0
    assert ours.minutes_to_balance is not None
    assert ours.repeated_migrations == 0


def test_the_same_seed_gives_the_same_log_byte_for_byte() -> None:
    scenario = msgspec.structs.replace(load_scenario("churn"), minutes=20.0)
    first, second = (run(Run(scenario, 7, policy_for(scenario), "")) for _ in range(2))
    assert first.events == second.events
    assert first.events != run(Run(scenario, 8, policy_for(scenario), "")).events


def test_predictive_decides_and_writes_nothing() -> None:
    text = yaml.safe_dump(
        {"apiVersion": "vm-rebalancer.io/v1alpha1", "kind": "RebalancePolicy", "mode": "Predictive"}
    )
    run_record = finished("hotspot", policy=text).record
    assert run_record.migrations == []
    assert int(run_record.samples.taints.max()) == 0
    assert any(d.outcome == "evict" for d in run_record.decisions)


def test_a_scenario_policy_runs_in_automatic_unless_it_says_otherwise() -> None:
    scenario = load_scenario("hotspot")
    assert policy_for(scenario).mode == "Automatic"
    predictive = msgspec.structs.replace(scenario, policy={"mode": "Predictive"})
    assert policy_for(predictive).mode == "Predictive"


def test_without_soft_taints_no_node_carries_any() -> None:
    run_record = record("hotspot", soft_tainter=False)
    assert int(run_record.samples.taints.max()) == 0
    assert int(record("hotspot").samples.taints.max()) == 2


def test_with_soft_taints_no_move_goes_to_an_overutilised_node() -> None:
    for move in record("hotspot").migrations:
        assert move.target not in ("node-00", "node-01")


def test_the_record_tells_why_vms_did_not_move() -> None:
    why = record("unmovable").why_not
    assert {"NotLiveMigratable", "NoEvictionStrategy", "OptedOut"} <= set(why)
    assert "opted out" not in why["NotLiveMigratable"].example


def test_blind_evictions_wait_until_the_metrics_show_the_last_one() -> None:
    """Without per-VM metrics nothing can be charged, so the slot is held until the move has settled."""
    scenario = parse_scenario(
        yaml.safe_dump(
            {
                "extends": "hotspot",
                "description": "Per-VM metrics are not to be had.",
                "troubles": [
                    {"kind": "missing", "series": ["vm_rebalancer:vmi_cpu_demand_cores:avg2m"], "nodes": []}
                ],
                "expect": {},
            }
        )
    )
    done = run(Run(scenario, 1, policy_for(scenario), "")).record
    ended = sorted((m.created_s, m.ended_s or done.end_s) for m in done.migrations if m.source == "node-01")
    assert len(ended) > 3
    for (_, end_s), (next_created_s, _) in pairwise(ended):
        assert next_created_s >= end_s + 120


@pytest.mark.parametrize("limit", [1, 2])
def test_limits_of_the_policy_hold(limit: int) -> None:
    scenario = load_scenario("hotspot")
    policy = {"evictions": {"limits": {"node": limit, "total": limit + 1}}}
    changed = msgspec.structs.replace(scenario, policy=policy)
    result = scores(run(Run(changed, 1, policy_for(changed), "")).record)
    assert result.max_outbound_per_node == limit
    assert result.max_in_flight <= limit + 1


def test_a_broken_invariant_ends_the_run_and_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.evictions.plan.why_closed", lambda *_: None)
    monkeypatch.setattr("controller.descheduler.why_closed", lambda *_: None)
    scenario = load_scenario("hotspot")
    with pytest.raises(
        BrokenInvariant, match=r"already \d+ on the move from node-0[01]\nrepeat it with: simulate x"
    ):
        run(Run(scenario, 1, policy_for(scenario), "simulate x"))
