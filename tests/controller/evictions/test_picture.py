"""Moves that the metrics do not show yet are charged: taken off the source, put onto the destination."""

import pytest

from controller.cluster.objects import Resources
from controller.evictions.entry import Phase
from controller.evictions.picture import Picture, Use, charge
from controller.utilization.reading import VmLoad
from tests.builders import GIB
from tests.controller.decision_builders import FLOOR, entry, load

SIZE = Resources(64.0, 256 * GIB)
LOADS = {"node-1": load(60.0, 200 * GIB), "node-2": load(10.0, 50 * GIB), "node-3": load(1.0, 1 * GIB)}
MOVING = VmLoad(4.0, 10 * GIB)


@pytest.mark.parametrize(
    "phase", [Phase.REQUESTED, Phase.UNKNOWN, Phase.RUNNING, Phase.RETRYING, Phase.SETTLING]
)
def test_charges_a_move_from_the_request_until_it_has_settled(phase: Phase) -> None:
    loads = charge(LOADS, [entry(phase=phase, load=MOVING)]).loads
    assert loads["node-1"] == load(56.0, 190 * GIB)
    assert loads["node-2"] == load(14.0, 60 * GIB)
    assert loads["node-3"] == LOADS["node-3"]


def test_a_vm_that_is_not_measured_makes_the_load_where_it_goes_unknown() -> None:
    """Else each overloaded node would send one to the same idle node before any metric shows it."""
    picture = charge(LOADS, [entry(load=None)])
    assert picture.loads == {"node-1": LOADS["node-1"], "node-3": LOADS["node-3"]}
    assert picture.departing == {"node-1"}
    assert charge(LOADS, [entry(load=None, phase=Phase.STUCK)]).loads == LOADS


def test_adds_up_moves() -> None:
    moves = [
        entry("vm-1", load=MOVING),
        entry("vm-2", load=MOVING),
        entry("vm-3", source="node-2", target="node-3"),
    ]
    loads = charge(LOADS, moves).loads
    assert [loads[n].cpu_cores for n in LOADS] == [52.0, 14.0, 5.0]


def test_a_node_never_falls_below_zero() -> None:
    assert charge({"node-1": load(1.0, GIB)}, [entry(load=MOVING)]).loads["node-1"] == load(0.0, 0.0)


def test_does_not_forget_a_departure_for_the_order_of_the_entries() -> None:
    """What leaves node-3 is more than is measured there; what arrives there must not start from zero."""
    leaves = entry("vm-1", source="node-3", target="node-1", load=VmLoad(5.0, 5 * GIB))
    comes = entry("vm-2", source="node-1", target="node-3", load=VmLoad(6.0, 6 * GIB))
    assert charge(LOADS, [leaves, comes]) == charge(LOADS, [comes, leaves])
    assert charge(LOADS, [leaves, comes]).loads["node-3"].cpu_cores == pytest.approx(2.0)


def test_leaves_what_it_was_given_alone() -> None:
    given = dict(LOADS)
    charge(given, [entry(load=MOVING)])
    assert given == LOADS


def test_knows_nothing_of_nodes_that_are_not_measured() -> None:
    picture = charge({"node-1": load(60.0)}, [entry(target="node-9", load=MOVING), entry("vm-2", target="")])
    assert set(picture.loads) == {"node-1"}
    assert picture.use("node-9", SIZE) is None
    assert not picture.hurts("node-9", SIZE, FLOOR)


def test_use_is_a_fraction_of_the_nodes_size_and_may_exceed_one() -> None:
    assert Picture({"node-1": load(72.0, 128 * GIB)}).use("node-1", SIZE) == Use(1.125, 0.5)
    assert Picture({"node-1": load(72.0, 128 * GIB)}).use("node-1", Resources(0.0, 0.0)) == Use(0.0, 0.0)


@pytest.mark.parametrize(
    ("node_load", "hurts"),
    [
        (load(0.6 * 64), True),
        (load(0.59 * 64), False),
        (load(0.0, 0.8 * 256 * GIB), True),
        (load(0.0, 0.79 * 256 * GIB), False),
        (load(0.0, 0.0, 0.05), True),
        (load(0.0, 0.0, 0.049), False),
    ],
)
def test_hurts_from_the_floor_on_in_any_dimension(node_load: load, hurts: bool) -> None:
    assert Picture({"node-1": node_load}).hurts("node-1", SIZE, FLOOR) is hurts


def test_pressure_does_not_count_while_departures_are_not_seen() -> None:
    """Pressure cannot be charged: old pressure would keep evicting from a node that is relieved already."""
    pressed = {"node-1": load(0.5 * 64, 0.0, 0.4), "node-2": load()}
    assert charge(pressed, []).hurts("node-1", SIZE, FLOOR)
    assert not charge(pressed, [entry(phase=Phase.SETTLING)]).hurts("node-1", SIZE, FLOOR)
    assert charge(pressed, [entry(source="node-2", target="node-3")]).hurts("node-1", SIZE, FLOOR)
