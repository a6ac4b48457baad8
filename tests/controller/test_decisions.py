"""``/debug/decisions``: the last decisions of the running descheduler, true, bounded and without secrets."""

import inspect
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from controller.cluster.queries import Reason
from controller.evictions import gate
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.select import PassedOver
from controller.policy.model import Metrics, Mode
from controller.report import Decisions, StandBy
from controller.telemetry import decisions
from tests.builders import START, node
from tests.controller.controlled_cluster import pod
from tests.controller.decided_cluster import IDENTITY, DecidedCluster
from tests.controller.decision_builders import (
    EDGES,
    MINUTE,
    POLICY,
    QUERY,
    SECOND,
    classification,
    entry,
    metrics,
    policy,
    slots,
    snapshot,
    thresholds,
    verdict,
)

SECRETS = ("token-file-of-the-policy", "ca-file-of-the-policy", "headers-of-the-policy", "prometheus.example")
PREDICTIVE = policy(mode=Mode.PREDICTIVE)
MOST_BYTES = 4 << 20


def answered(log: Any) -> tuple[HTTPStatus, Any]:
    status, content_type, body = log.page("application/json")
    assert content_type == "application/json"
    return status, msgspec.json.decode(body)


# --- what it tells ---


def test_tells_which_vm_moves_why_and_what_that_is_expected_to_bring() -> None:
    cluster = DecidedCluster("vm-1", "vm-2", "vm-3")
    cluster.start()
    (chosen,) = cluster.decisions.chosen
    assert chosen.move is not None
    assert (chosen.node, chosen.move.source, chosen.move.target) == ("node-1", "node-1", "node-9")
    assert "gains" in chosen.move.why
    source, target = chosen.move.effects
    assert source.node == "node-1"
    assert source.cpu_after < source.cpu_before
    assert target.cpu_after > target.cpu_before
    assert [(group.code, group.count) for group in chosen.passed_over] == [("NotFirst", 2)]


def test_the_effect_is_told_as_the_choice_saw_it() -> None:
    """The slot is reserved after the plan: with that charged too, the move would be counted twice."""
    cluster = DecidedCluster("vm-1")
    cluster.start()
    (chosen,) = cluster.decisions.chosen
    assert chosen.move is not None
    assert chosen.move.effects[0].cpu_before == pytest.approx(0.9)


def test_tells_why_nothing_moves() -> None:
    cluster = DecidedCluster("vm-1", "vm-2")
    cluster.start()
    plan = cluster.plan()
    assert plan.move is None
    assert plan.rest is not None
    assert (plan.rest.code, plan.at) == ("NodeLimit", cluster.clock.now())


def test_while_the_gate_is_closed_it_tells_who_was_passed_over_at_the_last_look() -> None:
    """The gate is closed most of the time: a move from the node is under way."""
    cluster = DecidedCluster("vm-1", "vm-2")
    cluster.start()
    looked_at = cluster.clock.now()
    cluster.pass_time(30 * SECOND)
    plan = cluster.plan()
    assert plan.rest is not None
    assert plan.rest.code in gate.CODES
    assert [(group.code, group.count) for group in plan.passed_over] == [("NotFirst", 1)]
    assert (plan.at, plan.passed_over_at) == (cluster.clock.now(), looked_at)


def test_once_there_is_nothing_to_pass_over_it_says_so() -> None:
    log = DecidedCluster().log
    passed = (PassedOver(VmKey("vms", "vm-1"), Reason("Cooling", "it has moved")),)
    before = Plan(
        "node-1", START, verdict(), slots(), rest=Reason("NoUsefulMove", "none"), passed_over=passed
    )
    log.planned(before)
    log.planned(replace(before, rest=Reason("Relieved", "it is below every floor"), passed_over=()))
    (plan,) = log.decisions().plans
    assert plan.passed_over == ()


def test_a_closed_gate_is_told_by_its_codes() -> None:
    assert set(re.findall(r'Reason\(\s*"(\w+)"', inspect.getsource(gate))) == gate.CODES


def test_of_more_nodes_than_it_keeps_the_worst_stay() -> None:
    """They are considered first, so the latest are the least."""
    log = DecidedCluster().log
    for i in range(2 * decisions.MOST_PLANS):
        log.planned(Plan(f"node-{i}", START, replace(verdict(f"node-{i}"), excess=-float(i)), slots()))
    assert {plan.node for plan in log.decisions().plans} == {f"node-{i}" for i in range(decisions.MOST_PLANS)}


def test_a_node_that_is_no_longer_over_utilised_has_no_last_decision() -> None:
    cluster = DecidedCluster("vm-1", hot=("node-1", "node-2"))
    cluster.start()
    assert {plan.node for plan in cluster.decisions.plans} == {"node-1", "node-2"}
    cluster.cool("node-2")
    cluster.pass_time(30 * SECOND)
    assert {plan.node for plan in cluster.decisions.plans} == {"node-1"}


