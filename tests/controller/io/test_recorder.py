"""Events on their way to the API server, and what becomes of each answer: nothing that anybody else would notice."""

import json
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controller.evictions.entry import VmKey
from controller.policy.model import Mode, Policy
from controller.telemetry.correlation import BURST, Dropped
from controller.telemetry.events import vmi_subject
from controller.telemetry.names import Metrics
from controller.telemetry.recorder import (
    ATTEMPTS,
    DEADLINE,
    LONGEST_PAUSE,
    MOST_WAITING,
    PAUSE,
    EventRecorder,
)
from informers.errors import ApiError, NoAnswer, Unreachable, from_response
from informers.testing import ManualClock
from informers.transport import Transport
from simulator.apiserver.patches import merge_patch
from tests.builders import START
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND, policy
from tests.controller.event_builders import ON_NODE_1, event
from tests.controller.io.fake_api import status_error
from tests.simulator.apiserver.builders import CORE_EVENTS
from tests.simulator.apiserver.harness import Connected, Served

EVENTS = "/api/v1/namespaces/vms/events"
WITHIN = timedelta(seconds=1)
NO_NAMESPACE = status_error(404, "NotFound", 'namespaces "vms" not found')
FORBIDDEN = status_error(403, "Forbidden", "events is forbidden")
BUSY = from_response(429, b"too many", {"Retry-After": "7"})
DOWN = status_error(503, "ServiceUnavailable", "etcd is down")


