"""The policy in the values is the document that the programs read; what they would refuse, the chart refuses."""

import copy
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import Phase, assume, given, settings

from controller.policy.model import Mode, Order, Policy, SoftTaintMode, TaintScale, TaintScheme
from controller.policy.parse import default_policy, parse_policy
from controller.policy.presets import DEVIATION_THRESHOLDS, MULTI_EVICTIONS, QUERIES, UTILIZATION_THRESHOLDS
from controller.policy.problems import PolicyErrors
from controller.policy.render import effective_document
from tests.charts.helm import CHART, named, render, try_template
from tests.controller.policy import test_refusals
from tests.controller.policy.builders import OWN_QUERIES
from tests.properties.test_policy import valid_documents

Document = dict[str, Any]
Path = tuple[str, ...]

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
POLICY = {**SCHEMA["properties"]["policy"], "definitions": SCHEMA["definitions"]}
VALIDATOR = jsonschema.Draft7Validator(POLICY)
FULL = effective_document(default_policy())

BEYOND_DEFAULTS = {("evictions", "multiEvictions"), ("thresholds", "utilizationThresholds")}
"""Fields that the effective policy does not show, since they stand for others."""

OTHER_IN_HELM = ["mode:", "metrics: {allowHttp: yes}", "thresholds: {sustain: 2.0}"]
"""Helm reads YAML 1.1, drops what is null and takes 2.0 for 2: these come out as valid policies."""

JUNK: list[Any] = [
    *(
        "",
        " ",
        "x",
        "0",
        "0s",
        "1ms",
        "1s",
        "59s",
        "2h",
        "8761h",
        "1d",
        "-1s",
        "/",
        "a b",
        "http://h",
        "https://h?x",
    ),
    *("a,,b", "a in (b", "a=b=c", "Low", "Rapid", "linear", "*", "A", "[x]", "a/b/c", "-a", "a-", "!", "a>x"),
    *(
        -1,
        0,
        1,
        2,
        7,
        11,
        101,
        1001,
        2**31,
        0.5,
        1.5,
        True,
        False,
        None,
        [],
        ["a"],
        ["A"],
        [1],
        {},
        {"under": 0},
    ),
]


def rows_of(test: Any) -> list[str]:
    """The policies of a parametrized test, which are the first of its arguments."""
    (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")
    return [row[0] for row in mark.args[1]]


REFUSED = [
    *rows_of(test_refusals.test_says_where_and_what_was_found),
    *rows_of(test_refusals.test_names_what_was_probably_meant),
    "thresholds: {deviationThresholds: Low, utilizationThresholds: Low}",
    OWN_QUERIES + "  actualUtilizationProfile: PrometheusCPUUsage",
    "metrics: {queries: [{name: a, query: x, window: 1m}, {name: a, query: y, window: 1m}]}",
    "metrics: {queries: [{name: a, query: x, window: 8761h}]}",
    "metrics: {queries: [{name: a, query: x, window: 1m, thresholds: {utilizationThresholds: {under: 1, over: 0}}}]}",
    "metrics: {url: 'https://me:secret@prometheus'}",
    "apiVersion: vm-rebalancer.io/v1beta1",
    "kind: KubeDescheduler",
    "kind: {}",
]


def policy_in(manifests: list[Document]) -> Policy:
    return parse_policy(named(manifests, "ConfigMap", "policy")["data"]["policy.yaml"])


def schema_paths(schema: Document, path: Path = ()) -> Iterator[Path]:
    """Fields that the schema knows, sections without fields of their own left out."""
    for key, field in schema.get("properties", {}).items():
        if "properties" in field:
            yield from schema_paths(field, (*path, key))
        else:
            yield (*path, key)


def document_paths(document: Document, path: Path = ()) -> Iterator[Path]:
    for key, value in document.items():
        if isinstance(value, dict) and not key.endswith("Thresholds"):
            yield from document_paths(value, (*path, key))
        else:
            yield (*path, key)


def is_valid(document: Document) -> bool:
    try:
        parse_policy(json.dumps(document))
    except PolicyErrors:
        return False
    return True


def with_value(document: Document, path: Path, value: Any) -> Document:
    changed = copy.deepcopy(document)
    section = changed
    for key in path[:-1]:
        section = section.setdefault(key, {})
    section[path[-1]] = value
    return changed


def test_the_schema_knows_exactly_the_fields_of_a_policy() -> None:
    assert set(schema_paths(POLICY)) == {*document_paths(FULL), *BEYOND_DEFAULTS}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (("mode",), list(Mode)),
        (("metrics", "actualUtilizationProfile"), list(QUERIES)),
        (("evictions", "multiEvictions"), list(MULTI_EVICTIONS)),
        (("evictions", "order"), list(Order)),
        (("softTaints", "mode"), list(SoftTaintMode)),
        (("softTaints", "scheme"), list(TaintScheme)),
        (("softTaints", "scale"), list(TaintScale)),
        (("thresholds", "deviationThresholds", "anyOf", 0), list(DEVIATION_THRESHOLDS)),
        (("thresholds", "utilizationThresholds", "anyOf", 0), list(UTILIZATION_THRESHOLDS)),
    ],
)
def test_names_are_those_of_the_code(path: tuple[str | int, ...], names: list[str]) -> None:
    field: Any = POLICY
    for step in path:
        field = field[step] if step == "anyOf" or isinstance(step, int) else field["properties"][step]
    assert field["enum"] == [str(name) for name in names]


