"""Why over-utilised nodes send nothing is shown as of the last look at each, whoever looks, and cheaply."""

import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.queries import Reason
from controller.evictions.gate import CODES
from controller.evictions.select import PassedOver
from controller.utilization.classify import NodeClass
from tests.controller.decision_builders import classification, verdict
from tests.controller.seen import Seen, at_rest


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_why_not_is_shown_as_of_the_last_look_at_each_node_that_is_still_over_utilised(seen: Seen) -> None:
    both = classification(verdict("node-1"), verdict("node-2"))
    seen.meter.classified(both)
    for name in ("node-1", "node-1", "node-2"):
        seen.meter.planned(at_rest(name))
    assert seen.series("why_not_vms") == {("Cooling",): 2.0}
    assert seen.series("why_not_nodes") == {("NoUsefulMove",): 2.0}
    seen.meter.classified(classification(verdict("node-1", NodeClass.UNDER), verdict("node-2")))
    assert seen.series("why_not_vms") == {("Cooling",): 1.0}
    seen.meter.planned(replace(at_rest("node-2"), passed_over=(passed("Pinned"),)))
    assert seen.series("why_not_vms") == {("Pinned",): 1.0}


def test_while_the_gate_is_closed_the_vms_are_as_they_were_when_they_were_looked_at(seen: Seen) -> None:
    """That is most of the time: else nobody would ever see why a VM stays."""
    seen.meter.classified(classification(verdict("node-1")))
    seen.meter.planned(at_rest("node-1"))
    seen.meter.planned(replace(at_rest("node-1", "NodeLimit"), passed_over=()))
    assert seen.series("why_not_nodes") == {("NodeLimit",): 1.0}
    assert seen.series("why_not_vms") == {("Cooling",): 1.0}


@pytest.mark.parametrize("code", ["NoUsefulMove", "Relieved"])
def test_a_look_that_passes_over_nobody_takes_the_reasons_away(seen: Seen, code: str) -> None:
    seen.meter.classified(classification(verdict("node-1")))
    seen.meter.planned(at_rest("node-1"))
    seen.meter.planned(replace(at_rest("node-1", code), passed_over=()))
    assert seen.series("why_not_nodes") == {(code,): 1.0}
    assert seen.series("why_not_vms") == {}


NODES = [f"node-{n}" for n in range(4)]
LOOKS = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(["NoUsefulMove", "Relieved", "NodeLimit"]),
    st.lists(st.sampled_from(["Cooling", "Pinned"]), max_size=3),
)


@given(st.lists(st.one_of(LOOKS, st.sets(st.sampled_from(NODES))), max_size=12))
def test_why_not_is_the_sum_of_the_last_looks(
    steps: list[tuple[str, str, list[str]] | set[str]],
) -> None:
    """Each look changes the sums by what has become different."""
    seen, over, last = Seen(), set[str](), dict[str, tuple[str, list[str]]]()
    for step in steps:
        if isinstance(step, set):
            over = step
            last = {name: why for name, why in last.items() if name in over}
            seen.meter.classified(classification(*map(verdict, sorted(over))))
            continue
        name, code, codes = step
        shown = codes if code not in CODES else []
        seen.meter.planned(replace(at_rest(name, code), passed_over=tuple(map(passed, shown))))
        if name in over:
            last[name] = code, shown if code not in CODES else last.get(name, ("", []))[1]
        nodes = Counter((rest,) for rest, _ in last.values())
        vms = Counter((each,) for _, codes in last.values() for each in codes)
        assert seen.series("why_not_nodes") == nodes
        assert seen.series("why_not_vms") == vms


def calls_for_a_look(nodes: int) -> int:
    """Python calls that noting one look takes, with so many nodes over-utilised."""
    names, seen, calls = [f"node-{n}" for n in range(nodes)], Seen(), 0
    seen.meter.classified(classification(*map(verdict, names)))
    for name in names:
        seen.meter.planned(at_rest(name))

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    plan = at_rest("node-1", "Relieved")
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        seen.meter.planned(plan)
    finally:
        sys.setprofile(before)
    return calls


def test_a_look_takes_no_longer_with_many_nodes() -> None:
    """Each freed slot has all nodes looked at: summing all of them up each time would take longer than deciding."""
    calls_for_a_look(2)
    assert calls_for_a_look(400) == calls_for_a_look(4)


def passed(code: str) -> PassedOver:
    return PassedOver("vms/vm-1", Reason(code, "for a reason"))
