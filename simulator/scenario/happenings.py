"""What befalls the cluster besides its load: VMs and nodes that come and go, and what other people do to them."""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from msgspec.structs import replace

from simulator.agenda import Agenda
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.objectstore import VMIM, ApiError, ObjectStore, at
from simulator.load.select import Population, Selector
from simulator.load.times import intervals, poisson_times
from simulator.scenario.cluster import node_spec, vm_specs
from simulator.scenario.cluster_schema import Vms, When
from simulator.scenario.schema import (
    Abort,
    Backup,
    Churn,
    Cordon,
    Drain,
    Happening,
    JoinNodes,
    LoseNodes,
    Migrate,
    NotReady,
    RemoveNodes,
    Scenario,
    StartVms,
    StopVms,
    WebhookDown,
)
from simulator.seeds import generator
from simulator.specs import NodeSpec, VmSpec

_LOOK_AGAIN_S = 10.0
"""How often an upgrade looks whether a node has been drained."""


def later_vms(scenario: Scenario, seed: int) -> dict[int, list[tuple[float, VmSpec]]]:
    """Number of the happening -> (when, which) of the VMs that it starts; names go on where their group ends."""
    run_s = scenario.minutes * 60
    used = {group: spec.count for group, spec in scenario.vms.items()}
    later: dict[int, list[tuple[float, VmSpec]]] = {}
    for number, happening in enumerate(scenario.happenings):
        if isinstance(happening, Churn):
            rng = generator(seed, f"{_name(number)}.starts")
            times = poisson_times(rng, happening.starts_per_minute, *_span(happening, run_s))
        elif isinstance(happening, StartVms):
            times = [happening.at_minute * 60] * happening.count
        else:
            continue
        first = used[happening.group]
        used[happening.group] += len(times)
        numbers = range(first, used[happening.group])
        group = scenario.vms[happening.group]
        specs = vm_specs(happening.group, group, numbers, scenario.load, seed)
        later[number] = [
            (time_s, replace(spec, age_s=0.0)) for time_s, spec in zip(times, specs, strict=True)
        ]
    return later


