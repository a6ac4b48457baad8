"""One candidate against one Lease."""

from datetime import timedelta

import pytest

from informers.errors import NoAnswer, Unreachable, from_response
from tests.controller.io.fake_api import FakeTransport, LeaseServer
from tests.controller.io.lease_world import OTHER, START, Steps, election, manual_clock


def test_creates_the_lease_where_there_is_none():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    seen = []
    assert me.run(Steps(clock, lambda: seen.append((me.is_leader(), me.holder, dict(server.spec)))))
    assert seen == [
        (
            True,
            "me",
            {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-01T00:00:00.000000Z",
                "renewTime": "2026-01-01T00:00:00.000000Z",
                "leaseTransitions": 0,
            },
        )
    ]


def test_renews_without_changing_when_it_was_acquired():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    specs = []
    me.run(Steps(clock, *[lambda: specs.append(dict(server.spec))] * 3))
    assert len({spec["renewTime"] for spec in specs}) == 3
    assert {spec["acquireTime"] for spec in specs} == {"2026-01-01T00:00:00.000000Z"}


def test_waits_between_tries_a_little_longer_than_the_retry_period_and_never_the_same():
    """Several candidates that woke together should not stay together."""
    server, clock = LeaseServer(), manual_clock()
    steps = Steps(clock, *[lambda: None] * 20)
    election(server, clock).run(steps)
    assert all(2.0 <= wait_s <= 2.4 for wait_s in steps.waited_s)
    assert len(set(steps.waited_s)) > 10


def test_gives_the_lease_back_when_stopped():
    """The successor need not wait until it runs out; the values are client-go's."""
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    me.run(Steps(clock))
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1
    assert server.spec["leaseTransitions"] == 0
    assert not me.is_leader()


def test_may_not_write_any_more_when_the_lease_is_on_its_way_back():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    while_released = []
    stop = Steps(clock, *[lambda: None] * 12)
    server.before = lambda method: while_released.append(me.is_leader()) if stop.is_set() else None
    me.run(stop)
    assert while_released == [False, False]


def test_leaves_a_lease_alone_that_is_renewed():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock)
    renewals = [f"2026-01-01T00:00:{second:02}.000000Z" for second in range(30)]
    steps = [lambda at=at: server.put(OTHER | {"renewTime": at}) for at in renewals]
    me.run(Steps(clock, *steps))
    assert server.spec["holderIdentity"] == "other"
    assert me.holder == "other"
    assert me.problem == ""


def test_takes_over_a_lease_that_was_not_renewed_for_its_duration():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock)
    holders = []
    me.run(Steps(clock, *[lambda: holders.append((clock.monotonic(), server.spec["holderIdentity"]))] * 10))
    assert holders[-1][1] == "me"
    assert min(at_s for at_s, holder in holders if holder == "me") >= 15
    assert server.spec["leaseTransitions"] == me.transitions == 4


def test_waits_as_long_as_the_holder_promised_others_even_if_that_is_longer_than_its_own():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER | {"leaseDurationSeconds": 60})
    me = election(server, clock)
    holders = []
    me.run(Steps(clock, *[lambda: holders.append((clock.monotonic(), server.spec["holderIdentity"]))] * 40))
    assert min(at_s for at_s, holder in holders if holder == "me") >= 60


@pytest.mark.parametrize("renewed", ["2025-12-31T23:00:00.000000Z", "2026-01-01T01:00:00.000000Z", "soon"])
def test_never_compares_the_clocks_of_two_machines(renewed):
    """The other one's clock is an hour behind or ahead: its lease is judged by when it was seen to change."""
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER | {"renewTime": renewed})
    me = election(server, clock)
    holders = []
    me.run(Steps(clock, *[lambda: holders.append((clock.monotonic(), server.spec["holderIdentity"]))] * 9))
    assert min(at_s for at_s, holder in holders if holder == "me") >= 15
    assert holders[-1][1] == "me"


