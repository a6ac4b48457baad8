"""A policy with a fault is refused, and the message says where, what was found and what is allowed."""

import pytest

from controller.policy.parse import parse_policy
from controller.policy.problems import PolicyErrors, Problem
from tests.controller.policy.builders import HEAD, OWN_QUERIES, policy_text


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(text)
    return caught.value.problems


def only_problem(text: str) -> Problem:
    (problem,) = problems_of(text)
    return problem


@pytest.mark.parametrize(
    ("body", "path", "found"),
    [
        ("mode: Auto", "mode", '"Auto"'),
        ("mode:", "mode", "nothing"),
        ("nodeSelector: 3", "nodeSelector", "3"),
        ("nodeSelector: a in (", "nodeSelector", '"a in ("'),
        ("metrics: []", "metrics", "a list of 0"),
        ("metrics: {url: ''}", "metrics.url", '""'),
        ("metrics: {url: prometheus:9090}", "metrics.url", '"prometheus:9090"'),
        ("metrics: {url: 'https://'}", "metrics.url", '"https://"'),
        ("metrics: {url: 'https://h:99999'}", "metrics.url", '"https://h:99999"'),
        ("metrics: {url: 'https://h/?a=b'}", "metrics.url", '"https://h/?***"'),
        ("metrics: {url: 'https://[::1'}", "metrics.url", '"https://[::1"'),
        ("metrics: {url: 'http://h:9090'}", "metrics.url", '"http://h:9090"'),
        ("metrics: {tokenFile: token}", "metrics.tokenFile", "a text of 5 characters"),
        ("metrics: {nodeLabel: node-name}", "metrics.nodeLabel", '"node-name"'),
        ("metrics: {refreshInterval: 30}", "metrics.refreshInterval", "30"),
        ("metrics: {refreshInterval: 500ms, timeout: 100ms}", "metrics.refreshInterval", '"500ms"'),
        ("metrics: {timeout: 31s}", "metrics.timeout", "31s"),
        ("metrics: {refreshInterval: 4m}", "metrics.refreshInterval", "4m"),
        ("metrics: {minCoverage: 60}", "metrics.minCoverage", "60"),
        ("metrics: {minCoverage: true}", "metrics.minCoverage", "true"),
        ("metrics: {minCoverage: '0.6'}", "metrics.minCoverage", '"0.6"'),
        ("metrics: {minCoverage: .nan}", "metrics.minCoverage", '".nan"'),
        ("metrics: {minCoverage: 1e999}", "metrics.minCoverage", "inf"),
        ("metrics: {allowHttp: yes}", "metrics.allowHttp", '"yes"'),
        ("metrics: {queries: {}}", "metrics.queries", "a mapping of 0 keys"),
        ("metrics: {queries: [null]}", "metrics.queries[0]", "nothing"),
        ("metrics: {queries: [{name: a, query: b}]}", "metrics.queries[0].window", "nothing"),
        ("metrics: {queries: [{name: a, query: ' ', window: 1m}]}", "metrics.queries[0].query", '" "'),
        (
            'metrics: {queries: [{name: a, query: "x\\0", window: 1m}]}',
            "metrics.queries[0].query",
            r'"x\u0000"',
        ),
        ("metrics: {queries: [{name: 1a, query: b, window: 1m}]}", "metrics.queries[0].name", '"1a"'),
        ("thresholds: {sustain: 0}", "thresholds.sustain", "0"),
        ("thresholds: {sustain: 2.0}", "thresholds.sustain", "2.0"),
        ("thresholds: {sustain: true}", "thresholds.sustain", "true"),
        ("thresholds: {floor: {cpu: -0.1}}", "thresholds.floor.cpu", "-0.1"),
        ("thresholds: {deviationThresholds: 10}", "thresholds.deviationThresholds", "10"),
        ("thresholds: {deviationThresholds: {under: 0}}", "thresholds.deviationThresholds.over", "nothing"),
        (
            "thresholds: {utilizationThresholds: {under: 0.5, over: 0.4}}",
            "thresholds.utilizationThresholds.under",
            "0.5",
        ),
        ("evictions: {limits: {node: 6}}", "evictions.limits.node", "6"),
        ("evictions: {limits: {node: 0}}", "evictions.limits.node", "0"),
        (
            "evictions: {multiEvictions: Rapid, limits: {total: 4}}",
            "evictions.limits.node",
            "5 (from multiEvictions Rapid)",
        ),
        ("evictions: {namespaces: {exclude: openshift-*}}", "evictions.namespaces.exclude", '"openshift-*"'),
        ("evictions: {namespaces: {include: ['team-.+']}}", "evictions.namespaces.include[0]", '"team-.+"'),
        (
            "evictions: {namespaces: {include: [kube-system]}}",
            "evictions.namespaces.include",
            '"kube-system", which exclude holds too',
        ),
        ("evictions: {priorityThreshold: 2147483648}", "evictions.priorityThreshold", "2147483648"),
        ("evictions: {order: bestFit}", "evictions.order", '"bestFit"'),
        ("evictions: {minGain: 1%}", "evictions.minGain", '"1%"'),
        ("evictions: {settle: 0s}", "evictions.settle", '"0s"'),
        ("evictions: {settle: -5s}", "evictions.settle", '"-5s"'),
        ("evictions: {acknowledgeTimeout: 31m}", "evictions.acknowledgeTimeout", "31m"),
        ("evictions: {breaker: {failures: 0}}", "evictions.breaker.failures", "0"),
        ("evictions: {cooldown: {base: 7h}}", "evictions.cooldown.base", "7h"),
        ("evictions: {cooldown: {window: 5h}}", "evictions.cooldown.max", "6h"),
        ("evictions: {allowShutdown: 1}", "evictions.allowShutdown", "1"),
        ("softTaints: {mode: Off}", "softTaints.mode", '"Off"'),
        ("softTaints: {levels: 11}", "softTaints.levels", "11"),
        ("softTaints: {scale: Linear}", "softTaints.scale", '"Linear"'),
    ],
)
def test_says_where_and_what_was_found(body: str, path: str, found: str) -> None:
    problem = only_problem(policy_text(body))
    assert problem.path == path
    assert problem.found.startswith(found)
    assert problem.allowed
    assert problem.line == 3


