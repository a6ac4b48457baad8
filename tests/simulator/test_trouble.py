"""What a reader of metrics gets when something is wrong with them."""

import math
import random

import msgspec
import pytest

from simulator.metrics.recorded import Sample
from simulator.metrics.trouble import (
    Duplicate,
    Infinite,
    Late,
    MetricsOutage,
    MetricTroubles,
    Missing,
    NotANumber,
    Outage,
    OutOfRange,
    Partial,
    Relabel,
    Stale,
    Trouble,
)

SERIES = "vm_rebalancer:node_cpu_utilization:avg1m"
SAMPLES: list[Sample] = [({"instance": f"node-{number}"}, number / 10, 90.0) for number in range(4)]
VM_SAMPLES: list[Sample] = [
    ({"namespace": "vms", "name": f"vm-{number}", "node": f"node-{number}"}, 1.0, 90.0) for number in range(4)
]


def troubles(*given: Trouble, seed: int = 1) -> MetricTroubles:
    return MetricTroubles(given, random.Random(seed), {f"node-{n}": f"10.0.0.{n}" for n in range(4)})


def answer(*given: Trouble, now_s: float = 100.0) -> list[Sample]:
    return troubles(*given).apply(SERIES, SAMPLES, now_s)[0]


def test_without_trouble_the_answer_is_what_was_recorded() -> None:
    assert troubles().apply(SERIES, SAMPLES, 100.0) == (SAMPLES, [])


def test_missing_takes_the_nodes_that_match() -> None:
    assert answer(Missing(nodes=("node-1", "*-3"))) == [SAMPLES[0], SAMPLES[2]]


def test_vms_are_hit_by_their_node() -> None:
    changed, _ = troubles(Missing(nodes=("node-1",))).apply(SERIES, VM_SAMPLES, 100.0)
    assert changed == [VM_SAMPLES[0], *VM_SAMPLES[2:]]


def test_values_that_are_no_fractions() -> None:
    changed = answer(
        NotANumber(nodes=("node-0",)), Infinite(nodes=("node-1",)), OutOfRange(nodes=("node-2",))
    )
    values = [value for _, value, _ in changed]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 87.0, 0.3]
    assert [time_s for _, _, time_s in changed] == [90.0] * 4


def test_duplicates_differ_in_a_label_and_in_value() -> None:
    changed = answer(Duplicate(nodes=("node-2",), factor=2.0))
    assert changed[2:4] == [SAMPLES[2], ({"instance": "node-2", "job": "second"}, 0.4, 90.0)]
    assert len(changed) == 5


@pytest.mark.parametrize(
    ("relabel", "instance"),
    [
        (Relabel(), "10.0.0.2:9100"),
        (Relabel(to="host:port", port=9101), "node-2:9101"),
        (Relabel(to="fqdn", domain="lab"), "node-2.lab"),
    ],
)
def test_other_conventions_for_instance(relabel: Relabel, instance: str) -> None:
    assert answer(relabel)[2] == ({"instance": instance}, 0.2, 90.0)


def test_series_without_instance_keep_their_labels() -> None:
    assert troubles(Relabel()).apply(SERIES, VM_SAMPLES, 100.0)[0] == VM_SAMPLES


def test_a_node_without_an_address_keeps_its_label() -> None:
    """It may just have gone: its series linger on until the next scrape."""
    assert MetricTroubles([Relabel()], random.Random(1)).apply(SERIES, SAMPLES, 100.0)[0] == SAMPLES


def test_stale_samples_stay_grow_old_and_vanish_after_the_lookback() -> None:
    """A reader that looks at the value alone would take the old one for the truth."""
    stopped = troubles(Stale(nodes=("node-1",), start_minute=1))
    later: list[Sample] = [(labels, value + 0.5, 390.0) for labels, value, _ in SAMPLES]
    assert stopped.apply(SERIES, SAMPLES, 100.0)[0] == [SAMPLES[1], SAMPLES[0], *SAMPLES[2:]]
    assert stopped.apply(SERIES, later, 390.0)[0] == [SAMPLES[1], later[0], *later[2:]]
    assert stopped.apply(SERIES, later, 391.0)[0] == [later[0], *later[2:]]


