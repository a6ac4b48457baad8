"""From Prometheus' answers to a snapshot: what does not fit is dropped with a reason and never becomes a zero."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.cluster.objects import Node, NodeAddress
from controller.utilization.reading import (
    NODE_CPU,
    NODE_MEMORY,
    NODE_PRESSURES,
    VM_CPU,
    VM_DIRTY_RATE,
    VM_MEMORY,
    Answer,
    Dropped,
    NodeLoad,
    Sample,
    Snapshot,
    Value,
    VmLoad,
    expressions,
    read_snapshot,
)
from tests.builders import GIB, START, node
from tests.controller.decision_builders import METRICS, QUERY, SECOND, SERIES, load, metrics, query, snapshot

NODES = [node("node-1"), node("node-2")]
AT_S = START.timestamp()
OWN = metrics(queries=[query(expression="my_rule", recorded=False)])


def vector(samples: Mapping[str, float], label: str = "instance") -> Answer:
    return Answer([Sample({label: name}, value) for name, value in samples.items()])


def recorded(samples: Mapping[str, float], series: str = SERIES, at_s: float = AT_S) -> dict[str, Answer]:
    return {series: vector(samples), f"timestamp({series})": vector(dict.fromkeys(samples, at_s))}


def read(answers: Mapping[str, Answer], nodes: Sequence[Node] = NODES, **fields: Any) -> Snapshot:
    fields = {"metrics": METRICS, "now": START + 10 * SECOND, "sequence": 7, **fields}
    return read_snapshot(answers, nodes, **fields)


def values(of: Snapshot) -> dict[str, float]:
    return {name: value.value for name, value in of.values[QUERY].items()}


# --- what is asked ---


def test_asks_for_values_sample_times_and_plain_load_once_each() -> None:
    asked = expressions(METRICS, with_vms=True)
    assert asked[:2] == [SERIES, f"timestamp({SERIES})"]
    assert {NODE_CPU, f"timestamp({NODE_CPU})", NODE_MEMORY, *NODE_PRESSURES, VM_CPU, VM_MEMORY} <= set(asked)
    assert len(asked) == len(set(asked))


def test_asks_a_pressure_that_classifies_only_once() -> None:
    pressure = metrics(queries=[query(expression=NODE_PRESSURES[0])])
    assert expressions(pressure, with_vms=False).count(NODE_PRESSURES[0]) == 1


def test_asks_no_sample_time_of_an_expression_of_ones_own() -> None:
    assert "timestamp(my_rule)" not in expressions(OWN, with_vms=True)


def test_asks_nothing_of_vms_where_no_vm_is_chosen() -> None:
    assert not {VM_CPU, VM_MEMORY, VM_DIRTY_RATE} & set(expressions(METRICS, with_vms=False))


# --- values and their times ---


def test_a_recorded_value_has_the_time_of_its_sample() -> None:
    found = read(recorded({"node-1": 0.4}))
    assert found.values == {QUERY: {"node-1": Value(0.4, START)}}
    assert (found.taken_at, found.sequence) == (START + 10 * SECOND, 7)


def test_a_value_of_ones_own_query_has_the_time_of_asking() -> None:
    found = read({"my_rule": vector({"node-1": 0.4})}, metrics=OWN)
    assert found.values[QUERY]["node-1"].at == START + 10 * SECOND


def test_a_recorded_value_without_a_sample_time_is_dropped() -> None:
    found = read({SERIES: vector({"node-1": 0.4})})
    assert values(found) == {}
    assert found.dropped == (Dropped(QUERY, "node-1", "sample time unknown"),)


def test_a_sample_is_not_younger_than_the_moment_though_the_servers_clock_is_fast() -> None:
    """Else a migration would have settled as soon as it ended, on samples from before it, and no sample grow old."""
    now = START + 10 * SECOND
    found = read(recorded({"node-1": 0.5}, at_s=AT_S + 600), now=now)
    assert found.values[QUERY]["node-1"].at == now


@pytest.mark.parametrize("at_s", [0.0, -1.0, 1e12, math.nan])
def test_a_sample_time_that_is_none_does_not_count(at_s: float) -> None:
    assert values(read(recorded({"node-1": 0.4}, at_s=at_s))) == {}


@pytest.mark.parametrize(
    ("raw", "kept"), [(0.0, 0.0), (1.0, 1.0), (1.0007, 1.0), (1.05, 1.0), (-0.05, 0.0), (-0.0001, 0.0)]
)
def test_clamps_what_lies_a_little_outside(raw: float, kept: float) -> None:
    """A saturated PSI counter rates to 1.0007."""
    assert values(read(recorded({"node-1": raw}))) == {"node-1": kept}


@pytest.mark.parametrize("raw", [1.051, -0.051, 87.0, 9.2e18, math.nan, math.inf, -math.inf])
def test_drops_what_lies_far_outside_or_is_no_number(raw: float) -> None:
    found = read(recorded({"node-1": raw, "node-2": 0.3}))
    assert values(found) == {"node-2": 0.3}
    assert [(d.query, d.subject) for d in found.dropped] == [(QUERY, "node-1")]


def test_what_is_dropped_is_told_by_the_querys_name_and_never_by_its_expression() -> None:
    """A recorded query may be a whole expression, and the name becomes a metric's label."""
    rule = metrics(queries=[query(expression="max by (instance) (my:rule)", recorded=True)])
    answers = recorded({"node-1": 0.4, "gone": 0.5}, "max by (instance) (my:rule)")
    found = read(answers, metrics=rule)
    assert {dropped.query for dropped in found.dropped} == {QUERY}


