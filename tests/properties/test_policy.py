"""Whatever is valid survives printing and parsing; whatever is not raises nothing but ``PolicyErrors``."""

import json
from datetime import timedelta
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.policy.document import MAX_DEPTH, read_document
from controller.policy.durations import LONGEST, format_duration, parse_duration
from controller.policy.model import Policy
from controller.policy.parse import default_policy, parse_policy
from controller.policy.presets import DEVIATION_THRESHOLDS, MULTI_EVICTIONS, QUERIES, UTILIZATION_THRESHOLDS
from controller.policy.problems import PolicyErrors
from controller.policy.render import effective_document, policy_yaml

HEAD = {"apiVersion": "vm-rebalancer.io/v1alpha1", "kind": "RebalancePolicy"}

fractions = st.floats(0, 1) | st.sampled_from([0, 1, 0.5])
selectors = st.sampled_from(
    ["", "a", "!a", "a=b", "a!=b", "a in (x,y),b notin (z)", "kubevirt.io/schedulable=true"]
)
paths = st.sampled_from(["", "/a", "/var/run/a b#c", "/" + "long/" * 40 + "x"])
globs = st.lists(st.sampled_from(["a", "a-*", "*", "team-??", "1", "null", "0-1"]), max_size=3)
expressions = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.sampled_from(list("\n\t 1e3:#-'\"|{")),
    min_size=1,
    max_size=200,
).filter(str.strip)


def durations(shortest_ms: int, longest_ms: int) -> st.SearchStrategy[str]:
    return st.integers(shortest_ms, longest_ms).map(lambda ms: format_duration(timedelta(milliseconds=ms)))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with any selection of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


static_bounds = st.tuples(fractions, fractions).map(lambda pair: {"under": min(pair), "over": max(pair)})
bounds: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"deviationThresholds": st.sampled_from(list(DEVIATION_THRESHOLDS))}),
    st.fixed_dictionaries(
        {"deviationThresholds": st.fixed_dictionaries({"under": fractions, "over": fractions})}
    ),
    st.fixed_dictionaries(
        {"utilizationThresholds": st.sampled_from(list(UTILIZATION_THRESHOLDS)) | static_bounds}
    ),
)
queries = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", fullmatch=True),
            "query": expressions,
            "window": durations(1_000, 86_400_000),
        },
        optional={"thresholds": bounds},
    ),
    max_size=3,
    unique_by=lambda query: str(query["name"]),
)
sources = st.one_of(
    st.fixed_dictionaries({"queries": queries}),
    st.fixed_dictionaries({"actualUtilizationProfile": st.sampled_from(list(QUERIES))}),
)
metrics = st.tuples(
    sources,
    some(
        url=st.sampled_from(["https://h", "https://h:9090/prefix/", "https://[::1]:9"]),
        tokenFile=paths,
        caFile=paths,
        headersFile=paths,
        nodeLabel=st.sampled_from(["instance", "node", "_x1"]),
        refreshInterval=durations(10_000, 180_000),
        timeout=durations(100, 10_000),
        maxAge=durations(180_000, 10**9),
        minCoverage=fractions,
        allowHttp=st.booleans(),
    ),
).map(lambda pair: {**pair[0], **pair[1]})
evictions = some(
    multiEvictions=st.sampled_from(list(MULTI_EVICTIONS)),
    limits=st.fixed_dictionaries({"total": st.integers(5, 1000)}, optional={"node": st.integers(1, 5)}),
    namespaces=some(include=globs.map(lambda names: [f"x{name}" for name in names]), exclude=globs),
    labelSelector=selectors,
    priorityThreshold=st.none() | st.integers(-(2**31), 2**31 - 1),
    minVmAge=durations(0, 10**9),
    order=st.sampled_from(["BestFit", "LowestPriority"]),
    minGain=fractions,
    settle=durations(1_000, 10**9),
    acknowledgeTimeout=durations(1_000, 1_800_000),
    breaker=some(failures=st.integers(1, 100), within=durations(1_000, 10**9), rest=durations(0, 10**9)),
    migrationTimeout=durations(1_800_000, 10**9),
    cooldown=some(
        base=durations(0, 1_000_000), max=durations(1_000_000, 10**8), window=durations(10**8, 10**10)
    ),
    allowShutdown=st.booleans(),
)
valid_documents = some(
    mode=st.sampled_from(["Predictive", "Automatic"]),
    nodeSelector=selectors,
    metrics=metrics,
    thresholds=st.tuples(
        bounds,
        some(sustain=st.integers(1, 100), floor=some(cpu=fractions, memory=fractions, pressure=fractions)),
    ).map(lambda pair: {**pair[0], **pair[1]}),
    evictions=evictions,
    softTaints=some(
        mode=st.sampled_from(["Enabled", "Disabled", "CleanupOnly"]),
        scheme=st.sampled_from(["Single", "Tiered", "Graded"]),
        levels=st.integers(1, 10),
        scale=st.sampled_from(["linear", "exponential"]),
    ),
).map(lambda fields: {**HEAD, **fields})


