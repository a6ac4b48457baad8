"""A hot spot is relieved by the programs as they are installed, and nobody is harmed by it."""

from e2e.kubectl import Kubectl
from e2e.lab import ACTS_WITHIN_S, BALANCES_WITHIN_S, Lab

DRAINED = "node-05"


def test_two_replicas_and_a_tainter_relieve_a_hot_spot_and_only_the_leader_writes(lab: Lab) -> None:
    """The whole way: rules, queries, decisions, evictions, migrations, taints."""
    lab.start("crowd")
    lab.run_all()
    leader = lab.leader()
    lab.until(
        lambda: set(lab.cluster.own_taints()) == {"node-00", "node-01", "node-02"},
        ACTS_WITHIN_S,
        "the crowded nodes are tainted",
    )

    truth = lab.until_balanced()

    moved = [move.vm for move in truth.own_moves]
    assert sorted(set(moved)) == sorted(moved), "a VM was moved twice"
    (standby,) = (replica for replica in lab.replicas() if replica is not leader)
    assert lab.cluster.writes_of(leader.account)
    assert lab.cluster.writes_of(standby.account) == []


def test_no_vm_goes_down_where_most_cannot_move(lab: Lab) -> None:
    """Evicting one that cannot migrate would shut it down; the nodes stay busy, so every one of them is looked at."""
    lab.start("unmovable")
    lab.run_all()
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")

    lab.until_balanced()
    lab.let_pass(10)

    requests = lab.cluster.requests()
    assert [str(r) for r in requests if r.subresource == "eviction" and r.status < 300] == []


def test_a_drain_by_kubectl_takes_slots_and_is_not_fought(lab: Lab) -> None:
    """Migrations that others ask for count against our limits; the fixture judges that."""
    lab.start("crowd")
    lab.run_all()
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")

    drain = Kubectl(lab.cluster.kubeconfig, lab.cluster.directory).start(
        lab.processes, "drain", DRAINED, "--ignore-daemonsets", "--delete-emptydir-data", "--force"
    )
    assert drain.wait(BALANCES_WITHIN_S) == 0, drain.tail()
    truth = lab.until_balanced()

    drained = [move for move in truth.migrations if move.source == DRAINED and not move.ours]
    assert len(drained) > lab.limits.total
    assert not [move for move in truth.own_moves if move.source == DRAINED]
    assert DRAINED not in truth.vms.values()
    assert max(move.created_s for move in truth.own_moves) > min(move.created_s for move in drained)
