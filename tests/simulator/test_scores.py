"""Scores are judged from the world's truth, exactly as they are defined."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from simulator.record import CooldownInfo, MigrationRecord, ShutdownRecord
from simulator.report.scores import Scores, by_label, minutes_to_balance, repeated, scores, to_json, undone
from simulator.report.table import MEASURES, cell, ratio, table
from tests.simulator.builders import migration, run_record, some_scores
from tests.simulator.made_up_runs import baseline_record, hotspot_record

GOLDEN = Path(__file__).parent.parent / "golden"
COOLDOWN = CooldownInfo(base_s=900.0, max_s=3600.0, window_s=7200.0)


def text_of(runs: dict[str, list[Scores]]) -> str:
    console = Console(width=100, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(table(runs))
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def test_keys_are_those_that_scripts_rely_on_in_their_order() -> None:
    assert list(json.loads(to_json({"rebalancer": [scores(run_record())]}))) == [
        "scenario",
        "seed",
        "policy_digest",
        "vms_shut_down",
        "migrations",
        "migrations_failed",
        "repeated_migrations",
        "undone_migrations",
        "max_outbound_per_node",
        "max_in_flight",
        "overutilized_node_minutes",
        "pressure_node_minutes",
        "starved_cpu_minutes",
        "utilization_stddev",
        "minutes_to_balance",
    ]


def test_two_programs_become_one_object_with_their_labels() -> None:
    answer = json.loads(to_json(by_label([hotspot_record(), baseline_record()])))
    assert list(answer) == ["rebalancer", "baseline"]
    assert answer["baseline"]["vms_shut_down"] == 2


def test_several_seeds_become_a_list() -> None:
    answer = json.loads(to_json(by_label([hotspot_record(seed=1), hotspot_record(seed=2)])))
    assert [one["seed"] for one in answer] == [1, 2]


def test_integrals_are_told_in_minutes() -> None:
    record = run_record(
        overutilized_node_seconds=90.0, pressure_node_seconds=30.0, starved_core_seconds=7040.0
    )
    answer = scores(record)
    assert (answer.overutilized_node_minutes, answer.pressure_node_minutes) == (1.5, 0.5)
    assert answer.starved_cpu_minutes == pytest.approx(117.333)


def test_migrations_of_other_people_are_not_counted() -> None:
    record = run_record(
        migrations=[
            migration("a/1", "node-a", "node-b", 0.0, 60.0),
            migration("a/2", "node-a", "node-b", 0.0, 60.0, asked_by="other"),
        ]
    )
    answer = scores(record)
    assert (answer.migrations, answer.max_in_flight) == (1, 1)


def test_retries_and_failures_count_as_migrations() -> None:
    """They cost the cluster as much, and the measured numbers of the classic loop count them too."""
    record = run_record(
        migrations=[
            migration("a/1", "node-a", "node-b", 0.0, 60.0, outcome="Failed"),
            migration("a/1", "node-a", "node-b", 80.0, 140.0, attempt=2),
        ]
    )
    answer = scores(record)
    assert (answer.migrations, answer.migrations_failed, answer.repeated_migrations) == (2, 1, 0)


def test_shutdowns_are_counted() -> None:
    record = run_record(shutdowns=[ShutdownRecord(5.0, "a/1", "node-a", "evicted")])
    assert scores(record).vms_shut_down == 1


@pytest.mark.parametrize(
    ("second_s", "expected"),
    [pytest.param(959.0, {1}, id="inside"), pytest.param(960.0, set(), id="just over")],
)
def test_a_second_migration_inside_the_cooldown_is_repeated(second_s: float, expected: set[int]) -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0),
        migration("a/1", "node-b", "node-c", second_s, None),
    ]
    assert repeated(run_record(migrations=moves, cooldown=COOLDOWN)) == expected


def test_the_cooldown_doubles_with_each_move_inside_the_window() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0),
        migration("a/1", "node-b", "node-c", 960.0, 1020.0),
        migration("a/1", "node-c", "node-d", 2819.0, None),
    ]
    assert repeated(run_record(migrations=moves, cooldown=COOLDOWN)) == {2}
    moves[2].created_s = 2820.0
    assert repeated(run_record(migrations=moves, cooldown=COOLDOWN)) == frozenset()


def test_moves_before_the_window_no_longer_double_the_cooldown() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0),
        migration("a/1", "node-b", "node-c", 9000.0, 9060.0),
        migration("a/1", "node-c", "node-d", 9960.0, None),
    ]
    assert repeated(run_record(migrations=moves, cooldown=COOLDOWN)) == frozenset()


def test_the_cooldown_is_at_least_as_long_as_the_last_migration_took() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 5000.0),
        migration("a/1", "node-b", "node-c", 9999.0, None),
    ]
    assert repeated(run_record(migrations=moves, cooldown=COOLDOWN)) == {1}


def test_a_failed_migration_starts_no_cooldown() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0, outcome="Failed"),
        migration("a/1", "node-a", "node-b", 70.0, 130.0),
    ]
    assert repeated(run_record(migrations=moves)) == frozenset()


def test_a_move_by_other_people_starts_a_cooldown_but_is_never_repeated_itself() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0, asked_by="other"),
        migration("a/1", "node-b", "node-c", 100.0, 160.0),
        migration("a/1", "node-c", "node-d", 200.0, 260.0, asked_by="other"),
    ]
    assert repeated(run_record(migrations=moves)) == {1}


@pytest.mark.parametrize(("back_s", "expected"), [(3660.0, {1}), (3661.0, set())])
def test_going_back_within_an_hour_is_undone(back_s: float, expected: set[int]) -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0),
        migration("a/1", "node-b", "node-a", 2000.0, back_s),
    ]
    assert undone(run_record(migrations=moves)) == expected


def test_going_on_to_a_third_node_is_not_undone() -> None:
    moves = [
        migration("a/1", "node-a", "node-b", 0.0, 60.0),
        migration("a/1", "node-b", "node-c", 100.0, 160.0),
    ]
    assert undone(run_record(migrations=moves)) == frozenset()


@pytest.mark.parametrize(
    ("over_from_s", "expected"),
    [(59.0, set()), (60.0, {0}), (660.0, {0}), (661.0, set())],
)
def test_a_target_that_becomes_overutilised_within_ten_minutes_is_undone(
    over_from_s: float, expected: set[int]
) -> None:
    record = run_record(
        migrations=[migration("a/1", "node-a", "node-b", 0.0, 60.0)],
        over_intervals={"node-a": [(0.0, 60.0)], "node-b": [(over_from_s, over_from_s + 30.0)]},
    )
    assert undone(record) == expected


def test_a_failed_migration_cannot_be_undone() -> None:
    record = run_record(
        migrations=[migration("a/1", "node-a", "node-b", 0.0, 60.0, outcome="Failed")],
        over_intervals={"node-b": [(100.0, 200.0)]},
    )
    assert undone(record) == frozenset()


def test_balance_is_reached_when_the_last_node_is_relieved_for_good() -> None:
    record = run_record(
        trouble_start_s=600.0, over_intervals={"node-a": [(600.0, 900.0), (960.0, 1500.0)], "node-b": []}
    )
    assert minutes_to_balance(record) == 15.0


def test_balance_takes_no_time_where_there_is_no_trouble() -> None:
    assert minutes_to_balance(run_record()) == 0.0
    assert minutes_to_balance(run_record(trouble_start_s=600.0, over_intervals={"node-a": [(0, 60)]})) == 0.0


def test_balance_is_never_reached_while_a_node_is_over_at_the_end() -> None:
    assert minutes_to_balance(run_record(over_intervals={"node-a": [(60.0, 3600.0)]})) is None


def test_a_migration_that_ends_makes_room_for_the_next() -> None:
    record = run_record(
        migrations=[
            migration("a/1", "node-a", "node-b", 0.0, 60.0),
            migration("a/2", "node-a", "node-b", 60.0, 120.0),
            migration("a/3", "node-b", "node-a", 90.0, None),
        ]
    )
    answer = scores(record)
    assert (answer.max_outbound_per_node, answer.max_in_flight) == (1, 2)


times = st.floats(0.0, 36_000.0)
moves_of_one_vm = st.lists(
    st.builds(
        lambda source, target, start, length, outcome, by, attempt: migration(
            "a/1", source, target, start, start + length, outcome=outcome, asked_by=by, attempt=attempt
        ),
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["n1", "n2", "n3"]),
        times,
        st.floats(1.0, 600.0),
        st.sampled_from(["Succeeded", "Failed", "Cancelled"]),
        st.sampled_from(["rebalancer", "baseline", "other"]),
        st.integers(1, 3),
    ),
    max_size=12,
)


@given(moves_of_one_vm)
def test_counts_never_exceed_the_migrations_they_are_part_of(moves: list[MigrationRecord]) -> None:
    answer = scores(run_record(migrations=moves, minutes=600.0))
    assert answer.migrations_failed + answer.undone_migrations <= answer.migrations
    assert answer.repeated_migrations <= answer.migrations
    assert answer.max_outbound_per_node <= answer.max_in_flight <= answer.migrations


@given(moves_of_one_vm, st.randoms())
def test_scores_do_not_depend_on_the_order_of_the_records(
    moves: list[MigrationRecord], random: object
) -> None:
    shuffled = list(moves)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert scores(run_record(migrations=moves)) == scores(run_record(migrations=shuffled))


def test_every_score_but_what_names_the_run_is_shown() -> None:
    shown = {measure.key for measure in MEASURES}
    assert set(msgspec.structs.asdict(scores(run_record()))) - shown == {"scenario", "seed", "policy_digest"}


def test_a_score_never_reached_is_told_in_words() -> None:
    never = scores(run_record(over_intervals={"node-a": [(0.0, 3600.0)]}))
    measure = next(m for m in MEASURES if m.key == "minutes_to_balance")
    assert cell(measure, [never]).text == "never"
    assert cell(measure, [never, scores(run_record())]).spread == "never in 1 of 2"
    assert ratio(cell(measure, [never]), cell(measure, [never])) == ""


WORSE = some_scores(
    vms_shut_down=2,
    migrations=36,
    migrations_failed=3,
    repeated_migrations=2,
    undone_migrations=2,
    max_in_flight=2,
    overutilized_node_minutes=36.5,
    minutes_to_balance=None,
)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("scores-one", {"rebalancer": [some_scores()]}),
        ("scores-against-baseline", {"rebalancer": [some_scores()], "baseline": [WORSE]}),
        (
            "scores-seeds",
            {
                "rebalancer": [some_scores(), some_scores(seed=2, migrations=29, minutes_to_balance=12.5)],
                "baseline": [WORSE, some_scores(seed=2, migrations=33, starved_cpu_minutes=2004.0)],
            },
        ),
    ],
    ids=["one", "against-baseline", "seeds"],
)
def test_table_is_the_golden_one(name: str, runs: dict[str, list[Scores]], update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    text = text_of(runs)
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_table_is_readable_without_colours() -> None:
    assert "\x1b" not in text_of({"rebalancer": [some_scores()]})
