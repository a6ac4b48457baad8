"""The chart's recording rules: checked by Prometheus' own promtool, alone and against the simulator's arithmetic."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.agenda import Agenda
from simulator.metrics.recorded import NODE_SERIES, VM_SERIES, RecordedMetrics
from simulator.metrics.scrape import Scrape
from simulator.specs import GIB
from simulator.world.world import World
from tests.simulator.promtool import RULES, check_rules, run_rule_test
from tests.simulator.world_builders import node, vm

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
UTILIZATION = "vm_rebalancer:node_cpu_utilization:avg1m"
COMBINED = "vm_rebalancer:node_cpu_memory_combined:score"
PLAIN = "vm_rebalancer:node_cpu_usage_cores:avg2m"
DEMAND = "vm_rebalancer:vmi_cpu_demand_cores:avg2m"


def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in check_rules()


def test_the_rules_record_what_the_simulator_serves() -> None:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    recorded = [rule["record"] for rule in group["rules"]]
    assert group["interval"] == "30s"
    assert len(set(recorded)) == len(recorded)
    assert {*NODE_SERIES, *VM_SERIES} <= set(recorded)


def test_rules_read_only_what_earlier_rules_have_recorded() -> None:
    """In one group a rule sees the new results of those before it, and old ones of those after it."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    rules = group["rules"]
    for number, rule in enumerate(rules):
        for later in rules[number:]:
            assert later["record"] not in rule["expr"], (rule["record"], later["record"])


# Against the simulator


class Recording:
    """A simulated cluster's raw and recorded series, written in promtool's notation.

    Steps of 15 s, the first one two minutes and a step before the simulator's start: scrapes fall on odd steps,
    evaluations on even ones.
    """

    def __init__(self) -> None:
        self.series: dict[str, dict[int, float]] = defaultdict(dict)
        self.counts: dict[tuple[str, int], int] = {}

    def scrape(self, world: World, scrape: Scrape) -> None:
        step = step_of(scrape.time_s)
        for metric, labels, value in scrape.raw_samples():
            self.series[series_name(metric, labels)][step] = value
        for index, name in enumerate(world.node_names()):
            self.series[f'kube_node_info{{node="{name}",internal_ip="10.0.0.{index}"}}'][step] = 1
            role = "worker" if world.layout().workers[index] else "control-plane"
            self.series[f'kube_node_role{{node="{name}",role="{role}"}}'][step] = 1

    def evaluate(self, metrics: RecordedMetrics, time_s: float) -> None:
        step = step_of(time_s)
        for name in (*NODE_SERIES, *VM_SERIES):
            samples = metrics.series(name)
            self.counts[name, step] = len(samples)
            for labels, value, _ in samples:
                self.series[series_name(simulated(name), labels)][step] = value

    def notation(self, steps: int) -> dict[str, str]:
        """Where a series was due and is not, it is marked as stale, as Prometheus does."""
        result = {}
        for name, values in self.series.items():
            parity = min(values) % 2
            gaps = ["stale" if step % 2 == parity and step > min(values) else "_" for step in range(steps)]
            result[name] = " ".join(repr(values[s]) if s in values else gaps[s] for s in range(steps))
        return result


def step_of(time_s: float) -> int:
    return round((time_s + 120) / 15) + 1


def simulated(recorded: str) -> str:
    return recorded.replace("vm_rebalancer:", "simulated:")


