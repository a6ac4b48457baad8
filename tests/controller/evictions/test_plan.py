"""One over-utilised node considered: the gate, relief under way, then selection."""

from controller.evictions.entry import Phase
from controller.evictions.plan import Plan, entry_for, plan_node
from controller.evictions.views import Alarm
from tests.builders import GIB, START
from tests.controller.decision_builders import (
    HOT,
    HOUR,
    SMALL,
    entry,
    ground,
    load,
    slots,
    verdict,
    view,
    vm,
)


def rest(plan: Plan) -> str | None:
    return plan.rest.code if plan.rest is not None else None


def test_chooses_a_vm_and_tells_why_not_the_others() -> None:
    plan = plan_node(verdict(), slots(), ground(vm("vm-1"), vm("vm-2")))
    assert plan.choice is not None
    assert (plan.node, plan.at, plan.rest) == ("node-1", START + HOUR, None)
    assert [p.vm.name for p in plan.passed_over] == ["vm-2"]


def test_a_closed_gate_ends_it_before_any_vm_is_looked_at() -> None:
    plan = plan_node(verdict(), slots(node_used=1), ground(vm()))
    assert (plan.choice, rest(plan), plan.passed_over) == (None, "NodeLimit", ())


def test_the_alarm_comes_first() -> None:
    alarmed = ground(vm(), ledger=view(alarm=Alarm("down", "digest-1")))
    assert rest(plan_node(verdict(), slots(node_used=1), alarmed)) == "ShutdownAlarm"


def test_a_node_that_the_moves_under_way_relieve_sends_no_more() -> None:
    """Its metrics still say that it is over-utilised; acting on them would overshoot."""
    relieved = ground(vm(), loads={"node-1": load(0.59 * 64), "node-2": load()})
    assert rest(plan_node(verdict(), slots(), relieved)) == "Relieved"


def test_no_useful_move_is_shown_with_every_reason() -> None:
    plan = plan_node(verdict(), slots(), ground(vm(), loads={"node-1": HOT, "node-2": HOT}))
    assert (plan.choice, rest(plan)) == (None, "NoUsefulMove")
    assert len(plan.passed_over) == 1


def test_reserves_what_was_chosen() -> None:
    plan = plan_node(verdict(), slots(), ground(vm("vm-1")))
    assert plan.choice is not None
    reserved = entry_for(plan.choice, "node-1", frozenset({"vmim-0"}), START)
    assert reserved == entry("vm-1", phase=Phase.REQUESTED, load=SMALL, before={"vmim-0"}, answered_at=None)
    assert reserved.load is not None
    assert reserved.load.memory_bytes == 8 * GIB
