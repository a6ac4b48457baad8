"""What becomes of evictions, ours and those of others: followed to the end, and their slots given back."""

from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase, VmKey
from controller.keys import Follow
from controller.policy.model import Limits
from tests.builders import node, vmi
from tests.controller.controlled_cluster import ControlledCluster, pod, with_evictions, with_vms
from tests.controller.decision_builders import MINUTE, POLICY, SECOND
from tests.controller.fakes import Request

NO_ANSWER = EvictionAnswer(Verdict.NO_ANSWER, "timed out")


# --- following to the end ---


def test_follows_a_migration_to_its_end() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.mark("vm-1")
    cluster.work()
    for phase in ("Pending", "Scheduling", "TargetReady", "Running"):
        cluster.attempt("vm-1", phase)
        cluster.work()
    cluster.arrive("vm-1")
    cluster.cool("node-1")
    cluster.pass_time(3 * MINUTE)
    assert cluster.observer.phases_of("vm-1") == [
        Phase.REQUESTED,
        Phase.PENDING,
        Phase.SCHEDULING,
        Phase.PREPARING,
        Phase.RUNNING,
        Phase.SETTLING,
        Phase.DONE,
    ]
    assert cluster.phases() == {}
    assert cluster.observer.failures == []


def test_the_next_vm_goes_when_the_migration_has_completed_not_when_it_was_requested() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.pass_time(10 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]
    assert cluster.rests()["node-1"] == "NodeLimit"
    cluster.arrive("vm-1")
    cluster.work()
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]


def test_without_metrics_of_vms_the_next_one_waits_until_the_move_shows() -> None:
    cluster = ControlledCluster()
    for name in ("vm-1", "vm-2"):
        cluster.add_vm(name, measured=None)
    cluster.start()
    cluster.migrate("vm-1")
    cluster.pass_time(119 * SECOND)
    assert (cluster.api.evicted, cluster.phases()) == ([pod("vm-1")], {"vm-1": Phase.SETTLING})
    cluster.pass_time(31 * SECOND)
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]


def test_settles_by_the_time_of_the_samples() -> None:
    """The rules lag 50 s behind: asking later does not make them younger."""
    cluster = with_vms("vm-1")
    cluster.metrics.lag = 50 * SECOND
    cluster.start()
    cluster.migrate("vm-1")
    cluster.pass_time(165 * SECOND)
    assert cluster.phases() == {"vm-1": Phase.SETTLING}
    cluster.pass_time(30 * SECOND)
    assert cluster.phases() == {}


def test_settles_without_a_node_that_was_removed_though_its_metrics_linger() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.migrate("vm-1")
    cluster.metrics.lags["node-1"] = 10 * MINUTE
    cluster.pass_time(4 * MINUTE)
    assert cluster.phases() == {"vm-1": Phase.SETTLING}
    cluster.caches.nodes.apply("DELETED", node("node-1"))
    cluster.pass_time(MINUTE)
    assert cluster.phases() == {}


def test_the_slot_stays_taken_while_kubevirt_tries_again() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.mark("vm-1")
    for number in (1, 2):
        cluster.attempt("vm-1", "Running", number=number)
        cluster.work()
        cluster.attempt("vm-1", "Failed", number=number)
        cluster.pass_time(2 * MINUTE)
        assert cluster.phases() == {"vm-1": Phase.RETRYING}
    assert cluster.api.evicted == [pod("vm-1")]
    assert len(cluster.descheduler.ledger.finished["vmi-vm-1"]) == 2


def test_the_watch_may_show_the_mark_before_the_answer_comes() -> None:
    cluster = with_vms("vm-1")

    def mark(request: Request) -> None:
        if not request.dry_run:
            cluster.mark("vm-1")

    cluster.api.on_request = mark
    cluster.start()
    assert cluster.phases() == {"vm-1": Phase.PENDING}


def test_a_vm_that_stops_on_the_way_frees_its_slot() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.start()
    cluster.mark("vm-1")
    cluster.work()
    cluster.stop("vm-1")
    cluster.work()
    assert cluster.observer.phases_of("vm-1")[-1] is Phase.GONE
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]


def test_another_vmi_that_takes_the_name_is_not_followed_in_its_place() -> None:
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.mark("vm-1")
    cluster.work()
    cluster.stop("vm-1")
    cluster.caches.vmis.apply("ADDED", vmi("vm-1", uid="vmi-new", evacuation_node_name="node-1"))
    cluster.work()
    assert cluster.observer.phases_of("vm-1")[-1] is Phase.GONE
    assert cluster.phases() == {}


def test_a_vm_that_shuts_down_while_its_vmim_still_runs_leaves_nothing_behind() -> None:
    """An ended entry that is taken up again would close its target for ever."""
    cluster = with_vms("vm-1")
    cluster.start()
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running", target="node-9")
    cluster.work()
    cluster._change("vm-1", phase="Succeeded")
    cluster.work()
    assert cluster.phases() == {}
    cluster.attempt("vm-1", "Failed")
    cluster.pass_time(MINUTE)
    assert cluster.phases() == {}


