"""Runs `promtool test rules` on the chart's recording rules."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

RULES = Path(__file__).parents[2] / "charts/vm-rebalancer/files/recording-rules.yaml"


def promtool() -> str:
    """Debian's package `prometheus` brings it; CI must have it, elsewhere a test without it is skipped."""
    found = shutil.which("promtool")
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail("promtool is not installed: apt-get install --no-install-recommends prometheus")
    pytest.skip("promtool is not installed")


def check_rules(rules: Path = RULES) -> str:
    done = subprocess.run([promtool(), "check", "rules", rules], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_rule_test(
    folder: Path, *, interval: str, series: dict[str, str], expressions: list[dict[str, Any]]
) -> None:
    """Feed input series (name with labels -> promtool's notation), and compare what the expressions give."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": interval,
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": expressions,
            }
        ],
    }
    path = folder / "test.json"  # which is YAML too
    path.write_text(json.dumps(test))
    done = subprocess.run([promtool(), "test", "rules", path], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
