"""The gate's guarantees, for any ledger and any migrations of others."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.evictions.entry import ENDED, Entry, Phase
from controller.evictions.gate import Movement, Slots, count_slots, why_closed
from controller.policy.model import Limits
from tests.builders import START
from tests.controller.decision_builders import HOUR, MINUTE, SMALL, entry, evictions, policy, view

NOW = START + HOUR
TIMEOUT = 30 * MINUTE
NODES = ["node-1", "node-2", "node-3"]
VMS = [f"vm-{n}" for n in range(8)]

nodes = st.sampled_from(NODES)
limits = st.builds(Limits, node=st.integers(1, 3), total=st.integers(1, 6))
entries = st.builds(
    entry,
    st.sampled_from(VMS),
    source=nodes,
    target=st.sampled_from(["", *NODES]),
    phase=st.sampled_from([p for p in Phase if p not in ENDED]),
    load=st.sampled_from([SMALL, None]),
)
ledgers = st.lists(entries, max_size=8, unique_by=lambda e: e.pod_uid)
movements = st.builds(
    Movement,
    st.sampled_from(VMS).map(lambda vm: f"vmi-{vm}"),
    st.sampled_from(["", *NODES]),
    st.integers(0, 60).map(lambda m: NOW - timedelta(minutes=m)),
)
moving = st.lists(movements, max_size=8)


def counted(node: str, known: list[Entry], others: list[Movement], allowed: Limits) -> Slots:
    return count_slots(node, view(*known), others, allowed, TIMEOUT, NOW)


def closed(node: str, known: list[Entry], others: list[Movement], allowed: Limits) -> bool:
    slots = counted(node, known, others, allowed)
    return why_closed(node, slots, view(*known), policy(evictions=evictions(limits=allowed)), NOW) is not None


@given(ledgers, moving, limits, st.lists(st.tuples(st.sampled_from(VMS), nodes), max_size=20))
def test_an_open_gate_never_lets_the_limits_be_exceeded(
    known: list[Entry], others: list[Movement], allowed: Limits, wishes: list[tuple[str, str]]
) -> None:
    """Whatever is on the move already, evicting as long as the gate is open ends at the limits."""
    for number, (vm, node) in enumerate(wishes):
        if closed(node, known, others, allowed):
            continue
        known = [*known, entry(f"{vm}-{number}", source=node, target="")]
        slots = counted(node, known, others, allowed)
        assert slots.node_used <= allowed.node
        assert slots.total_used <= allowed.total


@given(nodes, ledgers, moving, limits)
def test_an_open_gate_has_a_free_slot(
    node: str, known: list[Entry], others: list[Movement], allowed: Limits
) -> None:
    if not closed(node, known, others, allowed):
        slots = counted(node, known, others, allowed)
        assert slots.node_used < slots.node_limit
        assert slots.total_used < slots.total_limit


@given(nodes, ledgers, moving, limits, movements)
def test_one_more_migration_never_opens_a_gate(
    node: str, known: list[Entry], others: list[Movement], allowed: Limits, more: Movement
) -> None:
    if closed(node, known, others, allowed):
        assert closed(node, known, [*others, more], allowed)


@given(nodes, ledgers, moving, limits, st.randoms(use_true_random=False))
def test_counts_vms_in_any_order_and_however_often_they_are_seen(
    node: str, known: list[Entry], others: list[Movement], allowed: Limits, random: Any
) -> None:
    shuffled, again = list(known), [*others, *others]
    random.shuffle(shuffled)
    random.shuffle(again)
    assert counted(node, shuffled, again, allowed) == counted(node, known, others, allowed)


@given(nodes, ledgers, moving, limits)
def test_never_counts_more_than_there_are_vms(
    node: str, known: list[Entry], others: list[Movement], allowed: Limits
) -> None:
    slots = counted(node, known, others, allowed)
    vms = {e.vmi_uid for e in known} | {m.vmi_uid for m in others}
    assert slots.node_used <= len(vms)
    assert slots.total_used <= len(vms)


@given(nodes, nodes, ledgers, moving, limits, st.booleans())
def test_what_is_stuck_counts_on_its_node_only(
    node: str, stuck_on: str, known: list[Entry], others: list[Movement], allowed: Limits, foreign: bool
) -> None:
    """Ours or somebody else's: it cannot stop the cluster."""
    before = counted(node, known, others, allowed)
    if foreign:
        after = counted(node, known, [*others, Movement("vmi-new", stuck_on, NOW - TIMEOUT)], allowed)
    else:
        after = counted(node, [*known, entry("new", source=stuck_on, phase=Phase.STUCK)], others, allowed)
    assert after.total_used == before.total_used
    assert after.node_used == before.node_used + (stuck_on == node)


@given(nodes, ledgers, moving, limits)
def test_other_nodes_limits_do_not_matter_to_a_node(
    node: str, known: list[Entry], others: list[Movement], allowed: Limits
) -> None:
    here = [e for e in known if e.source == node]
    there = [m for m in others if m.source == node]
    assert counted(node, here, there, allowed).node_used == counted(node, known, others, allowed).node_used
