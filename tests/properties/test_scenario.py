"""Whatever somebody writes into a scenario: it is run as written, or refused in words."""

import copy
import json
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.build import build
from simulator.load.times import intervals
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.cluster import CPU_ALLOCATION_RATIO, OVERHEAD_BYTES, expand
from simulator.scenario.cluster_schema import DAYS, When
from simulator.scenario.dump import Assumed, parse_dump
from simulator.scenario.expect import RELATIONS, parse_bound, unmet
from simulator.scenario.loading import load_scenario, parse_scenario
from simulator.specs import GIB
from tests.simulator.dump_builders import launcher, node, pod, vmi

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2000),
    st.floats(),
    st.sampled_from(["", "x", "node-00", "even", "None"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["vms", "nodes", "kind", "demand", "x"]), inner, max_size=3),
    ),
    max_leaves=5,
)
WHOLE: dict[str, Any] = {
    "description": "Everything there is.",
    "minutes": 30,
    "nodes": {
        "node": {"count": 2, "cores": 8, "memory_gib": 64, "zones": ["a"], "labels": {"a": "b"}},
        "more": {"cores": 4, "memory_gib": 8, "taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
    },
    "vms": {
        "vm": {"count": 3, "vcpus": 2, "memory_gib": 4, "dirty_mb_per_s": [1, 2], "placement": {"node-00": 1}},
        "own": {"vcpus": 1, "memory_gib": 1, "zone": "a", "anti_affine_sets_of": 2, "eviction_strategy": None},
    },
    "immovable": [{"vms": {"fraction": 0.5}, "ways": ["pinned"]}],
    "load": {
        "demand": 0.2,
        "constant": [{"vms": {"nodes": ["node-00"]}, "demand": 0.3}],
        "daily": [{"demand": {0: 0.1, 12: 0.5}, "days": ["Mon"]}],
        "hotspots": [
            {"vms": {"nodes": {"hottest": 1}}, "every_minutes": 5, "for_minutes": 2, "factor": 2},
            {"vms": {"groups": ["own"], "count": 1}, "hours": [0, 1], "days": ["Mon"], "touched": 1},
        ],
        "noise": [{"std": 0.1, "sets": 2}],
        "spikes": [{"per_minute": 1, "for_minutes": [0.1, 0.5], "demand": 0.9}],
    },
    "happenings": [
        {"kind": "churn", "group": "vm", "starts_per_minute": 0.2, "stops_per_minute": 0.1},
        {"kind": "drain", "nodes": ["node-01"], "at_minute": 3, "reboot_minutes": 2},
        {"kind": "migrate", "every_minutes": 4},
    ],
    "troubles": [{"kind": "missing", "nodes": ["node-*"], "probability": 0.5}],
    "kubevirt": {"failure_probability": 0.3, "reaction_s": [0.1, 0.2]},
    "expect": {"migrations": "<= 3"},
}  # fmt: skip


def test_the_whole_scenario_is_right() -> None:
    built = build(parse_scenario(yaml.safe_dump(WHOLE)), 1)
    built.agenda.run_until(1800)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, (*path, key))
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


def refused_in_words(refusal: ScenarioErrors) -> bool:
    """One line for each problem, and each says what was found and what is allowed."""
    complete = all(problem.found and problem.allowed for problem in refusal.problems)
    return complete and len(str(refusal).splitlines()) == len(refusal.problems) > 0


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(paths(WHOLE)), VALUES), min_size=1, max_size=2))
def test_any_change_to_a_scenario_is_run_or_refused_in_words(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    document: Any = WHOLE
    for path, value in changes:
        with suppress(KeyError, IndexError, TypeError):  # the first change may have taken the place away
            document = changed(document, path, value)
    try:
        scenario = parse_scenario(yaml.safe_dump(document))
        if scenario.minutes <= 60 and sum(group.count for group in scenario.nodes.values()) <= 20:
            built = build(scenario, 1)
            built.agenda.run_until(min(scenario.minutes * 60, 300))
    except ScenarioErrors as refusal:
        assert refused_in_words(refusal)  # noqa: PT017  either way is right


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_scenario_or_refused_in_words(text: str) -> None:
    with pytest.raises(ScenarioErrors) as refusal:
        parse_scenario(text)
    assert refused_in_words(refusal.value)


@given(st.text(alphabet='load.hotspts[0]=3 x"', max_size=30))
def test_any_override_is_applied_or_refused_in_words(assignment: str) -> None:
    with suppress(ScenarioErrors):
        load_scenario("hotspot", [assignment])


WHENS = st.builds(
    When,
    start_minute=st.floats(0, 3000),
    end_minute=st.none() | st.floats(3001, 9000),
    every_minutes=st.none() | st.floats(10, 2000),
    for_minutes=st.none() | st.floats(1, 10),
    hours=st.none() | st.tuples(st.floats(0, 24), st.floats(0, 24)),
    days=st.lists(st.sampled_from(DAYS), unique=True).map(tuple),
)


@given(WHENS, st.floats(1, 10 * 86_400))
def test_spans_are_in_order_within_the_run_and_never_overlap(when: When, run_s: float) -> None:
    found = intervals(when, run_s)
    assert all(start < end for start, end in found)
    assert all(end <= later for (_, end), (later, _) in pairwise(found))
    if found:
        assert when.start_minute * 60 <= found[0][0]
        assert found[-1][1] <= run_s
    if when.days and when.hours is None:
        assert all(DAYS[int(start // 86_400) % 7] in when.days for start, _ in found)


GROUPS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 12),
        "vcpus": st.sampled_from([1, 2, 8]),
        "memory_gib": st.sampled_from([1, 8, 30]),
    },
    optional={
        "anti_affine_sets_of": st.integers(0, 4),
        "placement": st.sampled_from(["even", ["node-00", "node-02"], {"node-01": 1}]),
        "pinned": st.booleans(),
        "zone": st.sampled_from(["a", "b"]),
    },
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), GROUPS, min_size=1), st.integers(0, 5))
def test_every_vm_fits_where_it_is_put(groups: dict[str, Any], seed: int) -> None:
    nodes = {"node": {"count": 4, "cores": 8, "memory_gib": 100, "zones": ["a", "b"]}}
    try:
        scenario = parse_scenario(yaml.safe_dump({"description": "x", "nodes": nodes, "vms": groups}))
        cluster = expand(scenario, seed)
    except ScenarioErrors:
        return
    assert Counter(vm.group for vm in cluster.vms) == {group: spec["count"] for group, spec in groups.items()}
    requested: defaultdict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
    sets: Counter[tuple[str | None, str | None]] = Counter()
    for vm in cluster.vms:
        requested[vm.node][0] += vm.vcpus / CPU_ALLOCATION_RATIO
        requested[vm.node][1] += vm.guest_bytes + OVERHEAD_BYTES
        sets[vm.anti_affinity_group, vm.node] += vm.anti_affinity_group is not None
        zone = groups[vm.group].get("zone")
        assert zone is None or vm.node in {"a": ("node-00", "node-02"), "b": ("node-01", "node-03")}[zone]
    assert set(requested) <= {node.name for node in cluster.nodes}
    assert all(cores <= 8 and memory <= 100 * GIB for cores, memory in requested.values())
    assert max(sets.values()) <= 1
    assert cluster == expand(scenario, seed)


