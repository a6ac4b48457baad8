"""The chart's alerts, and series to feed them with: `promtool test rules` runs what is rendered."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from controller.telemetry.names import Kind, Metrics
from tests.charts.helm import CHART, NAMESPACE, PROMETHEUS_OPERATOR, RELEASE, named, render
from tests.simulator.promtool import check_rules, promtool

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


def until_then(value: str, minutes: int, before: str = "0") -> str:
    """``before``, and for the last minutes ``value``."""
    steps = 2 * minutes
    return f"{before}x{LONG - steps} {value}x{steps}"


def rendered_alerts(**values: Any) -> dict[str, Any]:
    return _rendered(json.dumps(values))


@cache
def _rendered(values: str) -> dict[str, Any]:
    objects = render(*PROMETHEUS_OPERATOR, values=json.loads(values))
    spec: dict[str, Any] = named(objects, "PrometheusRule", "alerts")["spec"]
    return spec


def firing(
    folder: Path, rules: Mapping[str, Any], given: Series, expected: set[str], at: Sequence[str] = (AT,)
) -> None:
    """Let ``given`` go on and compare the names of the alerts that fire at these times."""
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
                        "eval_time": time,
                        "exp_samples": samples,
                    }
                    for time in at
                ],
            }
        ],
    }
    (folder / "test.json").write_text(json.dumps(test))
    command = [promtool(), "test", "rules", folder / "test.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr


def check_queries(folder: Path, expressions: Sequence[str]) -> None:
    """Whether they are PromQL; a rule for each lets promtool say."""
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(expressions)]
    (folder / "rules.json").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    check_rules(folder / "rules.json")


def rules_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in spec["groups"] for rule in group["rules"]]


def alert_names() -> set[str]:
    """Without what all of them begin with."""
    return {rule["alert"].removeprefix("VmRebalancer") for rule in rules_of(rendered_alerts())}


def metric_names() -> set[str]:
    """What the programs and the recording rules give."""
    names: set[str] = set()
    for family in Metrics(CollectorRegistry()).families:
        suffixes = ("_bucket", "_sum", "_count") if family.kind is Kind.HISTOGRAM else ("",)
        names |= {family.name + suffix for suffix in suffixes}
    rules = yaml.safe_load((CHART / "files" / "recording-rules.yaml").read_text(encoding="utf-8"))
    return names | {rule["record"] for rule in rules_of(rules)}


def metrics_in(text: str) -> set[str]:
    """Metrics of ours, of the recording rules, and those under upstream names, that an expression or a text names."""
    return set(re.findall(r"\b(?:vm_rebalancer|descheduler)[_:][a-z0-9_:]+[a-z0-9]", text))
