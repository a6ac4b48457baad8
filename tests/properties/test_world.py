"""Whatever comes, goes, moves and changes: the world's books agree with a slow and simple accountant's."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.agenda import Agenda
from simulator.specs import GIB
from simulator.world.world import World
from tests.simulator.world_builders import node, vm

NODES = ("a", "b", "c")
KEYS = tuple(f"vms/{number}" for number in range(5))

# Sums of these are exact, so that both sides agree on what is just over the limit.
fractions = st.integers(0, 1024).map(lambda x: x / 1024)
waits = st.tuples(st.just("wait"), st.floats(0.001, 100))
operations = st.one_of(
    waits,
    waits,
    st.tuples(st.just("start"), st.sampled_from(KEYS), st.sampled_from(NODES), fractions),
    st.tuples(st.just("stop"), st.sampled_from(KEYS)),
    st.tuples(st.just("move"), st.sampled_from(KEYS), st.sampled_from(NODES)),
    st.tuples(st.just("demand"), st.sampled_from(KEYS), fractions),
    st.tuples(st.just("demands"), st.dictionaries(st.sampled_from(KEYS), fractions)),
    st.tuples(st.just("overhead"), st.sampled_from(NODES), st.floats(0, 5)),
    st.tuples(st.just("recreate"), st.sampled_from(NODES)),
)


@dataclass
class Accountant:
    """The same rules with dictionaries and loops: books every stretch of time by itself."""

    place: dict[str, str] = field(default_factory=dict)
    demand: dict[str, float] = field(default_factory=dict)
    overhead: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NODES, 0.0))
    vm_used: dict[str, float] = field(default_factory=dict)
    vm_delay: dict[str, float] = field(default_factory=dict)
    starved: float = 0.0
    used: float = 0.0
    over: float = 0.0
    any_over: float = 0.0

    def wait(self, elapsed_s: float) -> None:
        over = 0
        for name in NODES:
            keys = [key for key, where in self.place.items() if where == name]
            wanted = sum(self.demand[key] for key in keys)
            total = wanted + self.overhead[name]
            served = min(1.0, 10.0 / total) if total else 1.0
            for key in keys:
                self.vm_used[key] += self.demand[key] * served * elapsed_s
                self.vm_delay[key] += self.demand[key] * (1 - served) * elapsed_s
            self.starved += wanted * (1 - served) * elapsed_s
            self.used += min(total, 10.0) * elapsed_s
            over += wanted > 8.0
        self.over += over * elapsed_s
        self.any_over += elapsed_s if over else 0.0


class Both:
    """Does each operation to the world and to the accountant; one that makes no sense is left out."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.world = World(self.agenda)
        self.book = Accountant()
        for name in NODES:
            self.world.add_node(node(name))

    def wait(self, elapsed_s: float) -> None:
        self.agenda.run_until(self.agenda.now_s + elapsed_s)
        self.book.wait(elapsed_s)

    def start(self, key: str, name: str, demand: float) -> None:
        if key not in self.book.place:
            self.world.add_vm(key, vm(demand=demand), name)
            self.book.place[key], self.book.demand[key] = name, 10 * demand
            self.book.vm_used[key] = self.book.vm_delay[key] = 0.0

    def stop(self, key: str) -> None:
        if key in self.book.place:
            self.world.remove_vm(key)
            del self.book.place[key], self.book.demand[key]
            del self.book.vm_used[key], self.book.vm_delay[key]

    def move(self, key: str, name: str) -> None:
        if key in self.book.place:
            self.world.move_vm(key, name)
            self.book.place[key] = name

    def demand(self, key: str, demand: float) -> None:
        if key in self.book.place:
            self.world.set_demand(key, demand)
            self.book.demand[key] = 10 * demand

    def demands(self, demands: dict[str, float]) -> None:
        known = {key: demand for key, demand in demands.items() if key in self.book.place}
        self.world.set_demands(known)
        self.book.demand.update({key: 10 * demand for key, demand in known.items()})

    def overhead(self, name: str, cores: float) -> None:
        self.world.set_overhead_cores(name, cores)
        self.book.overhead[name] = cores

    def recreate(self, name: str) -> None:
        if name not in self.book.place.values():
            self.world.remove_node(name)
            self.world.add_node(node(name))
            self.book.overhead[name] = 0.0


def close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-6)


@given(st.lists(operations, max_size=40), st.booleans())
def test_counters_are_those_of_a_simple_accountant(steps: list[tuple], look_often: bool) -> None:
    """Looking in between must not change anything either."""
    both = Both()
    for name, *arguments in steps:
        getattr(both, name)(*arguments)
        if look_often:
            both.world.advance()
            both.world.vm_readings()
            both.world.layout()
    world, book, totals = both.world, both.book, both.world.totals()
    assert dict(zip(world.vm_keys(), world.vm_cpu_used_s().tolist(), strict=True)) == pytest.approx(
        book.vm_used
    )
    delays = dict(zip(world.vm_keys(), world.vm_vcpu_delay_s().tolist(), strict=True))
    assert delays == pytest.approx(book.vm_delay, abs=1e-6)
    assert close(float(totals.starved_core_s), book.starved)
    assert close(float(totals.cpu_used_s), book.used)
    assert close(float(totals.over_s), book.over)
    assert close(sum(end - start for start, end in world.any_over_intervals()), book.any_over)
    by_node = world.over_intervals().values()
    assert close(sum(end - start for intervals in by_node for start, end in intervals), book.over)
    assert {key: world.node_of(key) for key in world.vm_keys()} == book.place


@given(st.lists(operations, max_size=40))
def test_nothing_runs_backwards_and_no_node_gives_more_than_it_has(steps: list[tuple]) -> None:
    both = Both()
    world = both.world
    used: dict[str, float] = {}
    for name, *arguments in steps:
        before = world.totals()
        getattr(both, name)(*arguments)
        assert all(later >= earlier for earlier, later in zip(before, world.totals(), strict=True))
        assert (world.node_used_cores() <= 10.0).all()
        assert (world.node_used_cores() <= world.node_demand_cores() + 1e-12).all()
        assert (world.node_cpu_pressure() >= 0).all()
        assert (world.node_cpu_pressure() <= 1).all()
        if name == "wait":
            slots = world.slots(world.vm_keys())
            readings = world.vm_readings()
            assert (readings.cpu_usage_s[slots] >= 0).all()
            assert (readings.vcpu_delay_s[slots] >= 0).all()
            now = dict(zip(world.vm_keys(), world.vm_cpu_used_s().tolist(), strict=True))
            assert all(value >= used.get(key, 0.0) for key, value in now.items())
            used = now
        elif name == "stop":
            used.pop(arguments[0], None)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_memory_in_use_is_the_sum_of_what_guests_touched(touched: list[float]) -> None:
    both = Both()
    for number, fraction in enumerate(touched):
        both.world.add_vm(f"vms/m{number}", vm(touched=fraction), NODES[number % 3])
    assert float(both.world.node_memory_bytes().sum()) == pytest.approx(sum(touched) * 10 * GIB)
