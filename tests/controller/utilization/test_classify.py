"""Which nodes are out of line."""

from datetime import datetime, timedelta

import pytest

from controller.cluster.objects import Node
from controller.policy.model import Metrics, Thresholds
from controller.utilization.classify import Classification, NodeClass, classify, reaches, resolve
from controller.utilization.reading import NodeLoad, Snapshot
from tests.builders import GIB, START, node
from tests.controller.decision_builders import (
    FLOOR,
    METRICS,
    MINUTE,
    SECOND,
    STATIC,
    THRESHOLDS,
    deviation,
    load,
    metrics,
    query,
    snapshot,
    thresholds,
    verdict,
)

UNKNOWN, UNDER, APPROPRIATE, OVER = NodeClass
NODES = [node(f"node-{n}") for n in range(1, 6)]


def classified(
    *history: Snapshot,
    nodes: list[Node] = NODES,
    metrics: Metrics = METRICS,
    thresholds: Thresholds = THRESHOLDS,
    now: datetime | None = None,
) -> Classification:
    """As of the newest snapshot unless ``now`` says otherwise."""
    return classify(history, nodes, metrics, thresholds, now or history[-1].taken_at)


def classes(found: Classification) -> list[NodeClass]:
    return [v.node_class for v in found.nodes.values()]


def values(*of_nodes: float | None) -> dict[str, float]:
    """Of node-1, node-2 …; ``None``: it has none."""
    return {f"node-{n}": v for n, v in enumerate(of_nodes, 1) if v is not None}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


# --- one value per node ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, UNDER), (0.2, UNDER), (0.201, APPROPRIATE), (0.5, APPROPRIATE), (0.501, OVER), (1.0, OVER)],
)
def test_under_up_to_the_lower_threshold_over_beyond_the_upper_one(value: float, expected: NodeClass) -> None:
    found = classified(snapshot(values(value)), nodes=NODES[:1])
    assert classes(found) == [expected]
    assert found.nodes["node-1"].excess == pytest.approx(value - 0.5)


def test_deviations_count_from_the_average_of_the_nodes_that_have_a_value() -> None:
    low = thresholds(bounds=deviation(0.0, 0.1))
    found = classified(snapshot(values(0.2, 0.3, 0.3, 0.6, None)), thresholds=low)
    assert found.limits["busy"].under == pytest.approx(0.35)
    assert found.limits["busy"].over == pytest.approx(0.45)
    assert classes(found) == [UNDER, UNDER, UNDER, OVER, UNKNOWN]


def test_fractions_of_a_percent_count() -> None:
    """Values truncated to whole percent would make these two equal."""
    low = thresholds(bounds=deviation(0.001, 0.001))
    assert classes(classified(snapshot(values(0.402, 0.405)), nodes=NODES[:2], thresholds=low)) == [
        UNDER,
        OVER,
    ]


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 0.7, 0.9, 1 / 3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_equal_nodes_are_all_at_their_average(value: float, count: int) -> None:
    found = classified(
        snapshot(values(*[value] * count)), nodes=NODES[:count], thresholds=thresholds(bounds=deviation())
    )
    assert classes(found) == [UNDER] * count


def test_thresholds_stay_within_the_interval() -> None:
    assert resolve(deviation(0.3, 0.3), [0.1, 0.1]) == (0.0, pytest.approx(0.4))
    assert resolve(deviation(0.3, 0.3), [0.9, 0.9]) == (pytest.approx(0.6), 1.0)
    assert resolve(deviation(0.0, 0.1), []) == (0.0, 0.1)
    assert resolve(STATIC, [0.9]) == (0.2, 0.5)


def test_what_an_average_of_more_than_ninety_percent_leaves_is_no_node_over() -> None:
    """All are equally overloaded: moving helps nobody."""
    found = classified(snapshot(values(1.0, 1.0, 0.95, 1.0, 1.0)), thresholds=thresholds(bounds=deviation()))
    assert OVER not in classes(found)


def test_names_the_worst_first() -> None:
    found = classified(snapshot(values(0.6, 0.9, 0.3, 0.9, 0.7)))
    assert found.over_utilised() == ["node-2", "node-4", "node-5", "node-1"]
    assert (found.class_of("node-1"), found.class_of("node-9")) == (OVER, UNKNOWN)


# --- no value ---


def test_a_node_without_a_value_is_unknown_and_stops_nobody() -> None:
    found = classified(snapshot(values(0.9, None, 0.1, 0.3, 0.4)))
    assert classes(found) == [OVER, UNKNOWN, UNDER, APPROPRIATE, APPROPRIATE]
    assert (found.skipped, found.coverage) == ("", 0.8)
    assert "no value younger than" in found.nodes["node-2"].reason


@pytest.mark.parametrize(("known", "skipped"), [(5, False), (3, False), (2, True), (0, True)])
def test_with_too_few_values_the_round_is_skipped_and_says_so(known: int, skipped: bool) -> None:
    found = classified(snapshot(values(*[0.3] * known)))
    assert bool(found.skipped) is skipped
    if skipped:
        assert found.skipped == f"only {known} of 5 eligible nodes have a value (minCoverage 0.6)"