class Happenings:
    """Plans a scenario's happenings on the agenda; what can no longer be done when its time comes is left out."""

    def __init__(
        self,
        scenario: Scenario,
        control_plane: ControlPlane,
        store: ObjectStore,
        agenda: Agenda,
        population: Population,
        seed: int,
    ) -> None:
        self._scenario = scenario
        self._control_plane = control_plane
        self._store = store
        self._agenda = agenda
        self._population = population
        self._seed = seed
        self._run_s = scenario.minutes * 60
        self._later = later_vms(scenario, seed)
        self._nodes_of_group = {group: spec.count for group, spec in scenario.nodes.items()}

    def start(self) -> None:
        for number in range(len(self._scenario.happenings)):
            self._plan(number)

    def _plan(self, number: int) -> None:
        plane = self._control_plane
        for time_s, spec in self._later.get(number, ()):
            self._at(time_s, functools.partial(plane.create_vm, spec))
        match happening := self._scenario.happenings[number]:
            case Churn():
                self._plan_stops(happening, number)
            case StopVms():
                self._at(happening.at_minute * 60, self._for_vms(happening.vms, number, plane.stop_vm))
            case Migrate():
                self._plan_when(happening, self._for_vms(happening.vms, number, plane.create_migration))
            case Backup():
                self._plan_backups(happening, number)
            case Abort():
                abort = functools.partial(self._abort, happening.way, generator(self._seed, _name(number)))
                self._plan_when(happening, abort)
            case WebhookDown():
                down = functools.partial(plane.set_webhook_down, is_down=True)
                self._plan_when(happening, down, functools.partial(plane.set_webhook_down, is_down=False))
            case _:
                self._plan_for_nodes(happening)

    def _plan_for_nodes(self, happening: Happening) -> None:
        plane = self._control_plane
        not_ready = functools.partial(plane.set_node_ready, ready=False)
        ready = functools.partial(plane.set_node_ready, ready=True)
        match happening:
            case JoinNodes():
                for spec in self._joining(happening):
                    self._at(happening.at_minute * 60, functools.partial(plane.add_node, spec))
            case RemoveNodes():
                for node in happening.nodes:
                    self._at(happening.at_minute * 60, functools.partial(plane.remove_node, node))
            case Drain():
                begin = functools.partial(self._upgrade, happening, happening.nodes)
                self._at(happening.at_minute * 60, begin)
            case Cordon():
                self._plan_each(happening, happening.nodes, plane.cordon, plane.uncordon)
            case LoseNodes():
                self._plan_each(happening, happening.nodes, plane.lose_node, ready)
            case NotReady():
                self._plan_each(happening, happening.nodes, not_ready, ready)

    def _at(self, time_s: float, action: Callable[[], object]) -> None:
        self._agenda.at(time_s, functools.partial(_ask, action))

    def _plan_when(
        self, when: When, begin: Callable[[], object], end: Callable[[], object] = lambda: None
    ) -> None:
        for start_s, end_s in intervals(when, self._run_s):
            self._at(start_s, begin)
            if end_s < self._run_s:
                self._at(end_s, end)

    def _plan_each(
        self,
        when: When,
        nodes: Sequence[str],
        begin: Callable[[str], object],
        end: Callable[[str], object],
    ) -> None:
        for node in nodes:
            self._plan_when(when, functools.partial(begin, node), functools.partial(end, node))

    def _joining(self, happening: JoinNodes) -> list[NodeSpec]:
        first = self._nodes_of_group[happening.group]
        self._nodes_of_group[happening.group] += happening.count
        group = self._scenario.nodes[happening.group]
        return [node_spec(happening.group, group, number) for number in range(first, first + happening.count)]

    def _upgrade(self, happening: Drain, nodes: Sequence[str]) -> None:
        """Drain the first of the nodes, then see to it and to the rest."""
        if nodes:
            _ask(functools.partial(self._control_plane.drain, nodes[0]))
            self._when_drained(happening, nodes)

    def _when_drained(self, happening: Drain, nodes: Sequence[str]) -> None:
        node, plane = nodes[0], self._control_plane
        if not plane.is_drained(node):
            self._agenda.after(_LOOK_AGAIN_S, functools.partial(self._when_drained, happening, nodes))
            return
        up_s = self._agenda.now_s + happening.reboot_minutes * 60
        self._at(self._agenda.now_s, functools.partial(plane.set_node_ready, node, ready=False))
        self._at(up_s, functools.partial(plane.set_node_ready, node, ready=True))
        self._at(up_s, functools.partial(plane.uncordon, node))
        self._at(up_s + happening.pause_minutes * 60, functools.partial(self._upgrade, happening, nodes[1:]))

    def _plan_stops(self, happening: Churn, number: int) -> None:
        stop = self._for_vms(Vms(groups=(happening.group,), count=1), number, self._control_plane.delete_vm)
        rng = generator(self._seed, f"{_name(number)}.stops")
        for time_s in poisson_times(rng, happening.stops_per_minute, *_span(happening, self._run_s)):
            self._at(time_s, stop)

    def _plan_backups(self, happening: Backup, number: int) -> None:
        selector = self._selector(happening.vms, number)
        for start_s, end_s in intervals(happening, self._run_s):
            self._at(start_s, functools.partial(self._back_up, selector, end_s))

    def _back_up(self, selector: Selector, end_s: float) -> None:
        for namespace, name in self._names(selector):
            back_up = functools.partial(self._control_plane.set_backup, namespace, name)
            _ask(functools.partial(back_up, running=True))
            self._at(end_s, functools.partial(back_up, running=False))

    def _abort(self, way: str, rng: np.random.Generator) -> None:
        """End one migration that is under way, whichever."""
        finished = ("Succeeded", "Failed")
        under_way = [vmim for vmim in self._store.list(VMIM) if at(vmim, "status", "phase") not in finished]
        if not under_way:
            return
        vmim = under_way[int(rng.integers(len(under_way)))]
        namespace = vmim["metadata"]["namespace"]
        if way == "evacuate-cancel":
            self._control_plane.evacuate_cancel(namespace, vmim["spec"]["vmiName"])
        else:
            self._control_plane.delete_migration(namespace, vmim["metadata"]["name"])

    def _selector(self, vms: Vms, number: int) -> Selector:
        return Selector(self._population, vms, generator(self._seed, _name(number)))

    def _for_vms(self, vms: Vms, number: int, action: Callable[[str, str], object]) -> Callable[[], None]:
        """Do this to the VMs chosen when the time comes."""
        selector = self._selector(vms, number)

        def act() -> None:
            for namespace, name in self._names(selector):
                _ask(functools.partial(action, namespace, name))

        return act

    def _names(self, selector: Selector) -> list[tuple[str, str]]:
        """(namespace, name) of the chosen VMs that run now."""
        chosen = self._population.existing(selector.choose()).tolist()
        return [(self._population.vms[n].namespace, self._population.vms[n].name) for n in chosen]


def _ask(action: Callable[[], object]) -> None:
    """Send a request; that the API refuses it, as its object has gone meanwhile, is no error of the scenario."""
    with suppress(ApiError):
        action()


def _name(number: int) -> str:
    return f"happenings[{number}]"


def _span(churn: Churn, run_s: float) -> tuple[float, float]:
    end_s = run_s if churn.end_minute is None else min(run_s, churn.end_minute * 60)
    return churn.start_minute * 60, end_s
