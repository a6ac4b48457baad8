"""The leader goes, in one way or another, while a migration that it has asked for is under way."""

from datetime import timedelta

from e2e import chart
from e2e.lab import ACTS_WITHIN_S, Lab
from e2e.programs import Program

TAKES_OVER_WITHIN_S = 20.0
NOTICED_WITHIN_S = 5.0
_NO_EARLIER = timedelta(seconds=chart.LEASE_S)


def test_a_killed_leaders_migration_is_followed_by_the_other_replica(lab: Lab) -> None:
    """The ledger is made anew from what the cluster shows: a slot that is taken stays taken, and is freed again."""
    killed = _leader_while_a_vm_is_copied(lab, "heavy")

    killed.process.kill()

    successor = lab.until(lambda: _successor(lab, killed), TAKES_OVER_WITHIN_S, "the other one decides")
    truth = lab.cluster.truth()
    assert len(truth.own_moves) == len(truth.on_the_move) == 1, "too late: the migration has ended"
    lab.until(
        lambda: successor.metric("migrations_in_flight") == 1, NOTICED_WITHIN_S, "it counts the migration"
    )
    lab.until_balanced()
    assert len({r.user for r in lab.cluster.evictions()}) == 2
    lab.until(
        lambda: not any(successor.samples("migrations_in_flight")), ACTS_WITHIN_S, "no slot is held any more"
    )


def test_a_leader_that_was_frozen_for_longer_than_its_lease_never_writes_again(lab: Lab) -> None:
    """It wakes up believing that it leads. The other one writes nothing before the lease has run out."""
    frozen = _leader_while_a_vm_is_copied(lab, "crowd")

    frozen.process.freeze()
    frozen_at = lab.cluster.truth().time
    successor = lab.until(lambda: _successor(lab, frozen), TAKES_OVER_WITHIN_S, "the other one decides")
    lab.until(lambda: lab.cluster.writes_of(successor.account), ACTS_WITHIN_S, "the other one writes")
    frozen.process.thaw()

    assert frozen.process.wait(TAKES_OVER_WITHIN_S) == 1
    requests = lab.cluster.requests()
    late = [r for r in requests if r.by(frozen.account) and r.writes and r.time > frozen_at]
    assert [str(r) for r in late] == []
    last_renewal = max(r.time for r in requests if r.by(frozen.account) and r.writes and r.renews)
    assert lab.cluster.writes_of(successor.account)[0].time >= last_renewal + _NO_EARLIER
    lab.until_balanced()


def _leader_while_a_vm_is_copied(lab: Lab, scenario: str) -> Program:
    """Then nothing is to be decided for the moment."""
    lab.start(scenario)
    lab.run_all()
    leader = lab.leader()
    lab.until_truth(lambda truth: truth.being_copied, ACTS_WITHIN_S, "a VM is being copied")
    return leader


def _successor(lab: Lab, former: Program) -> Program | None:
    return next((one for one in lab.replicas() if one is not former and one.decides()), None)
