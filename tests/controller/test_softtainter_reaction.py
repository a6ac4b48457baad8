"""How soon the soft-tainter answers to other hands, and how much it asks of the API server at once."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click
import msgspec
import pytest

from controller.cluster.objects import Node, Taint
from controller.cluster.selectors import parse_selector
from controller.commands import soft_tainter
from controller.softtainter import SoftTainter
from controller.taints.desired import APPROPRIATE, EFFECT, OVER
from controller.utilization.reading import Answer
from informers.clock import Clock, SystemClock
from informers.informer import Informer
from tests.builders import node
from tests.controller.decision_builders import HOT, POLICY, SECOND, metrics, policy
from tests.controller.fakes import FakeMetrics, FakePatcher, RecordingObserver
from tests.controller.test_softtainter import GPU, TaintedCluster, ours

AT_ONCE = 3
NODES = 30
IN_TIME_S = 20.0


def removed(_: Sequence[Taint]) -> list[Taint]:
    return [GPU]


def given_a_value(taints: Sequence[Taint]) -> list[Taint]:
    return [Taint(t.key, "somebody-s", t.effect) for t in taints]


def made_hard(taints: Sequence[Taint]) -> list[Taint]:
    """Then it is not ours any more, and ours is missing."""
    return [Taint(t.key, t.value, "NoSchedule") for t in taints]


def renamed(taints: Sequence[Taint]) -> list[Taint]:
    return [Taint(f"{t.key}-too", t.value, t.effect) for t in taints]


@pytest.mark.parametrize("edited", [removed, given_a_value, made_hard, renamed])
@pytest.mark.parametrize("conflicts", [0, 4])
def test_ours_is_back_within_a_second_of_the_watch_event(
    edited: Callable[[Sequence[Taint]], list[Taint]], conflicts: int
) -> None:
    """Also on a node that is written to so often that the patch comes too late a few times."""
    cluster = TaintedCluster()
    cluster.start()
    cluster.pass_time(7 * SECOND)
    cluster.patcher.conflicts = conflicts
    cluster.edit("node-1", *edited(cluster.node("node-1").taints))
    cluster.pass_time(SECOND)
    there = cluster.node("node-1").taints
    assert {t for t in there if t.effect == EFFECT and t != GPU} == {ours(OVER), ours(APPROPRIATE)}


def test_ours_is_back_at_once_even_while_a_failed_patch_of_that_node_waits_to_be_tried_again() -> None:
    cluster = TaintedCluster()
    cluster.patcher.failing = frozenset({"node-1"})
    cluster.start()
    cluster.pass_time(29 * SECOND)
    cluster.patcher.failing = frozenset()
    assert cluster.keys()[0] == set(), "its next try is some way off"
    cluster.edit("node-1", GPU)
    cluster.pass_time(timedelta(0))
    assert ours(OVER) in cluster.node("node-1").taints


def test_a_node_that_leaves_the_selector_loses_ours_at_the_next_refresh() -> None:
    cluster = TaintedCluster(policy=policy(node_selector=parse_selector("kubevirt.io/schedulable=true")))
    cluster.start()
    before = cluster.node("node-1")
    assert {t.key for t in before.taints} == {OVER, APPROPRIATE}
    labels = {**before.metadata.labels, "kubevirt.io/schedulable": "false"}
    metadata = msgspec.structs.replace(before.metadata, resource_version="99", labels=labels)
    cluster.nodes.apply("MODIFIED", msgspec.structs.replace(before, metadata=metadata))
    cluster.pass_time(30 * SECOND)
    assert cluster.keys() == [set(), {APPROPRIATE}, set()]


class SlowApi:
    """Patches take until ``go``; how many are under way is counted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._going = False
        self.in_flight = self.most = self.done = 0

    def replace_taints(self, node: Node, taints: Sequence[Taint]) -> bool:
        with self._changed:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._going, IN_TIME_S)
            self.in_flight -= 1
            self.done += 1
            self._changed.notify_all()
        return True

    def wait_until(self, claim: Callable[["SlowApi"], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: claim(self), IN_TIME_S)

    def go(self) -> None:
        with self._changed:
            self._going = True
            self._changed.notify_all()


def test_no_more_patches_are_in_flight_than_there_are_workers() -> None:
    """However many nodes change at once: each worker waits for its patch's answer."""
    clock, api = SystemClock(), SlowApi()
    nodes: Informer[Node] = Informer("nodes")
    names = [f"node-{number:02}" for number in range(NODES)]
    source = FakeMetrics(clock, values=dict.fromkeys(names, 0.9), loads=dict.fromkeys(names, HOT))
    nodes.replace([node(name) for name in names])
    tainter = SoftTainter(nodes, source, api, RecordingObserver(), lambda: POLICY, clock)
    tainter.start()
    tainter.workers.start(AT_ONCE)
    try:
        assert api.wait_until(lambda one: one.in_flight == AT_ONCE)
        api.go()
        assert api.wait_until(lambda one: one.done == NODES)
    finally:
        api.go()
        assert tainter.workers.stop(timedelta(seconds=IN_TIME_S))
    assert api.most == AT_ONCE


class HangingMetrics(FakeMetrics):
    """Once ``hanging``, a query ends only with ``go``."""

    hanging = False

    def __init__(self, clock: Clock, value: float) -> None:
        super().__init__(clock, values={"node-1": value}, loads={"node-1": HOT})
        self.hangs, self.go = threading.Event(), threading.Event()

    def instant(self, expression: str, *given: Any) -> Answer:
        if self.hanging:
            self.hangs.set()
            self.go.wait(IN_TIME_S)
        return super().instant(expression, *given)


def test_a_prometheus_that_hangs_does_not_keep_ours_from_coming_back() -> None:
    """So there are two workers at least."""
    assert soft_tainter.make_context("soft-tainter", ["--workers=2"]).params["workers"] == 2
    with pytest.raises(click.BadParameter):
        soft_tainter.make_context("soft-tainter", ["--workers=1"])
    clock, patched = SystemClock(), threading.Event()
    nodes: Informer[Node] = Informer("nodes")
    source = HangingMetrics(clock, 0.9)
    nodes.replace([node("node-1", taints=[ours(OVER), ours(APPROPRIATE)])])
    patcher = FakePatcher(lambda *_: patched.set())
    often = policy(metrics=metrics(refresh_interval=timedelta(milliseconds=50)))
    tainter = SoftTainter(nodes, source, patcher, RecordingObserver(), lambda: often, clock)
    tainter.start()
    tainter.workers.work_ready()
    source.hanging = True
    tainter.workers.start(2)
    try:
        assert source.hangs.wait(IN_TIME_S)
        nodes.apply("MODIFIED", node("node-1", resource_version="2"))
        assert patched.wait(IN_TIME_S)
        assert not source.go.is_set()
    finally:
        source.go.set()
        assert tainter.workers.stop(timedelta(seconds=IN_TIME_S))
