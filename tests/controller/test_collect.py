"""What is read off queues, informers, the lease and the cluster, and how requests are named."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from controller.cluster.objects import Taint
from controller.evictions.views import Finished, Refusal
from controller.policy.model import Breaker, Cooldown
from controller.taints.desired import APPROPRIATE, EFFECT, OVER
from controller.telemetry.calls import note_calls, what_was_asked
from controller.telemetry.collect import (
    Reading,
    Readings,
    Rests,
    of_informers,
    of_lease,
    of_queue,
    of_rests,
    of_taints,
)
from informers.testing import ManualClock
from informers.transport import Answered
from tests.builders import START, node
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND, finished, policy, view
from tests.controller.seen import INFORMER, QUEUE, Seen

PREFIX = "vm_rebalancer_"


def read(*readings: Reading) -> dict[str, float]:
    """Sample with its labels -> value."""
    registry = CollectorRegistry()
    registry.register(Readings(lambda: readings))
    return {
        f"{sample.name.removeprefix(PREFIX)}{sorted(sample.labels.values())}": sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_queue_is_shown_with_its_states_totals_and_durations() -> None:
    shown = read(*of_queue("decisions", QUEUE))
    assert shown["workqueue_keys['decisions', 'ready']"] == 1.0
    assert shown["workqueue_keys['decisions', 'delayed']"] == 3.0
    assert shown["workqueue_adds_total['decisions']"] == 9.0
    assert shown["workqueue_retries_total['decisions']"] == 4.0
    assert shown["workqueue_longest_running_seconds['decisions']"] == 2.5
    assert shown["workqueue_queue_duration_seconds_bucket['0.001', 'decisions']"] == 1.0
    assert shown["workqueue_queue_duration_seconds_bucket['0.005', 'decisions']"] == 3.0
    assert shown["workqueue_queue_duration_seconds_bucket['300.0', 'decisions']"] == 3.0
    assert shown["workqueue_work_duration_seconds_count['decisions']"] == 4.0
    assert shown["workqueue_work_duration_seconds_sum['decisions']"] == 400.0


def test_two_queues_share_their_families() -> None:
    shown = read(*of_queue("decisions", QUEUE), *of_queue("policy", QUEUE))
    assert shown["workqueue_adds_total['decisions']"] == shown["workqueue_adds_total['policy']"] == 9.0


def test_an_informer_is_shown_with_its_objects_lists_watches_and_events() -> None:
    assert read(*of_informers([INFORMER])) == {
        "informer_objects['nodes']": 12.0,
        "informer_lists_total['nodes']": 2.0,
        "informer_watches_total['nodes']": 3.0,
        "informer_events_total['nodes']": 40.0,
    }


def test_the_lease_says_itself_how_often_it_has_changed_hands() -> None:
    assert read(*of_lease(3)) == {"lease_transitions_total[]": 3.0}


def test_nodes_are_counted_by_taints_of_ours_and_no_others() -> None:
    over, level = Taint(OVER, "", EFFECT), Taint(f"{OVER}-level-2", "", EFFECT)
    foreign = Taint(APPROPRIATE, "", "NoSchedule")
    nodes = [node("a", taints=(over, level)), node("b", taints=(over, foreign)), node("c")]
    assert read(*of_taints(nodes)) == {
        "tainted_nodes['overutilized']": 2.0,
        "tainted_nodes['overutilized-level-2']": 1.0,
        "tainted_nodes['appropriate']": 0.0,
    }


def test_vms_and_nodes_that_rest_are_counted_by_why() -> None:
    failures = tuple(finished(f"vmim-{n}", vm=f"vm-{n}", succeeded=False, at=START) for n in range(3))
    ledger = view(
        finished={
            "moved": (finished("moved", at=START),),
            "long-ago": (finished("long-ago", at=START - timedelta(days=3)),),
            "fails": tuple(finished("fails", succeeded=False, at=START) for _ in range(3)),
        },
        failures={"node-1": failures},
        refusals={"refused": Refusal("no", START + MINUTE), "over": Refusal("no", START - MINUTE)},
    )
    assert read(*of_rests(ledger, POLICY, START)) == {
        "resting_vms['cooldown']": 1.0,
        "resting_vms['breaker']": 1.0,
        "resting_vms['refused']": 1.0,
        "resting_nodes[]": 1.0,
    }


def test_nothing_rests_before_there_is_a_policy() -> None:
    assert Rests(view, lambda: None, ManualClock(START)).read() == ()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["vm-1", "vm-2"]), st.booleans(), st.integers(0, 5000), st.integers(0, 5000)
        )
    ),
    st.integers(1, 600),
    st.integers(1, 600),
    st.integers(1, 600),
)
def test_what_is_long_over_is_left_out_and_nothing_else(
    moves: list[tuple[str, bool, int, int]], base: int, more: int, rest: int
) -> None:
    """The count is that of asking the rules about each VM."""
    records: dict[str, tuple[Finished, ...]] = {}
    for n, (vm, succeeded, ago_s, took_s) in enumerate(sorted(moves, key=lambda move: -move[2])):
        move = finished(f"m-{n}", vm=vm, succeeded=succeeded, at=START - ago_s * SECOND, took=took_s * SECOND)
        records[vm] = (*records.get(vm, ()), move)
    cooldown = Cooldown(base * SECOND, (base + more) * SECOND, HOUR)
    breaker = Breaker(2, HOUR, rest * SECOND)
    rules = policy(evictions=replace(POLICY.evictions, cooldown=cooldown, breaker=breaker))
    ledger = view(finished=records)
    shown = read(*of_rests(ledger, rules, START))
    cooling = [vm for vm in records if ledger.cooling_until(vm, cooldown, START)]
    resting = [vm for vm in records if ledger.vm_resting_until(vm, breaker, START)]
    assert shown["resting_vms['cooldown']"] == len(cooling)
    assert shown["resting_vms['breaker']"] == len(resting)


def test_a_large_memory_is_counted_anew_only_when_something_is_new_or_after_a_while() -> None:
    """It is asked at each scrape, and holds every VM that ever moved."""
    clock, now = ManualClock(START), POLICY
    memory = {"vm-1": (finished("vm-1", at=START),)}
    ledger = view(finished=memory)
    rests = Rests(lambda: ledger, lambda: now, clock)
    first = rests.read()
    clock.advance(9 * SECOND)
    ledger = replace(ledger, version=ledger.version + 1)  # an entry has moved on
    assert rests.read() is first
    clock.advance(2 * SECOND)
    assert (second := rests.read()) is not first
    now = policy(digest="another")
    assert (third := rests.read()) is not second
    ledger = replace(ledger, finished=dict(memory))
    assert rests.read() is not third


@pytest.mark.parametrize(
    ("method", "path", "watch", "expected"),
    [
        ("GET", "/api/v1/nodes", False, ("list", "nodes")),
        ("GET", "/api/v1/nodes", True, ("watch", "nodes")),
        ("PATCH", "/api/v1/nodes/worker-1", False, ("patch", "nodes")),
        ("POST", "/api/v1/namespaces/vms/pods/launcher-1/eviction", False, ("create", "pods/eviction")),
        ("GET", "/api/v1/namespaces/vms/configmaps", True, ("watch", "configmaps")),
        (
            "GET",
            "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/namespaces",
            False,
            ("get", "virtualmachineinstances"),
        ),
        ("GET", "/api/v1/namespaces/vms", False, ("get", "namespaces")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/ours", False, ("update", "leases")),
        ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", False, ("create", "events")),
        ("GET", "/version", False, ("get", "other")),
    ],
)
def test_requests_are_named_by_verb_and_resource_and_never_by_object(
    method: str, path: str, watch: bool, expected: tuple[str, str]
) -> None:
    assert what_was_asked(Answered(method, path, watch, 200, 0.1)) == expected


def test_requests_are_counted_by_their_answer_and_none_has_a_code_of_its_own() -> None:
    seen = Seen()
    for status in (200, 200, 0):
        note_calls(seen.metrics, Answered("GET", "/api/v1/nodes", False, status, 0.2))
    assert seen.series("api_requests_total") == {
        ("200", "nodes", "list"): 2.0,
        ("none", "nodes", "list"): 1.0,
    }
    assert seen.series("api_request_duration_seconds_sum") == {("nodes", "list"): pytest.approx(0.6)}