def series_name(metric: str, labels: dict[str, str]) -> str:
    return metric + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def eventful_cluster() -> tuple[Agenda, World, RecordedMetrics]:
    """Saturation, memory pressure, VMs and nodes that come, go and move, within 14 minutes."""
    agenda = Agenda()
    world = World(agenda)
    world.add_node(node("a", cores=4.0, other_cpu_cores=0.3))
    world.add_node(node("b", cores=4.0, other_memory_bytes=90 * GIB))
    world.add_node(node("c", cores=6.0))
    world.add_node(node("control", cores=2.0, labels=CONTROL_PLANE, other_cpu_cores=1.5))
    for number in range(7):
        spec = vm(vcpus=2.0, demand=0.1 + number / 10, touched=number / 10, guest_bytes=12 * GIB)
        world.add_vm(f"vms/vm-{number}", spec, "aaabbcc"[number])
    metrics = RecordedMetrics(world, agenda)
    at = agenda.at
    at(95, lambda: world.set_demands({f"vms/vm-{number}": 1.0 for number in range(3)}))
    at(130, lambda: world.set_demands({"vms/vm-3": 0.95, "vms/vm-4": 0.9, "vms/vm-5": 0.8}))
    at(200, lambda: world.move_vm("vms/vm-0", "b"))
    at(230, lambda: world.move_vm("vms/vm-1", "c"))
    at(275, lambda: world.move_vm("vms/vm-1", "a"))  # back before the window has forgotten
    at(310, lambda: world.add_vm("vms/new", vm(vcpus=4.0, demand=0.7, age_s=0.0), "c"))
    at(340, lambda: world.add_node(node("d", cores=2.0)))
    at(400, lambda: world.remove_vm("vms/vm-2"))
    at(410, lambda: world.add_vm("vms/other", vm(vcpus=1.0, demand=0.5, age_s=0.0), "d"))  # the slot of vm-2
    at(460, lambda: world.set_touched("vms/vm-4", 1.0))
    at(500, lambda: world.set_overhead_cores("c", 1.5))
    at(520, lambda: world.move_vm("vms/other", "c"))
    at(525, lambda: world.remove_node("d"))
    at(570, lambda: world.set_demands(dict.fromkeys(world.vm_keys(), 1.0)))  # workers over 80 % on average
    at(700, lambda: world.set_demands(dict.fromkeys(world.vm_keys(), 0.0)))
    return agenda, world, metrics


def test_promtool_computes_what_the_simulator_computes(tmp_path: Path) -> None:
    """Fidelity: the same scrapes give the same recorded values, missing ones included."""
    agenda, world, metrics = eventful_cluster()
    recording = Recording()
    for half in range(56):
        agenda.run_until(half * 15)
        if half % 2 == 0:
            for scrape in metrics.scrapes() if half == 0 else metrics.scrapes()[-1:]:
                recording.scrape(world, scrape)
        else:
            recording.evaluate(metrics, half * 15)
    expressions: list[dict[str, Any]] = []
    for (name, step), count in recording.counts.items():
        ours, theirs = simulated(name), name
        differing = f"abs({theirs} - {ours}) > 1e-9 * clamp_min(abs({ours}), 1)"
        eval_time = f"{step * 15}s"
        differences = f"({differing}) or ({theirs} unless {ours}) or ({ours} unless {theirs})"
        expressions.append({"expr": differences, "eval_time": eval_time, "exp_samples": []})
        expected = [{"labels": "{}", "value": count}] if count else []
        expressions.append({"expr": f"count({theirs})", "eval_time": eval_time, "exp_samples": expected})
    assert max(recording.counts.values()) == 8
    run_rule_test(tmp_path, interval="15s", series=recording.notation(66), expressions=expressions)


# Joins and gaps that the simulator does not have


def cluster_series(instances: dict[str, str], *, without: str = "no such metric") -> dict[str, str]:
    """Nodes worker-0, … (InternalIP 10.0.0.N) with two CPUs each, 40 % busy, half of 1,000 bytes in use."""
    series = {}
    for number, (name, instance) in enumerate(instances.items()):
        series[f'kube_node_info{{node="{name}",internal_ip="10.0.0.{number}"}}'] = "1x20"
        job = f'instance="{instance}",job="node-exporter"'
        for cpu in (0, 1):
            series[f'node_cpu_seconds_total{{cpu="{cpu}",mode="idle",{job}}}'] = "1000+18x20"
        series[f"node_memory_MemAvailable_bytes{{{job}}}"] = "500x20"
        series[f"node_memory_MemTotal_bytes{{{job}}}"] = "1000x20"
        for resource in ("cpu", "memory", "io"):
            series[f"node_pressure_{resource}_waiting_seconds_total{{{job}}}"] = "1000+3x20"
    return {name: values for name, values in series.items() if without not in name}


def samples(name: str, labels: list[str], value: float) -> list[dict[str, Any]]:
    return [{"labels": f"{name}{{{label}}}", "value": value} for label in labels]


def expect(expr: str, exp_samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"expr": expr, "eval_time": "5m", "exp_samples": exp_samples}


def rounded(series: str) -> str:
    return f"round({series}, 0.001)"


