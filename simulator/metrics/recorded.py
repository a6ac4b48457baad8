"""Prometheus as the controller sees it: recorded series that trail the truth.

All counters are scraped every 30 s, and the recording rules evaluated every 30 s, half an interval later,
over windows of one and two minutes. So the newest sample behind a value is 15 to 45 s old when it is read.

What is simpler than in reality: all targets are scraped at the same instant (Prometheus spreads them over the
interval), no scrape fails, a series that ends is gone with the next scrape, and a VM that starts again on its
node begins a new series instead of resetting the old one.
"""

from collections import deque
from collections.abc import Mapping
from itertools import compress, repeat

import numpy as np

from simulator.agenda import Agenda
from simulator.metrics.rules import LONG_S, Evaluation
from simulator.metrics.scrape import Scrape
from simulator.world.layout import Layout
from simulator.world.vmtable import FloatArray
from simulator.world.world import World

Sample = tuple[dict[str, str], float, float]
"""(labels, value, sample time in seconds since the start)."""

NODE_SERIES: Mapping[str, str] = {
    "vm_rebalancer:node_cpu_utilization:avg1m": "cpu_utilization",
    "vm_rebalancer:node_memory_utilization:ratio": "memory_utilization",
    "vm_rebalancer:node_cpu_pressure:rate1m": "cpu_pressure",
    "vm_rebalancer:node_memory_pressure:rate1m": "memory_pressure",
    "vm_rebalancer:node_io_pressure:rate1m": "io_pressure",
    "vm_rebalancer:node_cpu_pressure_by_utilization:rate1m": "cpu_pressure_by_utilization",
    "vm_rebalancer:node_cpu_combined:score": "cpu_combined",
    "vm_rebalancer:node_cpu_memory_combined:score": "cpu_memory_combined",
    "vm_rebalancer:node_cpu_usage_cores:avg2m": "cpu_usage_cores",
    "vm_rebalancer:node_cpu_demand_cores:avg2m": "cpu_demand_cores",
    "vm_rebalancer:node_memory_usage_bytes:avg2m": "memory_usage_bytes",
}
"""Recorded series with the label ``instance`` (the node's name), and the rule that makes each."""
VM_SERIES: Mapping[str, str] = {
    "vm_rebalancer:vmi_cpu_demand_cores:avg2m": "vmi_cpu_demand_cores",
    "vm_rebalancer:vmi_memory_usage_bytes:avg2m": "vmi_memory_usage_bytes",
    "vm_rebalancer:vmi_dirty_rate_bytes:avg2m": "vmi_dirty_rate_bytes",
}
"""Recorded series with the labels ``namespace``, ``name``, ``node``."""


class RecordedMetrics:
    """Scrapes the world and evaluates the rules, by itself, from the agenda's now on.

    The cluster is older than the run: the first scrape counts as if all had been like this for two minutes. What
    comes later (nodes, VMs) has no past, and needs two scrapes for a rate.
    """

    def __init__(
        self, world: World, agenda: Agenda, scrape_interval_s: float = 30.0, rule_interval_s: float = 30.0
    ) -> None:
        """Intervals in seconds; a window of 1 m needs at least two scrapes a minute to give any rate."""
        self._world = world
        self._agenda = agenda
        self._scrape_interval_s = scrape_interval_s
        # One more than fit into the longest window, both edges included.
        self._scrapes: deque[Scrape] = deque(maxlen=int(LONG_S // scrape_interval_s) + 2)
        self._evaluation: Evaluation | None = None
        self._samples: dict[str, list[Sample]] = {}
        agenda.every(scrape_interval_s, self._scrape, first_s=agenda.now_s)
        # Half an interval later, so that no sample lies on a window's edge.
        agenda.every(rule_interval_s, self._evaluate, first_s=agenda.now_s + scrape_interval_s / 2)

    def series(self, name: str) -> list[Sample]:
        """What the last evaluation recorded under this name, in node or VM order; the sample time is its own.

        Label dicts are shared between answers: copy before changing. Empty before the first evaluation.
        Raises ``KeyError`` for a name that no rule records.
        """
        if name not in self._samples:
            self._samples[name] = self._read(name)
        return list(self._samples[name])

    def scrapes(self) -> tuple[Scrape, ...]:
        """Those that the next evaluation may read, oldest first."""
        return tuple(self._scrapes)

    def _read(self, name: str) -> list[Sample]:
        rule = NODE_SERIES.get(name) or VM_SERIES[name]
        evaluation = self._evaluation
        if evaluation is None:
            return []
        values: FloatArray = getattr(evaluation, rule)
        labels = _labels(evaluation.layout, name)
        known = ~np.isnan(values)
        if known.all():
            return list(zip(labels, values.tolist(), repeat(evaluation.time_s)))
        return list(zip(compress(labels, known.tolist()), values[known].tolist(), repeat(evaluation.time_s)))

    def _scrape(self) -> None:
        scrape = Scrape.of(self._world, self._agenda.now_s)
        if not self._scrapes:
            for back in range(int(LONG_S // self._scrape_interval_s), 0, -1):
                self._scrapes.append(scrape.earlier(self._world, back * self._scrape_interval_s))
        self._scrapes.append(scrape)

    def _evaluate(self) -> None:
        self._evaluation = Evaluation(tuple(self._scrapes), self._agenda.now_s)
        self._samples = {}


def _labels(layout: Layout, name: str) -> tuple[dict[str, str], ...]:
    return layout.node_labels if name in NODE_SERIES else layout.vm_labels
