"""Recorded series trail the truth as Prometheus' would."""

import math

import numpy as np
import pytest

from simulator.agenda import Agenda
from simulator.metrics.recorded import NODE_SERIES, VM_SERIES, RecordedMetrics
from simulator.metrics.windows import rate
from simulator.specs import GIB
from simulator.world.world import World
from tests.simulator.world_builders import node, vm, world_of

UTILIZATION = "vm_rebalancer:node_cpu_utilization:avg1m"
PRESSURE = "vm_rebalancer:node_cpu_pressure:rate1m"
COMBINED = "vm_rebalancer:node_cpu_memory_combined:score"
CPU_COMBINED = "vm_rebalancer:node_cpu_combined:score"
DEMAND = "vm_rebalancer:vmi_cpu_demand_cores:avg2m"


def values(metrics: RecordedMetrics, series: str) -> dict[str, float]:
    return {
        labels.get("instance") or f"{labels['name']}@{labels['node']}": value
        for labels, value, _ in metrics.series(series)
    }


def metrics_of(*nodes: str) -> tuple[Agenda, World, RecordedMetrics]:
    agenda, world = world_of(*nodes)
    return agenda, world, RecordedMetrics(world, agenda)


def test_the_cluster_has_a_past_when_the_run_begins() -> None:
    """Else every run would begin with two minutes of loads that rise from nothing."""
    agenda, world, metrics = metrics_of("a")
    world.add_vm("vms/x", vm(demand=1.0), "a")
    world.add_vm("vms/y", vm(demand=0.6), "a")
    assert metrics.series(UTILIZATION) == []
    agenda.run_until(15)
    assert values(metrics, UTILIZATION) == {"a": pytest.approx(1.0)}
    assert values(metrics, PRESSURE) == {"a": pytest.approx(0.3 + 6 / 16)}
    assert values(metrics, DEMAND) == {"x@a": pytest.approx(10.0), "y@a": pytest.approx(6.0)}


def test_the_sample_time_is_the_evaluation_before() -> None:
    agenda, _, metrics = metrics_of("a")
    agenda.run_until(74)
    assert metrics.series(UTILIZATION)[0][2] == 45.0
    agenda.run_until(75)
    assert metrics.series(UTILIZATION)[0][2] == 75.0


def test_a_load_is_seen_in_steps_and_wholly_after_window_scrape_and_rule() -> None:
    """What `settle` rests on: 60 s of window, 30 s of scrape, 30 s of rule."""
    agenda, world, metrics = metrics_of("a")
    world.add_vm("vms/x", vm(), "a")
    agenda.run_until(300)
    agenda.at(310, lambda: world.set_demand("vms/x", 0.9))
    seen = []
    for time_s in (315, 345, 375, 405):
        agenda.run_until(time_s)
        seen.append(round(values(metrics, UTILIZATION)["a"], 6))
    assert seen == [0.0, 0.6, 0.9, 0.9]


def test_all_series_of_the_contract_are_there() -> None:
    agenda, world, metrics = metrics_of("a")
    world.add_vm("vms/x", vm(demand=0.4), "a")
    agenda.run_until(200)
    for series in NODE_SERIES:
        assert [labels for labels, _, _ in metrics.series(series)] == [{"instance": "a"}], series
    for series in VM_SERIES:
        expected = [{"namespace": "vms", "name": "x", "node": "a"}]
        assert [labels for labels, _, _ in metrics.series(series)] == expected, series
    assert values(metrics, "vm_rebalancer:node_cpu_usage_cores:avg2m") == {"a": pytest.approx(4.0)}
    assert values(metrics, "vm_rebalancer:node_memory_usage_bytes:avg2m") == {"a": pytest.approx(5 * GIB)}
    assert values(metrics, "vm_rebalancer:vmi_memory_usage_bytes:avg2m") == {"x@a": pytest.approx(5 * GIB)}
    assert values(metrics, "vm_rebalancer:vmi_dirty_rate_bytes:avg2m") == {"x@a": pytest.approx(1e6)}
    with pytest.raises(KeyError):
        metrics.series("vm_rebalancer:no_such:series")


