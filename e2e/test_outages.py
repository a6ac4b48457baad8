"""What the programs depend on goes away, and comes back."""

from datetime import timedelta

from e2e.lab import ACTS_WITHIN_S, Lab

REFRESH_S = 3
MAX_AGE_S = 15
INTERVALS = 10


def test_nobody_ends_because_the_api_server_restarts(lab: Lab) -> None:
    """It comes back within the lease's renew deadline: watches are opened again, and nothing is lost."""
    lab.start("crowd")
    lab.run_all()
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")
    before = lab.cluster.truth().time

    lab.cluster.control("restart", seconds=1)

    lab.until(lambda: lab.cluster.evictions(since=before), ACTS_WITHIN_S, "evicting goes on")
    lab.until_balanced()
    assert [program.restarts for program in lab.programs] == [0, 0, 0]


def test_balancing_goes_on_after_the_api_server_was_away_for_longer_than_the_lease(lab: Lab) -> None:
    """The leaders cannot renew and end, as they must; started again, they find the cluster as it is."""
    lab.start("crowd")
    lab.run_all()
    lab.until_truth(lambda truth: truth.on_the_move, ACTS_WITHIN_S, "the first VM moves")
    lab.restarts = True
    before = lab.cluster.truth().time

    lab.cluster.control("restart", seconds=8)

    lab.until(lambda: lab.cluster.evictions(since=before), ACTS_WITHIN_S, "evicting goes on")
    assert sum(program.restarts for program in lab.programs) >= 2, "a leader has outlived its lease"
    lab.until_balanced()


def test_nothing_is_evicted_on_metrics_that_are_too_old(lab: Lab) -> None:
    """Prometheus is away for ten refreshes: the last snapshot serves up to maxAge, then nothing is decided."""
    lab.start("crowd", "vms.busy.memory_gib=64")
    quick = {"refreshInterval": f"{REFRESH_S}s", "timeout": f"{REFRESH_S}s", "maxAge": f"{MAX_AGE_S}s"}
    lab.set_policy(lab.policy({"metrics": quick}))
    (program,) = lab.run("descheduler")
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")

    lab.prometheus.kill()
    too_old = lab.cluster.truth().time + timedelta(seconds=MAX_AGE_S)
    lab.let_pass(INTERVALS * REFRESH_S)

    assert program.metric("refresh_failures_total") >= INTERVALS - 2
    assert program.metric("metrics_age_seconds") > MAX_AGE_S
    assert [str(r) for r in lab.cluster.evictions(since=too_old)] == []
    assert lab.cluster.truth().crowded
    back = lab.cluster.truth().time
    lab.prometheus.start()
    lab.until(lambda: lab.cluster.evictions(since=back), ACTS_WITHIN_S, "evicting goes on")
