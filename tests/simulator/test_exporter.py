"""The page of metrics: real names and labels, cheap, and with counters that suit the reader's clock."""

import re
from itertools import pairwise

import pytest

from simulator.exporter import Exporter, ExporterTrouble
from simulator.metrics.scrape import Scrape
from tests.simulator.kubevirt_builders import Cluster, cluster, vm

Samples = dict[tuple[str, str], float]
"""(metric, labels) -> value"""


def busy() -> Cluster:
    built = cluster(vm("vm-0", demand=1.0, vcpus=80), vm("vm-1", node="node-1"))
    built.run(300)
    return built


def exporter(built: Cluster, speed: float = 1.0) -> Exporter:
    return Exporter(built.world, built.store, built.agenda, speed)


def samples(page: bytes) -> Samples:
    """Of a page in Prometheus' text format; each family must come whole, after its type."""
    found: Samples = {}
    families: list[str] = []
    for line in page.decode().splitlines():
        if line.startswith("# TYPE "):
            families.append(line.split()[2])
            continue
        match = re.fullmatch(r"(\w+)(\{.*\}) (\S+)", line)
        assert match is not None, line
        assert match[1] == families[-1]
        assert (match[1], match[2]) not in found
        found[match[1], match[2]] = float(match[3])
    assert len(families) == len(set(families))
    return found


def test_has_every_raw_sample_of_a_scrape() -> None:
    built = busy()
    page = samples(exporter(built).page())
    scrape = Scrape.of(built.world, built.agenda.now_s)
    expected = {
        (
            sample.metric,
            "{" + ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items())) + "}",
        ): sample.value
        for sample in scrape.raw_samples()
    }
    found = {
        (metric, "{" + ",".join(sorted(labels.strip("{}").split(","))) + "}"): value
        for (metric, labels), value in page.items()
        if not metric.startswith("kube_")
    }
    assert found == expected


def test_tells_what_kube_state_metrics_would() -> None:
    built = busy()
    page = samples(exporter(built).page())
    addresses = built.node("node-0")["status"]["addresses"]
    internal = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "")
    assert page["kube_node_info", f'{{internal_ip="{internal}",node="node-0"}}'] == 1
    assert page["kube_node_role", '{node="node-0",role="worker"}'] == 1
    assert page["kube_node_status_allocatable", '{node="node-0",resource="cpu",unit="core"}'] == 64
    assert (
        page["kube_node_status_allocatable", '{node="node-0",resource="memory",unit="byte"}'] == 512 * 2**30
    )


@pytest.mark.parametrize("speed", [1.0, 6.0])
def test_an_idle_core_gains_a_second_in_a_second_of_the_readers_clock(speed: float) -> None:
    """Otherwise rates, and all that is made of them, would be as many times too high as the cluster is fast."""
    built = busy()
    source = exporter(built, speed)
    labels = ("node_cpu_seconds_total", '{cpu="0",instance="node-2",mode="idle"}')
    before = samples(source.page())[labels]
    built.run(60 * speed)
    assert samples(source.page())[labels] - before == pytest.approx(60)


def test_a_busy_cores_idle_counter_never_falls() -> None:
    """Its last digits could, and Prometheus would take that for a restart of the node."""
    built = busy()
    source = exporter(built, 6.0)
    labels = ("node_cpu_seconds_total", '{cpu="7",instance="node-0",mode="idle"}')
    values = []
    for number in range(200):
        built.run(0.1 + number / 977)
        values.append(samples(source.page())[labels])
    assert all(later >= earlier for earlier, later in pairwise(values))


def test_follows_vms_and_nodes_that_come_move_and_go() -> None:
    built = busy()
    source = exporter(built)
    usage = "kubevirt_vmi_cpu_usage_seconds_total"
    assert (usage, '{namespace="vms",name="vm-1",node="node-1"}') in samples(source.page())
    built.control.create_migration("vms", "vm-1")
    built.run(120)
    moved = [labels for metric, labels in samples(source.page()) if metric == usage and "vm-1" in labels]
    assert len(moved) == 1
    assert 'node="node-1"' not in moved[0]
    built.control.remove_node("node-1")
    assert not any("node-1" in labels for _, labels in samples(source.page()))


def test_a_node_whose_exporters_are_away_is_still_a_node() -> None:
    source = exporter(busy())
    source.trouble = ExporterTrouble(missing_nodes=("node-0",), missing_metrics=("node_pressure_*",))
    page = samples(source.page())
    about = {metric for metric, labels in page if '"node-0"' in labels}
    assert about == {"kube_node_info", "kube_node_role", "kube_node_status_allocatable"}
    assert not any(metric.startswith("node_pressure_") for metric, _ in page)
    assert any(metric == "node_cpu_seconds_total" for metric, _ in page)