@pytest.mark.parametrize(
    "instances",
    [
        {"worker-0": "10.0.0.0:9100", "worker-1": "10.0.0.1:9100"},
        {"worker-0": "worker-0", "worker-1": "worker-1"},
        {"worker-0.lab.example": "worker-0.lab.example:9100", "worker-1": "10.0.0.1"},
    ],
    ids=["ip:port", "node name", "mixed"],
)
def test_nodes_are_found_whatever_the_exporters_instance_looks_like(
    tmp_path: Path, instances: dict[str, str]
) -> None:
    labels = [f'instance="{name}"' for name in instances]
    run_rule_test(
        tmp_path,
        interval="30s",
        series=cluster_series(instances),
        expressions=[
            expect(rounded(UTILIZATION), samples("", labels, 0.4)),
            expect(rounded(PLAIN), samples("", labels, 0.8)),
            expect(
                "vm_rebalancer:node_memory_utilization:ratio",
                samples("vm_rebalancer:node_memory_utilization:ratio", labels, 0.5),
            ),
            expect(rounded("vm_rebalancer:node_io_pressure:rate1m"), samples("", labels, 0.1)),
            expect(COMBINED, samples(COMBINED, labels, 0)),
        ],
    )


def test_ipv6_addresses_are_found(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "[fd00::7]:9100"}, without="kube_node_info")
    series['kube_node_info{node="worker-0",internal_ip="fd00::7"}'] = "1x20"
    expected = samples("", ['instance="worker-0"'], 0.4)
    run_rule_test(
        tmp_path, interval="30s", series=series, expressions=[expect(rounded(UTILIZATION), expected)]
    )


def test_an_exporter_that_is_scraped_twice_counts_once(tmp_path: Path) -> None:
    once = cluster_series({"worker-0": "10.0.0.0:9100"})
    second_job = {name.replace('job="', 'job="second-'): values for name, values in once.items()}
    other_instance = {name.replace("10.0.0.0:9100", "worker-0"): values for name, values in once.items()}
    label = ['instance="worker-0"']
    run_rule_test(
        tmp_path,
        interval="30s",
        series={**once, **second_job, **other_instance},
        expressions=[
            expect(rounded(UTILIZATION), samples("", label, 0.4)),
            expect(rounded(PLAIN), samples("", label, 0.8)),
            expect(
                "vm_rebalancer:node_memory_usage_bytes:avg2m",
                samples("vm_rebalancer:node_memory_usage_bytes:avg2m", label, 500),
            ),
        ],
    )


def test_a_node_without_psi_keeps_its_load_and_has_no_combined_score(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "worker-0", "worker-1": "worker-1"})
    series = {name: v for name, v in series.items() if not ("pressure" in name and "worker-1" in name)}
    both, first = ['instance="worker-0"', 'instance="worker-1"'], ['instance="worker-0"']
    run_rule_test(
        tmp_path,
        interval="30s",
        series=series,
        expressions=[
            expect(rounded(UTILIZATION), samples("", both, 0.4)),
            expect(rounded(PLAIN), samples("", both, 0.8)),
            expect(rounded("vm_rebalancer:node_cpu_combined:score"), samples("", both, 0.4)),
            expect(
                "vm_rebalancer:node_cpu_pressure_by_utilization:rate1m",
                samples("vm_rebalancer:node_cpu_pressure_by_utilization:rate1m", first, 0),
            ),
            expect(COMBINED, samples(COMBINED, first, 0)),
        ],
    )


def test_a_node_that_lacks_one_psi_metric_keeps_the_others(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "worker-0"}, without="pressure_memory")
    label = ['instance="worker-0"']
    run_rule_test(
        tmp_path,
        interval="30s",
        series=series,
        expressions=[
            expect(rounded("vm_rebalancer:node_cpu_pressure:rate1m"), samples("", label, 0.1)),
            expect("vm_rebalancer:node_memory_pressure:rate1m", []),
            expect(rounded("vm_rebalancer:node_io_pressure:rate1m"), samples("", label, 0.1)),
            expect(COMBINED, []),
        ],
    )


def test_pressure_below_70_percent_of_use_does_not_count(tmp_path: Path) -> None:
    run_rule_test(
        tmp_path,
        interval="30s",
        series=cluster_series({"worker-0": "worker-0"}),
        expressions=[
            expect(
                rounded(f"vm_rebalancer:node_{resource}_pressure{suffix}:rate1m"),
                samples("", ['instance="worker-0"'], value),
            )
            for resource in ("cpu", "memory")
            for suffix, value in (("", 0.1), ("_by_utilization", 0))
        ],
    )


