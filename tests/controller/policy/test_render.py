"""The effective policy is printed in full, and its digest tells policies apart by what they mean."""

import json
from datetime import timedelta

import pytest

from controller.policy.parse import default_policy, parse_policy
from controller.policy.render import policy_yaml
from tests.controller.policy.builders import OWN_QUERIES, policy_text


def test_prints_presets_expanded_under_the_digest() -> None:
    policy = parse_policy(
        policy_text("thresholds: {utilizationThresholds: Medium}\nevictions: {multiEvictions: Modest}")
    )
    lines = policy_yaml(policy).splitlines()
    assert lines[0] == f"# digest: {policy.digest}"
    assert lines[lines.index("  utilizationThresholds:") :][1:3] == ["    under: 0.2", "    over: 0.5"]
    assert lines[lines.index("  limits:") :][1:3] == ["    node: 2", "    total: 5"]


@pytest.mark.parametrize(
    "query",
    [
        "1e3",
        "010",
        "yes",
        "null",
        "'quoted' # no comment",
        "a:\n  b\nand c",
        "line\n\n  indented\n",
        'up{job="ü", x="\\n"}',
        "tab\tand separator\u2028",
        " leading",
        "- x",
        "x" * 300 + " " + "y" * 300,
    ],
)
def test_reads_back_what_it_printed(query: str) -> None:
    body = f"metrics: {{queries: [{{name: n, query: {json.dumps(query)}, window: 1m}}]}}"
    policy = parse_policy(policy_text(body))
    assert policy.metrics.queries[0].expression == query.strip()
    assert parse_policy(policy_yaml(policy)) == policy


def test_own_queries_read_back_with_their_thresholds() -> None:
    policy = parse_policy(policy_text(OWN_QUERIES))
    assert parse_policy(policy_yaml(policy)) == policy


def test_prints_the_settle_time_that_applies_where_it_is_another() -> None:
    printed = policy_yaml(parse_policy(policy_text(OWN_QUERIES))).splitlines()
    assert printed[1] == "# settle in effect: 6m (longest window of the queries + 60 s)"
    assert "  settle: 2m" in printed
    assert not policy_yaml(default_policy()).splitlines()[1].startswith("#")


def test_the_digest_is_twelve_hex_digits() -> None:
    digest = default_policy().digest
    assert len(digest) == 12
    assert int(digest, 16) >= 0


@pytest.mark.parametrize(
    "body",
    [
        "mode: Predictive",
        "thresholds: {deviationThresholds: {over: 0.1, under: 0}}",
        "evictions: {limits: {node: 1}, settle: 120s}",
        "evictions: {multiEvictions: Simple, priorityThreshold: null}",
        "nodeSelector: kubevirt.io/schedulable in (true)",
        "evictions:\nsoftTaints: {}",
    ],
)
def test_policies_that_mean_the_same_have_the_same_digest(body: str) -> None:
    assert parse_policy(policy_text(body)) == default_policy()


@pytest.mark.parametrize(
    "body", ["mode: Automatic", "evictions: {settle: 121s}", "evictions: {allowShutdown: true}", OWN_QUERIES]
)
def test_policies_that_differ_have_different_digests(body: str) -> None:
    assert parse_policy(policy_text(body)).digest != default_policy().digest


def test_milliseconds_survive() -> None:
    policy = parse_policy(policy_text("metrics: {timeout: 1667ms}"))
    assert policy.metrics.timeout == timedelta(milliseconds=1667)
    assert parse_policy(policy_yaml(policy)) == policy
