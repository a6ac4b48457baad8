"""Workers with threads and without: what a handler's end, good or bad, does to its key."""

import threading
from datetime import timedelta

import pytest

from informers.clock import SystemClock
from informers.testing import ManualClock, step
from informers.workers import Again, Workers
from informers.workqueue import WorkQueue
from tests.informers.builders import manual_clock

LONG = timedelta(seconds=30)


def ignore(key: str, error: Exception, delay: timedelta) -> None:
    pass


def quick_queue() -> WorkQueue[str]:
    return WorkQueue(base_delay_s=0.001, max_delay_s=0.002)


def test_again_brings_the_key_back_when_its_time_has_come() -> None:
    clock, times = manual_clock(), list[float]()

    def handler(key: str) -> Again | None:
        times.append(clock.monotonic())
        return Again(timedelta(seconds=30)) if len(times) < 3 else None

    workers = Workers(WorkQueue[str](), handler, clock, ignore)
    workers.add("a")
    assert workers.work_ready() == 1
    assert workers.work_ready() == 0
    assert workers.next_due() == 30.0
    assert step(clock, workers) == 1
    assert step(clock, workers) == 1
    assert step(clock, workers) == 0
    assert times == [0.0, 30.0, 60.0]


@pytest.mark.parametrize("after", [timedelta(0), timedelta(seconds=-1)])
def test_again_at_once_is_refused(after: timedelta) -> None:
    """It would be a busy loop, and in virtual time one without end."""
    with pytest.raises(ValueError, match=r"Again\.after must be positive"):
        Again(after)


def test_what_a_handler_adds_is_worked_off_in_the_same_go() -> None:
    came: list[str] = []

    def handler(key: str) -> None:
        came.append(key)
        if key == "a":
            workers.add("b")
            workers.add("a2")

    workers = Workers(WorkQueue[str](), handler, manual_clock(), ignore)
    workers.add("a")
    assert workers.work_ready() == 3
    assert came == ["a", "b", "a2"]


def test_an_error_is_reported_once_with_its_back_off() -> None:
    clock, reports = manual_clock(), list[tuple[str, str, timedelta]]()

    def handler(key: str) -> None:
        raise LookupError(f"no {key}")

    def on_error(key: str, error: Exception, delay: timedelta) -> None:
        reports.append((key, str(error), delay))

    workers = Workers(WorkQueue[str](base_delay_s=2.0), handler, clock, on_error)
    workers.add("a")
    assert workers.work_ready() == 1
    assert step(clock, workers) == 1
    assert reports == [("a", "no a", timedelta(seconds=2)), ("a", "no a", timedelta(seconds=4))]
    assert workers.statistics().failed == 2


def test_an_answer_that_is_no_answer_counts_as_an_error_and_frees_the_key() -> None:
    reports: list[str] = []
    workers = Workers(
        WorkQueue[str](),
        lambda key: "later",  # type: ignore[arg-type,return-value]
        manual_clock(),
        lambda key, error, delay: reports.append(key),
    )
    workers.add("a")
    assert workers.work_ready() == 1
    assert reports == ["a"]
    assert workers.statistics().queue.working == 0


def test_without_threads_an_interrupt_comes_through_and_leaves_the_key_queued() -> None:
    def handler(key: str) -> None:
        raise KeyboardInterrupt

    workers = Workers(WorkQueue[str](base_delay_s=1.0), handler, manual_clock(), ignore)
    workers.add("a")
    with pytest.raises(KeyboardInterrupt):
        workers.work_ready()
    assert workers.next_due() == 1.0
    assert workers.statistics().queue.working == 0


def test_without_threads_what_on_error_raises_comes_through() -> None:
    """So a simulation can fail its run on the first unexpected error."""

    def handler(key: str) -> None:
        raise LookupError(key)

    def on_error(key: str, error: Exception, delay: timedelta) -> None:
        raise AssertionError("unexpected") from error

    workers = Workers(WorkQueue[str](), handler, manual_clock(), on_error)
    workers.add("a")
    with pytest.raises(AssertionError, match="unexpected"):
        workers.work_ready()


def test_a_key_added_while_its_handler_runs_in_a_thread_runs_again() -> None:
    inside, go_on, second = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    def handler(key: str) -> None:
        calls.append(key)
        if len(calls) == 2:
            second.set()
        inside.set()
        go_on.wait(timeout=30)

    workers = Workers(quick_queue(), handler, SystemClock(), ignore)
    workers.start(3)
    workers.add("a")
    assert inside.wait(timeout=30)
    workers.add("a")
    assert workers.statistics().queue.again == 1
    go_on.set()
    assert second.wait(timeout=30)
    assert workers.stop(LONG)
    assert calls == ["a", "a"]


def test_different_keys_are_worked_on_at_the_same_time() -> None:
    """Each handler waits until the other is there, too."""
    meet, both = threading.Barrier(2), threading.Event()

    def handler(key: str) -> None:
        meet.wait(timeout=30)
        both.set()

    workers = Workers(quick_queue(), handler, SystemClock(), ignore)
    workers.start(2)
    workers.add("a")
    workers.add("b")
    assert both.wait(timeout=30)
    assert workers.stop(LONG)
    assert not meet.broken