def test_what_is_not_classified_is_not_forgotten() -> None:
    log = DecidedCluster().log
    log.planned(Plan("node-1", START, verdict(), slots()))
    log.classified(replace(classification(), skipped="only 3 of 5 eligible nodes have a value"))
    assert [plan.node for plan in log.decisions().plans] == ["node-1"]


def test_tells_verdict_thresholds_class_and_slots_of_each_node_worst_first() -> None:
    cluster = DecidedCluster("vm-1", hot=("node-1",), idle=("node-8", "node-9"))
    cluster.cool("node-8")
    cluster.metrics.values["node-8"] = 0.3
    cluster.start()
    shown = cluster.decisions
    assert [(row.name, row.node_class) for row in shown.nodes] == [
        ("node-1", "Over"),
        ("node-8", "Appropriate"),
        ("node-9", "Under"),
    ]
    row = cluster.row()
    assert row.values == {QUERY: 0.9}
    assert (row.leaving, row.leaving_limit, row.vms) == (1, 1, 1)
    assert row.taints == ("nodeutilization.vm-rebalancer.io/overutilized",)
    assert row.load is not None
    assert row.load.cpu == pytest.approx(0.9)
    edge = shown.head.thresholds[QUERY]
    assert (edge.under, edge.over) == EDGES


def test_tells_where_a_value_is_going() -> None:
    cluster = DecidedCluster()
    cluster.start()
    assert cluster.row().trend is None
    cluster.heat("node-1", 0.95)
    cluster.pass_time(30 * SECOND)
    trend = cluster.row().trend
    assert trend is not None
    assert (trend.change, trend.over_s) == (0.05, 30.0)


def test_a_sample_that_is_seen_twice_is_no_trend() -> None:
    cluster = DecidedCluster()
    cluster.start()
    for since in (30, 60):  # Prometheus has evaluated nothing since
        cluster.metrics.lag = since * SECOND
        cluster.pass_time(30 * SECOND)
    assert cluster.row().trend is None


def test_other_queries_begin_another_trend() -> None:
    log = DecidedCluster().log
    log.refreshed(snapshot({"node-1": 0.2}, query="one"))
    log.refreshed(snapshot({"node-1": 0.9}, query="two", at=snapshot().taken_at + MINUTE))
    log.classified(classification(verdict("node-1")))
    (row,) = (row for row in log.decisions().nodes if row.name == "node-1")
    assert row.trend is None


def test_follows_a_move_from_the_request_to_its_end() -> None:
    cluster = DecidedCluster("vm-1")
    cluster.start()
    assert [(m.vm, m.phase, m.ours) for m in cluster.decisions.on_the_move] == [
        ("vms/vm-1", "Requested", True)
    ]
    cluster.migrate("vm-1")
    cluster.work()
    assert [m.phase for m in cluster.decisions.on_the_move] == ["Settling"]
    assert cluster.decisions.ended == ()
    cluster.pass_time(5 * MINUTE)
    assert cluster.decisions.on_the_move == ()
    (ended,) = cluster.decisions.ended
    assert (ended.vm, ended.phase, ended.target, ended.answer) == ("vms/vm-1", "Done", "node-9", "")


def test_tells_what_the_api_answered_where_a_move_came_to_nothing() -> None:
    cluster = DecidedCluster("vm-1")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.REFUSED, "not on a Monday")
    cluster.start()
    (ended,) = cluster.decisions.ended
    assert (ended.phase, ended.answer) == ("Released", "dry run: Refused: not on a Monday")


def test_tells_the_alarm_as_long_as_its_policy_is_in_force() -> None:
    cluster = DecidedCluster("vm-1")
    cluster.api.answers[pod("vm-1")] = EvictionAnswer(Verdict.GRANTED, "")
    cluster.start()
    assert "all evicting has stopped" in cluster.decisions.alarm
    cluster.policy = policy(digest="another")
    assert cluster.decisions.alarm == ""


def test_the_same_choice_again_and_again_is_one() -> None:
    """In Predictive mode nothing comes of a choice, so each refresh makes it anew."""
    cluster = DecidedCluster("vm-1", policy=PREDICTIVE)
    cluster.start()
    cluster.pass_time(10 * MINUTE)
    (chosen,) = cluster.decisions.chosen
    assert cluster.clock.now() - chosen.at <= 30 * SECOND
    assert cluster.decisions.head.mode == "Predictive"


def test_tells_the_age_of_the_metrics_and_why_they_are_old() -> None:
    cluster = DecidedCluster()
    cluster.start()
    asked_at = cluster.clock.now()
    cluster.metrics.failing = frozenset(cluster.metrics.asked)
    cluster.pass_time(MINUTE)
    head = cluster.decisions.head
    assert head.metrics_at == asked_at
    assert len(head.notes) == 1
    assert "503 no store is ready" in head.notes[0]
    cluster.metrics.failing = frozenset()
    cluster.pass_time(MINUTE)
    assert cluster.decisions.head.notes == ()