def test_min_coverage_zero_never_skips() -> None:
    assert classified(snapshot({}), metrics=metrics(min_coverage=0.0)).skipped == ""


def test_before_the_first_snapshot_everything_is_unknown() -> None:
    found = classify([], NODES, METRICS, THRESHOLDS, START)
    assert set(classes(found)) == {UNKNOWN}
    assert found.skipped == "no metrics yet"


def test_without_eligible_nodes_there_is_nothing_to_decide() -> None:
    assert classified(snapshot(values(0.9)), nodes=[]).skipped == "no eligible nodes"


def test_nodes_that_do_not_take_part_do_not_count_for_the_average() -> None:
    found = classified(
        snapshot(values(0.2, 0.4, 0.9, 0.9)),
        nodes=NODES[:2],
        thresholds=thresholds(bounds=deviation(0.0, 0.05)),
    )
    assert found.limits["busy"].over == pytest.approx(0.35)
    assert set(found.nodes) == {"node-1", "node-2"}


def test_values_beyond_their_age_are_unknown() -> None:
    taken = snapshot(values(0.9, 0.3), at=START)
    assert classes(classified(taken, nodes=NODES[:2], now=START + 3 * MINUTE)) == [OVER, APPROPRIATE]
    assert classes(classified(taken, nodes=NODES[:2], now=START + 3 * MINUTE + SECOND)) == [UNKNOWN, UNKNOWN]


def test_says_when_a_node_was_last_seen_however_long_ago() -> None:
    found = classified(snapshot(values(0.3), at=START), snapshot({}, at=at(600), sequence=2), nodes=NODES[:2])
    assert found.nodes["node-1"].last_seen == START
    assert found.nodes["node-2"].last_seen is None


def test_load_without_a_value_does_not_count_as_seen() -> None:
    """Else a node that has lost its value would keep its taints for ever."""
    lost = snapshot({}, at=at(600), sequence=2, loads={"node-1": load(1.0, at=at(600))})
    found = classified(snapshot(values(0.3)), lost, nodes=NODES[:1])
    assert (found.nodes["node-1"].node_class, found.nodes["node-1"].last_seen) == (UNKNOWN, START)


# --- sustain ---


SUSTAIN_3 = thresholds(sustain=3)


def course(*course_of_node_1: float | None, step_s: float = 30.0) -> list[Snapshot]:
    """One snapshot every ``step_s``; node-2 has always a value."""
    return [
        snapshot(values(value, 0.3), at=at(number * step_s), sequence=number)
        for number, value in enumerate(course_of_node_1)
    ]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([0.9], APPROPRIATE),
        ([0.9, 0.9], APPROPRIATE),
        ([0.9, 0.9, 0.9], OVER),
        ([0.9, 0.9, 0.4, 0.9], APPROPRIATE),
        ([0.9, 0.2, 0.9, 0.2, 0.9], APPROPRIATE),
        ([0.9, 0.9, 0.9, 0.4], APPROPRIATE),
        ([0.9, 0.9, 0.9, 0.1], UNDER),
        ([0.9, None, 0.9, None, 0.9], OVER),
        ([0.9, None, 0.9], APPROPRIATE),
        ([0.9, 0.9, 0.9, None], UNKNOWN),
    ],
)
def test_over_only_after_so_many_snapshots_in_a_row(seen: list[float | None], expected: NodeClass) -> None:
    """A one-minute average flaps; a snapshot without a value neither counts nor resets."""
    found = classified(*course(*seen), nodes=NODES[:2], thresholds=SUSTAIN_3)
    assert found.nodes["node-1"].node_class is expected


def test_says_how_far_a_node_is_from_being_over() -> None:
    found = classified(*course(0.9, 0.9), nodes=NODES[:2], thresholds=SUSTAIN_3)
    assert found.nodes["node-1"].reason == "above its threshold 2 of 3 times in a row"


def test_the_same_sample_seen_again_counts_once() -> None:
    """The rules are evaluated every 30 s; asking every 5 s must not sustain a single sample."""
    again = [snapshot(values(0.9), at=START, taken_at=at(5 * n), sequence=n) for n in range(6)]
    found = classified(*again, nodes=NODES[:1], thresholds=SUSTAIN_3)
    assert found.nodes["node-1"].node_class is APPROPRIATE


def test_a_sustain_that_spans_more_than_max_age_is_reached() -> None:
    """A sample was fresh when it was taken: that it is old by now does not unmake it."""
    found = classified(*course(*[0.9] * 20), nodes=NODES[:2], thresholds=thresholds(sustain=20))
    assert found.nodes["node-1"].node_class is OVER


def test_what_lies_before_a_long_silence_is_not_in_a_row_with_what_came_after() -> None:
    hour_ago = snapshot(values(0.9, 0.3), at=START)
    now = snapshot(values(0.9, 0.3), at=START + 60 * MINUTE, sequence=2)
    found = classified(hour_ago, now, nodes=NODES[:2], thresholds=thresholds(sustain=2))
    assert found.nodes["node-1"].node_class is APPROPRIATE


