"""Alerts are well formed, speak of what there is, and each has its page of what to do."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from controller.evictions.answers import Verdict
from controller.evictions.entry import Phase
from controller.policy.model import Mode
from controller.telemetry.names import Resource
from controller.utilization.classify import NodeClass
from tests.charts.alerts import (
    alert_names,
    check_queries,
    metric_names,
    metrics_in,
    rendered_alerts,
    rules_of,
)
from tests.charts.helm import CHART, RELEASE, ROOT, of_kind, render
from tests.simulator.promtool import promtool

RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["Meaning", "Impact", "What to look at", "What to do"]
LABELS = {
    "phase": {str(phase) for phase in Phase},
    "result": {str(verdict) for verdict in Verdict},
    "class": {node_class.name.lower() for node_class in NodeClass},
    "mode": {str(mode) for mode in Mode},
    "resource": {str(resource) for resource in Resource} | {"pods/eviction"},
}


def test_rules_and_their_texts_are_well_formed(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(rendered_alerts()))
    command = [promtool(), "check", "rules", "--lint-fatal", tmp_path / "rules.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
    for rule in rules_of(rendered_alerts()):
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_reads_only_metrics_that_there_are() -> None:
    expressions = [rule["expr"] for rule in rules_of(rendered_alerts())]
    assert expressions
    assert set().union(*map(metrics_in, expressions)) <= metric_names()


@pytest.mark.parametrize("label", LABELS)
def test_label_values_in_expressions_are_the_program_s(label: str) -> None:
    text = "\n".join(rule["expr"] for rule in rules_of(rendered_alerts()))
    found = re.findall(rf'[{{,]{label}(?:=~|=|!=)"([^"]+)"', text)
    assert {value for values in found for value in values.split("|")} <= LABELS[label]


def test_jobs_are_named_like_the_services_that_are_scraped() -> None:
    """A target's label `job` is its Service's name."""
    services = {o["metadata"]["name"] for o in of_kind(render(), "Service")}
    assert services == {f"{RELEASE}-descheduler", f"{RELEASE}-soft-tainter"}


def test_the_documents_name_the_alerts_there_are() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| VmRebalancer(\w+) \|", text, re.MULTILINE)) == alert_names()
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\bVmRebalancer(\w+)", text)) <= alert_names(), path


# --- runbooks ---


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    pages = {
        path.stem.removeprefix("VmRebalancer") for path in RUNBOOKS.glob("*.md") if path.stem != "README"
    }
    assert pages == alert_names()
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\[VmRebalancer(\w+)\]\(VmRebalancer(\w+)\.md\)", index)
    assert {name for name, target in linked if name == target} == alert_names()


@pytest.mark.parametrize("prefix", ["", "https://example.org/runbooks", "https://example.org/runbooks/"])
def test_each_alert_leads_to_its_page(prefix: str) -> None:
    rules = rules_of(rendered_alerts(monitoring={"runbooks": prefix}) if prefix else rendered_alerts())
    where = prefix.rstrip("/") or "docs/runbooks"
    assert {r["annotations"]["runbook_url"] for r in rules} == {f"{where}/{r['alert']}.md" for r in rules}
    assert prefix or all((ROOT / rule["annotations"]["runbook_url"]).is_file() for rule in rules)


@pytest.mark.parametrize("name", sorted(path.stem for path in RUNBOOKS.glob("V*.md")))
def test_a_page_says_what_it_means_what_it_does_and_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert metrics_in(text) <= metric_names()
    for target in re.findall(r"\]\(([^)#:]+)[)#]", text):
        assert (RUNBOOKS / target).exists(), target


def expressions_in(page: Path) -> list[str]:
    return re.findall(r"^```promql\n(.+?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_queries_on_the_pages_can_be_asked(tmp_path: Path) -> None:
    queries = [query for page in sorted(RUNBOOKS.glob("V*.md")) for query in expressions_in(page)]
    assert len(queries) > 10
    check_queries(tmp_path, queries)
