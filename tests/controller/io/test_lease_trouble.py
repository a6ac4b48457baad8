"""What an election does about a server that fails, and about times and identities that cannot work."""

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

from controller.lease import LeaseTiming
from informers.clock import SystemClock
from informers.errors import ApiError, Conflict, NoAnswer, Throttled, Unreachable
from tests.controller.io.builders import transport_to
from tests.controller.io.fake_api import FakeTransport, LeaseServer, recorded_error, status_error
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.controller.io.lease_world import Steps, election, manual_clock


def test_requests_have_deadlines_within_what_is_left_of_the_term():
    clock = manual_clock()
    server = LeaseServer()
    deadlines = []

    class Watched:
        def request(self, method, path, **arguments):
            deadlines.append((clock.monotonic(), arguments["deadline"].total_seconds()))
            if len(deadlines) > 4:
                raise NoAnswer("no answer within the deadline")
            return server.request(method, path, **arguments)

    assert not election(Watched(), clock).run(Steps(clock, *[lambda: None] * 20))
    assert all(deadline_s <= 5 for _, deadline_s in deadlines)
    renewed_s = deadlines[3][0]
    assert all(at_s + deadline_s <= renewed_s + 10 + 1e-6 for at_s, deadline_s in deadlines[4:])


def test_a_refused_candidate_says_why_and_tries_on():
    clock = manual_clock()
    refusal = status_error(403, "Forbidden", 'leases.coordination.k8s.io "l" is forbidden')
    transport = FakeTransport(refusal, refusal, Throttled("too many requests", status=429))
    me = election(transport, clock)
    problems = []
    me.run(Steps(clock, *[lambda: problems.append(me.problem)] * 3))
    assert problems[0] == '403 Forbidden: leases.coordination.k8s.io "l" is forbidden'
    assert problems[2] == "429: too many requests"


def test_says_each_trouble_once(caplog):
    clock = manual_clock()
    transport = FakeTransport(*[Unreachable("no route to host")] * 9)
    with caplog.at_level(logging.WARNING):
        election(transport, clock).run(Steps(clock, *[lambda: None] * 8))
    assert [record.message for record in caplog.records] == ["lease rebalancing/l: no route to host"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{", b'{"spec": {}}', b'{"metadata": {"resourceVersion": "1"}, "spec": 3}', b"\xff"],
)
def test_an_answer_that_is_no_lease_is_a_failed_try(answer):
    clock = manual_clock()
    transport = FakeTransport(answer)
    me = election(transport, clock)
    me.run(Steps(clock))
    assert me.problem.startswith("the answer is no Lease")
    assert len(transport.sent) == 1


def test_another_candidate_that_was_quicker_is_no_trouble():
    clock = manual_clock()
    transport = FakeTransport(status_error(404, "NotFound", "not found"), recorded_error("lease-exists"))
    me = election(transport, clock)
    me.run(Steps(clock))
    assert not me.is_leader()
    assert "already exists" in me.problem


def test_a_bug_in_its_thread_leaves_nobody_leading():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)

    def bug() -> None:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError):
        me.run(Steps(clock, bug))
    assert not me.is_leader()
    assert server.spec["holderIdentity"] == ""


def test_an_api_server_out_of_reach_does_not_keep_the_release_from_ending():
    server, clock = LeaseServer(), manual_clock()
    stop = Steps(clock)

    def unreachable(method: str) -> None:
        if stop.is_set():
            raise NoAnswer("no answer within the deadline")

    server.before = unreachable
    me = election(server, clock)
    assert me.run(stop)
    assert server.spec["holderIdentity"] == "me"
    assert not me.is_leader()


def test_waits_until_writes_are_safe():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    results = []

    def wait() -> None:
        # Renewals go on meanwhile in life; here the wait ends with the term at the latest.
        results.append(me.wait_until_safe(Steps(clock, *[lambda: None] * 20)))
        results.append(me.writes_allowed())

    me.run(Steps(clock, *[lambda: None] * 6, wait))
    assert results == [True, True]


def test_does_not_wait_for_a_lease_that_is_lost():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    me.run(Steps(clock))
    assert me.wait_until_safe(Steps(clock, *[lambda: None] * 5)) is False


@pytest.mark.parametrize(
    ("lease_s", "renew_s", "retry_s", "words"),
    [
        (15, 15, 2, "lease duration must exceed the renew deadline (0:00:15), found 0:00:15"),
        (15, 2, 2, "renew deadline must exceed 1.2 retry periods (0:00:02), found 0:00:02"),
        (15, 10, 0, "retry period must be positive, found 0:00:00"),
    ],
)
def test_times_that_leave_no_room_are_refused(lease_s, renew_s, retry_s, words):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        LeaseTiming(timedelta(seconds=lease_s), timedelta(seconds=renew_s), timedelta(seconds=retry_s))
    assert str(raised.value) == words


def test_a_duration_in_parts_of_seconds_is_rounded_up_for_others():
    server, clock = LeaseServer(), manual_clock()
    timing = LeaseTiming(timedelta(seconds=2.5), timedelta(seconds=1.7), timedelta(seconds=0.3))
    me = election(server, clock, timing=timing)
    seen = []
    me.run(Steps(clock, lambda: seen.append(server.spec["leaseDurationSeconds"])))
    assert seen == [3]


def test_leads_and_gives_back_over_a_real_connection_on_the_systems_clock(tmp_path):
    lease = LeaseServer()

    def answer(request: Request) -> Reply:
        arguments = {"body": request.body or None, "deadline": timedelta(seconds=1)}
        try:
            return reply(200, lease.request(request.method, request.path, **arguments))
        except ApiError as error:
            return reply(error.status, {"kind": "Status", "reason": error.reason, "message": error.message})

    timing = LeaseTiming(timedelta(seconds=0.4), timedelta(seconds=0.3), timedelta(seconds=0.05))
    stop = Event()
    with HttpServer(answer) as server, ThreadPoolExecutor() as threads:
        me = election(transport_to(server.url, tmp_path), SystemClock(), timing=timing)
        ended = threads.submit(me.run, stop)
        safe = me.wait_until_safe(stop)
        renewals = lease.puts
        stop.set()
        assert ended.result(10)
    assert safe
    assert renewals > 1
    assert lease.spec["holderIdentity"] == ""


def test_the_recorded_conflict_is_one():
    assert isinstance(recorded_error("lease-conflict"), Conflict)