def test_a_stuck_migration_does_not_stop_the_cluster() -> None:
    cluster = with_vms(
        "vm-1", "vm-2", hot=("node-1", "node-2"), policy=with_evictions(POLICY, limits=Limits(1, 1))
    )
    cluster.add_vm("vm-3", "node-2")
    cluster.start()
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.pass_time(29 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]
    cluster.pass_time(2 * MINUTE)
    assert cluster.phases()["vm-1"] is Phase.STUCK
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-3")]
    assert cluster.rests()["node-1"] == "NodeLimit"


def test_a_freed_slot_wakes_the_other_node_at_once() -> None:
    cluster = with_vms("vm-1", hot=("node-1", "node-2"), policy=with_evictions(POLICY, limits=Limits(1, 1)))
    cluster.add_vm("vm-2", "node-2")
    cluster.heat("node-2", 0.8)
    cluster.start()
    assert cluster.api.evicted == [pod("vm-1")], "the worst first"
    assert cluster.rests()["node-2"] == "TotalLimit"
    cluster.migrate("vm-1")
    cluster.work()
    assert cluster.api.evicted == [pod("vm-1"), pod("vm-2")]
    assert cluster.api.requests[-1].at == cluster.clock.now()


def test_does_not_evict_on_metrics_that_do_not_show_the_last_moves() -> None:
    """The node still reports its old load; with what has left it taken off, it is below the floor."""
    cluster = with_vms(*(f"vm-{n}" for n in range(1, 9)))
    cluster.heat("node-1", 0.7)
    cluster.start()
    for number in range(1, 9):
        if pod(f"vm-{number}") in cluster.api.evicted:
            cluster.migrate(f"vm-{number}")
            cluster.work()
    assert len(cluster.api.evicted) == 2, "0.7 - 2 x 4/64 is below 0.6"
    assert cluster.rests()["node-1"] == "Relieved"


