"""``docs/policy.md`` lists exactly the fields there are, with the defaults and presets of the code."""

import re
from pathlib import Path

import pytest

from controller.policy.document import read_document
from controller.policy.model import Bounds, Mode, Order, SoftTaintMode, TaintScale, TaintScheme
from controller.policy.parse import default_policy, parse_policy
from controller.policy.presets import DEVIATION_THRESHOLDS, MULTI_EVICTIONS, QUERIES, UTILIZATION_THRESHOLDS
from controller.policy.problems import PolicyErrors
from controller.policy.render import effective_document, policy_yaml
from tests.controller.policy.builders import policy_text

REFERENCE = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")

FIELD_TABLES = [
    "Top level",
    "`metrics`",
    "`metrics.queries[]`",
    "`thresholds`",
    "`evictions`",
    "`softTaints`",
]
SECTIONS = ["metrics", "thresholds", "evictions", "softTaints"]
PRESET_DEFAULTS = {
    "thresholds.deviationThresholds": "AsymmetricLow",
    "evictions.multiEvictions": "Simple",
}


def rows(title: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    table = re.search(rf"^#+ {re.escape(title)}\n[^#]*?((?:^\|.*\n)+)", REFERENCE, re.MULTILINE)
    assert table, title
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()[2:]]


def documented_defaults(section: str) -> dict[str, str]:
    """Path -> default as the table says it, for fields that have one."""
    title, prefix = (f"`{section}`", f"{section}.") if section else ("Top level", "")
    return {prefix + row[0].strip("` "): row[-1].strip("` |") for row in rows(title) if row[-1].strip(" |")}


def effective(path: str) -> object:
    value: object = effective_document(default_policy())
    for key in path.split("."):
        assert isinstance(value, dict)
        value = value[key]
    return value


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_defaults_are_those_of_the_code(section: str) -> None:
    defaults = documented_defaults(section)
    assert defaults
    for path, text in defaults.items():
        if path in PRESET_DEFAULTS:
            assert text == PRESET_DEFAULTS[path]
        else:
            assert read_document(text).value == effective(path), path


def test_default_presets_are_the_defaults() -> None:
    body = "thresholds: {deviationThresholds: AsymmetricLow}\nevictions: {multiEvictions: Simple}"
    assert parse_policy(policy_text(body)) == default_policy()


@pytest.mark.parametrize(
    ("title", "body", "path"),
    [
        ("Top level", "nonsense: 1", "nonsense"),
        ("`metrics`", "metrics: {nonsense: 1}", "metrics.nonsense"),
        (
            "`metrics.queries[]`",
            "metrics: {queries: [{name: a, query: b, window: 1m, nonsense: 1}]}",
            "metrics.queries[0].nonsense",
        ),
        ("`thresholds`", "thresholds: {nonsense: 1}", "thresholds.nonsense"),
        ("`evictions`", "evictions: {nonsense: 1}", "evictions.nonsense"),
        ("`softTaints`", "softTaints: {nonsense: 1}", "softTaints.nonsense"),
    ],
)
def test_lists_exactly_the_fields_that_are_accepted(title: str, body: str, path: str) -> None:
    documented = [row[0].strip("|` ").split(".")[0] for row in rows(title)]
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(policy_text(body))
    (problem,) = caught.value.problems
    assert problem.path == path
    assert sorted(problem.allowed.split(", ")) == sorted(set(documented))


@pytest.mark.parametrize("title", FIELD_TABLES)
def test_every_row_is_complete(title: str) -> None:
    assert all(len(row) == 4 and all(row[:3]) for row in rows(title))


@pytest.mark.parametrize(
    ("title", "field", "names"),
    [
        ("Top level", "mode", list(Mode)),
        ("`evictions`", "order", list(Order)),
        ("`evictions`", "multiEvictions", list(MULTI_EVICTIONS)),
        ("`softTaints`", "mode", list(SoftTaintMode)),
        ("`softTaints`", "scheme", list(TaintScheme)),
        ("`softTaints`", "scale", list(TaintScale)),
    ],
)
def test_allowed_names_are_those_of_the_code(title: str, field: str, names: list[str]) -> None:
    (row,) = (row for row in rows(title) if row[0].strip("|` ") == field)
    assert row[2] == ", ".join(f"`{name}`" for name in names)


def test_threshold_presets_are_those_of_the_code() -> None:
    def row(field: str, name: str, bounds: Bounds) -> tuple[str, str, float, float]:
        return field, name, bounds.under, bounds.over

    documented = [[cell.strip("|` ") for cell in cells] for cells in rows("Threshold presets")]
    assert [(field, name, float(under), float(over)) for field, name, under, over in documented] == [
        *(row("deviationThresholds", *preset) for preset in DEVIATION_THRESHOLDS.items()),
        *(row("utilizationThresholds", *preset) for preset in UTILIZATION_THRESHOLDS.items()),
    ]


def test_preset_queries_are_those_of_the_code() -> None:
    documented = {name.strip("|` "): series.strip("|` ") for name, series in rows("Preset queries")}
    assert documented == {name: query.expression for name, query in QUERIES.items()}


def test_eviction_presets_are_those_of_the_code() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (\d+) \|$", REFERENCE, re.MULTILINE)
    assert {name: int(node) for name, node in documented} == MULTI_EVICTIONS


def test_prints_the_default_policy_in_full() -> None:
    in_full = REFERENCE.rpartition("```yaml\n")[2].removesuffix("```\n")
    assert in_full == policy_yaml(default_policy()).partition("\n")[2]