@settings(deadline=None)
@given(valid_documents)
def test_the_schema_refuses_no_valid_policy(document: Document) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize(
    "text", ["Y", "n", "on", "NO", "null", "1e3", "0x10", "012", "2026-01-01", "1_000", "~", ".5"]
)
def test_a_text_that_looks_like_something_else_stays_a_text(text: str) -> None:
    """As an expression, which may be any; in the values it is quoted."""
    queries = [{"name": "a", "query": text, "window": "1m"}]
    (query,) = policy_in(render(values={"policy": {"metrics": {"queries": queries}}})).metrics.queries
    assert query.expression == text


@settings(deadline=None, max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(valid_documents)
def test_what_is_rendered_means_what_the_values_say(document: Document) -> None:
    """Through helm's YAML and back: numbers, texts that look like numbers, blanks at the ends, line breaks."""
    assume(not re.search("[\ufffe\uffff]", str(document)))  # no characters of YAML; helm cannot write them
    assert policy_in(render(values={"policy": document})) == parse_policy(
        json.dumps({"mode": "Predictive", **document})
    )


def test_defaults_are_left_to_the_program() -> None:
    assert policy_in(render()) == default_policy()
    (config_map,) = (
        o for o in render() if o["metadata"]["name"].endswith("-policy") and o["kind"] == "ConfigMap"
    )
    assert yaml.safe_load(config_map["data"]["policy.yaml"]).keys() == {"apiVersion", "kind", "mode"}


@pytest.mark.parametrize("body", [body for body in REFUSED if body not in OTHER_IN_HELM])
def test_refuses_what_the_program_refuses(body: str) -> None:
    assert try_template(values={"policy": yaml.safe_load(body)}).returncode != 0


@pytest.mark.parametrize("body", OTHER_IN_HELM)
def test_what_is_right_only_to_helm_comes_out_right(body: str) -> None:
    assert body in REFUSED
    assert policy_in(render(values={"policy": yaml.safe_load(body)}))


@pytest.mark.parametrize("path", sorted(schema_paths(POLICY)), ids=".".join)
def test_agrees_with_the_program_on_each_field(path: Path) -> None:
    """What the schema alone lets pass although it is wrong, the chart's own checks have to find."""
    head = {"apiVersion": FULL["apiVersion"], "kind": FULL["kind"]}
    for junk in JUNK:
        document = with_value(head, path, junk)
        fits = VALIDATOR.is_valid(document)
        if is_valid(document):
            assert fits, junk
        elif fits:
            assert try_template(values={"policy": document}).returncode != 0, junk


def test_says_every_problem_at_once() -> None:
    values = {
        "platform": "kubernetes",
        "rbac": {"readOnly": True},
        "leaderElection": {"renewDeadline": "20s"},
        "policy": {
            "mode": "Automatic",
            "metrics": {"timeout": "1m"},
            "evictions": {"limits": {"total": 2, "node": 3}},
        },
    }
    message = textwrap.dedent(try_template(values=values).stderr)
    assert "policy.metrics.timeout: 1m; allowed: at most metrics.refreshInterval (30s)" in message
    assert "policy.evictions.limits.node: 3; allowed: at most evictions.limits.total (2)" in message
    assert "policy.metrics.url: nothing" in message
    assert "rbac.readOnly: true" in message
    assert "leaderElection: " in message


def test_never_renders_an_empty_policy() -> None:
    """Helm's toYaml gives an empty text for what it cannot write."""
    queries = [{"name": "a", "query": "up\ufffe", "window": "1m"}]
    assert "cannot be written" in try_template(values={"policy": {"metrics": {"queries": queries}}}).stderr
