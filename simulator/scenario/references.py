"""What types alone cannot tell of a scenario: names that refer to nothing, fields that exclude each other."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

from simulator.metrics.recorded import NODE_SERIES, VM_SERIES
from simulator.scenario.checking import Problem, unknown_name
from simulator.scenario.cluster_schema import NodePick, VmGroup, Vms, When
from simulator.scenario.expect import check_expect
from simulator.scenario.schema import (
    Churn,
    Cordon,
    Drain,
    JoinNodes,
    LoseNodes,
    NotReady,
    RemoveNodes,
    Scenario,
    StartVms,
)


class Names(NamedTuple):
    """What a scenario can refer to."""

    nodes: tuple[str, ...]
    """Those that are there at the start."""
    joining: tuple[str, ...]
    groups: tuple[str, ...]
    """Of VMs."""
    zones: tuple[str, ...]


def node_name(group: str, number: int) -> str:
    return f"{group}-{number:02}"


def names_of(scenario: Scenario) -> Names:
    """The names in a scenario that describes its own cluster."""
    counts = {group: spec.count for group, spec in scenario.nodes.items()}
    joining = []
    for happening in scenario.happenings:
        if isinstance(happening, JoinNodes) and happening.group in counts:
            first = counts[happening.group]
            counts[happening.group] += happening.count
            joining += [
                node_name(happening.group, number) for number in range(first, counts[happening.group])
            ]
    return Names(
        nodes=tuple(node_name(group, n) for group, spec in scenario.nodes.items() for n in range(spec.count)),
        joining=tuple(joining),
        groups=tuple(scenario.vms),
        zones=tuple(dict.fromkeys(zone for spec in scenario.nodes.values() for zone in spec.zones)),
    )


def check_references(scenario: Scenario, names: Names | None) -> Iterator[Problem]:
    """Every fault that needs more than one field to be seen.

    ``names``: ``None`` while they are unknown (the cluster comes from a dump that has not been read): then
    only what needs no names is checked.
    """
    yield from check_expect(scenario.expect)
    yield from _check_range("api.answer_seconds", scenario.api.answer_seconds)
    yield from _check_whole(scenario)
    yield from _check_load(scenario)
    if names is not None:
        for group, spec in scenario.vms.items():
            yield from _check_group(f"vms.{group}", spec, names)
        for path, vms in _selections(scenario):
            yield from _unknown(f"{path}.groups", vms.groups, names.groups, "VM group")
            if not isinstance(vms.nodes, NodePick):
                yield from _unknown(f"{path}.nodes", vms.nodes, names.nodes, "node")
        yield from _check_happenings(scenario, names)
        yield from _check_troubles(scenario, names)


def _check_whole(scenario: Scenario) -> Iterator[Problem]:
    if scenario.cluster and (scenario.nodes or scenario.vms):
        yield Problem("cluster", "given beside nodes or vms", "either a dump of a cluster, or nodes and vms")
    if not scenario.cluster and not scenario.nodes:
        yield Problem("nodes", "none", "at least one group of nodes, or cluster: the dump of a real one")
    if scenario.trouble_start_minute > scenario.minutes:
        yield Problem(
            "trouble_start_minute",
            f"{scenario.trouble_start_minute:g}",
            f"up to minutes ({scenario.minutes:g})",
        )


def _check_group(path: str, spec: VmGroup, names: Names) -> Iterator[Problem]:
    yield from _check_range(f"{path}.dirty_mb_per_s", spec.dirty_mb_per_s)
    if spec.zone is not None and spec.zone not in names.zones:
        yield unknown_name(f"{path}.zone", spec.zone, names.zones, "zone with nodes")
    if spec.count and spec.anti_affine_sets_of > len(names.nodes):
        yield Problem(
            f"{path}.anti_affine_sets_of",
            f"{spec.anti_affine_sets_of} VMs that may not share a node",
            f"up to the number of nodes ({len(names.nodes)})",
        )
    if spec.placement == "scheduler" and (spec.pinned or spec.zone):
        yield Problem(f"{path}.placement", "'scheduler' with pinned or zone", "even, or names of nodes")
    if isinstance(spec.placement, tuple | dict):
        yield from _unknown(f"{path}.placement", spec.placement, names.nodes, "node")
    if isinstance(spec.placement, dict) and sum(spec.placement.values()) > spec.count:
        yield Problem(
            f"{path}.placement",
            f"{sum(spec.placement.values())} VMs",
            f"up to the group's count ({spec.count})",
        )


def _check_load(scenario: Scenario) -> Iterator[Problem]:
    load = scenario.load
    for number, constant in enumerate(load.constant):
        if constant.demand is None and constant.touched is None:
            yield Problem(f"load.constant[{number}]", "nothing to set", "demand, touched or both")
    for number, hotspot in enumerate(load.hotspots):
        path = f"load.hotspots[{number}]"
        if hotspot.demand is hotspot.factor is hotspot.touched is None:
            yield Problem(path, "nothing to set", "demand, factor or touched")
        if hotspot.demand is not None and hotspot.factor is not None:
            yield Problem(path, "demand and factor", "one of them")
        yield from _check_when(path, hotspot)
    for number, spikes in enumerate(load.spikes):
        path = f"load.spikes[{number}]"
        yield from _check_range(f"{path}.for_minutes", spikes.for_minutes)
        yield from _check_end(path, spikes.start_minute, spikes.end_minute)
    for path, vms in _selections(scenario):
        if vms.count is not None and vms.fraction is not None:
            yield Problem(path, "count and fraction", "one of them")
        if isinstance(vms.nodes, NodePick):
            given = [name for name in NodePick.__struct_fields__ if getattr(vms.nodes, name) is not None]
            if len(given) != 1:
                found = " and ".join(given) or "nothing"
                yield Problem(f"{path}.nodes", found, f"one of {', '.join(NodePick.__struct_fields__)}")
            elif path.startswith("immovable") and vms.nodes.most_committed_at_start is None:
                yield Problem(f"{path}.nodes", given[0], "names, or most_committed_at_start")


def _check_happenings(scenario: Scenario, names: Names) -> Iterator[Problem]:
    all_nodes = names.nodes + names.joining
    for number, happening in enumerate(scenario.happenings):
        path = f"happenings[{number}]"
        if isinstance(happening, Churn | StartVms) and happening.group not in scenario.vms:
            yield unknown_name(f"{path}.group", happening.group, scenario.vms, "VM group to make VMs of")
        if isinstance(happening, JoinNodes) and happening.group not in scenario.nodes:
            yield unknown_name(f"{path}.group", happening.group, scenario.nodes, "node group")
        if isinstance(happening, Cordon | Drain | LoseNodes | RemoveNodes | NotReady):
            yield from _unknown(f"{path}.nodes", happening.nodes, all_nodes, "node")
        if isinstance(happening, When):
            yield from _check_when(path, happening)
        if isinstance(happening, Churn):
            yield from _check_end(path, happening.start_minute, happening.end_minute)


def _check_troubles(scenario: Scenario, names: Names) -> Iterator[Problem]:
    known = {"nodes": names.nodes + names.joining, "series": (*NODE_SERIES, *VM_SERIES)}
    for number, trouble in enumerate(scenario.troubles):
        for field, allowed in known.items():
            for glob in getattr(trouble, field):
                if not any(fnmatchcase(name, glob) for name in allowed):
                    yield unknown_name(
                        f"troubles[{number}].{field}", glob, allowed, "node" if field == "nodes" else "series"
                    )


def _check_when(path: str, when: When) -> Iterator[Problem]:
    yield from _check_end(path, when.start_minute, when.end_minute)
    if (
        when.every_minutes is not None
        and when.for_minutes is not None
        and when.for_minutes > when.every_minutes
    ):
        yield Problem(
            f"{path}.for_minutes", f"{when.for_minutes:g}", f"up to every_minutes ({when.every_minutes:g})"
        )


def _check_end(path: str, start: float, end: float | None) -> Iterator[Problem]:
    if end is not None and end <= start:
        yield Problem(f"{path}.end_minute", f"{end:g}", f"more than start_minute ({start:g})")


def _check_range(path: str, value: float | tuple[float, ...]) -> Iterator[Problem]:
    if isinstance(value, tuple) and value[0] > value[1]:
        yield Problem(path, f"[{value[0]:g}, {value[1]:g}]", "[low, high]")


def _selections(scenario: Scenario) -> Iterator[tuple[str, Vms]]:
    """Every choice of VMs in the scenario, with its path."""
    load = scenario.load
    lists: dict[str, Iterable[object]] = {
        "immovable": scenario.immovable,
        "load.constant": load.constant,
        "load.daily": load.daily,
        "load.hotspots": load.hotspots,
        "load.noise": load.noise,
        "load.spikes": load.spikes,
        "happenings": scenario.happenings,
    }
    for path, number, item in chain.from_iterable(
        ((path, number, item) for number, item in enumerate(items)) for path, items in lists.items()
    ):
        vms = getattr(item, "vms", None)
        if isinstance(vms, Vms):
            yield f"{path}[{number}].vms", vms


def _unknown(path: str, used: Iterable[str], allowed: tuple[str, ...], what: str) -> Iterator[Problem]:
    for name in used:
        if name not in allowed:
            yield unknown_name(path, name, allowed, what)


def _unmatched(path: str, globs: Iterable[str], allowed: tuple[str, ...], what: str) -> Iterator[Problem]:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in allowed):
            yield unknown_name(path, glob, allowed, what)
