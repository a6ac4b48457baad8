"""The shutdown alarm, which the Lease keeps over the end of the process that raised it."""

import json
import threading
from datetime import timedelta

import pytest

from controller.lease import SHUTDOWN_ALARM, LeaseTiming, ShutdownAlarm, Stop
from informers.clock import SystemClock
from informers.errors import Unreachable
from tests.controller.io.fake_api import LeaseServer
from tests.controller.io.lease_world import OTHER, Steps, election, manual_clock
from tests.simulator.apiserver.harness import until


def test_an_alarm_survives_the_process_that_raised_it():
    server, clock = LeaseServer(), manual_clock()
    first = election(server, clock)
    alarm = ShutdownAlarm("the eviction of vms/a was granted", "0123456789ab")
    first.run(Steps(clock, lambda: first.keep_alarm(alarm), lambda: None))
    assert json.loads(server.annotations[SHUTDOWN_ALARM]) == {
        "reason": "the eviction of vms/a was granted",
        "policyDigest": "0123456789ab",
    }
    second = election(server, clock, "second")
    found = []
    second.run(Steps(clock, lambda: found.append(second.alarm())))
    assert found == [alarm]


def test_an_alarm_raised_last_goes_with_the_release():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    me.run(Steps(clock, lambda: None, lambda: me.keep_alarm(ShutdownAlarm("r", "d"))))
    assert server.spec["holderIdentity"] == ""
    assert SHUTDOWN_ALARM in server.annotations


def test_an_alarm_that_is_over_is_taken_off():
    server, clock = LeaseServer(), manual_clock()
    server.put({}, {SHUTDOWN_ALARM: '{"reason": "r", "policyDigest": "d"}', "kept": "yes"})
    me = election(server, clock)
    me.run(Steps(clock, lambda: me.keep_alarm(None), lambda: None))
    assert server.annotations == {"kept": "yes"}
    assert me.alarm() is None


def test_a_stand_by_takes_off_no_alarm_that_was_raised_after_it_looked():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock)
    found = []

    def raise_alarm() -> None:
        server.annotate(SHUTDOWN_ALARM, '{"reason": "r", "policyDigest": "d"}')

    steps = [lambda: me.keep_alarm(None), raise_alarm, *[lambda: None] * 8, lambda: found.append(me.alarm())]
    me.run(Steps(clock, *steps))
    assert server.spec["leaseTransitions"] == 4
    assert found == [ShutdownAlarm("r", "d")]
    assert SHUTDOWN_ALARM in server.annotations


def test_an_alarm_is_written_once_so_that_a_person_can_take_it_off():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)

    def take_off() -> None:
        assert SHUTDOWN_ALARM in server.annotations
        server.put(server.spec)

    steps = [
        lambda: me.keep_alarm(ShutdownAlarm("r", "d")),
        lambda: None,
        take_off,
        lambda: None,
        lambda: None,
    ]
    me.run(Steps(clock, *steps))
    assert SHUTDOWN_ALARM not in server.annotations
    assert me.alarm() is None


def test_an_alarm_is_written_again_if_nobody_knows_whether_it_was():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    lost = []

    def lose_one(method: str) -> None:
        if method == "PUT" and not lost:
            lost.append(method)
            raise Unreachable("no route to host")

    server.before = lose_one
    me.run(Steps(clock, lambda: me.keep_alarm(ShutdownAlarm("r", "d")), lambda: None, lambda: None))
    assert SHUTDOWN_ALARM in server.annotations


@pytest.mark.parametrize("text", ["", "yes", "[]", '{"reason": "r"}', "[" * 5000, '{"x": ' + "[" * 100_000])
def test_an_alarm_that_cannot_be_read_is_reported_and_is_none(text, caplog):
    server, clock = LeaseServer(), manual_clock()
    server.put({}, {SHUTDOWN_ALARM: text})
    me = election(server, clock)
    found = []
    me.run(Steps(clock, lambda: found.append(me.alarm())))
    assert found == [None]
    assert SHUTDOWN_ALARM in caplog.text


def test_an_alarm_need_not_wait_for_the_next_renewal():
    """A crash before that would lose it. The next renewal is a quarter of an hour away."""
    server, stop = LeaseServer(), Stop()
    hour = timedelta(hours=1)
    timing = LeaseTiming(lease_duration=hour, renew_deadline=hour / 2, retry_period=hour / 4)
    me = election(server, SystemClock(), timing=timing)
    runner = threading.Thread(target=me.run, args=(stop,))
    runner.start()
    try:
        until(me.is_leader)
        me.keep_alarm(ShutdownAlarm("r", "d"))
        stop.hurry()
        until(lambda: SHUTDOWN_ALARM in server.annotations)
        assert not stop.is_set()
    finally:
        stop.set()
        runner.join()
    assert server.spec["holderIdentity"] == ""