def test_a_series_that_is_recorded_again_is_fresh() -> None:
    stopped = troubles(Stale(start_minute=1, end_minute=3))
    later: list[Sample] = [(labels, 0.9, 180.0) for labels, _, _ in SAMPLES]
    stopped.apply(SERIES, SAMPLES, 100.0)
    assert stopped.apply(SERIES, later, 179.0)[0] == SAMPLES
    assert stopped.apply(SERIES, later, 180.0)[0] == later


def test_partial_answers_carry_a_warning() -> None:
    changed, warnings = troubles(Partial(nodes=("node-0",), warning="store is down")).apply(
        SERIES, SAMPLES, 1.0
    )
    assert changed == SAMPLES[1:]
    assert warnings == ["store is down"]


def test_an_outage_gives_no_answer() -> None:
    with pytest.raises(MetricsOutage, match="connection refused"):
        answer(Outage())


def test_late_answers_are_right_but_late() -> None:
    late = troubles(Late(delay_seconds=40, start_minute=1), Late(delay_seconds=5))
    assert late.apply(SERIES, SAMPLES, 100.0) == (SAMPLES, [])
    assert late.delay_s(SERIES, 59.0) == 5.0
    assert late.delay_s(SERIES, 60.0) == 45.0
    assert troubles(Missing()).delay_s(SERIES, 60.0) == 0.0


def test_windows_begin_and_end_and_come_again() -> None:
    trouble = Missing(start_minute=10, end_minute=20, every_minutes=4, for_minutes=1)
    held = [minute for minute in range(30) if trouble.holds(SERIES, minute * 60.0)]
    assert held == [10, 14, 18]
    assert trouble.holds(SERIES, 659.0)
    assert not trouble.holds(SERIES, 660.0)


def test_only_the_series_that_match_are_in_trouble() -> None:
    trouble = Missing(series=("*pressure*",))
    assert answer(trouble) == SAMPLES
    assert troubles(trouble).apply("vm_rebalancer:node_cpu_pressure:rate1m", SAMPLES, 1.0)[0] == []


def test_troubles_act_one_after_the_other() -> None:
    assert answer(Relabel(to="host:port"), Missing(nodes=("*:9100",))) == []
    assert len(answer(Missing(nodes=("*:9100",)), Relabel(to="host:port"))) == 4


def test_probability_is_drawn_for_each_sample_and_query_and_is_seeded() -> None:
    """Flapping metrics: here now, gone at the next query."""

    def course(seed: int) -> list[int]:
        flapping = troubles(Missing(probability=0.5), seed=seed)
        return [len(flapping.apply(SERIES, SAMPLES, now_s)[0]) for now_s in range(20)]

    assert course(1) == course(1)
    assert course(1) != course(2)
    assert len(set(course(1))) > 2
    outages = troubles(Outage(probability=0.0))
    assert outages.apply(SERIES, SAMPLES, 1.0)[0] == SAMPLES


def test_what_was_recorded_is_never_changed() -> None:
    before = [(dict(labels), value, time_s) for labels, value, time_s in SAMPLES]
    answer(Relabel(), NotANumber(), Duplicate(), Stale(), Partial(probability=0.5))
    assert before == SAMPLES


def test_a_scenario_names_them_by_kind() -> None:
    text = """[{"kind": "stale", "nodes": ["node-1"], "start_minute": 5}, {"kind": "late", "delay_seconds": 40},
               {"kind": "relabel", "to": "host:port"}]"""
    assert msgspec.json.decode(text, type=tuple[Trouble, ...]) == (
        Stale(nodes=("node-1",), start_minute=5),
        Late(delay_seconds=40),
        Relabel(to="host:port"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"kind": "missing", "node": "a"}', "unknown field `node`"),
        ('{"kind": "vanished"}', "Invalid value 'vanished'"),
        ('{"kind": "missing", "probability": 2}', "<= 1.0"),
        ('{"kind": "missing", "start_minute": 5, "end_minute": 5}', "end_minute is 5"),
        ('{"kind": "missing", "every_minutes": 5}', "need each other"),
        ('{"kind": "relabel", "to": "mac"}', "mac"),
    ],
)
def test_bad_parameters_are_named(text: str, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.json.decode(text, type=Trouble)