def test_saturation_does_not_hide_what_a_vm_wants() -> None:
    agenda, world, metrics = metrics_of("a")
    world.add_vm("vms/x", vm(demand=1.0), "a")
    world.add_vm("vms/y", vm(demand=0.6), "a")
    agenda.run_until(200)
    assert values(metrics, UTILIZATION) == {"a": pytest.approx(1.0)}
    assert values(metrics, PRESSURE) == {"a": pytest.approx(0.3 + 6 / 16)}
    assert values(metrics, DEMAND) == {"x@a": pytest.approx(10.0), "y@a": pytest.approx(6.0)}


def test_a_vm_that_moved_is_reported_at_its_new_node_with_both_of_its_series() -> None:
    agenda, world, metrics = metrics_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.5), "a")
    agenda.run_until(310)
    world.move_vm("vms/x", "b")
    agenda.run_until(320)
    assert values(metrics, DEMAND) == {"x@a": pytest.approx(5.0)}, "not scraped since"
    seen = []
    for time_s in (345, 375, 405, 435):
        agenda.run_until(time_s)
        (place, demand), *_ = values(metrics, DEMAND).items()
        assert place == "x@b"
        seen.append(round(demand, 3))
    # Three samples on the old node; two there and two here; three here, born at 310 s; then a whole window.
    assert seen == [3.75, 5.208, 3.958, 5.0]


def test_a_vm_that_came_back_counts_its_restart_as_one() -> None:
    agenda, world, metrics = metrics_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.5), "a")
    agenda.run_until(290)
    world.move_vm("vms/x", "b")
    agenda.run_until(310)
    world.move_vm("vms/x", "a")
    agenda.run_until(345)
    assert 2.0 < values(metrics, DEMAND)["x@a"] < 6.0


def test_a_new_vm_has_memory_first_and_demand_a_scrape_later() -> None:
    agenda, world, metrics = metrics_of("a")
    agenda.run_until(295)
    world.add_vm("vms/x", vm(demand=0.5, age_s=0), "a")
    agenda.run_until(315)
    assert values(metrics, "vm_rebalancer:vmi_memory_usage_bytes:avg2m") == {"x@a": 5 * GIB}
    assert metrics.series(DEMAND) == []
    agenda.run_until(345)
    assert values(metrics, DEMAND) == {"x@a": pytest.approx(5.0 * 50 / 120)}


def test_what_has_gone_is_gone_with_the_next_scrape() -> None:
    agenda, world, metrics = metrics_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.5), "b")
    agenda.run_until(301)
    world.remove_vm("vms/x")
    world.remove_node("b")
    agenda.run_until(320)
    assert list(values(metrics, UTILIZATION)) == ["a", "b"]
    agenda.run_until(345)
    assert list(values(metrics, UTILIZATION)) == ["a"]
    assert metrics.series(DEMAND) == []


def test_a_slot_used_again_does_not_lend_its_history() -> None:
    agenda, world, metrics = metrics_of("a")
    world.add_vm("vms/x", vm(demand=1.0), "a")
    agenda.run_until(301)
    world.remove_vm("vms/x")
    world.add_vm("vms/y", vm(demand=0.1), "a")
    agenda.run_until(345)
    assert metrics.series(DEMAND) == [], "one scrape of y so far"
    agenda.run_until(800)
    assert values(metrics, DEMAND) == {"y@a": pytest.approx(1.0)}


def test_a_node_that_joins_is_known_after_two_scrapes() -> None:
    agenda, world, metrics = metrics_of("a")
    agenda.run_until(305)
    world.add_node(node("b"))
    agenda.run_until(345)
    assert list(values(metrics, UTILIZATION)) == ["a"]
    agenda.run_until(375)
    assert list(values(metrics, UTILIZATION)) == ["a", "b"]