@pytest.mark.parametrize(
    ("body", "path", "nearest"),
    [
        ("evictionz: {}", "evictionz", "evictions"),
        ("evictions: {devMultiEvictions: Simple}", "evictions.devMultiEvictions", "multiEvictions"),
        ("evictions: {cooldown: {bse: 1m}}", "evictions.cooldown.bse", "base"),
        ("metrics: {URL: 'https://h'}", "metrics.URL", "url"),
        (
            "thresholds: {deviationThresholds: asymetriclow}",
            "thresholds.deviationThresholds",
            "AsymmetricLow",
        ),
        (
            "metrics: {actualUtilizationProfile: CPUUsage}",
            "metrics.actualUtilizationProfile",
            "PrometheusCPUUsage",
        ),
        ("softTaints: {scheme: tired}", "softTaints.scheme", "Tiered"),
    ],
)
def test_names_what_was_probably_meant(body: str, path: str, nearest: str) -> None:
    problem = only_problem(policy_text(body))
    assert (problem.path, problem.nearest) == (path, nearest)


def test_reports_every_problem_in_the_order_of_the_document() -> None:
    problems = problems_of(
        policy_text(
            "mode: Auto\n"
            "extra: 1\n"
            "metrics:\n"
            "  timeout: soon\n"
            "evictions:\n"
            "  cooldown: {base: 2x, max: 1d}\n"
            "  mode: Automatic\n"
            "softTaints: [taint]\n"
        )
    )
    assert [(problem.line, problem.path) for problem in problems] == [
        (3, "mode"),
        (4, "extra"),
        (6, "metrics.timeout"),
        (8, "evictions.cooldown.base"),
        (8, "evictions.cooldown.max"),
        (9, "evictions.mode"),
        (10, "softTaints"),
    ]


def test_does_not_compare_what_is_wrong_by_itself() -> None:
    """``max`` would be under the default of a ``base`` that nobody stated."""
    assert (
        only_problem(policy_text("evictions: {cooldown: {base: x, max: 1m}}")).path
        == "evictions.cooldown.base"
    )


def test_one_kind_of_thresholds_excludes_the_other() -> None:
    both = "{deviationThresholds: Low, utilizationThresholds: Low}"
    assert only_problem(policy_text(f"thresholds: {both}")).path == "thresholds.utilizationThresholds"


def test_own_queries_exclude_a_profile() -> None:
    problem = only_problem(policy_text(OWN_QUERIES + "  actualUtilizationProfile: PrometheusCPUUsage\n"))
    assert problem.path == "metrics.actualUtilizationProfile"


def test_queries_have_names_of_their_own() -> None:
    query = "{name: same, query: x, window: 1m}"
    problem = only_problem(policy_text(f"metrics: {{queries: [{query}, {query}]}}"))
    assert (problem.path, problem.found) == ("metrics.queries[1].name", '"same" again')


def test_http_is_allowed_only_on_request() -> None:
    policy = parse_policy(policy_text("metrics: {url: 'http://prometheus:9090', allowHttp: true}"))
    assert policy.metrics.url == "http://prometheus:9090"


def test_an_url_with_credentials_is_refused_without_repeating_them() -> None:
    problem = only_problem(policy_text("metrics: {url: 'https://me:secret@prometheus'}"))
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("mode: Automatic", ["apiVersion", "kind"]),
        ("kind: RebalancePolicy", ["apiVersion"]),
        (HEAD.replace("v1alpha1", "v1beta1"), ["apiVersion"]),
        (HEAD.replace("Policy", "Policies"), ["kind"]),
    ],
)
def test_says_which_version_and_kind_are_supported(text: str, paths: list[str]) -> None:
    assert [problem.path for problem in problems_of(text)] == paths


def test_judges_no_field_of_another_kind() -> None:
    text = "apiVersion: operator.openshift.io/v1\nkind: KubeDescheduler\nspec: {}\n"
    problem = only_problem(text)
    assert (problem.path, problem.found) == ("kind", '"KubeDescheduler"')


def test_a_message_is_one_line_of_printable_text_whatever_the_key_was() -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(policy_text('"a\\nb\\u2028\\u202e": 1'), source="cm")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(r'cm:3: "a\nb\u2028\u202e": found an unknown field; allowed: apiVersion, ')
    assert line.isprintable()