def test_keys_due_together_do_not_wait_for_one_another() -> None:
    """The thread that wakes for the first one must see to it that somebody wakes for the second."""
    meet, both = threading.Barrier(2), threading.Event()

    def handler(key: str) -> None:
        meet.wait(timeout=30)
        both.set()

    workers = Workers(quick_queue(), handler, SystemClock(), ignore)
    workers.start(2)
    for key in "ab":
        workers.add_after(key, timedelta(milliseconds=5))
    assert both.wait(timeout=30)
    assert workers.stop(LONG)
    assert not meet.broken


@pytest.mark.parametrize("error", [LookupError, SystemExit, KeyboardInterrupt])
def test_no_exception_ends_a_worker_thread(error: type[BaseException]) -> None:
    recovered = threading.Event()
    calls: list[str] = []

    def handler(key: str) -> None:
        calls.append(key)
        if len(calls) < 4:
            raise error
        recovered.set()

    workers = Workers(quick_queue(), handler, SystemClock(), ignore)
    workers.start(1)
    workers.add("a")
    assert recovered.wait(timeout=30)
    assert workers.statistics().threads == 1
    assert workers.stop(LONG)


def test_an_error_in_on_error_ends_no_worker_thread_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    recovered = threading.Event()

    def handler(key: str) -> None:
        if key == "bad":
            raise LookupError(key)
        recovered.set()

    def on_error(key: str, error: Exception, delay: timedelta) -> None:
        raise ValueError("cannot report")

    workers = Workers(WorkQueue[str](), handler, SystemClock(), on_error)
    workers.start(1)
    workers.add("bad")
    workers.add("good")
    assert recovered.wait(timeout=30)
    assert workers.stop(LONG)
    assert "cannot report" in caplog.text


def test_stop_waits_for_running_handlers_starts_no_other_and_leaves_no_thread() -> None:
    inside, go_on = threading.Event(), threading.Event()
    calls: list[str] = []

    def handler(key: str) -> None:
        calls.append(key)
        inside.set()
        go_on.wait(timeout=30)

    workers = Workers(quick_queue(), handler, SystemClock(), ignore)
    before = set(threading.enumerate())
    workers.start(1)
    workers.add("a")
    assert inside.wait(timeout=30)
    workers.add("b")
    assert not workers.stop(timedelta(milliseconds=1)), "the handler has not returned"
    go_on.set()
    assert workers.stop(LONG)
    assert calls == ["a"]
    assert set(threading.enumerate()) <= before
    assert workers.statistics().queue.ready == 1


def test_a_key_due_in_ages_disturbs_nothing_and_stop_wakes_who_waits_for_it() -> None:
    """No operating system takes a timeout of so many years."""
    came = threading.Event()
    workers = Workers(quick_queue(), lambda key: came.set(), SystemClock(), ignore)
    workers.start(1)
    workers.add_after("far off", timedelta(days=100_000_000))
    for _ in range(20):
        came.clear()
        workers.add("now")
        assert came.wait(timeout=30)
    assert workers.statistics().threads == 1
    assert workers.stop(LONG)


def test_stop_without_start_is_fine_and_final() -> None:
    workers = Workers(quick_queue(), lambda key: None, SystemClock(), ignore)
    assert workers.stop(timedelta(0))
    workers.add("a")
    assert workers.work_ready() == 0
    with pytest.raises(RuntimeError, match="only once"):
        workers.start(1)


def test_stop_from_a_handler_is_an_error() -> None:
    reports: list[str] = []
    told = threading.Event()

    def on_error(key: str, error: Exception, delay: timedelta) -> None:
        reports.append(str(error))
        told.set()

    workers = Workers(WorkQueue[str](), lambda key: (workers.stop(LONG), None)[1], SystemClock(), on_error)
    workers.start(1)
    workers.add("a")
    assert told.wait(timeout=30)
    assert workers.stop(LONG)
    assert "must not be called from a handler" in reports[0]


def test_workers_start_once_with_at_least_one_thread_and_then_work_by_themselves() -> None:
    workers = Workers(quick_queue(), lambda key: None, SystemClock(), ignore)
    with pytest.raises(ValueError, match="at least one thread"):
        workers.start(0)
    workers.start(1)
    with pytest.raises(RuntimeError, match="only once"):
        workers.start(1)
    with pytest.raises(RuntimeError, match="without threads"):
        workers.work_ready()
    assert workers.stop(LONG)


def test_statistics_tell_how_long_the_oldest_call_has_been_running() -> None:
    clock = manual_clock()

    def handler(key: str) -> None:
        clock.advance(timedelta(seconds=7))
        assert workers.statistics().longest_running_s == 7.0

    workers = Workers(WorkQueue[str](), handler, clock, ignore)
    workers.add("a")
    workers.work_ready()
    statistics = workers.statistics()
    assert (statistics.longest_running_s, statistics.succeeded, statistics.threads) == (0.0, 1, 0)


def test_the_manual_clock_moves_both_times_together_and_never_back() -> None:
    clock = manual_clock()
    start = clock.now()
    clock.advance(timedelta(seconds=1.5))
    clock.set_monotonic(60.0)
    assert clock.now() - start == timedelta(seconds=60)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.set_monotonic(59.0)
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(start.replace(tzinfo=None))


def test_the_system_clock_tells_utc_and_does_not_go_back() -> None:
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    first = clock.monotonic()
    assert clock.monotonic() >= first