def parsed(document: dict[str, Any]) -> Policy:
    return parse_policy(json.dumps(document))  # JSON is YAML


def parse_or_refuse(text: str) -> None:
    """Parse; if that fails, then only in the one way, and with messages fit for a log."""
    refused = None
    try:
        parse_policy(text)
    except PolicyErrors as errors:
        refused = errors
    if refused:
        lines = str(refused).split("\n")
        assert len(lines) == len(refused.problems) > 0
        assert all(line.isprintable() and len(line) < 1_000 for line in lines)


@settings(deadline=None)
@given(valid_documents)
def test_what_was_printed_parses_to_the_same_policy(document: dict[str, Any]) -> None:
    policy = parsed(document)
    assert parse_policy(policy_yaml(policy)) == policy


@settings(deadline=None)
@given(valid_documents)
def test_the_effective_document_is_what_other_yaml_readers_see(document: dict[str, Any]) -> None:
    policy = parsed(document)
    assert yaml.safe_load(policy_yaml(policy)) == effective_document(policy)


@settings(deadline=None)
@given(valid_documents, valid_documents)
def test_digests_are_equal_exactly_where_policies_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = parsed(one), parsed(other)
    assert (first.digest == second.digest) == (first == second)


@settings(deadline=None)
@given(valid_documents)
def test_settling_never_ends_before_the_longest_own_window_has_passed(document: dict[str, Any]) -> None:
    policy = parsed(document)
    assert policy.effective_settle >= policy.evictions.settle
    assert all(
        policy.effective_settle > query.window for query in policy.metrics.queries if not query.recorded
    )


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_durations_survive_printing(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
)


def leaf_paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    match value:
        case dict():
            return [path, *(p for key, inner in value.items() for p in leaf_paths(inner, (*path, key)))]
        case list():
            return [path, *(p for at, inner in enumerate(value) for p in leaf_paths(inner, (*path, at)))]
        case _:
            return [path]


FIELDS = [path for path in leaf_paths(effective_document(default_policy())) if path]


@settings(deadline=None)
@given(st.text())
@example("'")
@example("? ? ?")
@example("!!timestamp 2024-13-45")
@example("!!int ''")
@example("=")
@example("%TAG ! !\n---\na")
@example("\ud800")
def test_no_text_raises_anything_else(text: str) -> None:
    parse_or_refuse(text)


@settings(deadline=None)
@given(trees)
def test_no_tree_raises_anything_else(tree: object) -> None:
    parse_or_refuse(json.dumps(tree))
    parse_or_refuse(json.dumps({**HEAD, "metrics": {"queries": tree}, "evictions": tree}))


@settings(deadline=None)
@given(st.sampled_from(FIELDS), trees)
def test_no_value_in_any_field_raises_anything_else(path: tuple[str | int, ...], tree: object) -> None:
    document = effective_document(default_policy())
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = tree
    parse_or_refuse(json.dumps(document))


@settings(deadline=None)
@given(
    st.integers(0, 2_000),
    st.integers(0, 30),
    st.text(max_size=10) | st.sampled_from(list("&*!|>%@`?:-[]{}#,\n\t")),
)
def test_no_edit_of_a_policy_raises_anything_else(at: int, removed: int, inserted: str) -> None:
    text = policy_yaml(default_policy())
    parse_or_refuse(text[:at] + inserted + text[at + removed :])


json_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)


@settings(deadline=None)
@given(
    st.recursive(
        json_scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=MAX_DEPTH,
    )
)
def test_json_reads_as_json(tree: object) -> None:
    assert read_document(json.dumps(tree)).value == tree