def test_saturated_pressure_is_held_to_one(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "worker-0"}, without="pressure_cpu")
    series['node_pressure_cpu_waiting_seconds_total{instance="worker-0"}'] = "1000+30.021x20"
    name = "vm_rebalancer:node_cpu_pressure:rate1m"
    expected = samples(name, ['instance="worker-0"'], 1)
    run_rule_test(tmp_path, interval="30s", series=series, expressions=[expect(name, expected)])


def test_an_address_claimed_by_two_nodes_costs_only_these_two(tmp_path: Path) -> None:
    """An old Node object left behind must not fail the join for the whole cluster."""
    series = cluster_series({"worker-0": "10.0.0.0:9100", "worker-1": "10.0.0.1:9100"})
    series['kube_node_info{node="worker-1-before",internal_ip="10.0.0.1"}'] = "1x20"
    expected = samples("", ['instance="worker-0"'], 0.4)
    run_rule_test(
        tmp_path, interval="30s", series=series, expressions=[expect(rounded(UTILIZATION), expected)]
    )


def test_an_exporter_of_no_known_node_gives_nothing(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "192.168.7.7:9100"})
    run_rule_test(tmp_path, interval="30s", series=series, expressions=[expect(UTILIZATION, [])])


@pytest.mark.parametrize(
    ("roles", "scored"),
    [
        ({}, ["worker-0", "worker-1"]),
        ({"worker-1": ["control-plane", "master"]}, ["worker-0"]),
        ({"worker-0": ["worker"], "worker-1": ["control-plane", "worker"]}, ["worker-0", "worker-1"]),
        ({"worker-0": ["control-plane"], "worker-1": ["control-plane"]}, []),
    ],
    ids=["no roles", "control plane", "both roles", "no worker"],
)
def test_scores_are_for_workers(tmp_path: Path, roles: dict[str, list[str]], scored: list[str]) -> None:
    series = cluster_series({"worker-0": "worker-0", "worker-1": "worker-1"})
    for name, of_node in roles.items():
        for role in of_node:
            series[f'kube_node_role{{node="{name}",role="{role}"}}'] = "1x20"
    labels = [f'instance="{name}"' for name in scored]
    combined = samples(COMBINED, labels, 0)
    run_rule_test(
        tmp_path,
        interval="30s",
        series=series,
        expressions=[
            expect(COMBINED, combined),
            expect(rounded("vm_rebalancer:node_cpu_combined:score"), samples("", labels, 0.4)),
            expect(f"count({UTILIZATION})", [{"labels": "{}", "value": 2}]),
        ],
    )


def test_control_plane_does_not_count_in_averages(tmp_path: Path) -> None:
    series = cluster_series({"worker-0": "worker-0", "worker-1": "worker-1"})
    series = {n: v for n, v in series.items() if not (n.startswith("node_cpu") and "worker-1" in n)}
    series['node_cpu_seconds_total{cpu="0",mode="idle",instance="worker-1"}'] = "1000+3x20"
    series['kube_node_role{node="worker-1",role="master"}'] = "1x20"
    average = "round(vm_rebalancer:workers_cpu_utilization:avg1m, 0.001)"
    run_rule_test(
        tmp_path,
        interval="30s",
        series=series,
        expressions=[expect(average, [{"labels": "{}", "value": 0.4}])],
    )


def test_demand_without_the_delay_metric_is_the_use(tmp_path: Path) -> None:
    """Older KubeVirt has no kubevirt_vmi_vcpu_delay_seconds_total."""
    labels = 'namespace="vms",name="x",node="worker-0"'
    usage = {f"kubevirt_vmi_cpu_usage_seconds_total{{{labels}}}": "1000+60x20"}
    delay = {f'kubevirt_vmi_vcpu_delay_seconds_total{{id="{n}",{labels}}}': "1000+15x20" for n in (0, 1)}
    for folder, series, cores in (("use", usage, 2.0), ("both", {**usage, **delay}, 3.0)):
        (tmp_path / folder).mkdir()
        expected = samples("", [labels], cores)
        run_rule_test(
            tmp_path / folder,
            interval="30s",
            series=series,
            expressions=[expect(rounded(DEMAND), expected)],
        )