def test_a_vm_that_was_moved_stays_a_while() -> None:
    cluster = with_vms("vm-1", hot=("node-1", "node-2"), idle=())
    cluster.metrics.values["node-2"] = 0.1
    cluster.metrics.loads["node-2"] = cluster.metrics.loads["node-1"]._replace(cpu_cores=1.0)
    cluster.start()
    cluster.migrate("vm-1", "node-2")
    cluster.work()
    cluster.cool("node-1")
    cluster.heat("node-2")
    cluster.pass_time(14 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]
    assert cluster.rests()["node-2"] == "NoUsefulMove"
    cluster.pass_time(2 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1"), "virt-launcher-vm-1-1"]


# --- answers that never come ---


def test_an_eviction_without_an_answer_is_looked_up_once_and_never_sent_twice() -> None:
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.start()
    assert cluster.phases() == {"vm-1": Phase.UNKNOWN}
    cluster.pass_time(89 * SECOND)
    assert (cluster.api.evicted, cluster.api.looked_up) == ([pod("vm-1")], [])
    cluster.cool("node-1")
    cluster.pass_time(2 * SECOND)
    assert cluster.api.looked_up == [VmKey("vms", "vm-1")]
    assert cluster.observer.phases_of("vm-1")[-1] is Phase.LOST
    assert (cluster.phases(), cluster.api.evicted) == ({}, [pod("vm-1")])


def test_a_slow_request_is_not_given_up_while_it_is_under_way() -> None:
    """It takes longer than ``acknowledgeTimeout``; freeing its slot meanwhile would send two."""
    cluster = ControlledCluster(policy=with_evictions(POLICY, acknowledge_timeout=5 * SECOND))
    cluster.add_vm("vm-1")
    seen = []

    def take_long(request: Request) -> None:
        cluster.clock.advance(12 * SECOND)
        entry = cluster.descheduler.ledger.entries[0]
        cluster.descheduler.handle(Follow(entry.vm))
        seen.append((cluster.phases(), cluster.api.looked_up))

    cluster.api.on_request = take_long
    cluster.start()
    assert seen == [({"vm-1": Phase.REQUESTED}, [])] * 2
    cluster.pass_time(4 * SECOND)
    cluster.mark("vm-1")
    cluster.pass_time(MINUTE)
    assert (cluster.phases(), cluster.api.looked_up) == ({"vm-1": Phase.PENDING}, [])


def test_what_only_the_api_knows_counts() -> None:
    """The watch hangs: the mark is there, and only the API shows it."""
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.api.vmis[VmKey("vms", "vm-1")] = vmi("vm-1", evacuation_node_name="node-1")
    cluster.start()
    cluster.pass_time(5 * MINUTE)
    assert cluster.phases() == {"vm-1": Phase.PENDING}
    assert (cluster.api.evicted, len(cluster.api.looked_up)) == ([pod("vm-1")], 1)


def test_a_mark_that_comes_in_time_needs_no_look_up() -> None:
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.start()
    cluster.pass_time(80 * SECOND)
    cluster.mark("vm-1")
    cluster.pass_time(5 * MINUTE)
    assert (cluster.phases(), cluster.api.looked_up) == ({"vm-1": Phase.PENDING}, [])


def test_an_api_that_cannot_be_asked_keeps_the_slot_taken() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.api.unreachable = True
    cluster.start()
    cluster.pass_time(10 * MINUTE)
    assert cluster.phases() == {"vm-1": Phase.UNKNOWN}
    assert {type(error) for _, error, _ in cluster.observer.failures} == {ConnectionError}
    cluster.api.unreachable = False
    cluster.cool("node-1")
    cluster.pass_time(2 * MINUTE)
    assert cluster.phases() == {}


def test_an_eviction_that_breaks_is_looked_after() -> None:
    """It may have been sent: the entry stays, and is looked up like one without an answer."""
    cluster = with_vms("vm-1")

    def break_off(request: Request) -> None:
        if not request.dry_run:
            raise RuntimeError("half a response")

    cluster.api.on_request = break_off
    cluster.start()
    assert cluster.phases() == {"vm-1": Phase.REQUESTED}
    cluster.cool("node-1")
    cluster.pass_time(2 * MINUTE)
    assert cluster.api.evicted == [pod("vm-1")]
    assert cluster.observer.phases_of("vm-1")[-1] is Phase.LOST


# --- other people ---


def test_other_peoples_migrations_take_the_slot() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.attempt("vm-2", "Running")
    cluster.start()
    cluster.pass_time(5 * MINUTE)
    assert (cluster.api.evicted, cluster.rests()["node-1"]) == ([], "NodeLimit")
    assert cluster.phases() == {"vm-2": Phase.RUNNING}
    cluster.arrive("vm-2")
    cluster.work()
    assert cluster.api.evicted == [pod("vm-1")]


def test_a_migration_that_somebody_starts_later_is_taken_up() -> None:
    cluster = with_vms("vm-1", "vm-2", hot=("node-1",), policy=with_evictions(POLICY, limits=Limits(1, 1)))
    cluster.add_vm("vm-3", "node-9")
    cluster.attempt("vm-3", "Pending", target="node-1")
    cluster.start()
    assert (cluster.phases(), cluster.api.requests) == ({"vm-3": Phase.PENDING}, [])
    assert cluster.rests()["node-1"] == "UnsettledArrivals"


def test_a_migration_counts_from_the_moment_it_is_seen() -> None:
    """Even before it has an entry: node-2 is considered right after it began."""
    cluster = with_vms("vm-1", hot=("node-1", "node-2"))
    cluster.heat("node-2", 0.8)
    cluster.add_vm("vm-2", "node-2")
    cluster.add_vm("vm-3", "node-2")
    cluster.api.on_request = lambda request: cluster.attempt("vm-3", "Pending") and None
    cluster.start()
    assert cluster.api.evicted == [pod("vm-1")]
    assert cluster.rests()["node-2"] == "NodeLimit"


def test_a_users_migration_that_fails_frees_its_slot() -> None:
    cluster = with_vms("vm-1", "vm-2")
    cluster.attempt("vm-2", "Running")
    cluster.start()
    cluster.attempt("vm-2", "Failed")
    cluster.work()
    assert cluster.observer.phases_of("vm-2")[-1] is Phase.CANCELLED
    assert cluster.api.evicted == [pod("vm-1")]


# --- whose it is ---


def test_what_another_descheduler_has_asked_for_is_not_taken_for_ours() -> None:
    """Its evictions leave the same note on the VMI; but nothing has been opened for them here."""
    cluster = with_vms("vm-1")
    cluster.cool("node-1")
    cluster.start()
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.work()
    assert [entry.ours for entry in cluster.descheduler.ledger.entries] == [False]


def test_an_eviction_that_was_given_up_for_lost_is_still_ours_when_it_shows() -> None:
    cluster = with_vms("vm-1")
    cluster.api.answers[pod("vm-1")] = NO_ANSWER
    cluster.start()
    cluster.cool("node-1")
    cluster.pass_time(2 * MINUTE)
    assert cluster.phases() == {}
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.work()
    assert [entry.ours for entry in cluster.descheduler.ledger.entries] == [True]


def test_tells_what_a_start_has_taken_up() -> None:
    cluster = with_vms("vm-1")
    cluster.mark("vm-1")
    cluster.attempt("vm-1", "Running")
    cluster.start()
    assert cluster.observer.transitions[0] == ("vm-1", None, Phase.RUNNING)
    assert [entry.ours for entry in cluster.descheduler.ledger.entries] == [True], "the note is all there is"