def test_an_empty_answer_is_no_zero() -> None:
    assert values(read({})) == {}


# --- whose value it is ---


@pytest.mark.parametrize(
    "instance",
    [
        "node-1",
        "node-1:9100",
        "host-1",
        "host-1:9100",
        "10.0.0.1",
        "10.0.0.1:9100",
        "fd00::1",
        "[fd00::1]:9100",
    ],
)
def test_finds_a_node_by_any_of_its_names(instance: str) -> None:
    addresses = [
        NodeAddress("InternalIP", "10.0.0.1"),
        NodeAddress("InternalIP", "fd00::1"),
        NodeAddress("Hostname", "host-1"),
    ]
    assert values(read(recorded({instance: 0.4}), [node("node-1", addresses=addresses)])) == {"node-1": 0.4}


def test_finds_a_node_by_its_host_name_label() -> None:
    named = node("node-1", labels={"kubernetes.io/hostname": "worker-a"})
    assert values(read(recorded({"worker-a": 0.4}), [named])) == {"node-1": 0.4}


def test_the_label_is_the_policys() -> None:
    by_node = {
        SERIES: vector({"node-1": 0.4}, "node"),
        f"timestamp({SERIES})": vector({"node-1": AT_S}, "node"),
    }
    assert values(read(by_node, metrics=metrics(node_label="node"))) == {"node-1": 0.4}
    assert values(read(by_node)) == {}
    assert "no label 'instance'" in {d.reason for d in read(by_node).dropped}


def test_names_what_matched_no_node() -> None:
    found = read(recorded({"10.9.9.9:9100": 0.4}))
    assert Dropped(QUERY, "10.9.9.9:9100", "no node is called '10.9.9.9:9100'") in found.dropped


def test_an_address_that_two_nodes_claim_is_neithers() -> None:
    same = [NodeAddress("InternalIP", "10.0.0.1")]
    found = read(
        recorded({"10.0.0.1": 0.4}), [node("node-1", addresses=same), node("node-2", addresses=same)]
    )
    assert values(found) == {}


def test_a_name_counts_more_than_anothers_address() -> None:
    borrowed = node("node-2", addresses=[NodeAddress("Hostname", "node-1")])
    plain = node("node-1", labels={"kubernetes.io/hostname": "somewhere"})
    assert values(read(recorded({"node-1": 0.4}), [plain, borrowed])) == {"node-1": 0.4}


def test_a_node_with_several_series_keeps_none() -> None:
    """Nobody can say which one is right; the first is as wrong as the last."""
    found = read(recorded({"node-1": 0.4, "node-1:9100": 0.9, "node-2": 0.3}))
    assert values(found) == {"node-2": 0.3}
    assert Dropped(QUERY, "node-1", "several series for one node") in found.dropped


def test_a_nan_beside_a_value_is_no_second_series() -> None:
    found = read({**recorded({"node-1": 0.4}), SERIES: vector({"node-1": 0.4, "node-1:9100": math.nan})})
    assert values(found) == {"node-1": 0.4}


# --- plain load ---


def plain(**changes: dict[str, float]) -> dict[str, Answer]:
    series = {
        "cpu": NODE_CPU,
        "memory": NODE_MEMORY,
        "cpu_pressure": NODE_PRESSURES[0],
        "memory_pressure": NODE_PRESSURES[1],
        "io_pressure": NODE_PRESSURES[2],
    }
    answers = {f"timestamp({NODE_CPU})": vector(dict.fromkeys(("node-1", "node-2"), AT_S))}
    measured = {"cpu": {"node-1": 12.0}, "memory": {"node-1": GIB}, **changes}
    return answers | {series[name]: vector(samples) for name, samples in measured.items()}


