"""Each alert fires when it must, and nothing fires while all is well or makes up for itself.

`promtool test rules` runs the rendered rules; a case lists everything that fires, so no alert comes along uninvited.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter

from controller.evictions.answers import Verdict
from controller.evictions.entry import Phase
from controller.telemetry.names import Metrics
from tests.charts.helm import CHART, NAMESPACE, PROMETHEUS_OPERATOR, RELEASE, ROOT, named, of_kind, render
from tests.simulator.promtool import promtool

LONG = 240
"""Steps of 30 s: two hours."""
AT = "2h"

NEVER = " ".join(["Inf"] * LONG)
"""An age of what has not been yet; promtool's notation cannot repeat it."""

Series = Mapping[str, str]


def series(name: str, program: str = "descheduler", pod: int = 0, **labels: str) -> str:
    found = {
        "namespace": NAMESPACE,
        "job": f"{RELEASE}-{program}",
        "pod": f"{program}-{pod}",
        "instance": f"10.0.0.{pod}:8080",
        **labels,
    }
    return f"vm_rebalancer_{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in found.items())}}}"


def healthy() -> dict[str, str]:
    """Two replicas of each program; the first one leads."""
    found: dict[str, str] = {}
    for program in ("descheduler", "soft-tainter"):
        for pod, leads in ((0, True), (1, False)):
            found |= {
                series("is_leader", program, pod): f"{int(leads)}x{LONG}",
                series("policy_valid", program, pod): f"1x{LONG}",
                series("metrics_age_seconds", program, pod): f"25x{LONG}" if leads else NEVER,
                series("handler_errors_total", program, pod): f"0x{LONG}",
                series("informer_last_contact_seconds", program, pod, resource="nodes"): f"60x{LONG}",
            }
    return found | {
        series("shutdown_alarm"): f"0x{LONG}",
        series("migrations_in_flight", phase="Running"): f"2x{LONG}",
        series("migrations_in_flight", phase="Retrying"): f"0x{LONG}",
        series("evictions_total", result="Triggered"): f"0+1x{LONG}",
        series("node_class", node="worker-1"): f"2x{LONG}",
    }


def until_then(value: str, minutes: int, before: str = "0") -> str:
    """``before``, and for the last minutes ``value``."""
    steps = 2 * minutes
    return f"{before}x{LONG - steps} {value}x{steps}"