class EventServer:
    """Keeps Events as an API server does, unless ``trouble`` raises."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.deadlines: list[timedelta] = []
        self.trouble: Callable[[str], None] = lambda method: None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        content_type: str,
        deadline: timedelta,
        cancel: threading.Event,
    ) -> bytes:
        self.asked.append((method, path))
        self.deadlines.append(deadline)
        self.trouble(method)
        given = json.loads(body)
        if method == "POST":
            assert content_type == "application/json"
            path = f"{path}/{given['metadata']['name']}"
            if path in self.events:
                raise status_error(409, "AlreadyExists", "it exists")
            self.events[path] = given
        else:
            assert content_type == "application/merge-patch+json"
            if path not in self.events:
                raise status_error(404, "NotFound", "no such event")
            self.events[path] = cast(dict[str, Any], merge_patch(self.events[path], given))
        return b"{}"


class World:
    """A recorder in front of a server that is played, in time by hand."""

    def __init__(self) -> None:
        self.server = EventServer()
        self.clock = ManualClock(START)
        self.registry = CollectorRegistry()
        self.policy: Policy | None = POLICY
        self.time_to_write = MINUTE
        self.recorder = EventRecorder(
            cast(Transport, self.server),
            lambda: self.time_to_write,
            lambda: self.policy,
            self.clock,
            Metrics(self.registry).events_dropped,
        )

    def send_all(self) -> list[timedelta]:
        """The pauses between requests."""
        return list(iter(self.recorder.send_next, None))

    def dropped(self, why: Dropped) -> float | None:
        return self.registry.get_sample_value("vm_rebalancer_events_dropped_total", {"reason": why})


@pytest.fixture
def world() -> World:
    return World()


def trouble(*errors: ApiError | None) -> Callable[[str], None]:
    """For the next requests, one each; then none."""
    left = list(errors)

    def befall(_: str) -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    return befall


def for_ever(error: Exception) -> Callable[[str], None]:
    def befall(_: str) -> None:
        raise error

    return befall


# --- what is sent ---


def test_creates_once_and_counts_then(world: World) -> None:
    for _ in range(3):
        assert world.recorder.say(event())
        world.clock.advance(MINUTE)
    world.send_all()
    assert [method for method, _ in world.server.asked] == ["POST", "PATCH", "PATCH"]
    ((path, stored),) = world.server.events.items()
    assert path.startswith(f"{EVENTS}/vm-1.")
    assert (stored["count"], stored["firstTimestamp"], stored["lastTimestamp"]) == (
        3,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:02:00Z",
    )


def test_an_event_of_a_node_is_in_default(world: World) -> None:
    world.recorder.say(event(subject=ON_NODE_1))
    world.send_all()
    assert world.server.asked == [("POST", "/api/v1/namespaces/default/events")]


def test_an_event_that_is_kept_no_longer_is_created_anew(world: World) -> None:
    """Kubernetes keeps them for an hour."""
    world.recorder.say(event())
    world.send_all()
    world.server.events.clear()
    world.clock.advance(HOUR)
    world.recorder.say(event())
    world.send_all()
    (stored,) = world.server.events.values()
    assert (stored["count"], stored["involvedObject"]["name"]) == (2, "vm-1")


def test_somebody_elses_404_is_not_taken_for_the_events(world: World) -> None:
    world.recorder.say(event())
    world.send_all()
    world.server.trouble = trouble(from_response(404, b"<html>", {}))
    world.recorder.say(event())
    world.send_all()
    assert [method for method, _ in world.server.asked] == ["POST", "PATCH"]
    assert world.dropped(Dropped.NOT_TAKEN) == 1


# --- trouble ---


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (Unreachable("no route"), PAUSE),
        (NoAnswer("silence"), PAUSE),
        (DOWN, PAUSE),
        (BUSY, timedelta(seconds=7)),
        (from_response(429, b"", {"Retry-After": "86400"}), LONGEST_PAUSE),
    ],
)
def test_trouble_that_passes_is_waited_for(world: World, error: ApiError, pause: timedelta) -> None:
    world.server.trouble = trouble(error)
    world.recorder.say(event())
    assert world.send_all() == [pause, timedelta(0)]
    assert len(world.server.events) == 1
    assert world.dropped(Dropped.NOT_TAKEN) == 0


def test_trouble_that_lasts_costs_the_event_and_no_other(world: World) -> None:
    world.server.trouble = trouble(*[DOWN] * ATTEMPTS)
    world.recorder.say(event())
    world.recorder.say(event("else"))
    world.send_all()
    assert [stored["message"] for stored in world.server.events.values()] == ["else"]
    assert world.dropped(Dropped.NOT_TAKEN) == 1


@pytest.mark.parametrize("error", [FORBIDDEN, NO_NAMESPACE, status_error(422, "Invalid", "no")])
def test_a_refusal_is_not_argued_with(world: World, error: ApiError) -> None:
    world.server.trouble = for_ever(error)
    world.recorder.say(event())
    assert world.send_all() == [timedelta(0)]
    assert len(world.server.asked) == 1
    assert world.dropped(Dropped.NOT_TAKEN) == 1


def test_an_event_whose_answer_was_lost_is_there_once(world: World) -> None:
    keep = world.server.request

    def lose_the_first_answer(*args: Any, **kwargs: Any) -> bytes:
        answer = keep(*args, **kwargs)
        if len(world.server.asked) == 1:
            raise NoAnswer("the connection broke")
        return answer

    world.server.request = lose_the_first_answer  # type: ignore[method-assign]
    world.recorder.say(event())
    world.send_all()
    assert len(world.server.events) == 1
    assert world.dropped(Dropped.NOT_TAKEN) == 0


def test_a_fault_of_our_own_costs_no_more_than_the_event(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.trouble = for_ever(RuntimeError("broken"))
    world.recorder.say(event())
    world.send_all()
    assert world.dropped(Dropped.NOT_TAKEN) == 1
    assert "broken" in caplog.text


def test_each_kind_of_trouble_is_logged_once_an_hour(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.trouble = for_ever(FORBIDDEN)
    with caplog.at_level(logging.WARNING):
        for minute in range(0, 150, 30):
            world.recorder.say(event(f"at minute {minute}"))
            world.send_all()
            world.clock.advance(30 * MINUTE + SECOND)
    assert [record.message for record in caplog.records] == [
        "an Event was not sent: 403 Forbidden: events is forbidden"
    ] * 3


# --- storms ---


def test_a_storm_is_cut_and_what_is_lost_is_counted(world: World) -> None:
    subjects = [vmi_subject(VmKey("vms", f"vm-{n}"), f"uid-{n}") for n in range(1000)]
    taken = [world.recorder.say(event(subject=subject, notice=True)) for subject in subjects]
    world.send_all()
    assert len(world.server.events) == sum(taken) < BURST
    assert world.dropped(Dropped.TOO_MANY) == 1000 - sum(taken)


def test_what_waits_is_bounded(world: World) -> None:
    for n in range(MOST_WAITING + 10):
        subject = vmi_subject(VmKey("vms", f"vm-{n}"), f"uid-{n}")
        assert world.recorder.say(event(subject=subject)) == (n < MOST_WAITING)
        world.clock.advance(SECOND)
    assert world.dropped(Dropped.QUEUE_FULL) == 10


# --- when nothing may be written ---


@pytest.mark.parametrize("in_force", [None, policy(mode=Mode.PREDICTIVE)])
def test_nothing_is_sent_unless_the_policy_is_automatic(world: World, in_force: Policy | None) -> None:
    world.recorder.say(event())
    world.policy = in_force
    assert not world.recorder.say(event("later"))
    world.send_all()
    assert world.server.asked == []
    assert world.dropped(Dropped.NOT_ALLOWED) == 1


def test_nothing_is_sent_without_the_lease(world: World) -> None:
    """It may be lost between the saying and the sending, and between the two requests of one Event."""
    world.recorder.say(event())
    world.time_to_write = timedelta(0)
    assert not world.recorder.say(event("later"))
    world.send_all()
    assert world.server.asked == []
    assert world.dropped(Dropped.NOT_ALLOWED) == 1


def test_an_event_is_not_created_anew_once_the_lease_is_lost(world: World) -> None:
    world.recorder.say(event())
    world.send_all()
    world.server.events.clear()

    def lose_the_lease(_: str) -> None:
        world.time_to_write = timedelta(0)

    world.server.trouble = lose_the_lease
    world.recorder.say(event())
    world.send_all()
    assert [method for method, _ in world.server.asked] == ["POST", "PATCH"]
    assert world.dropped(Dropped.NOT_ALLOWED) == 1


def test_a_request_takes_no_longer_than_the_lease_allows(world: World) -> None:
    for left in (SECOND, timedelta.max):
        world.time_to_write = left
        world.recorder.say(event(str(left)))
        world.send_all()
    assert world.server.deadlines == [SECOND, DEADLINE]


def test_one_that_was_never_started_can_be_stopped(world: World) -> None:
    world.recorder.say(event())
    assert world.recorder.stop(WITHIN)
    assert not world.recorder.say(event("too late"))
    assert world.server.asked == []
    assert world.dropped(Dropped.ENDING) == 2


def test_one_under_way_when_it_is_stopped_is_counted_once(world: World) -> None:
    def stop_meanwhile(_: str) -> None:
        world.recorder.stop(WITHIN)
        raise FORBIDDEN

    world.server.trouble = stop_meanwhile
    world.recorder.say(event())
    world.send_all()
    assert [world.dropped(why) for why in (Dropped.ENDING, Dropped.NOT_TAKEN)] == [1, 0]


# --- the real API ---


def test_an_api_server_takes_them_and_shows_them_by_object(
    served: Served, admin: Connected, tmp_path: Path
) -> None:
    transport = Transport.from_kubeconfig(str(tmp_path / "kubeconfig"))
    clock = ManualClock(START)
    metrics = Metrics(CollectorRegistry())
    recorder = EventRecorder(transport, lambda: timedelta.max, lambda: POLICY, clock, metrics.events_dropped)
    for said in (event(), event(), event(subject=ON_NODE_1)):
        recorder.say(said)
    assert list(iter(recorder.send_next, None)) == [timedelta(0)] * 3
    transport.close()
    selector = "involvedObject.kind=VirtualMachineInstance,involvedObject.uid=vmi-vm-1"
    (of_vmi,) = admin.get(CORE_EVENTS, fieldSelector=selector)["items"]
    assert (of_vmi["count"], of_vmi["source"], of_vmi["reportingComponent"]) == (
        2,
        {"component": "vm-rebalancer"},
        "vm-rebalancer",
    )
    (of_node,) = admin.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.kind=Node")[
        "items"
    ]
    assert of_node["involvedObject"]["name"] == "node-1"
