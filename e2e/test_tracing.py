"""Traces of evictions arrive at a collector, whole, whatever becomes of the programs and of the collector."""

from e2e.collectors import WHOLE, Collector, Received, by_grpc, by_http
from e2e.lab import ACTS_WITHIN_S, BALANCES_WITHIN_S, Lab

ENDS_WITHIN_S = 20.0


def test_the_trace_of_an_eviction_is_found_by_the_uid_of_its_pod(lab: Lab) -> None:
    with by_grpc() as collector:
        lab.start("crowd")
        pods = _pods(lab)
        _run_traced(lab, collector)
        root = lab.until(
            lambda: _ended(collector), ACTS_WITHIN_S + BALANCES_WITHIN_S, "an eviction is told of"
        )

    assert pods[root.trace_id] == root.attributes["k8s.pod.name"]
    assert _names(collector, root) == WHOLE
    (decide,) = (s for s in collector.collected.trace(root.trace_id) if s.name == "decide")
    rounds = {(s.trace_id, s.span_id) for s in collector.collected.spans if s.name == "round"}
    assert set(decide.links) <= rounds
    assert root.attributes["vm_rebalancer.vm"] in {move.vm for move in lab.cluster.truth().own_moves}


def test_the_trace_is_whole_although_the_leader_is_killed(lab: Lab) -> None:
    """What it had decided it has told already; its successor tells the rest, under the same IDs."""
    with by_http() as collector:
        lab.start("heavy")
        _run_traced(lab, collector)
        killed = lab.leader()
        lab.until_truth(lambda truth: truth.being_copied, ACTS_WITHIN_S, "a VM is being copied")
        lab.until(lambda: _told(collector, "request"), ACTS_WITHIN_S, "its request is told of")
        killed.process.kill()
        assert _told(collector, "eviction") == [], "too late: it has ended"

        begun = _told(collector, "request")[0].trace_id
        lab.until(
            lambda: any(s.trace_id == begun for s in _told(collector, "eviction")),
            BALANCES_WITHIN_S,
            "its end is told of",
        )

    trace = collector.collected.trace(begun)
    assert sorted(span.name for span in trace) == WHOLE, "whole, and nothing twice"
    (root,) = (span for span in trace if not span.parent_id)
    assert {span.parent_id for span in trace if span is not root} == {root.span_id}
    tellers = {span.resource["service.instance.id"] for span in trace}
    assert len(tellers) == 2


def test_a_hanging_collector_holds_up_neither_evictions_nor_the_end(lab: Lab) -> None:
    with by_grpc() as collector:
        collector.collected.hang()
        lab.start("crowd")
        _run_traced(lab, collector)
        lab.until_balanced()
        assert collector.collected.asked.is_set()
        for replica in lab.replicas():
            replica.process.terminate()
        assert [replica.process.wait(ENDS_WITHIN_S) for replica in lab.replicas()] == [0, 0]


def _run_traced(lab: Lab, collector: Collector) -> None:
    """Two deschedulers, with the variables that the chart's ``extraEnv`` would give them."""
    lab.set_policy(lab.policy())
    lab.environment |= collector.variables
    lab.run("descheduler", replicas=2)


def _pods(lab: Lab) -> dict[str, str]:
    """Trace ID that a pod's UID makes -> name of the pod."""
    pods = lab.cluster.items("/api/v1/pods")
    return {pod["metadata"]["uid"].replace("-", ""): pod["metadata"]["name"] for pod in pods}


def _told(collector: Collector, name: str) -> list[Received]:
    return [span for span in collector.collected.spans if span.name == name]


def _ended(collector: Collector) -> Received | None:
    done = (s for s in _told(collector, "eviction") if s.attributes["vm_rebalancer.result"] == "Done")
    return next(done, None)


def _names(collector: Collector, root: Received) -> list[str]:
    return sorted(span.name for span in collector.collected.trace(root.trace_id))
