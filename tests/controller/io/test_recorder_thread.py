"""The thread that sends Events, against real servers: it ends in time, and nobody waits for it."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controller.telemetry.correlation import Dropped
from controller.telemetry.names import Metrics
from controller.telemetry.recorder import PAUSE, EventRecorder
from informers.clock import SystemClock
from informers.transport import Transport
from tests.controller.decision_builders import POLICY
from tests.controller.event_builders import event
from tests.controller.io.builders import transport_to
from tests.controller.io.http_server import HttpServer, Reply, Request, reply

WITHIN = timedelta(seconds=1)
SOON_S = 20.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def recorder_to(tmp_path: Path, registry: CollectorRegistry) -> Iterator[Callable[[str], EventRecorder]]:
    """A started one, with a real transport to a server."""
    transports: list[Transport] = []

    def make(url: str) -> EventRecorder:
        transports.append(transport_to(url, tmp_path))
        metrics = Metrics(registry)
        recorder = EventRecorder(
            transports[-1], lambda: timedelta.max, lambda: POLICY, SystemClock(), metrics.events_dropped
        )
        recorder.start()
        return recorder

    yield make
    for transport in transports:
        transport.close()


def test_what_waits_is_still_sent_when_it_is_stopped(recorder_to: Callable[[str], EventRecorder]) -> None:
    with HttpServer(lambda _: reply(201, {})) as server:
        recorder = recorder_to(server.url)
        for n in range(5):
            recorder.say(event(str(n)))
        assert recorder.stop(timedelta(seconds=SOON_S))
        assert [json.loads(request.body)["message"] for request in server.requests] == list("01234")
        assert not recorder.say(event("too late"))


def test_stops_in_time_though_the_api_server_says_nothing(
    recorder_to: Callable[[str], EventRecorder], registry: CollectorRegistry, no_thread_is_left: None
) -> None:
    """What was not sent is counted, each once."""
    asked = threading.Event()

    def hang(_: Request) -> Reply:
        asked.set()
        return server.hang()

    with HttpServer(hang) as server:
        recorder = recorder_to(server.url)
        for n in range(5):
            recorder.say(event(str(n)))
        assert asked.wait(SOON_S)
        assert recorder.stop(WITHIN)
        assert len(server.requests) == 1
    dropped = "vm_rebalancer_events_dropped_total"
    counts = [
        registry.get_sample_value(dropped, {"reason": why}) for why in (Dropped.NOT_TAKEN, Dropped.ENDING)
    ]
    assert counts == [1, 4]


def test_a_pause_ends_when_it_is_stopped(
    recorder_to: Callable[[str], EventRecorder], no_thread_is_left: None
) -> None:
    asked = threading.Event()

    def refuse(_: Request) -> Reply:
        asked.set()
        return reply(503, {})

    with HttpServer(refuse) as server:
        recorder = recorder_to(server.url)
        recorder.say(event())
        assert asked.wait(SOON_S)
        assert recorder.stop(PAUSE / 2)
