"""The alert for moves that do not help stays quiet while a simulated cluster, with all that befalls it, is relieved."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controller.cluster.objects import Node
from controller.evictions.entry import Entry
from controller.telemetry.meter import Meter
from controller.telemetry.names import Metrics
from controller.utilization.classify import Classification
from controller.utilization.reading import Snapshot
from informers.store import Lister, Writer
from simulator.build import Simulation, build
from simulator.engine import programs
from simulator.engine.observer import RunObserver
from simulator.engine.ports import AgendaClock
from simulator.engine.run import Run, policy_for, rebalance
from simulator.scenario.loading import load_scenario
from tests.charts.alerts import Series, firing, rendered_alerts, rules_of, series

EVERY_S = 30.0


class Measured(RunObserver):
    """Has a meter, too; the alert's series are sampled as Prometheus would."""

    last: "Measured"
    nodes: Lister[Node]

    def __init__(self, agenda: Any, *others: Any) -> None:
        super().__init__(agenda, *others)
        Measured.last = self
        self._metrics = Metrics(CollectorRegistry())
        self._meter = Meter(self._metrics, AgendaClock(agenda))
        self._meter.show_nodes(self.nodes)
        self._samples: dict[str, list[str]] = {}
        self._taken = 0
        agenda.every(EVERY_S, self._sample)

    def refreshed(self, snapshot: Snapshot) -> None:
        super().refreshed(snapshot)
        self._meter.refreshed(snapshot)

    def classified(self, classification: Classification) -> None:
        super().classified(classification)
        self._meter.classified(classification)

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        super().transition(before, after)
        self._meter.transition(before, after)

    def _sample(self) -> None:
        found = {
            series(sample.name.removeprefix("vm_rebalancer_"), **sample.labels): f"{sample.value:.4f}"
            for metric in (self._metrics.misplaced, self._metrics.moved, self._metrics.nodes)
            for sample in next(iter(metric.collect())).samples
            if not sample.name.endswith("_created")
        }
        for name in found.keys() - self._samples.keys():
            self._samples[name] = ["_"] * self._taken
        for name, values in self._samples.items():
            values.append(found.get(name, "_"))
        self._taken += 1

    @property
    def series(self) -> Series:
        return {name: " ".join(values) for name, values in self._samples.items()}


def sizes(simulation: Simulation) -> Lister[Node]:
    writer: Writer[Node] = Writer({})
    writer.replace([msgspec.convert(node, Node) for node in simulation.store.list("Node")])
    return writer.lister


@pytest.mark.parametrize("name", ["drain", "slow", "stuck"])
def test_no_alert_while_a_cluster_is_relieved_however_long_it_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load_scenario(name)
    simulation = build(scenario, 1)
    monkeypatch.setattr(programs, "RunObserver", Measured)
    monkeypatch.setattr(Measured, "nodes", sizes(simulation), raising=False)
    rebalance(Run(scenario, 1, policy_for(scenario), ""), simulation)

    given = Measured.last.series
    moved = series("load_moved_nodes_total", resource="cpu")
    assert float(given[moved].split()[-1]) > 0.5
    rules = [r for r in rules_of(rendered_alerts()) if r["alert"] == "VmRebalancerNotConverging"]
    times = [f"{minute}m" for minute in range(60, int(scenario.minutes), 5)]
    firing(tmp_path, {"groups": [{"name": "alert", "rules": rules}]}, given, set(), times)