def test_takes_a_lease_that_was_given_back_but_writes_only_after_one_lease_duration():
    """The predecessor's last requests may still be under way."""
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER | {"holderIdentity": "", "leaseDurationSeconds": 1})
    me = election(server, clock)
    seen = []
    me.run(
        Steps(clock, *[lambda: seen.append((clock.monotonic(), me.is_leader(), me.writes_allowed()))] * 10)
    )
    assert all(leads for _, leads, _ in seen)
    assert min(at_s for at_s, _, writes in seen if writes) >= 15


def test_writes_at_once_after_it_has_watched_a_lease_run_out():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock)
    seen = []
    me.run(Steps(clock, *[lambda: seen.append((me.is_leader(), me.writes_allowed()))] * 10))
    assert (True, False) not in seen
    assert (True, True) in seen


@pytest.mark.parametrize(
    ("renew_time", "expected"),
    [("2026-01-01T00:00:00.000000Z", START), ("yesterday", None), ("2026-01-01T00:00:00", None)],
)
def test_tells_when_the_holder_before_has_renewed_last(renew_time, expected):
    """What happened until then, that one has told."""
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER | {"renewTime": renew_time})
    me = election(server, clock)
    assert me.former_renewal is None
    me.run(Steps(clock, *[lambda: None] * 12))
    assert me.former_renewal == expected


def test_nobody_was_there_before_the_first_one():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    me.run(Steps(clock, *[lambda: None] * 3))
    assert me.former_renewal is None


def test_seizes_a_lease_that_is_held_and_writes_when_its_holder_must_know_it():
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock, seize=True)
    seen = []
    me.run(
        Steps(clock, *[lambda: seen.append((clock.monotonic(), me.is_leader(), me.writes_allowed()))] * 10)
    )
    assert all(leads for _, leads, _ in seen)
    assert min(at_s for at_s, _, writes in seen if writes) >= 15


def test_a_candidate_with_the_same_name_is_still_another_one():
    """A container that restarts in the same pod must not take its dead predecessor's lease for its own."""
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER | {"holderIdentity": "me"})
    me = election(server, clock)
    leads = []
    me.run(Steps(clock, *[lambda: leads.append((clock.monotonic(), me.is_leader()))] * 9))
    assert min(at_s for at_s, is_leader in leads if is_leader) >= 15


def test_leads_no_longer_than_the_renew_deadline_when_renewals_fail():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    leads = []

    def unreachable(method: str) -> None:
        raise Unreachable("no route to host")

    def cut_off() -> None:
        server.before = unreachable

    def look() -> None:
        leads.append((clock.monotonic(), me.is_leader()))

    assert not me.run(Steps(clock, cut_off, *[look] * 20))
    assert max(at_s for at_s, is_leader in leads if is_leader) < 10
    assert me.problem == "not renewed in time (no route to host)"
    assert server.spec["holderIdentity"] == "me", "what cannot be reached cannot be given back"


def test_a_leader_that_was_frozen_is_none_when_it_wakes_up():
    """SIGSTOP, a starved node: nobody told it, and its thread has not run yet; the first question must say no."""
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    seen = []

    def freeze() -> None:
        clock.advance(timedelta(seconds=60))
        seen.append((me.is_leader(), me.writes_allowed()))

    requests = []
    server.after = requests.append
    assert not me.run(Steps(clock, lambda: None, freeze, lambda: None))
    assert seen == [(False, False)]
    assert requests == ["POST", "GET", "PUT"], "it does not even ask for its lease again"
    assert me.problem == "not renewed in time (this process stood still)"


def test_a_renewal_that_was_frozen_under_way_counts_from_when_it_was_sent():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)

    def freeze(method: str) -> None:
        if method == "PUT":
            clock.advance(timedelta(seconds=11))

    server.after = freeze
    assert not me.run(Steps(clock, *[lambda: None] * 5))
    assert server.puts == 1