FIRING: dict[str, tuple[Series, set[str]]] = {
    "all is well": ({}, set()),
    "an eviction took a VM down": ({series("shutdown_alarm"): until_then("1", 1)}, {"ShutdownAlarm"}),
    "no descheduler leads": ({series("is_leader"): until_then("0", 6, "1")}, {"NoLeader"}),
    "no soft-tainter leads": ({series("is_leader", "soft-tainter"): until_then("0", 6, "1")}, {"NoLeader"}),
    "the leader is not there any more": (
        {
            series(name): until_then("_", 12, value)
            for name, value in (("is_leader", "1"), ("metrics_age_seconds", "25"))
        },
        {"NoLeader"},
    ),
    "the lead has passed over": (
        {
            series("is_leader"): until_then("0", 60, "1"),
            series("is_leader", pod=1): until_then("1", 59),
            series("metrics_age_seconds", pod=1): NEVER[: 4 * (LONG - 118)] + "25x118",
        },
        set(),
    ),
    "there never was a policy": (
        {series("policy_valid", pod=pod): f"0x{LONG}" for pod in (0, 1)},
        {"PolicyInvalid"},
    ),
    "the policy has a fault": (
        {series("policy_valid", "soft-tainter"): until_then("0", 3, "1")},
        {"PolicyInvalid"},
    ),
    "the policy had a fault for a minute": ({series("policy_valid"): until_then("0", 1, "1")}, set()),
    "there never were metrics": ({series("metrics_age_seconds"): NEVER}, {"MetricsMissing"}),
    "metrics went away": ({series("metrics_age_seconds"): until_then("181+30", 6, "25")}, {"MetricsMissing"}),
    "metrics are old but not too old": ({series("metrics_age_seconds"): until_then("179", 60, "25")}, set()),
    "Prometheus was away for a few minutes": (
        {series("metrics_age_seconds"): until_then("300", 4, "25")},
        set(),
    ),
    "a migration is stuck": (
        {series("migrations_in_flight", phase="Stuck"): until_then("1", 6)},
        {"MigrationStuck"},
    ),
    "a migration was stuck and ended": (
        {series("migrations_in_flight", phase="Stuck"): until_then("1", 4)},
        set(),
    ),
    "migrations fail again and again": (
        {series("migrations_in_flight", phase="Retrying"): until_then("1", 60)},
        {"MigrationsFailing"},
    ),
    "one VM waits for an attempt now and then": (
        {series("migrations_in_flight", phase="Retrying"): "0 0 0 1 0 0 " * (LONG // 6)},
        set(),
    ),
    "evictions are forbidden": (
        {series("evictions_total", result="Forbidden"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "dry runs are forbidden": (
        {series("eviction_dry_runs_total", result="Forbidden"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "KubeVirt's webhook is down": (
        {series("evictions_total", result="WebhookDown"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "one eviction was never answered": (
        {series("evictions_total", result="NoAnswer"): until_then("1", 5)},
        set(),
    ),
    "VMs refuse": ({series("evictions_total", result="NotMigratable"): f"0+1x{LONG}"}, set()),
    "the API server throttles": ({series("evictions_total", result="Throttled"): f"0+1x{LONG}"}, set()),
    "one key fails once a minute": (
        {series("handler_errors_total"): until_then("0+0.5", 60)},
        {"ApiErrors"},
    ),
    "nodes change while they are patched": (
        {series("handler_errors_total", "soft-tainter"): f"0+0.1x{LONG}"},
        set(),
    ),
    "a watch is dead": (
        {series("informer_last_contact_seconds", pod=1, resource="vmis"): until_then("0+30", 14, "60")},
        {"ApiSilent"},
    ),
    "a watch is quiet": ({series("informer_last_contact_seconds", resource="vmis"): f"255x{LONG}"}, set()),
    "a node has no value": (
        {series("node_class", node="worker-2"): until_then("-1", 40, "1")},
        {"NodeUnknown"},
    ),
    "a node had no value for a while": (
        {series("node_class", node="worker-2"): until_then("-1", 20, "1")},
        set(),
    ),
    "a node is new": ({series("node_class", node="worker-2"): until_then("0", 5, "_")}, set()),
}


ALERTS = {
    "ShutdownAlarm",
    "NoLeader",
    "PolicyInvalid",
    "MetricsMissing",
    "MigrationStuck",
    "MigrationsFailing",
    "EvictionsFailing",
    "ApiErrors",
    "ApiSilent",
    "NodeUnknown",
}


def rendered_alerts(**values: Any) -> dict[str, Any]:
    spec: dict[str, Any] = named(render(*PROMETHEUS_OPERATOR, values=values), "PrometheusRule", "alerts")[
        "spec"
    ]
    return spec


def firing(folder: Path, rules: Mapping[str, Any], given: Series, expected: set[str]) -> None:
    """Let ``given`` go on for two hours and compare the names of the alerts that fire then."""
    (folder / "rules.json").write_text(json.dumps(rules))
    samples = [{"labels": f'{{alertname="VmRebalancer{name}"}}', "value": 1} for name in sorted(expected)]
    test = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in given.items()],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0',
                        "eval_time": AT,
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
    (folder / "test.json").write_text(json.dumps(test))
    command = [promtool(), "test", "rules", folder / "test.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", FIRING)
def test_fires_exactly(case: str, tmp_path: Path) -> None:
    changed, expected = FIRING[case]
    firing(tmp_path, rendered_alerts(), {**healthy(), **changed}, expected)


def test_every_alert_has_cases_in_which_it_fires() -> None:
    """And each has cases in which it does not: all those of the others."""
    names = {
        rule["alert"].removeprefix("VmRebalancer")
        for group in rendered_alerts()["groups"]
        for rule in group["rules"]
    }
    assert names == ALERTS
    assert set().union(*(expected for _, expected in FIRING.values())) == ALERTS


def test_a_policy_that_asks_seldom_raises_no_alert(tmp_path: Path) -> None:
    """`maxAge` of the policy is what counts, not a number of the chart's."""
    rules = rendered_alerts(policy={"metrics": {"refreshInterval": "30m", "maxAge": "1h30m"}})
    ages = {
        series("metrics_age_seconds", program): until_then("5300", 60, "25")
        for program in ("descheduler", "soft-tainter")
    }
    firing(tmp_path, rules, {**healthy(), **ages}, set())
    ages = {series("metrics_age_seconds"): until_then("5401", 60, "25")}
    firing(tmp_path, rules, {**healthy(), **ages}, {"MetricsMissing"})


def test_without_soft_tainter_nobody_misses_it(tmp_path: Path) -> None:
    given = {name: values for name, values in healthy().items() if "soft-tainter" not in name}
    firing(tmp_path, rendered_alerts(softTainter={"enabled": False}), given, set())
    firing(tmp_path, rendered_alerts(), given, {"NoLeader"})


def test_another_release_s_metrics_raise_no_alert(tmp_path: Path) -> None:
    elsewhere = {series("shutdown_alarm", namespace="elsewhere"): f"1x{LONG}"}
    firing(tmp_path, rendered_alerts(), {**healthy(), **elsewhere}, set())


def test_rules_and_their_texts_are_well_formed(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(rendered_alerts()))
    command = [promtool(), "check", "rules", "--lint-fatal", tmp_path / "rules.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
    for group in rendered_alerts()["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert rule["annotations"].keys() == {"summary", "description"}


def metric_names() -> set[str]:
    """What the programs and the recording rules give."""
    own = {
        f"{metric._name}_total" if isinstance(metric, Counter) else metric._name
        for metric in vars(Metrics(CollectorRegistry())).values()
    }
    rules = yaml.safe_load((CHART / "files" / "recording-rules.yaml").read_text(encoding="utf-8"))
    return own | {rule["record"] for group in rules["groups"] for rule in group["rules"]}


@pytest.mark.parametrize("where", ["alerts", "dashboard"])
def test_reads_only_metrics_that_there_are(where: str) -> None:
    if where == "alerts":
        expressions = [rule["expr"] for group in rendered_alerts()["groups"] for rule in group["rules"]]
    else:
        dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert expressions
    used = {name for text in expressions for name in re.findall(r"vm_rebalancer[_:][a-z0-9_:]+", text)}
    assert used <= metric_names()


def test_jobs_are_named_like_the_services_that_are_scraped() -> None:
    """A target's label `job` is its Service's name."""
    services = {o["metadata"]["name"] for o in of_kind(render(), "Service")}
    assert services == {f"{RELEASE}-descheduler", f"{RELEASE}-soft-tainter"}


def test_label_values_in_alerts_are_the_program_s() -> None:
    text = json.dumps(rendered_alerts())
    phases = set(re.findall(r'phase=\\"(\w+)\\"', text))
    results, *more = re.findall(r'result=~\\"([\w|]+)\\"', text)
    assert phases <= {str(phase) for phase in Phase}
    assert phases
    assert more == [results]
    assert set(results.split("|")) <= {str(verdict) for verdict in Verdict}


def test_the_documents_name_the_alerts_there_are() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| VmRebalancer(\w+) \|", text, re.MULTILINE)) == ALERTS
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"VmRebalancer(\w+)", text)) <= ALERTS


@pytest.mark.parametrize(
    ("target", "types"),
    [("console", {"row", "graph", "singlestat"}), ("grafana", {"row", "timeseries", "stat"})],
)
def test_the_dashboard_has_panels_that_its_reader_knows(target: str, types: set[str]) -> None:
    config_map = named(
        render(values={"monitoring": {"dashboard": {"for": target}}}), "ConfigMap", "dashboard"
    )
    dashboard = json.loads(config_map["data"]["vm-rebalancer.json"])
    assert {panel["type"] for panel in dashboard["panels"]} == types
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
