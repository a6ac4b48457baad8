"""From a scenario and a seed to a cluster that is about to run, with all that will befall it planned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from simulator.agenda import Agenda
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.objectstore import NODE, ObjectStore, at
from simulator.kubevirt.options import KubeVirtOptions
from simulator.load.load import Load
from simulator.load.replay import read_series
from simulator.load.select import Population
from simulator.metrics.recorded import RecordedMetrics
from simulator.metrics.trouble import MetricTroubles
from simulator.scenario.checking import Problem, ScenarioErrors
from simulator.scenario.cluster import Cluster, expand, with_immovable
from simulator.scenario.dump import Assumed, read_dump
from simulator.scenario.happenings import Happenings, later_vms
from simulator.scenario.references import Names, check_references
from simulator.scenario.schema import Scenario
from simulator.seeds import plain_random
from simulator.world.world import World


@dataclass(frozen=True, slots=True)
class Simulation:
    """The parts of one simulated cluster. All of them live on ``agenda``; running it is all there is to do."""

    agenda: Agenda
    world: World
    store: ObjectStore
    control_plane: ControlPlane
    metrics: RecordedMetrics
    troubles: MetricTroubles
    load: Load


def build(scenario: Scenario, seed: int) -> Simulation:
    """The cluster of a scenario at second 0: VMs run, loads and happenings are planned.

    The same scenario and seed give the same run. Raises ``ScenarioErrors`` if the cluster is impossible, or a file
    that the scenario names (dump, replay) cannot be used.
    """
    cluster, options = _cluster(scenario, seed)
    agenda = Agenda()
    world = World(agenda)
    store = ObjectStore(agenda, plain_random(seed, "objectstore"))
    control_plane = ControlPlane(world, agenda, store, options, plain_random(seed, "kubevirt"))
    _populate(control_plane, cluster, scenario)
    vms = [*cluster.vms, *(spec for specs in later_vms(scenario, seed).values() for _, spec in specs)]
    population = Population(vms, {key: world.node_of(key) for key in world.layout().vm_keys}, world)
    load = Load(
        scenario.load,
        population,
        world,
        agenda,
        seed=seed,
        run_s=scenario.minutes * 60,
        series=read_series(scenario.load.replay.file, population.position) if scenario.load.replay else None,
    )
    load.start()
    Happenings(scenario, control_plane, store, agenda, population, seed).start()
    metrics = RecordedMetrics(world, agenda)
    troubles = MetricTroubles(scenario.troubles, plain_random(seed, "troubles"), _InternalIps(store))
    return Simulation(agenda, world, store, control_plane, metrics, troubles, load)


def _cluster(scenario: Scenario, seed: int) -> tuple[Cluster, KubeVirtOptions]:
    if not scenario.cluster:
        return expand(scenario, seed), scenario.kubevirt
    dump = read_dump(scenario.cluster, Assumed(demand=scenario.load.demand, touched=scenario.load.touched))
    nodes, vms = dump.cluster.nodes, dump.cluster.vms
    groups = tuple(dict.fromkeys(vm.group for vm in vms))
    problems = list(check_references(scenario, Names(tuple(node.name for node in nodes), (), groups, ())))
    if problems:
        raise ScenarioErrors(scenario.name, problems)
    vms = with_immovable(vms, nodes, scenario.immovable, seed)
    return dump.cluster._replace(vms=vms), _options(scenario.kubevirt, dump.kubevirt)


def _options(asked: KubeVirtOptions, found: dict[str, Any]) -> KubeVirtOptions:
    """The dump's KubeVirt, but for what the scenario sets itself."""
    default = KubeVirtOptions()
    kept = {name: value for name, value in found.items() if getattr(asked, name) == getattr(default, name)}
    try:
        return msgspec.convert(msgspec.to_builtins(asked) | kept, KubeVirtOptions)
    except msgspec.ValidationError as error:
        raise ScenarioErrors(
            "KubeVirt of the dump", [Problem("spec.configuration", str(error), "as in KubeVirt")]
        ) from None


def _populate(control_plane: ControlPlane, cluster: Cluster, scenario: Scenario) -> None:
    for node in cluster.nodes:
        control_plane.add_node(node)
    for vm in cluster.vms:
        try:
            control_plane.create_vm(vm)
        except ValueError as error:
            allowed = "VMs that fit on the nodes"
            raise ScenarioErrors(scenario.name, [Problem(f"vms.{vm.group}", str(error), allowed)]) from None
        if vm.group in scenario.vms and scenario.vms[vm.group].hotplug:
            control_plane.hotplug_volume(vm.namespace, vm.name)
    for name in cluster.cordoned:
        control_plane.cordon(name)
    for name in cluster.not_ready:
        control_plane.set_node_ready(name, ready=False)


class _InternalIps(Mapping[str, str]):
    """Node -> InternalIP, as the Node objects say at the moment; nodes without one are left out."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getitem__(self, node: str) -> str:
        for address in at(self._store.get(NODE, "", node) or {}, "status", "addresses") or []:
            if address["type"] == "InternalIP":
                return str(address["address"])
        raise KeyError(node)

    def __iter__(self) -> Iterator[str]:
        names = (node["metadata"]["name"] for node in self._store.list(NODE))
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