def test_an_acquisition_that_was_frozen_under_way_counts_from_when_it_was_sent():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)

    def freeze(method: str) -> None:
        if method == "POST":
            clock.advance(timedelta(seconds=11))

    server.after = freeze
    assert not me.run(Steps(clock, *[lambda: None] * 5))
    assert not server.puts


def test_has_lost_the_lease_for_good_when_somebody_else_holds_it():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    assert not me.run(Steps(clock, lambda: server.put(OTHER), *[lambda: None] * 50))
    assert not me.is_leader()
    assert me.problem == "the lease is held by other"
    assert server.spec == OTHER


def test_has_lost_the_lease_for_good_when_it_was_deleted():
    """Another candidate could have created, held and lost it meanwhile."""
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)

    def delete() -> None:
        server.lease = None

    assert not me.run(Steps(clock, delete, *[lambda: None] * 50))
    assert server.lease is None


def test_a_404_that_is_not_the_api_servers_own_does_not_mean_that_there_is_no_lease():
    clock = manual_clock()
    transport = FakeTransport(from_response(404, b"<html>nothing here</html>", {}))
    me = election(transport, clock)
    me.run(Steps(clock))
    assert [sent.method for sent in transport.sent] == ["GET"]
    assert me.problem == "404: <html>nothing here</html>"


def test_recognises_its_own_acquisition_whose_answer_was_lost():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    leads = []

    def lose_first_post(method: str) -> None:
        if method == "POST":
            raise NoAnswer("connection lost")

    server.after = lose_first_post
    me.run(Steps(clock, *[lambda: leads.append(me.is_leader())] * 3))
    assert leads[:2] == [False, True]


def test_goes_on_after_a_renewal_whose_answer_was_lost():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    lost = []

    def lose_one(method: str) -> None:
        if method == "PUT" and not lost:
            lost.append(method)
            raise NoAnswer("connection lost")

    server.after = lose_one
    assert me.run(Steps(clock, *[lambda: None] * 8))
    assert lost


def test_loses_no_lease_over_conflicts_with_those_who_only_annotate_it():
    server, clock = LeaseServer(), manual_clock()
    me = election(server, clock)
    tries = []

    def storm(method: str) -> None:
        if method == "PUT":
            tries.append(method)
            if len(tries) % 4:
                server.annotate("by", str(len(tries)))

    server.before = storm
    assert me.run(Steps(clock, *[lambda: None] * 60))
    assert server.puts > 10


def test_an_annotation_is_no_sign_of_life():
    """Only what the election protocol writes counts as a renewal."""
    server, clock = LeaseServer(), manual_clock()
    server.put(OTHER)
    me = election(server, clock)
    me.run(Steps(clock, *[lambda: server.annotate("at", str(clock.monotonic()))] * 10))
    assert server.spec["leaseTransitions"] == 4


def test_keeps_what_others_put_into_the_lease():
    server, clock = LeaseServer(), manual_clock()
    server.put({"strategy": "OldestEmulationVersion"}, {"kept": "yes"})
    me = election(server, clock)
    me.run(Steps(clock, lambda: None))
    assert server.spec["strategy"] == "OldestEmulationVersion"
    assert server.annotations == {"kept": "yes"}


def test_renewals_differ_even_if_the_wall_clock_is_set_back():
    """Others notice a renewal only by a change; and the API server does not store what is the same."""

    class SetBack:
        def __init__(self) -> None:
            self.real = manual_clock()

        def now(self):
            return self.real.now() - timedelta(seconds=int(self.real.monotonic()) * 100)

        def monotonic(self):
            return self.real.monotonic()

    server, clock = LeaseServer(), SetBack()
    me = election(server, clock)
    stamps = []
    me.run(Steps(clock.real, *[lambda: stamps.append(server.spec["renewTime"])] * 9))
    assert stamps == sorted(set(stamps))
