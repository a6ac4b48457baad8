"""The dashboard is one that its readers understand, and asks for metrics that there are. e2e runs its queries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.telemetry.names import Kind, Metrics
from tests.charts.alerts import check_queries, metric_names, metrics_in
from tests.charts.helm import CHART, named, render

DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]
TARGETS = [target for panel in PANELS for target in panel.get("targets", ())]
WIDTH = 24


@pytest.mark.parametrize(
    ("target", "types"),
    [("console", {"row", "graph", "singlestat"}), ("grafana", {"row", "timeseries", "stat"})],
)
def test_has_panels_that_its_reader_knows(target: str, types: set[str]) -> None:
    config_map = named(
        render(values={"monitoring": {"dashboard": {"for": target}}}), "ConfigMap", "dashboard"
    )
    dashboard = json.loads(config_map["data"]["vm-rebalancer.json"])
    assert {panel["type"] for panel in dashboard["panels"]} == types


def test_panels_and_their_queries_have_ids_and_titles_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        references = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(references)) == len(references)
        assert references or panel["type"] == "row"


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= WIDTH
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_asks_the_data_source_that_was_chosen() -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["name"]) == ("datasource", "datasource")
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) == {"datasource"}


def test_reads_only_metrics_that_there_are() -> None:
    used = set().union(*(metrics_in(target["expr"]) for target in TARGETS))
    assert len(used) > 30
    assert used <= metric_names()


def test_counters_are_shown_by_how_they_grow_and_nothing_else_is() -> None:
    """A counter's value says nothing, and neither does the growth of a gauge."""
    counters = {f.name for f in Metrics(CollectorRegistry()).families if f.kind is not Kind.GAUGE}
    for target in TARGETS:
        grows = set(re.findall(r"(?:rate|increase)\((\w+)", target["expr"]))
        counted = {name for name in metrics_in(target["expr"]) if name.removesuffix("_bucket") in counters}
        assert grows == counted, target["expr"]


def test_legends_name_labels_that_the_query_leaves() -> None:
    for target in TARGETS:
        named_labels = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        kept = re.search(r"by \(([\w, ]+)\)", target["expr"])
        left = set(kept[1].split(", ")) if kept else {"instance"}
        assert named_labels <= left, target["expr"]


def test_queries_can_be_asked(tmp_path: Path) -> None:
    check_queries(tmp_path, [target["expr"] for target in TARGETS])
