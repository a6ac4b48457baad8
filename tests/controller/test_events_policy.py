"""What is said on the ConfigMap of the policy."""

import pytest

from controller.cluster.metadata import Identity
from controller.cluster.resources import ConfigMap
from controller.policy.problems import Problem
from controller.policy.watch import PolicyState
from controller.telemetry.events import EventType, PolicyEvents, Subject
from informers.informer import Informer
from tests.controller.decision_builders import POLICY
from tests.controller.event_builders import Sink

VALID = PolicyState(POLICY)
INVALID = PolicyState(POLICY, (Problem("mode", '"Auto"', "Automatic, Predictive", "Automatic", 3),))
GONE = PolicyState(POLICY, (Problem("", "nothing of that name", "a ConfigMap"),))


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def events(sink: Sink) -> PolicyEvents:
    config_maps: Informer[ConfigMap] = Informer("policy")
    config_maps.replace([ConfigMap(metadata=Identity("policy", "rebalancing", "uid-1", "7"))])
    return PolicyEvents(sink, config_maps.lister, "rebalancing", "policy")


def test_says_what_is_wrong_with_a_policy(sink: Sink, events: PolicyEvents) -> None:
    events.changed(INVALID)
    (said,) = sink.events
    assert said.subject == Subject("v1", "ConfigMap", "rebalancing", "policy", "uid-1")
    assert (said.type, said.reason) == (EventType.WARNING, "PolicyInvalid")
    assert said.message == (
        'Refused, the last good one stays in force: line 3: mode: found "Auto"; '
        "allowed: Automatic, Predictive; did you mean Automatic?"
    )


def test_says_when_it_is_valid_again_but_not_that_it_always_was(sink: Sink, events: PolicyEvents) -> None:
    for state in (VALID, INVALID, VALID, VALID):
        events.changed(state)
    assert sink.reasons == ["PolicyInvalid", "PolicyValid"]
    assert sink.events[-1].message == "In force: policy digest-1"


def test_what_a_replica_that_stood_by_could_not_say_it_says_once_it_leads(
    sink: Sink, events: PolicyEvents
) -> None:
    events.catch_up()
    sink.takes = False
    events.changed(INVALID)
    sink.takes = True
    events.catch_up()
    events.catch_up()
    assert sink.reasons == ["PolicyInvalid"]
    sink.takes = False
    events.changed(VALID)
    sink.takes = True
    events.catch_up()
    events.catch_up()
    assert sink.reasons == ["PolicyInvalid", "PolicyValid"]


def test_trouble_that_came_and_went_while_standing_by_is_no_news(sink: Sink, events: PolicyEvents) -> None:
    sink.takes = False
    events.changed(INVALID)
    events.changed(VALID)
    sink.takes = True
    events.catch_up()
    assert sink.events == []


def test_other_problems_are_said_anew(sink: Sink, events: PolicyEvents) -> None:
    events.changed(INVALID)
    events.changed(GONE)
    assert sink.reasons == ["PolicyInvalid", "PolicyInvalid"]


def test_speaks_of_one_that_has_gone_by_its_name(sink: Sink) -> None:
    nothing: Informer[ConfigMap] = Informer("policy")
    PolicyEvents(sink, nothing.lister, "rebalancing", "policy").changed(GONE)
    (said,) = sink.events
    assert (said.subject.name, said.subject.uid) == ("policy", "")
