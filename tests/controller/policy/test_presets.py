"""Names in the policy stand for the numbers of the OpenShift operator, and explicit numbers override them."""

from datetime import timedelta

import pytest

from controller.policy.model import Bounds, BoundsKind, Limits, Mode, Query
from controller.policy.parse import default_policy, parse_policy
from controller.policy.presets import DEVIATION_THRESHOLDS, QUERIES, UTILIZATION_THRESHOLDS
from tests.controller.policy.builders import OWN_QUERIES, policy_text


def test_predicts_only_unless_told_otherwise() -> None:
    assert parse_policy(policy_text()).mode is Mode.PREDICTIVE


def test_another_default_mode_gives_way_to_the_policys_own() -> None:
    assert parse_policy(policy_text(), default_mode=Mode.AUTOMATIC).mode is Mode.AUTOMATIC
    assert parse_policy(policy_text("mode: Predictive"), default_mode=Mode.AUTOMATIC).mode is Mode.PREDICTIVE


@pytest.mark.parametrize("name", DEVIATION_THRESHOLDS)
def test_expands_deviation_presets(name: str) -> None:
    policy = parse_policy(policy_text(f"thresholds: {{deviationThresholds: {name}}}"))
    assert policy.thresholds.bounds == DEVIATION_THRESHOLDS[name]


@pytest.mark.parametrize("name", UTILIZATION_THRESHOLDS)
def test_expands_utilization_presets(name: str) -> None:
    policy = parse_policy(policy_text(f"thresholds: {{utilizationThresholds: {name}}}"))
    assert policy.thresholds.bounds == UTILIZATION_THRESHOLDS[name]


def test_takes_thresholds_as_numbers() -> None:
    policy = parse_policy(policy_text("thresholds: {utilizationThresholds: {under: 0.2, over: 1}}"))
    assert policy.thresholds.bounds == Bounds(BoundsKind.STATIC, 0.2, 1.0)


def test_a_deviation_below_may_be_wider_than_the_one_above() -> None:
    policy = parse_policy(policy_text("thresholds: {deviationThresholds: {under: 0.3, over: 0.1}}"))
    assert policy.thresholds.bounds == Bounds(BoundsKind.DEVIATION, 0.3, 0.1)


@pytest.mark.parametrize("name", QUERIES)
def test_a_profile_reads_a_recorded_series(name: str) -> None:
    metrics = parse_policy(policy_text(f"metrics: {{actualUtilizationProfile: {name}}}")).metrics
    assert metrics.profile == name
    assert metrics.queries == (QUERIES[name],)
    assert metrics.queries[0].recorded


def test_own_queries_take_the_place_of_the_profile() -> None:
    metrics = parse_policy(policy_text(OWN_QUERIES)).metrics
    assert metrics.profile == ""
    assert metrics.queries == (
        Query(
            "cpu",
            "avg_over_time(node_load[5m])",
            recorded=False,
            window=timedelta(minutes=5),
            thresholds=UTILIZATION_THRESHOLDS["High"],
        ),
        Query("memory", "node_memory", recorded=False, window=timedelta(minutes=1)),
    )


@pytest.mark.parametrize(
    ("evictions", "limits"),
    [
        ("{}", Limits(node=1, total=5)),
        ("{multiEvictions: Modest}", Limits(node=2, total=5)),
        ("{multiEvictions: Rapid}", Limits(node=5, total=5)),
        ("{multiEvictions: Rapid, limits: {node: 3}}", Limits(node=3, total=5)),
        ("{multiEvictions: Modest, limits: {total: 2}}", Limits(node=2, total=2)),
    ],
)
def test_explicit_limits_override_the_preset(evictions: str, limits: Limits) -> None:
    assert parse_policy(policy_text(f"evictions: {evictions}")).evictions.limits == limits


def test_presets_settle_as_the_policy_says() -> None:
    policy = parse_policy(policy_text("evictions: {settle: 20s}"))
    assert policy.effective_settle == timedelta(seconds=20)


def test_a_long_average_of_ones_own_makes_a_move_settle_later() -> None:
    """A 5-minute average shows a move only after 5 minutes, rule and scrape interval on top."""
    assert parse_policy(policy_text(OWN_QUERIES)).effective_settle == timedelta(minutes=6)


def test_settle_longer_than_the_window_demands_is_kept() -> None:
    policy = parse_policy(policy_text(OWN_QUERIES + "evictions: {settle: 10m}"))
    assert policy.effective_settle == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("namespaces", "allowed", "refused"),
    [
        ("{}", ["vms", "kube-public"], ["kube-system", "openshift-cnv"]),
        ("{include: ['team-?', lab]}", ["team-a", "lab"], ["team-10", "lab2", "openshift-x"]),
        ("{include: ['*'], exclude: []}", ["kube-system", "openshift-cnv"], []),
        ("{include: ['team-*'], exclude: [team-x]}", ["team-a"], ["team-x", "other"]),
    ],
)
def test_exclude_wins_over_include(namespaces: str, allowed: list[str], refused: list[str]) -> None:
    chosen = parse_policy(policy_text(f"evictions: {{namespaces: {namespaces}}}")).evictions.namespaces
    assert all(chosen.allows(namespace) for namespace in allowed)
    assert not any(chosen.allows(namespace) for namespace in refused)


def test_selectors_come_out_ready_to_match() -> None:
    policy = parse_policy(policy_text("nodeSelector: zone in (a,b)\nevictions: {labelSelector: '!fixed'}"))
    assert policy.node_selector.matches({"zone": "b"})
    assert not policy.evictions.label_selector.matches({"fixed": ""})
    assert default_policy().evictions.label_selector.matches({})
