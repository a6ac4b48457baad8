"""The whole of what is said while the real descheduler works, in virtual time."""

from controller.cluster.view import ClusterView
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.policy.model import Mode
from controller.telemetry.events import EventObserver
from tests.builders import vmi
from tests.controller.controlled_cluster import ControlledCluster, pod, with_evictions, with_vms
from tests.controller.decision_builders import HOUR, MINUTE, POLICY, SECOND, policy
from tests.controller.event_builders import Sink

GRANTED = EvictionAnswer(Verdict.GRANTED, "")
HEARD = ("classified", "planned", "answered", "transition", "alarmed")


def listening(cluster: ControlledCluster) -> Sink:
    """What is said from now on."""
    sink = Sink()
    observer = EventObserver(sink, ClusterView.over(cluster.caches), lambda: cluster.policy, cluster.clock)
    for name in HEARD:
        setattr(cluster.observer, name, getattr(observer, name))
    return sink


def said(sink: Sink) -> list[tuple[str, str]]:
    return [(event.subject.name, event.reason) for event in sink.events]


def test_a_move_is_said_from_eviction_to_arrival_and_nothing_else() -> None:
    cluster = with_vms("vm-1")
    sink = listening(cluster)
    cluster.start()
    cluster.pass_time(20 * SECOND)
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running", target="node-9")
    cluster.pass_time(25 * SECOND)
    cluster.cool("node-1")
    cluster.arrive("vm-1")
    cluster.pass_time(10 * MINUTE)
    assert said(sink) == [("vm-1", "RebalanceStarted"), ("vm-1", "Rebalanced")]
    assert "uses 4.0 cores" in sink.events[0].message
    assert sink.events[1].message == "Live migration from node-1 to node-9 took 45s"


def test_attempts_that_fail_are_each_said_once() -> None:
    cluster = with_vms("vm-1")
    sink = listening(cluster)
    cluster.start()
    cluster.mark("vm-1")
    for number in (1, 2):
        cluster.attempt("vm-1", "Running", number=number)
        cluster.pass_time(MINUTE)
        cluster.attempt("vm-1", "Failed", number=number)
        cluster.pass_time(MINUTE)
    failures = [event.message for event in sink.events if event.reason == "MigrationFailed"]
    assert [message.split(" to ")[0] for message in failures] == ["Attempt 1", "Attempt 2"]


def test_what_lasts_is_said_once_an_hour_however_often_it_is_looked_at() -> None:
    cluster = ControlledCluster()
    cluster.add_vm("vm-1")
    cluster.caches.vmis.apply("MODIFIED", vmi("vm-1", live_migratable=False, resource_version="9"))
    sink = listening(cluster)
    cluster.start()
    cluster.pass_time(2 * HOUR + 10 * MINUTE)
    assert len(cluster.metrics.asked) > 200, "it was looked at all the time"
    assert said(sink) == [("vm-1", "NotLiveMigratable"), ("node-1", "NoUsefulMove")] * 3


def test_a_vm_that_goes_down_is_told_apart_from_those_that_do_not() -> None:
    cluster = with_vms("vm-1", "vm-2", hot=("node-1", "node-2"))
    cluster.add_vm("vm-3", "node-2")
    cluster.api.answers[pod("vm-1")] = GRANTED
    sink = listening(cluster)
    cluster.start()
    alarms = [event.subject.name for event in sink.events if event.reason == "ShutdownAlarm"]
    assert alarms[0] == "vm-1"
    assert set(alarms[1:]) <= {"node-1", "node-2"}


def test_a_shutdown_that_is_allowed_raises_no_alarm() -> None:
    cluster = with_vms("vm-1", policy=with_evictions(POLICY, allow_shutdown=True))
    cluster.api.rehearsals[pod("vm-1")] = cluster.api.answers[pod("vm-1")] = GRANTED
    sink = listening(cluster)
    cluster.start()
    assert ("vm-1", "ShutDown") in said(sink)
    assert "ShutdownAlarm" not in sink.reasons


def test_predictive_says_nothing_whatever_happens() -> None:
    cluster = with_vms("vm-1", policy=policy(mode=Mode.PREDICTIVE))
    cluster.add_vm("vm-2")
    cluster.caches.vmis.apply("MODIFIED", vmi("vm-2", live_migratable=False, resource_version="9"))
    sink = listening(cluster)
    cluster.start()
    cluster.migrate("vm-1")
    cluster.pass_time(2 * HOUR + 10 * MINUTE)
    assert sink.events == []