SOME: list[dict[str, Any]] = [{}, {"count": 2}, {"nodes": ["node-01"]}]
LOADS = st.fixed_dictionaries(
    {},
    optional={
        "demand": st.floats(0, 1),
        "touched": st.floats(0, 1),
        "noise": st.lists(st.fixed_dictionaries({"std": st.floats(0, 1)}), max_size=2),
        "spikes": st.lists(st.fixed_dictionaries({"per_minute": st.floats(0.1, 5)}), max_size=2),
        "hotspots": st.lists(
            st.fixed_dictionaries(
                {"demand": st.floats(0, 1), "every_minutes": st.floats(1, 5)},
                optional={
                    "touched": st.floats(0, 1),
                    "vms": st.sampled_from([{}, {"count": 2}, {"nodes": ["node-01"]}]),
                },
            ),
            max_size=2,
        ),
    },
)


@settings(deadline=None, max_examples=50)
@given(LOADS, st.integers(0, 1000), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=6))
def test_demand_stays_within_the_vcpus_and_does_not_depend_on_where_vms_run(
    load: dict[str, Any], seed: int, moves: list[tuple[int, int]]
) -> None:
    text = yaml.safe_dump(
        {
            "description": "x",
            "nodes": {"node": {"count": 3, "cores": 8, "memory_gib": 64}},
            "vms": {"vm": {"count": 6, "vcpus": 2, "memory_gib": 4}},
            "load": load,
        }
    )
    stayed, moved = (build(parse_scenario(text), seed) for _ in range(2))
    for minute, (vm, where) in enumerate(moves):
        moved.agenda.run_until(60.0 * minute)
        moved.world.move_vm(f"vms/vm-00{vm}", f"node-0{where}")
    for built in (stayed, moved):
        built.agenda.run_until(600)
    for key in stayed.world.layout().vm_keys:
        assert 0 <= moved.world.vm_demand_cores(key) <= 2
        assert moved.world.vm_demand_cores(key) == stayed.world.vm_demand_cores(key)
        assert moved.world.vm_touched_bytes(key) == stayed.world.vm_touched_bytes(key)


DUMP = {
    "kind": "List",
    "items": [
        node(spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}),
        pod("node-a", {"cpu": "1", "memory": "1Gi"}),
        vmi(metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}}),
        launcher(priority=1, nodeSelector={"a": "b"}, affinity={"podAntiAffinity": {}}),
        {"kind": "KubeVirt", "metadata": {"name": "k"}, "spec": {"configuration": {"migrations": {}}}},
    ],
}


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(paths(DUMP)), VALUES)
def test_any_change_to_a_dump_is_read_or_refused_in_words(path: tuple[Any, ...], value: Any) -> None:
    data = json.dumps(changed(DUMP, path, value)).encode()
    try:
        parse_dump(data, Assumed())
    except ScenarioErrors as refusal:
        assert refused_in_words(refusal)  # noqa: PT017  either way is right


@given(st.sampled_from(sorted(RELATIONS)), st.integers(-100, 100), st.integers(-100, 100))
def test_bounds_say_what_the_relations_mean(relation: str, bound: int, score: int) -> None:
    text = f"{relation} {bound}"
    assert str(parse_bound(text)) == text
    kept = RELATIONS[relation](score, bound)
    assert unmet({"migrations": text}, {"migrations": score}) == (
        [] if kept else [f"migrations is {score}, expected {text}"]
    )
    assert unmet({"migrations": text}, {"migrations": None}) != []
