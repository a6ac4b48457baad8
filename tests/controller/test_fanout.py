"""Several observers hear everything; one that fails is alone with it."""

import logging
from datetime import timedelta
from inspect import signature
from typing import Any
from unittest.mock import Mock

import pytest

from controller.ports import DescheduleObserver, TaintObserver
from controller.telemetry.fanout import DescheduleFanout, TaintFanout
from informers.testing import ManualClock
from tests.builders import START


def calls_of(protocol: type) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Made-up arguments for each of an observer's methods."""
    methods = {n: m for n in dir(protocol) if not n.startswith("_") and callable(m := getattr(protocol, n))}
    calls = {}
    for name, method in methods.items():
        parameters = [p for p in signature(method).parameters.values() if p.name != "self"]
        calls[name] = (
            [object() for p in parameters if p.kind is not p.KEYWORD_ONLY],
            {p.name: object() for p in parameters if p.kind is p.KEYWORD_ONLY},
        )
    return calls


@pytest.mark.parametrize(
    ("protocol", "fanout"), [(DescheduleObserver, DescheduleFanout), (TaintObserver, TaintFanout)]
)
def test_everything_reaches_everybody_though_one_fails(
    protocol: type, fanout: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A telemetry fault must never look like a failed decision."""
    broken, sound = Mock(spec=protocol), Mock(spec=protocol)
    calls = calls_of(protocol)
    assert "failed" in calls
    for name, (given, named) in calls.items():
        getattr(broken, name).side_effect = RuntimeError("no space left")
        with caplog.at_level(logging.ERROR):
            getattr(fanout(ManualClock(START), broken, sound), name)(*given, **named)
        getattr(sound, name).assert_called_once_with(*given, **named)
        assert "an observer failed" in caplog.text
        caplog.clear()


def test_the_same_fault_is_said_once_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An observer may be told something many times a second, and its fault may be there each time."""
    clock = ManualClock(START)
    broken = Mock(spec=DescheduleObserver)
    heard = DescheduleFanout(clock, broken, Mock(spec=DescheduleObserver))
    faults = [RuntimeError("no space left"), ValueError("odd")]
    broken.refreshing.side_effect = faults * 10
    broken.metrics_failed.side_effect = RuntimeError("no space left")
    for _ in range(10):
        heard.refreshing()
        heard.metrics_failed("503")
    assert len(caplog.records) == 3
    assert all(record.exc_info for record in caplog.records)
    clock.advance(timedelta(hours=1, seconds=1))
    heard.refreshing()
    assert len(caplog.records) == 4


def test_no_observer_is_no_trouble() -> None:
    DescheduleFanout(ManualClock(START)).failed("key", RuntimeError(), timedelta(seconds=1))
