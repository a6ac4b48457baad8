"""Every query of the dashboard, asked of a real Prometheus that scrapes the programs while they work."""

import json
import math
from collections.abc import Iterator
from typing import Any

from e2e import chart, tools
from e2e.lab import ACTS_WITHIN_S, BALANCES_WITHIN_S, Lab
from e2e.programs import Program
from e2e.prometheus import Target


def expressions() -> list[str]:
    """As Grafana sends them: the only variable stands outside of them."""
    path = tools.ROOT / "charts" / "vm-rebalancer" / "files" / "dashboard.json"
    dashboard: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def scraped(programs: list[Program]) -> Iterator[Target]:
    """As by the chart's ServiceMonitor: a job is called like the Service."""
    for program in programs:
        name = program.account.rpartition("-")[0]
        yield Target(f"{chart.RELEASE}-{name}", program.account, program.port)


class Asked:
    """Queries that have brought nothing so far; they are asked again and again."""

    def __init__(self, lab: Lab, queries: list[str]) -> None:
        self._lab = lab
        self.left = queries

    def all_have_brought_something(self) -> bool:
        self.left = [query for query in self.left if not self._brings_something(query)]
        return not self.left

    def _brings_something(self, query: str) -> bool:
        return any(not math.isnan(sample.value) for sample in self._lab.prometheus.ask(query))


def test_every_panel_shows_something_while_a_hot_spot_is_relieved(lab: Lab) -> None:
    """What goes wrong, too: watches break."""
    queries = expressions()
    assert len(queries) > 50
    lab.start("crowd")
    lab.run_all()
    lab.prometheus.scrape(scraped(lab.programs), chart.NAMESPACE)
    asked = Asked(lab, queries)
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")
    asked.all_have_brought_something()  # of what is there only while it is hot
    lab.cluster.control("watches", do="break")
    try:
        lab.until(asked.all_have_brought_something, BALANCES_WITHIN_S, "every query has brought something")
    except AssertionError as error:
        raise AssertionError("nothing came of:\n" + "\n".join(asked.left)) from error
    lab.until_balanced()
