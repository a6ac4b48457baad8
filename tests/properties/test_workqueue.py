"""The guarantees of informers.workqueue and informers.workers, for all sequences, and with real threads."""

import math
import threading
from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from informers.clock import SystemClock
from informers.testing import step
from informers.workers import Again, Workers
from informers.workqueue import WorkQueue
from tests.informers.builders import manual_clock

keys = st.sampled_from("abcd")
delays_s = st.integers(1, 20).map(float)


def is_urgent(key: str) -> bool:
    return key == "d"


class QueueAgainstModel(RuleBasedStateMachine):
    """The queue beside the plainest possible model of it: lists, searched from the front."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue[str](urgent=is_urgent, base_delay_s=2.0, max_delay_s=10.0)
        self.now_s = 0.0
        self.ready: list[str] = []
        self.working: list[str] = []
        self.again: list[str] = []
        self.delayed: list[tuple[float, str]] = []  # in the order of adding
        self.failures: dict[str, int] = defaultdict(int)

    def model_add(self, key: str) -> None:
        waiting = self.again if key in self.working else self.ready
        if key not in waiting:
            waiting.append(key)

    def model_add_after(self, key: str, delay_s: float) -> None:
        due_s = self.now_s + delay_s
        earlier = [entry for entry in self.delayed if entry[1] == key]
        if not earlier or due_s < earlier[0][0]:
            self.delayed = [entry for entry in self.delayed if entry[1] != key]
            self.delayed.append((due_s, key))

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key, self.now_s)
        self.model_add(key)

    @rule(key=keys, delay_s=delays_s)
    def add_after(self, key: str, delay_s: float) -> None:
        self.queue.add_after(key, delay_s, self.now_s)
        self.model_add_after(key, delay_s)

    @rule(key=keys, delay_s=st.sampled_from([0.0, -1.0]))
    def add_after_no_time(self, key: str, delay_s: float) -> None:
        self.queue.add_after(key, delay_s, self.now_s)
        self.model_add(key)

    @rule(key=keys)
    def add_rate_limited(self, key: str) -> None:
        delay_s = self.queue.add_rate_limited(key, self.now_s)
        assert delay_s == min(10.0, 2.0 * 2 ** self.failures[key])
        self.failures[key] += 1
        self.model_add_after(key, delay_s)

    @rule(key=keys)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.integers(0, 15))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule()
    def pop(self) -> None:
        due = [entry for entry in self.delayed if entry[0] <= self.now_s]
        due.sort(key=lambda entry: entry[0])
        self.delayed = [entry for entry in self.delayed if entry not in due]
        for _, key in due:
            self.model_add(key)
        expected = next(filter(is_urgent, self.ready), next(iter(self.ready), None))
        if expected is not None:
            self.ready.remove(expected)
        assert self.queue.pop_ready(self.now_s) == expected
        if expected is not None:
            assert expected not in self.working
            self.working.append(expected)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.working))
        self.queue.done(key)
        self.working.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append(key)

    @rule()
    def ask_what_is_due(self) -> None:
        expected = -math.inf if self.ready else min((due_s for due_s, _ in self.delayed), default=None)
        assert self.queue.next_due() == expected

    @rule()
    def take_statistics(self) -> None:
        statistics = self.queue.statistics()
        assert statistics.ready == len(self.ready)
        assert statistics.working == len(self.working)
        assert statistics.again == len(self.again)
        assert statistics.delayed == len(self.delayed)
        assert statistics.failing == len(self.failures)

    def teardown(self) -> None:
        """Nothing was lost: all that was promised comes out in the end."""
        promised = {*self.ready, *self.again, *(key for _, key in self.delayed)}
        for key in self.working:
            self.queue.done(key)
        came = set()
        while (due_s := self.queue.next_due()) is not None:
            self.now_s = max(self.now_s, due_s)
            if (popped := self.queue.pop_ready(self.now_s)) is not None:
                self.queue.done(popped)
                came.add(popped)
        assert came == promised


TestQueueAgainstModel = QueueAgainstModel.TestCase


@given(st.lists(st.tuples(keys, delays_s), max_size=20))
def test_delays_keep_their_order(entries: list[tuple[str, float]]) -> None:
    """By due time, ties in the order of adding; a key comes at the earliest time asked for, and not before."""
    queue = WorkQueue[str]()
    due: dict[str, tuple[float, int]] = {}
    for number, (key, delay_s) in enumerate(entries):
        queue.add_after(key, delay_s, 100.0)
        if key not in due or 100.0 + delay_s < due[key][0]:
            due[key] = 100.0 + delay_s, number
    came: list[str] = []
    while (due_s := queue.next_due()) is not None:
        assert queue.pop_ready(math.nextafter(due_s, 0.0)) is None
        while (popped := queue.pop_ready(due_s)) is not None:
            assert due_s == due[popped][0]
            queue.done(popped)
            came.append(popped)
    assert came == sorted(due, key=lambda key: due[key])


@given(st.lists(keys, min_size=1, max_size=30))
def test_keys_come_in_the_order_of_adding_each_once(added: list[str]) -> None:
    queue = WorkQueue[str]()
    for key in added:
        queue.add(key, 0.0)
    came: list[str] = []
    while (popped := queue.pop_ready(0.0)) is not None:
        came.append(popped)
    assert came == list(dict.fromkeys(added))


@given(keys, st.integers(1, 5))
def test_a_key_added_while_being_worked_on_runs_once_again_after_it(key: str, times: int) -> None:
    queue = WorkQueue[str]()
    queue.add(key, 0.0)
    assert queue.pop_ready(0.0) == key
    for _ in range(times):
        queue.add(key, 0.0)
        assert queue.pop_ready(0.0) is None
    queue.done(key)
    assert queue.pop_ready(0.0) == key
    queue.done(key)
    assert queue.pop_ready(0.0) is None


@given(st.integers(1, 12), st.integers(0, 12))
def test_back_off_doubles_up_to_the_cap_and_starts_afresh_after_success(failing: int, later: int) -> None:
    """Through the workers: the handler fails so many times, succeeds, fails again, succeeds again."""
    clock, delays = manual_clock(), list[float]()
    outcomes = [False] * failing + [True] + [False] * later + [True]

    def handler(key: str) -> Again | None:
        if not outcomes.pop(0):
            raise LookupError(key)
        return Again(timedelta(seconds=1)) if outcomes else None

    def on_error(key: str, error: Exception, delay: timedelta) -> None:
        delays.append(delay.total_seconds())

    workers = Workers(WorkQueue[str](base_delay_s=1.0, max_delay_s=60.0), handler, clock, on_error)
    workers.add("a")
    for _ in range(failing + later + 2):
        assert step(clock, workers) == 1
    assert step(clock, workers) == 0
    expected = [min(60.0, 2.0**n) for n in range(failing)] + [min(60.0, 2.0**n) for n in range(later)]
    assert delays == expected
    assert clock.monotonic() == sum(expected) + 1.0


class Board:
    """What producers posted for a key, and what the handler saw of it; and that nobody was there twice."""

    def __init__(self, failing_calls: set[int]) -> None:
        self.failing_calls = failing_calls
        self.changed = threading.Condition()
        self.posted: dict[str, int] = defaultdict(int)
        self.seen: dict[str, int] = defaultdict(int)
        self.busy: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.calls = 0
        self.twice_at_once: list[str] = []

    def handle(self, key: str) -> None:
        with self.changed:
            busy = self.busy[key]
            self.calls += 1
            failing = self.calls in self.failing_calls
            posted = self.posted[key]
        if not busy.acquire(blocking=False):
            self.twice_at_once.append(key)
            return
        try:
            if failing:
                raise LookupError(key)
            with self.changed:
                self.seen[key] = posted
                self.changed.notify_all()
        finally:
            busy.release()

    def post(self, key: str) -> None:
        with self.changed:
            self.posted[key] += 1

    def wait_until_all_is_seen(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.seen == self.posted, timeout=30)


@settings(max_examples=30, deadline=None)
@given(
    threads=st.integers(1, 4),
    lists=st.lists(st.lists(keys, max_size=40), min_size=1, max_size=3),
    failing_calls=st.sets(st.integers(1, 20), max_size=6),
)
def test_with_threads_no_key_is_lost_nor_worked_on_twice_at_once(
    threads: int, lists: list[list[str]], failing_calls: set[int]
) -> None:
    """Some keys are added, some with a delay, by several threads; some handler calls fail."""
    board = Board(failing_calls)
    failed: list[str] = []
    workers = Workers(
        WorkQueue[str](base_delay_s=0.001, max_delay_s=0.002),
        board.handle,
        SystemClock(),
        lambda key, error, delay: failed.append(key),
    )
    start = threading.Barrier(len(lists))

    def produce(entries: list[str]) -> None:
        start.wait(timeout=30)
        for number, key in enumerate(entries):
            board.post(key)
            if number % 3:
                workers.add(key)
            else:
                workers.add_after(key, timedelta(milliseconds=1))

    producers = [threading.Thread(target=produce, args=(entries,)) for entries in lists]
    workers.start(threads)
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(timeout=30)
    all_seen = board.wait_until_all_is_seen()
    assert workers.stop(timedelta(seconds=30))
    assert all_seen
    assert not board.twice_at_once
    assert len(failed) == len([call for call in failing_calls if call <= board.calls])
    assert workers.statistics().threads == 0


def test_next_due_of_a_delayed_key_does_not_hand_it_out_early() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5.0, 0.0)
    assert queue.next_due() == 5.0
    assert queue.pop_ready(4.999) is None
    assert queue.pop_ready(5.0) == "a"


@given(delays_s, delays_s, delays_s)
def test_a_delay_replaced_by_an_earlier_one_never_brings_the_key(
    late: float, less: float, then_s: float
) -> None:
    """Not even when the key has been worked on since, and waits again. Another key is due in between."""
    queue = WorkQueue[str]()
    queue.add_after("a", late + less, 0.0)
    queue.add_after("a", late, 0.0)
    queue.add_after("b", late + less / 2, 0.0)
    assert queue.pop_ready(late) == "a"
    queue.done("a")
    queue.add_after("a", less + then_s, late)
    assert queue.pop_ready(late + less / 2) == "b"
    assert queue.next_due() == late + less + then_s
    assert queue.pop_ready(late + less) is None
    assert queue.statistics().delayed == 1


@pytest.mark.parametrize(("base_s", "cap_s"), [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (1.0, math.inf)])
def test_impossible_back_offs_are_refused(base_s: float, cap_s: float) -> None:
    with pytest.raises(ValueError, match="need 0 < base_delay_s <= max_delay_s"):
        WorkQueue[str](base_delay_s=base_s, max_delay_s=cap_s)


@pytest.mark.parametrize("delay_s", [math.inf, -math.inf, math.nan])
def test_delays_must_be_finite(delay_s: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        WorkQueue[str]().add_after("a", delay_s, 0.0)


def test_done_for_a_key_not_handed_out_is_an_error() -> None:
    queue = WorkQueue[str]()
    queue.add("a", 0.0)
    with pytest.raises(ValueError, match="'a' is not being worked on"):
        queue.done("a")
