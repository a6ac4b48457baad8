"""How many Events become of what is said: client-go's rules, and a bucket for all together."""

from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from controller.evictions.entry import VmKey
from controller.telemetry.correlation import (
    BURST,
    EVERY,
    KEPT_FROM_NOTICES,
    OBJECT_BURST,
    OBJECT_EVERY,
    Correlator,
    Dropped,
    Outgoing,
)
from controller.telemetry.events import MOST_BYTES, Event, Subject, vmi_subject
from tests.builders import START
from tests.controller.decision_builders import HOUR, MINUTE, SECOND
from tests.controller.event_builders import ON_NODE_1, event


def sent(correlator: Correlator, said: Event, after: timedelta = timedelta(0)) -> Outgoing:
    outgoing = correlator.admit(said, START + after)
    assert isinstance(outgoing, Outgoing)
    return outgoing


def on_vm(number: int) -> Subject:
    return vmi_subject(VmKey("vms", f"vm-{number}"), f"uid-{number}")


def test_the_same_event_again_counts_up_the_one_there() -> None:
    correlator = Correlator(START)
    first = sent(correlator, event())
    again = sent(correlator, event(), MINUTE)
    assert first.is_new
    assert not again.is_new
    assert (again.name, again.count, again.first, again.last) == (first.name, 2, START, START + MINUTE)


def test_another_message_reason_or_object_is_another_event() -> None:
    correlator = Correlator(START)
    others = [event(), event("else"), event(reason="Else"), event(subject=ON_NODE_1)]
    names = {sent(correlator, said).name for said in others}
    assert len(names) == len(others)


def test_events_of_one_object_that_differ_in_their_message_only_are_combined_from_the_tenth_on() -> None:
    correlator = Correlator(START)
    outgoing = [sent(correlator, event(f"message {n}"), n * SECOND) for n in range(12)]
    assert [one.is_new for one in outgoing] == [True] * 10 + [False] * 2
    assert outgoing[8].event.message == "message 8"
    assert outgoing[9].event.message == "(combined from similar events): message 9"
    assert (outgoing[11].name, outgoing[11].count) == (outgoing[9].name, 3)
    assert outgoing[11].event.message == "(combined from similar events): message 11"


def test_similar_events_that_are_far_apart_are_not_combined() -> None:
    correlator = Correlator(START)
    outgoing = [sent(correlator, event(f"message {n}"), n * 11 * MINUTE) for n in range(20)]
    assert all(one.is_new for one in outgoing)


def test_a_combined_message_is_no_longer_than_kubernetes_takes() -> None:
    correlator = Correlator(START)
    longest = [sent(correlator, event(f"{n:0{MOST_BYTES}}")) for n in range(10)][-1]
    assert len(longest.event.message.encode()) <= MOST_BYTES


def test_an_object_that_is_spoken_of_too_much_is_not_for_a_while() -> None:
    correlator = Correlator(START)
    for _ in range(OBJECT_BURST):
        sent(correlator, event())
    assert correlator.admit(event(), START) is Dropped.TOO_MANY_OF_OBJECT
    sent(correlator, event(subject=ON_NODE_1))
    assert sent(correlator, event(), OBJECT_EVERY).count == OBJECT_BURST + 1


def storm(correlator: Correlator, after: timedelta = timedelta(0)) -> Counter[str]:
    """A thousand VMs are skipped at once."""
    notices = [event(subject=on_vm(n), reason="FitsNowhere", notice=True) for n in range(1000)]
    return Counter(
        "sent" if isinstance(outgoing, Outgoing) else outgoing
        for outgoing in (correlator.admit(said, START + after) for said in notices)
    )


def test_a_storm_of_notices_becomes_few_events_and_leaves_room_for_what_happens() -> None:
    correlator = Correlator(START)
    assert storm(correlator) == {"sent": BURST - KEPT_FROM_NOTICES, Dropped.TOO_MANY: 950}
    assert storm(correlator, 10 * EVERY)["sent"] == 10
    for n in range(KEPT_FROM_NOTICES):
        sent(correlator, event(subject=on_vm(5000 + n)), 10 * EVERY)
    assert correlator.admit(event(), START + 10 * EVERY) is Dropped.TOO_MANY


def test_a_clock_that_is_set_back_does_not_stop_events_for_as_long() -> None:
    correlator = Correlator(START)
    storm(correlator)
    assert storm(correlator, -HOUR)["sent"] == 0
    assert storm(correlator, -HOUR + 20 * EVERY)["sent"] == 20


def test_names_are_client_gos_and_never_the_same() -> None:
    correlator = Correlator(START)
    first, second = (sent(correlator, event(f"message {n}")) for n in range(2))
    assert first.name == "vm-1.18867251edfa0000"
    assert second.name == "vm-1.18867251edfa0001"


def test_a_name_is_not_longer_than_kubernetes_takes() -> None:
    subject = vmi_subject(VmKey("vms", "a" * 235 + "." + "b" * 17), "uid")
    name = sent(Correlator(START), event(subject=subject)).name
    assert len(name) <= 253
    assert name.startswith("aaa")
    assert ".." not in name


def test_is_said_as_a_core_event_in_the_namespace_of_its_object() -> None:
    body = sent(Correlator(START), event()).body()
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "vm-1.18867251edfa0000", "namespace": "vms"},
        "involvedObject": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "namespace": "vms",
            "name": "vm-1",
            "uid": "vmi-vm-1",
        },
        "type": "Normal",
        "reason": "Rebalanced",
        "message": "so it is",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "vm-rebalancer"},
        "reportingComponent": "vm-rebalancer",
        "reportingInstance": "",
    }


def test_is_said_in_default_of_a_node() -> None:
    body = sent(Correlator(START), event(subject=ON_NODE_1)).body()
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["involvedObject"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 30), st.booleans(), st.integers(-5, 600)
        ),
        max_size=200,
    )
)
def test_whatever_is_said_counts_only_grow_and_never_more_is_sent_than_the_bucket_allows(
    said: list[tuple[int, str, int, bool, int]],
) -> None:
    correlator, now, counts, taken = Correlator(START), START, {}, 0
    forward = timedelta(0)
    for vm, reason, message, notice, step_s in said:
        now += step_s * SECOND
        forward += max(step_s, 0) * SECOND
        one = event(f"message {message}", subject=on_vm(vm), reason=reason, notice=notice)
        outgoing = correlator.admit(one, now)
        if isinstance(outgoing, Outgoing):
            taken += 1
            assert outgoing.count == counts.get(outgoing.name, 0) + 1
            counts[outgoing.name] = outgoing.count
    assert taken <= BURST + forward / EVERY