def test_reads_plain_load_with_the_greatest_pressure() -> None:
    found = read(
        plain(cpu_pressure={"node-1": 0.1}, io_pressure={"node-1": 0.3}, memory_pressure={"node-1": 0.2})
    )
    assert found.loads == {"node-1": NodeLoad(12.0, GIB, 0.3, START)}


def test_a_node_without_psi_has_no_pressure() -> None:
    assert read(plain()).loads["node-1"].pressure == 0.0


@pytest.mark.parametrize("lacking", ["cpu", "memory"])
def test_load_needs_both_cpu_and_memory(lacking: str) -> None:
    """Missing is never zero."""
    assert read(plain(**{lacking: {}})).loads == {}


def test_load_needs_its_sample_time() -> None:
    answers = plain()
    del answers[f"timestamp({NODE_CPU})"]
    assert read(answers).loads == {}


@pytest.mark.parametrize(("raw", "pressure"), [(1.0007, 1.0), (-0.01, 0.0), (37.0, 0.2), (-1.0, 0.2)])
def test_a_pressure_far_outside_is_dropped_as_values_are(raw: float, pressure: float) -> None:
    """One broken counter would make a node hurt that does not."""
    found = read(plain(cpu_pressure={"node-1": raw}, io_pressure={"node-1": 0.2 if pressure == 0.2 else 0.0}))
    assert found.loads["node-1"].pressure == pressure


@pytest.mark.parametrize("negative", ["cpu", "memory"])
def test_a_negative_load_is_none(negative: str) -> None:
    found = read(plain(**{negative: {"node-1": -3.0}}))
    assert found.loads == {}
    assert [(d.subject, d.reason) for d in found.dropped] == [("node-1", "value -3 is negative")]


# --- VMs ---


def vm_samples(*samples: tuple[str, str, float]) -> Answer:
    return Answer(
        [Sample({"namespace": ns, "name": name, "node": "x"}, value) for ns, name, value in samples]
    )


def test_reads_what_vms_use() -> None:
    found = read(
        {
            VM_CPU: vm_samples(("vms", "vm-1", 4.0), ("vms", "vm-2", 1.0)),
            VM_MEMORY: vm_samples(("vms", "vm-1", GIB), ("vms", "vm-2", GIB)),
            VM_DIRTY_RATE: vm_samples(("vms", "vm-1", 5e7)),
        }
    )
    assert found.vms == {("vms", "vm-1"): VmLoad(4.0, GIB, 5e7), ("vms", "vm-2"): VmLoad(1.0, GIB)}


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -1.0])
def test_a_vm_without_a_usable_value_is_not_measured(cpu: float) -> None:
    assert (
        read({VM_CPU: vm_samples(("vms", "vm-1", cpu)), VM_MEMORY: vm_samples(("vms", "vm-1", GIB))}).vms
        == {}
    )
    assert read({VM_CPU: vm_samples(("vms", "vm-1", 1.0))}).vms == {}


def test_a_vm_with_several_series_keeps_none() -> None:
    """Which one is meant must not depend on their order."""
    found = read(
        {
            VM_CPU: vm_samples(("vms", "vm-1", 1.0), ("vms", "vm-1", 8.0)),
            VM_MEMORY: vm_samples(("vms", "vm-1", GIB)),
        }
    )
    assert found.vms == {}
    assert found.dropped == (Dropped(VM_CPU, "vms/vm-1", "several series for one VM"),)


# --- the whole ---


def test_a_partial_answer_warns_once() -> None:
    partial = Answer([Sample({"instance": "node-1"}, 0.4)], warnings=("store x is unreachable",))
    found = read({SERIES: partial, VM_CPU: partial})
    assert found.warnings == ("store x is unreachable",)


def test_the_sample_time_of_a_node_is_the_oldest_of_what_is_known() -> None:
    early, late = START, START + 30 * SECOND
    taken = snapshot(
        {"node-1": 0.4, "node-2": 0.4}, at=late, loads={"node-1": load(at=early), "node-3": load(at=late)}
    )
    assert taken.sample_time("node-1") == early
    assert taken.sample_time("node-2") == late
    assert taken.sample_time("node-3") == late
    assert taken.sample_time("node-4") is None


def test_sample_times_are_in_utc() -> None:
    at = read(recorded({"node-1": 0.4})).values[QUERY]["node-1"].at
    assert at == datetime.fromtimestamp(AT_S, UTC)
    assert at.tzinfo is UTC
