"""The chart's README lists every value with its default."""

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.charts.helm import CHART, ROOT


def schema_values(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Paths of values, as deep as the schema names them; the policy is a document of its own."""
    found = set()
    for key, field in schema["properties"].items():
        if field.get("properties") and key != "policy":
            found |= schema_values(field, f"{prefix}{key}.")
        else:
            found.add(f"{prefix}{key}")
    return found


def listed() -> set[str]:
    lines = (CHART / "README.md").read_text(encoding="utf-8").splitlines()
    return {
        line.split("`")[1]
        for line in lines[lines.index("<!-- values: hack/values-table -->") :]
        if line.startswith("| `")
    }


def test_the_table_is_up_to_date() -> None:
    command = [sys.executable, ROOT / "hack" / "values-table", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr


def test_values_schema_and_table_know_the_same_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = schema_values(schema) - {"global"}
    assert {path for path in listed() if not path.startswith("policy.")} == known
    for path in known:
        section = values
        for key in path.split("."):
            assert key in section, path
            section = section[key]


@pytest.mark.parametrize("word", ["Alerts", "Values"])
def test_has_its_sections(word: str) -> None:
    assert f"\n## {word}\n" in (CHART / "README.md").read_text(encoding="utf-8")
