"""SIGTERM: the end comes soon, whatever still answers."""

from time import monotonic
from typing import Any

from e2e import chart
from e2e.lab import STARTS_WITHIN_S, Lab

ENDS_WITHIN_S = 10.0
ASKS_WITHIN_S = 15.0


def test_a_leader_gives_its_lease_back_when_it_is_stopped(lab: Lab) -> None:
    """So that the other one need not wait for it to run out; and the exit code says that all is well."""
    lab.start("crowd")
    lab.run_all()
    leader, tainter = lab.leader(), lab.leader("soft-tainter")

    for program in (leader, tainter):
        program.process.terminate()
        assert program.process.wait(ENDS_WITHIN_S) == 0, program.process.tail()

    assert not _lease(lab, "soft-tainter").get("holderIdentity")
    for program in (leader, tainter):
        asked = [r for r in lab.cluster.requests() if r.by(program.account) and r.writes]
        assert asked[-1].renews, "it wrote after it had given its lease back"
    assert lab.leader() is not leader


def test_ends_within_ten_seconds_though_neither_api_server_nor_prometheus_answers(lab: Lab) -> None:
    """They take connections and say nothing: every request that is under way hangs."""
    lab.start("crowd")
    lab.run_all()
    stopped = [lab.leader(), lab.leader("soft-tainter")]

    with lab.prometheus.silenced() as silence:
        lab.until(
            lambda: silence.heard() >= len(stopped), ASKS_WITHIN_S, "each of them has asked for metrics"
        )
        lab.cluster.freeze()
        for program in stopped:
            program.process.terminate()
        ends_s = monotonic() + ENDS_WITHIN_S
        codes = [program.process.wait(ends_s - monotonic()) for program in stopped]
    lab.cluster.thaw()

    assert set(codes) <= {0, 1}, "neither an orderly end nor a lease that ran out meanwhile"


def test_ends_within_ten_seconds_though_it_has_not_read_the_cluster_yet(lab: Lab) -> None:
    """A new leader reads everything afresh before it decides; that may take a while, and may hang."""
    lab.start("crowd")
    lab.set_policy(lab.policy())
    (program,) = lab.run("descheduler")
    lab.cluster.fault("latency", verbs=["list", "watch"], users=["*:descheduler-0"], delay_s=60)
    lab.until(program.leads, STARTS_WITHIN_S, "it leads")

    program.process.terminate()

    assert program.process.wait(ENDS_WITHIN_S) == 0
    assert not program.has_decided()


def _lease(lab: Lab, program: str) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{chart.NAMESPACE}/leases/{chart.RELEASE}-{program}"
    spec: dict[str, Any] = lab.cluster.ask("GET", path)["spec"]
    return spec
