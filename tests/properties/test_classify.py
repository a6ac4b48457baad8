"""Classification, for any values, histories and policies."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from controller.policy.model import Bounds, BoundsKind, Thresholds
from controller.utilization.classify import Classification, NodeClass, classify, resolve
from controller.utilization.reading import TOLERANCE, Answer, Sample, Snapshot, read_snapshot
from tests.builders import START, node
from tests.controller.decision_builders import (
    METRICS,
    MINUTE,
    QUERY,
    SERIES,
    STATIC,
    load,
    metrics,
    snapshot,
    thresholds,
)

NAMES = [f"node-{n}" for n in range(1, 7)]
NODES = [node(name) for name in NAMES]

shares = st.floats(0.0, 1.0)
valued = st.dictionaries(st.sampled_from(NAMES), shares)
fractions = st.floats(0.0, 1.0)
bounds = st.one_of(
    st.builds(Bounds, st.just(BoundsKind.DEVIATION), fractions, fractions),
    st.tuples(fractions, fractions).map(lambda pair: Bounds(BoundsKind.STATIC, min(pair), max(pair))),
)
rules = st.builds(thresholds, bounds=bounds, sustain=st.integers(1, 4))


def history_of(*rounds: dict[str, float]) -> list[Snapshot]:
    """A round every minute, in which whatever has a value is hot."""
    return [snapshot(values, at=START + n * MINUTE, sequence=n) for n, values in enumerate(rounds)]


def classified(
    history: Sequence[Snapshot], rules: Thresholds, nodes: Sequence[Any] = NODES
) -> Classification:
    return classify(history, nodes, METRICS, rules, history[-1].taken_at)


def classes(found: Classification) -> dict[str, NodeClass]:
    return {name: verdict.node_class for name, verdict in found.nodes.items()}


histories = st.lists(valued, min_size=1, max_size=6).map(lambda rounds: history_of(*rounds))


# --- what is read ---


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=True, allow_infinity=True)))
def test_only_values_within_the_interval_are_read_and_all_of_them(raw: dict[str, float]) -> None:
    vector = Answer([Sample({"instance": name}, value) for name, value in raw.items()])
    times = Answer([Sample({"instance": name}, START.timestamp()) for name in raw])
    answers = {SERIES: vector, f"timestamp({SERIES})": times}
    found = read_snapshot(answers, NODES, METRICS, sequence=1, now=START)
    kept = {name: v.value for name, v in found.values[QUERY].items()}
    fitting = {n: v for n, v in raw.items() if math.isfinite(v) and -TOLERANCE <= v <= 1 + TOLERANCE}
    assert kept == {name: min(max(value, 0.0), 1.0) for name, value in fitting.items()}
    assert {d.subject for d in found.dropped} == set(raw) - set(fitting), "each of the others with a reason"


@given(bounds, st.lists(shares))
def test_thresholds_are_in_order_and_within_the_interval(limits: Bounds, values: list[float]) -> None:
    edges = resolve(limits, values)
    assert 0.0 <= edges.under <= edges.over <= 1.0


@given(bounds, shares, st.integers(1, 50))
def test_equal_nodes_are_never_out_of_line_with_each_other(limits: Bounds, value: float, count: int) -> None:
    assume(limits.kind is BoundsKind.DEVIATION)
    edges = resolve(limits, [value] * count)
    assert value <= edges.over
    assert value >= edges.under


# --- what is concluded ---


@given(histories, rules)
def test_a_node_without_a_value_is_unknown_and_only_such_a_node(
    history: list[Snapshot], rules: Thresholds
) -> None:
    newest = history[-1].values[QUERY]
    for name, node_class in classes(classified(history, rules)).items():
        assert (node_class is NodeClass.UNKNOWN) is (name not in newest)


@given(histories, rules)
def test_adding_a_node_without_a_value_changes_nothing_for_the_others(
    history: list[Snapshot], rules: Thresholds
) -> None:
    alone, joined = classified(history, rules), classified(history, rules, [*NODES, node("node-new")])
    assert classes(joined) == classes(alone) | {"node-new": NodeClass.UNKNOWN}
    assert joined.limits == alone.limits


@given(histories, rules, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_values_does_not_matter(
    history: list[Snapshot], rules: Thresholds, random: Any
) -> None:
    def shuffled(items: Sequence[Any]) -> list[Any]:
        copy = list(items)
        random.shuffle(copy)
        return copy

    mixed = [
        snapshot(
            {name: s.values[QUERY][name].value for name in shuffled(list(s.values[QUERY]))},
            at=s.taken_at,
            sequence=s.sequence,
        )
        for s in history
    ]
    one, other = classified(history, rules), classified(mixed, rules, shuffled(NODES))
    assert classes(one) == classes(other)
    assert one.limits == other.limits
    assert one.over_utilised() == other.over_utilised()


@given(st.lists(st.one_of(st.none(), shares), min_size=1, max_size=8), st.integers(1, 4))
def test_over_means_above_in_the_last_values_and_nothing_else(
    course: list[float | None], sustain: int
) -> None:
    history = history_of(*({} if value is None else {"node-1": value} for value in course))
    known = [value for value in course if value is not None]
    # Gaps of unknown values are shorter than maxAge here, or there is nothing to count.
    assume(all(gap is not None for gap in course[::3]))
    over = course[-1] is not None and len(known) >= sustain and all(v > STATIC.over for v in known[-sustain:])
    found = classified(history, thresholds(sustain=sustain), NODES[:1])
    assert (found.class_of("node-1") is NodeClass.OVER) is over


@given(histories, rules)
def test_what_does_not_hurt_is_never_over(history: list[Snapshot], rules: Thresholds) -> None:
    calm = [
        Snapshot(s.sequence, s.taken_at, s.values, {n: load(0.1, 0.1, 0.0, s.taken_at) for n in NAMES})
        for s in history
    ]
    assert NodeClass.OVER not in classes(classified(calm, rules)).values()


@given(histories, rules)
def test_over_and_under_exclude_each_other_by_the_thresholds(
    history: list[Snapshot], rules: Thresholds
) -> None:
    found = classified(history, rules)
    for name, verdict in found.nodes.items():
        for value in verdict.values.values():
            if verdict.node_class is NodeClass.OVER:
                assert value > found.limits[QUERY].over, name
            if verdict.node_class is NodeClass.UNDER:
                assert value <= found.limits[QUERY].under, name


@given(valued, fractions)
def test_a_round_is_skipped_exactly_below_min_coverage(values: dict[str, float], min_coverage: float) -> None:
    history = history_of(values)
    found = classify(history, NODES, metrics(min_coverage=min_coverage), thresholds(), START)
    assert bool(found.skipped) is (len(values) / len(NODES) < min_coverage)
    assert found.coverage == len(values) / len(NODES)


@given(histories, rules)
def test_the_worst_comes_first(history: list[Snapshot], rules: Thresholds) -> None:
    found = classified(history, rules)
    order = [(-found.nodes[name].excess, name) for name in found.over_utilised()]
    assert order == sorted(order)


@given(histories, rules, st.integers(1, 10_000))
def test_with_time_alone_everything_becomes_unknown(
    history: list[Snapshot], rules: Thresholds, seconds: int
) -> None:
    late = history[-1].taken_at + METRICS.max_age + timedelta(seconds=seconds)
    found = classify(history, NODES, METRICS, rules, late)
    assert set(classes(found).values()) == {NodeClass.UNKNOWN}
    assert found.skipped