def test_before_the_first_look_nothing_is_claimed() -> None:
    cluster = DecidedCluster()
    shown = cluster.decisions
    assert (shown.nodes, shown.plans, shown.head.metrics_at) == ((), (), None)
    assert shown.head.skipped == "nothing was classified yet"
    cluster.policy = None
    assert cluster.decisions.head.skipped == "no valid policy was seen yet"


# --- the page ---


def test_the_page_is_the_documented_structure() -> None:
    cluster = DecidedCluster("vm-1")
    cluster.start()
    status, _, body = cluster.log.page("")
    assert status == HTTPStatus.OK
    assert msgspec.json.decode(body, type=Decisions) == cluster.decisions


@pytest.mark.parametrize("holder", ["", "replica-2"])
def test_a_stand_by_says_that_it_does_not_decide_and_who_does(holder: str) -> None:
    cluster = DecidedCluster("vm-1")
    cluster.start()
    cluster.leading, cluster.holder = False, holder
    status, _, body = cluster.log.page("")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert msgspec.json.decode(body, type=StandBy) == StandBy(identity=IDENTITY, holder=holder)


def secretive() -> Metrics:
    token, ca, headers, _ = SECRETS
    return replace(metrics(), token_file=token, ca_file=ca, headers_file=headers)


def test_of_the_policy_nothing_but_its_digest_is_shown() -> None:
    cluster = DecidedCluster("vm-1", policy=policy(metrics=secretive()))
    cluster.start()
    _, _, body = cluster.log.page("")
    assert POLICY.digest.encode() in body
    assert [secret for secret in SECRETS if secret.encode() in body] == []


def flood(log: decisions.DecisionLog, count: int) -> Iterator[str]:
    """Everything that comes from outside is long, and there is too much of it. Yields the nodes' names."""
    name, text = "n" * 240, "m" * 10_000
    nodes = [f"{name}-{i}" for i in range(count)]
    loads = snapshot(dict.fromkeys(nodes, 0.9))
    log.refreshed(loads)
    log.metrics_failed(text)
    log.classified(classification(*(replace(verdict(n), reason=text) for n in nodes)))
    for i, each in enumerate(nodes):
        passed = tuple(
            PassedOver(VmKey("s" * 63, f"{'v' * 240}-{i}-{k}"), Reason(f"Code{k % 20}", text))
            for k in range(200)
        )
        log.planned(
            Plan(each, loads.taken_at, verdict(each), slots(), rest=Reason("None", text), passed_over=passed)
        )
        moved = entry(f"{'v' * 240}-{i}", source=each, target=each)
        log.answered(moved, EvictionAnswer(Verdict.REFUSED, text), dry_run=False)
        log.transition(moved, None)
    yield from nodes


def test_stays_small_whatever_the_cluster_is_like() -> None:
    cluster = DecidedCluster()
    cluster.caches.nodes.replace([node(name) for name in flood(cluster.log, 1000)])
    _, _, body = cluster.log.page("")
    assert len(body) < MOST_BYTES
    shown = cluster.decisions
    assert len(shown.nodes) == decisions.MOST_NODES
    assert shown.nodes_left_out == 1000 - decisions.MOST_NODES
    assert len(shown.plans) == decisions.MOST_PLANS
    assert len(shown.ended) == decisions.MOST_ENDED
    assert {group.count for plan in shown.plans for group in plan.passed_over} == {10}
    assert {len(group.vms) for plan in shown.plans for group in plan.passed_over} == {decisions.MOST_NAMES}


def test_remembers_no_answer_for_ever() -> None:
    """Else a VM whose end is never told would leave something behind each time."""
    log = DecidedCluster().log
    for i in range(10 * decisions.MOST_MOVING):
        log.answered(entry(f"vm-{i}"), EvictionAnswer(Verdict.NO_ANSWER, "?"), dry_run=False)
    log.transition(entry("vm-0"), replace(entry("vm-0"), phase=Phase.LOST))
    (ended,) = log.decisions().ended
    assert ended.answer == ""


def test_is_asked_while_it_is_told() -> None:
    """The port is served by other threads than those that decide."""
    cluster = DecidedCluster("vm-1", "vm-2", policy=PREDICTIVE)
    cluster.start()
    wrong: list[object] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                if answered(cluster.log)[0] != HTTPStatus.OK:
                    wrong.append("not answered")
            except Exception as error:  # noqa: BLE001 - told below
                wrong.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for i in range(300):
        cluster.log.transition(entry(f"vm-{i}"), None)
        cluster.log.planned(Plan(f"node-{i}", cluster.clock.now(), verdict(f"node-{i}"), slots()))
        cluster.log.refreshed(snapshot({f"node-{i}": 0.5}, at=cluster.clock.now() + timedelta(seconds=i)))
    over.set()
    for thread in asking:
        thread.join()
    assert wrong == []


def test_judges_by_as_many_snapshots_as_the_policy_asks_for() -> None:
    cluster = DecidedCluster(policy=policy(thresholds=thresholds(sustain=3)))
    head = cluster.decisions.head
    assert (head.sustain, head.judged_by) == (3, 3)