def test_thresholds_of_today_judge_older_snapshots() -> None:
    """A changed policy takes effect at once, for the past too."""
    strict = thresholds(bounds=deviation(0.0, 0.25), sustain=2)
    found = classified(*course(0.7, 0.9), nodes=NODES[:2], thresholds=strict)
    assert found.nodes["node-1"].node_class is APPROPRIATE, "0.7 was not 0.25 above the average of then"


# --- floor ---


@pytest.mark.parametrize(
    ("node_load", "expected"),
    [
        (load(0.6 * 64), OVER),
        (load(0.59 * 64), APPROPRIATE),
        (load(1.0, 0.8 * 256 * GIB), OVER),
        (load(1.0, 0.79 * 256 * GIB), APPROPRIATE),
        (load(1.0, GIB, 0.05), OVER),
        (load(1.0, GIB, 0.049), APPROPRIATE),
        (None, APPROPRIATE),
    ],
)
def test_over_only_where_it_hurts(node_load: NodeLoad | None, expected: NodeClass) -> None:
    """Being above an idle cluster's average is no trouble; without plain load nobody can say that it is."""
    loads = {"node-1": node_load} if node_load is not None else {}
    found = classified(snapshot(values(0.9), loads=loads), nodes=NODES[:1])
    assert found.nodes["node-1"].node_class is expected


def test_says_that_it_does_not_hurt() -> None:
    found = classified(snapshot(values(0.9), loads={"node-1": load(1.0)}), nodes=NODES[:1])
    assert found.nodes["node-1"].reason == "above its threshold, but below every floor"


def test_a_snapshot_in_which_it_did_not_hurt_ends_the_row() -> None:
    calm = snapshot(values(0.9), at=START, loads={"node-1": load(1.0)})
    hot = snapshot(values(0.9), at=at(30), sequence=2)
    found = classified(calm, hot, nodes=NODES[:1], thresholds=thresholds(sustain=2))
    assert found.nodes["node-1"].node_class is APPROPRIATE


def test_load_beyond_its_age_does_not_hurt() -> None:
    stale = snapshot(values(0.9), at=at(600), loads={"node-1": load(64.0, at=START)})
    assert classified(stale, nodes=NODES[:1]).nodes["node-1"].node_class is APPROPRIATE


def test_the_floor_is_of_the_nodes_own_size() -> None:
    assert reaches(FLOOR, load(6.0), 10.0, GIB)
    assert not reaches(FLOOR, load(6.0), 11.0, GIB)


# --- several queries ---


TWO = metrics(queries=[query("cpu"), query("memory", thresholds=deviation(0.0, 0.1))])


def both(cpu: dict[str, float], memory: dict[str, float], at: datetime = START) -> Snapshot:
    of_cpu, of_memory = snapshot(cpu, query="cpu", at=at), snapshot(memory, query="memory", at=at)
    return Snapshot(1, at, {**of_cpu.values, **of_memory.values}, {**of_cpu.loads, **of_memory.loads})


def test_over_if_any_says_so_under_only_if_all_do() -> None:
    found = classified(
        both(values(0.9, 0.1, 0.1, 0.4), values(0.2, 0.2, 0.6, 0.2)), nodes=NODES[:4], metrics=TWO
    )
    assert classes(found) == [OVER, UNDER, OVER, APPROPRIATE]
    assert found.nodes["node-1"].values == {"cpu": 0.9, "memory": 0.2}


def test_a_query_has_its_own_thresholds() -> None:
    found = classified(both(values(0.3), values(0.3)), nodes=NODES[:1], metrics=TWO)
    assert found.limits["cpu"] == (0.2, 0.5)
    assert found.limits["memory"] == (0.3, 0.4)


def test_one_value_is_enough_to_be_over_but_not_to_be_anything_else() -> None:
    """What the missing one says is not known."""
    found = classified(
        both(values(0.9, 0.1, 0.3, 0.3, 0.3), values(None, None, 0.2, 0.2, 0.2)), metrics=TWO, nodes=NODES
    )
    assert classes(found)[:2] == [OVER, UNKNOWN]
    assert found.nodes["node-2"].reason == "no value of memory"


def test_coverage_counts_nodes_with_all_their_values() -> None:
    found = classified(both(values(0.3, 0.3, 0.3, 0.3, 0.3), values(0.2, 0.2)), metrics=TWO)
    assert found.coverage == 0.4
    assert found.skipped


def test_the_worst_query_orders_the_nodes() -> None:
    found = classified(both(values(0.6, 0.1), values(0.1, 0.9)), nodes=NODES[:2], metrics=TWO)
    assert found.over_utilised() == ["node-2", "node-1"]


def test_an_unknown_verdict_has_no_number_of_the_upstream_metric() -> None:
    assert [int(c) for c in NodeClass] == [-1, 0, 1, 2]
    assert verdict(node_class=OVER).node_class == 2
