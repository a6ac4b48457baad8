"""The last few snapshots."""

from datetime import timedelta

from controller.utilization.history import History
from tests.builders import START
from tests.controller.decision_builders import SECOND, load, snapshot


def numbers(history: History) -> list[int]:
    return [s.sequence for s in history.snapshots]


def test_keeps_the_last_few_newest_last() -> None:
    history = History()
    for number in range(1, 6):
        history.append(snapshot({"node-1": 0.1}, sequence=number, at=START + number * SECOND), keep=3)
    assert numbers(history) == [3, 4, 5]
    assert history.latest is history.snapshots[-1]


def test_an_answer_that_was_overtaken_is_dropped() -> None:
    history = History()
    history.append(snapshot({"node-1": 0.1}, sequence=2), keep=3)
    history.append(snapshot({"node-1": 0.9}, sequence=1), keep=3)
    history.append(snapshot({"node-1": 0.9}, sequence=2), keep=3)
    assert numbers(history) == [2]


def test_sequence_numbers_rise() -> None:
    history = History()
    assert [history.next_sequence() for _ in range(3)] == [1, 2, 3]


def test_the_same_samples_again_push_nothing_out() -> None:
    """Asked every second, of rules evaluated every 30 s, it still holds as many samples as ``sustain`` needs."""
    history = History()
    for second in range(300):
        evaluated = START + timedelta(seconds=second // 30 * 30)
        seen = snapshot({"node-1": 0.9}, at=evaluated, taken_at=START + second * SECOND, sequence=second + 1)
        history.append(seen, keep=10)
    assert [s.sample_time("node-1") for s in history.snapshots] == [
        START + timedelta(seconds=30 * number) for number in range(10)
    ]
    assert history.latest is not None
    assert history.latest.sequence == 300


def test_one_new_sample_is_enough_to_be_kept() -> None:
    history = History()
    history.append(snapshot({"node-1": 0.9}, sequence=1), keep=10)
    history.append(snapshot({"node-1": 0.9}, sequence=2, loads={"node-1": load(1.0)}), keep=10)
    assert numbers(history) == [1, 2]


def test_forgets_everything_when_something_else_is_asked() -> None:
    history = History()
    held = history.snapshots
    history.append(snapshot({"node-1": 0.9}), keep=10)
    history.clear()
    assert history.snapshots == held == ()
    assert history.latest is None
