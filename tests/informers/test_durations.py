"""How long keys waited and were worked on, as a metric may show it."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from informers.durations import BOUNDS_S, DurationCounter
from informers.testing import ManualClock
from informers.workers import Workers
from informers.workqueue import WorkQueue
from tests.informers.builders import manual_clock

TEN = timedelta(seconds=10)


@given(st.lists(st.floats(0, 1000), max_size=20))
def test_each_duration_falls_into_the_bucket_of_the_least_bound_that_is_not_below_it(
    times_s: list[float],
) -> None:
    counter = DurationCounter()
    for took_s in times_s:
        counter.add(took_s)
    counts = counter.snapshot().counts
    for number, bound_s in enumerate(BOUNDS_S):
        assert sum(counts[: number + 1]) == sum(took_s <= bound_s for took_s in times_s)
    assert sum(counts) == len(times_s)
    assert counter.snapshot().total_s == sum(times_s)


def test_time_that_runs_backwards_takes_nothing_off() -> None:
    counter = DurationCounter()
    counter.add(-5.0)
    assert (counter.snapshot().counts[0], counter.snapshot().total_s) == (1, 0.0)


def test_a_key_waits_from_when_it_was_first_added_not_last() -> None:
    queue = WorkQueue[str]()
    queue.add("a", 1.0)
    queue.add("a", 5.0)
    assert queue.pop_ready(7.0) == "a"
    assert queue.statistics().waited.total_s == 6.0


def test_a_delay_is_no_waiting_but_what_comes_after_it_is() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 10.0, 0.0)
    assert queue.pop_ready(13.0) == "a"
    assert queue.statistics().waited.total_s == 3.0


def test_a_key_asked_for_again_while_it_is_worked_on_waits_already() -> None:
    queue = WorkQueue[str]()
    queue.add("a", 0.0)
    assert queue.pop_ready(0.0) == "a"
    queue.add("a", 2.0)
    queue.done("a")
    assert queue.pop_ready(9.0) == "a"
    assert queue.statistics().waited.total_s == 7.0


def test_workers_count_how_long_handlers_took_whether_they_succeeded_or_not() -> None:
    clock: ManualClock = manual_clock()

    def handler(key: str) -> None:
        clock.advance(TEN)
        if key == "bad":
            raise LookupError(key)

    workers = Workers(WorkQueue[str](), handler, clock, lambda key, error, delay: None)
    workers.add("good")
    workers.add("bad")
    assert workers.work_ready() >= 2
    statistics = workers.statistics()
    assert statistics.worked.total_s == 10.0 * sum(statistics.worked.counts)
    assert sum(statistics.worked.counts) == statistics.succeeded + statistics.failed
    assert statistics.queue.waited.total_s >= 10.0  # the second one waited for the first