def test_a_cluster_may_be_empty_at_first() -> None:
    agenda, world, metrics = metrics_of()
    agenda.run_until(40)
    assert metrics.series(UTILIZATION) == metrics.series(DEMAND) == metrics.series(COMBINED) == []
    world.add_node(node("a"))
    agenda.run_until(105)
    assert list(values(metrics, UTILIZATION)) == ["a"]


def test_the_combined_score_is_three_times_the_length_of_the_deviations_above_average() -> None:
    agenda, world, metrics = metrics_of("a", "b", "c", "d")
    world.add_vm("vms/x", vm(demand=0.4, touched=1.0, guest_bytes=20 * GIB), "a")
    world.add_vm("vms/y", vm(demand=1.0, touched=0.0), "b")
    agenda.run_until(200)
    cpu, memory, pressure = 1.0 - 1.4 / 4, 0.2 - 0.2 / 4, 0.3 - 0.3 / 4
    assert values(metrics, COMBINED) == pytest.approx(
        {"a": 3 * math.hypot(0.05, memory), "b": min(1.0, 3 * math.hypot(cpu, pressure)), "c": 0.0, "d": 0.0}
    )


def test_pressure_below_70_percent_of_use_does_not_count() -> None:
    """Memory pressure counts from its own 70 %, CPU pressure from CPU's."""
    agenda, world, metrics = metrics_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.75), "a")
    world.add_vm("vms/y", vm(demand=0.65), "b")
    agenda.run_until(200)
    by_utilization = values(metrics, "vm_rebalancer:node_cpu_pressure_by_utilization:rate1m")
    assert by_utilization == {"a": pytest.approx(0.3 / 36), "b": 0.0}


def test_cpu_combined_turns_to_pressure_when_the_workers_are_busy_on_average() -> None:
    agenda, world, metrics = metrics_of("a", "b")
    world.add_vm("vms/x", vm(demand=0.75), "a")
    world.add_vm("vms/y", vm(demand=0.8), "b")
    agenda.run_until(200)
    assert values(metrics, CPU_COMBINED) == pytest.approx({"a": 0.75, "b": 0.8})
    world.set_demand("vms/y", 1.0)
    agenda.run_until(400)
    assert values(metrics, CPU_COMBINED) == pytest.approx({"a": 0.3 / 36, "b": 0.3})


def test_control_plane_counts_in_no_average_and_has_no_score_but_plain_load() -> None:
    agenda, world, metrics = metrics_of("a", "b")
    world.add_node(node("cp", labels={"node-role.kubernetes.io/control-plane": ""}, other_cpu_cores=9.0))
    agenda.run_until(200)
    assert values(metrics, COMBINED) == {"a": 0.0, "b": 0.0}
    assert list(values(metrics, CPU_COMBINED)) == ["a", "b"]
    assert values(metrics, "vm_rebalancer:node_cpu_usage_cores:avg2m")["cp"] == pytest.approx(9.0)


def test_answers_can_be_changed_without_harm() -> None:
    agenda, _, metrics = metrics_of("a")
    agenda.run_until(50)
    metrics.series(UTILIZATION).clear()
    assert len(metrics.series(UTILIZATION)) == 1


@pytest.mark.parametrize(
    ("times", "counter", "expected"),
    [
        ([15, 45], [100.0, 130.0], 1.0),  # both edges within reach
        ([0, 30, 60], [0.0, 30.0, 60.0], 1.0),  # edges exactly hit
        ([40, 50], [100.0, 110.0], 25 / 60),  # one edge out of reach: half a distance there
        ([15, 45], [0.0, 30.0], 45 / 60),  # never to before the counter's birth
        ([15, 45], [10.0, 40.0], 55 / 60),  # born ten seconds before
        ([15, 45], [130.0, 30.0], 1.0),  # restarted from zero
        ([15, 45], [7.0, 7.0], 0.0),
        ([45], [7.0], math.nan),
    ],
)
def test_rate_is_prometheus_rate(times: list[float], counter: list[float], expected: float) -> None:
    result = rate(np.array(times, float), np.array(counter)[:, None], 0.0, 60.0)
    assert result.tolist() == pytest.approx([expected], nan_ok=True)
