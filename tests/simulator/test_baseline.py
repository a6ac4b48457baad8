"""The classic loop, rule by rule, as the upstream descheduler's LowNodeUtilization behaves."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from simulator.baseline import OVER_TAINTS, Baseline
from simulator.kubevirt.evictions import EvictionAnswer
from simulator.kubevirt.objectstore import at
from simulator.metrics.recorded import Sample
from simulator.metrics.trouble import MetricsOutage
from simulator.specs import VmSpec
from tests.simulator.kubevirt_builders import SURE, Cluster, cluster, vm

HOT = {"node-0": 0.9, "node-1": 0.1, "node-2": 0.0}


@dataclass
class Looped:
    """The loop on a cluster, with the scores that it reads, and what it has asked for."""

    built: Cluster
    scores: Mapping[str, float] | None = field(default_factory=lambda: dict(HOT))
    soft_tainter: bool = False
    asked: list[tuple[str, EvictionAnswer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(1)
        control, evict = self.built.control, self.built.control.evict

        def noted(namespace: str, pod: str, **request: object) -> EvictionAnswer:
            answer = evict(namespace, pod, **request)
            self.asked.append((pod, answer))
            return answer

        control.evict = noted
        self.loop = Baseline(control, self.built.store, self.read, rng, soft_tainter=self.soft_tainter)

    def read(self) -> list[Sample]:
        if self.scores is None:
            raise MetricsOutage("connection refused")
        return [({"instance": name}, value, self.built.agenda.now_s) for name, value in self.scores.items()]

    def cycle(self) -> int:
        """One cycle; how many evictions it asked for."""
        before = len(self.asked)
        self.loop.cycle(self.built.agenda.now_s)
        return len(self.asked) - before

    def taints(self, node: str) -> list[str]:
        return [taint["key"] for taint in at(self.built.node(node), "spec", "taints") or ()]


def crowd(number: int, node: str = "node-0", **changes: object) -> list[VmSpec]:
    return [vm(f"{node}-{n}", node=node, **changes) for n in range(number)]


def looped(*vms: VmSpec, scores: Mapping[str, float] | None = None, **how: bool) -> Looped:
    return Looped(cluster(*vms, options=SURE), HOT if scores is None else scores, **how)


def test_two_leave_a_node_in_a_cycle_and_five_in_all() -> None:
    hot = {"node-0": 0.9, "node-1": 0.9, "node-2": 0.9, "node-3": 0.0, "node-4": 0.0}
    crowds = [spec for node in ("node-0", "node-1", "node-2") for spec in crowd(4, node)]
    assert looped(*crowd(4)).cycle() == 2
    built = cluster(*crowds, nodes=5)
    assert Looped(built, hot).cycle() == 5


def test_those_under_way_count_in_the_next_cycle() -> None:
    loop = looped(*crowd(6))
    assert loop.cycle() == 2
    loop.built.run(10)
    assert loop.cycle() == 0


def test_low_priority_goes_first() -> None:
    loop = looped(*crowd(4, priority=5), vm("last", priority=-1))
    loop.cycle()
    assert "last" in loop.asked[0][0]


@pytest.mark.parametrize(
    "scores",
    [
        {"node-0": 0.9, "node-1": 0.1},
        {"node-0": 0.9, "node-1": 0.1, "node-2": 1.07},
        {"node-0": 0.9, "node-1": -0.1, "node-2": 0.1},
    ],
    ids=["missing", "above 1", "below 0"],
)
def test_one_node_without_a_possible_value_stops_it(scores: dict[str, float]) -> None:
    assert looped(*crowd(4), scores=scores).cycle() == 0


def test_no_answer_stops_it() -> None:
    loop = looped(*crowd(4))
    loop.scores = None
    assert loop.cycle() == 0
    assert loop.loop.last is None


def test_not_a_number_makes_every_other_node_over_utilised() -> None:
    """It becomes the smallest whole number there is, and takes the average down with it."""
    loop = looped(*crowd(2, "node-1"), scores={"node-0": math.nan, "node-1": 0.01, "node-2": 0.02})
    assert loop.cycle() == 2


def test_whole_percent_are_compared() -> None:
    """0.109 is ten percent, and ten over an average of zero is not too much."""
    assert looped(*crowd(4), scores={"node-0": 0.109, "node-1": 0.009, "node-2": 0.009}).cycle() == 0
    assert looped(*crowd(4), scores={"node-0": 0.17, "node-1": 0.0, "node-2": 0.0}).cycle() == 2


def test_vms_that_prefer_no_eviction_stay() -> None:
    assert looped(*crowd(4, opted_out=True)).cycle() == 0


def test_a_refusal_counts_for_nothing_and_is_heard_again_and_again() -> None:
    loop = looped(*crowd(4, migratable=False))
    assert loop.cycle() == 4
    assert loop.cycle() == 4
    assert {answer.status for _, answer in loop.asked} == {429}


def test_a_vm_that_goes_down_counts() -> None:
    loop = looped(*crowd(4, eviction_strategy="None"))
    assert loop.cycle() == 2
    assert len(loop.built.control.shutdowns) == 2


def test_a_target_pod_that_was_asked_takes_a_slot_of_its_node_for_ten_minutes_or_more() -> None:
    """It gets the same answer as its VM's launcher, but nothing will ever come of it."""
    built = cluster(
        *crowd(4),
        vm("coming", node="node-1", priority=-1),
        nodes=2,
        options=replace(SURE, slow_factor=1000.0),
    )
    built.evict("coming")
    built.run(30)
    loop = Looped(built, {"node-0": 0.9, "node-1": 0.0})
    assert loop.cycle() == 2
    (pod, answer), _ = loop.asked
    assert pod == built.pods("coming")[1]["metadata"]["name"]
    assert "Evacuation in progress" in answer.message
    built.run(90)
    assert loop.cycle() == 0
    built.run(1200)
    assert loop.cycle() == 1
    assert loop.asked[-1][0] == pod, "forgotten, so asked again"


def test_an_eviction_that_ended_in_nothing_is_asked_for_again() -> None:
    loop = looped(*crowd(2))
    assert loop.cycle() == 2
    loop.built.run(30)
    assert loop.cycle() == 0
    for name in ("node-0-0", "node-0-1"):
        loop.built.control.evacuate_cancel("vms", name)
    loop.built.run(1)
    assert loop.cycle() == 2


def test_taints_follow_the_classes_and_leave_others_alone() -> None:
    loop = looped(*crowd(2), scores={"node-0": 0.9, "node-1": 0.4, "node-2": 0.0}, soft_tainter=True)
    theirs = {"key": "theirs", "value": "", "effect": "PreferNoSchedule"}
    version = loop.built.node("node-1")["metadata"]["resourceVersion"]
    loop.built.control.replace_taints("node-1", version, [theirs])
    loop.cycle()
    assert loop.taints("node-0") == list(OVER_TAINTS)
    assert loop.taints("node-1") == ["theirs"]
    loop.scores = {"node-0": 0.9, "node-1": 0.5, "node-2": 0.0}
    loop.cycle()
    assert loop.taints("node-1") == ["theirs", *OVER_TAINTS[:1]]
    assert loop.taints("node-2") == []
