"""A cluster with both programs at work, to which anything may happen in any order. See ``test_any_order``."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import yaml
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.evictions.entry import Entry, Phase
from controller.policy.model import API_VERSION, KIND
from controller.policy.watch import PolicyWatch
from controller.taints.desired import PREFIX
from simulator.build import build
from simulator.engine.ports import BrokenInvariant
from simulator.engine.programs import DESCHEDULER, SOFT_TAINTER, Programs
from simulator.kubevirt.objectstore import KUBEVIRT, NODE, VMI, VMIM, ApiError, Json, at
from simulator.metrics.recorded import Sample
from simulator.metrics.trouble import MetricTroubles, Trouble
from simulator.scenario.cluster import node_spec, vm_specs
from simulator.scenario.loading import parse_scenario
from simulator.scenario.schema import Api
from simulator.seeds import plain_random
from tests.properties.drawn_scenarios import (
    EVICTIONS,
    SOFT_TAINTS,
    THRESHOLDS,
    merged,
    optional,
    ranged,
)
from tests.properties.drawn_scenarios import KUBEVIRT as KUBEVIRTS

CLUSTER: dict[str, Any] = {
    "description": "A crowded node among others.",
    "minutes": 100_000,
    "nodes": {"node": {"count": 4, "cores": 16, "memory_gib": 256}},
    "vms": {
        "hot": {"count": 7, "vcpus": 4, "memory_gib": 8, "demand": 0.7, "placement": ["node-00"]},
        "cool": {"count": 7, "vcpus": 2, "memory_gib": 4, "dirty_mb_per_s": 5, "demand": 0.3},
    },
    "load": {"tick_seconds": 86_400},
}
NODE_NAMES = st.sampled_from([f"node-{n:02}" for n in range(5)])
"""One more than there are at the start."""
VM_NAMES = st.sampled_from([*(f"hot-{n:03}" for n in range(7)), *(f"cool-{n:03}" for n in range(7))])
PROGRAMS = st.sampled_from([DESCHEDULER, DESCHEDULER, SOFT_TAINTER])
MOMENTS = st.sampled_from([0.0, 0.0, 0.4, 3.0, 20.0, 65.0])
"""Seconds that pass after something has happened."""
RESOURCES = st.sampled_from([(), ("vmis",), ("vmims",), ("nodes",), ("launchers", "vmis")])
TROUBLES = st.lists(
    merged(
        st.sampled_from(
            [
                {"kind": "outage"},
                {"kind": "late"},
                {"kind": "missing"},
                {"kind": "partial"},
                {"kind": "stale"},
                {"kind": "nan"},
                {"kind": "out-of-range", "value": 87},
                {"kind": "duplicate", "factor": 1.5},
                {"kind": "relabel", "to": "ip:port"},
                {"kind": "relabel", "to": "fqdn"},
            ]
        ),
        optional("probability", ranged(0.1, 1)),
        optional("nodes", st.sampled_from([["node-00"], ["node-0[1-3]"]])),
        optional("series", st.sampled_from([["*vmi*"], ["*:score"], ["*memory*"]])),
    ),
    min_size=1,
    max_size=2,
)
APIS = merged(
    optional("answer_seconds", st.sampled_from([0.5, [0, 4], [0, 20], 40])),
    optional("lost_request_probability", st.sampled_from([0.3, 1])),
    st.sampled_from([{"lost_answer_probability": p} for p in (0, 0.4, 0.4, 1)]),
)
POLICIES = merged(
    st.sampled_from([{"mode": "Automatic"}] * 5 + [{"mode": "Predictive"}, {}]),
    optional("thresholds", THRESHOLDS),
    optional("evictions", EVICTIONS),
    optional("softTaints", SOFT_TAINTS),
    optional(
        "metrics",
        st.sampled_from([{"refreshInterval": "10s"}, {"actualUtilizationProfile": "PrometheusCPUUsage"}]),
    ),
)
LOST = ("Unreachable: ", "NoAnswer: ")
CALM_S = 10 * 60.0
LONGER_S = 25 * 60.0
"""Together longer than anything may take once all is well: the default migrationTimeout."""


class Weather(MetricTroubles):
    """Trouble that comes and goes whenever it likes."""

    def __init__(self, fair: MetricTroubles) -> None:
        self._fair = fair
        self.now = fair

    def clear(self) -> None:
        self.now = self._fair

    def apply(self, series: str, samples: list[Sample], now_s: float) -> tuple[list[Sample], list[str]]:
        return self.now.apply(series, samples, now_s)

    def delay_s(self, series: str, now_s: float) -> float:
        return self.now.delay_s(series, now_s)


@contextmanager
def judged() -> Iterator[None]:
    """A broken invariant is no Exception, so Hypothesis would not shrink it."""
    try:
        yield
    except BrokenInvariant as error:
        raise AssertionError(str(error)) from error


class ClusterMachine(RuleBasedStateMachine):
    """The rules are what clusters do to a controller; the invariants are those of the simulator's engine."""

    @initialize(
        kubevirt=KUBEVIRTS.filter(lambda options: not options.get("webhook_down")),
        policy=POLICIES,
        seed=st.integers(1, 100),
    )
    def begin(self, kubevirt: dict[str, Any], policy: dict[str, Any], seed: int) -> None:
        scenario = parse_scenario(yaml.safe_dump({**CLUSTER, "kubevirt": kubevirt}))
        built = build(scenario, seed)
        self.weather = Weather(built.troubles)
        self.cluster = dataclasses.replace(built, troubles=self.weather)
        self.agenda, self.plane, self.store = built.agenda, built.control_plane, built.store
        self.node_specs = {
            s.name: s for s in (node_spec("node", scenario.nodes["node"], n) for n in range(5))
        }
        self.vm_specs = {
            spec.name: msgspec.structs.replace(spec, age_s=0.0, node=None)
            for group, of in scenario.vms.items()
            for spec in vm_specs(group, of, range(of.count), scenario.load, seed)
        }
        self.text = self.document(policy)
        self.policy_watch = PolicyWatch("ConfigMap", lambda: self.text)
        self.policy_watch.reload()
        now = self.policy_watch.current()
        assert now is not None
        self.programs = Programs(self.cluster, now, Api(), seed, "the rules above")
        self.programs.start(DESCHEDULER)
        self.programs.start(SOFT_TAINTER)
        self.go(65.0)

    @staticmethod
    def document(policy: dict[str, Any]) -> str:
        return yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, **policy})

    def go(self, seconds: float) -> None:
        with judged():
            self.programs.run_until(self.agenda.now_s + seconds)

    def ask(self, action: Callable[[], object], then_s: float = 0.0) -> None:
        """What can no longer be done is left out."""
        with suppress(ApiError, ValueError):
            action()
        self.go(then_s)

    def node(self, name: str) -> Json | None:
        return self.store.get(NODE, "", name)

    # --- time and load ---

    @rule(seconds=st.sampled_from([5.0, 30.0, 120.0, 120.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.go(seconds)

    @rule(name=NODE_NAMES, demand=ranged(0.1, 1))
    def the_vms_of_a_node_want(self, name: str, demand: float) -> None:
        world = self.cluster.world
        for key in world.layout().vm_keys:
            if world.node_of(key) == name:
                world.set_demand(key, demand)
        self.go(45.0)

    @rule(then_s=st.sampled_from([0.0, 90.0]))
    def where_the_last_one_went_is_trouble_now(self, then_s: float) -> None:
        arrived = [m.vm for m in self.plane.migrations if m.outcome == "Succeeded"]
        world = self.cluster.world
        if arrived and arrived[-1] in world.layout().vm_keys:
            node = world.node_of(arrived[-1])
            for key in world.layout().vm_keys:
                world.set_demand(key, 1.0 if world.node_of(key) == node else 0.1)
        self.go(then_s)

    @rule(name=VM_NAMES, demand=ranged(0, 1))
    def a_vm_wants(self, name: str, demand: float) -> None:
        if self.plane.is_running("vms", name):
            self.cluster.world.set_demand(f"vms/{name}", demand)
        self.go(45.0)

    # --- VMs come, go and move ---

    @rule(name=VM_NAMES, then_s=MOMENTS, how=st.sampled_from(["stop", "start", "delete", "create", "anew"]))
    def the_owner_of_a_vm(self, name: str, how: str, then_s: float) -> None:
        actions: dict[str, Callable[[], object]] = {
            "stop": lambda: self.plane.stop_vm("vms", name),
            "start": lambda: self.plane.start_vm("vms", name),
            "delete": lambda: self.plane.delete_vm("vms", name),
            "create": lambda: self.plane.create_vm(self.vm_specs[name]),
        }
        if how != "anew":
            self.ask(actions[how], then_s)
            return
        self.ask(actions["delete"], 8.0)  # as long as it takes to go down
        self.ask(actions["create"], then_s)

    @rule(names=st.lists(VM_NAMES, min_size=1, max_size=6, unique=True), then_s=MOMENTS)
    def somebody_migrates(self, names: list[str], then_s: float) -> None:
        for name in names:
            self.ask(functools.partial(self.plane.create_migration, "vms", name))
        self.go(then_s)

    @rule(number=st.integers(0, 9), then_s=MOMENTS, cancel=st.booleans())
    def somebody_ends_a_migration(self, number: int, cancel: bool, then_s: float) -> None:
        if vmims := self.store.list(VMIM):
            vmim = vmims[-1 - number % len(vmims)]
            if cancel:
                self.ask(lambda: self.plane.evacuate_cancel("vms", vmim["spec"]["vmiName"]), then_s)
            else:
                self.ask(lambda: self.plane.delete_migration("vms", vmim["metadata"]["name"]), then_s)

    # --- nodes ---

    @rule(
        name=NODE_NAMES,
        then_s=MOMENTS,
        how=st.sampled_from(
            ["cordon", "uncordon", "drain", "lose", "not-ready", "ready", "remove", "add", "add"]
        ),
    )
    def a_node(self, name: str, how: str, then_s: float) -> None:
        if how in ("remove", "lose") and len(self.store.list(NODE)) <= 2:
            return
        actions: dict[str, Callable[[], object]] = {
            "cordon": lambda: self.plane.cordon(name),
            "uncordon": lambda: self.plane.uncordon(name),
            "drain": lambda: self.plane.drain(name),
            "lose": lambda: self.plane.lose_node(name),
            "not-ready": lambda: self.plane.set_node_ready(name, ready=False),
            "ready": lambda: self.plane.set_node_ready(name, ready=True),
            "remove": lambda: self.plane.remove_node(name),
            "add": lambda: self.plane.add_node(self.node_specs[name]),
        }
        self.ask(actions[how], then_s)

    @rule(then_s=MOMENTS, how=st.sampled_from(["strip", "value", "foreign"]))
    def somebody_changes_taints(self, how: str, then_s: float) -> None:
        for node in self.store.list(NODE):
            taints: list[Json] = list(at(node, "spec", "taints") or ())
            if how == "strip":
                taints = [t for t in taints if not t["key"].startswith(PREFIX)]
            elif how == "value":
                taints = [{**t, "value": "x"} if t["key"].startswith(PREFIX) else t for t in taints]
            elif not any(t["key"] == "team" for t in taints):
                taints.append({"key": "team", "value": "a", "effect": "PreferNoSchedule"})
            name, version = node["metadata"]["name"], node["metadata"]["resourceVersion"]
            self.ask(functools.partial(self.plane.replace_taints, name, version, taints))
        self.go(then_s)

    @rule(in_all=st.integers(1, 5), of_a_node=st.integers(1, 3), then_s=MOMENTS)
    def kubevirt_allows(self, in_all: int, of_a_node: int, then_s: float) -> None:
        metadata = self.store.list(KUBEVIRT)[0]["metadata"]
        limits = {"parallelMigrationsPerCluster": in_all, "parallelOutboundMigrationsPerNode": of_a_node}
        path = ("spec", "configuration", "migrations")
        self.store.update(KUBEVIRT, metadata["namespace"], metadata["name"], {path: limits})
        self.go(then_s)

    # --- faults ---

    @rule(troubles=TROUBLES, then_s=MOMENTS)
    def metrics_are_in_trouble(self, troubles: list[dict[str, Any]], then_s: float) -> None:
        kinds = msgspec.convert(troubles, tuple[Trouble, ...])
        self.weather.now = MetricTroubles(kinds, plain_random(1, "weather"))
        self.go(then_s)

    @rule(then_s=MOMENTS)
    def metrics_are_fine(self, then_s: float) -> None:
        self.weather.clear()
        self.go(then_s)

    @rule(api=APIS, then_s=MOMENTS)
    def the_line_is(self, api: dict[str, Any], then_s: float) -> None:
        self.programs.line.api = msgspec.convert(api, Api)
        self.go(then_s)

    @rule(is_down=st.booleans(), then_s=MOMENTS)
    def the_webhook_is(self, is_down: bool, then_s: float) -> None:
        self.plane.set_webhook_down(is_down=is_down)
        self.go(then_s)

    @rule(name=PROGRAMS, resources=RESOURCES, then_s=MOMENTS)
    def watches_stall(self, name: str, resources: tuple[str, ...], then_s: float) -> None:
        self.programs.stall(name, resources)
        self.go(then_s)

    @rule(name=PROGRAMS, listed_anew=st.booleans(), then_s=MOMENTS)
    def watches_go_on(self, name: str, listed_anew: bool, then_s: float) -> None:
        self.programs.go_on(name, listed_anew=listed_anew)
        self.go(then_s)

    # --- the programs themselves ---

    @rule(policy=POLICIES, then_s=MOMENTS)
    def the_policy_becomes(self, policy: dict[str, Any], then_s: float) -> None:
        self.text = self.document(policy)
        self.reload(then_s)

    @rule(
        text=st.sampled_from(["", "{", "kind: Other", "mode: Automatic\nevictions: {limits: {node: 0}}"]),
        then_s=MOMENTS,
    )
    def the_policy_is_broken(self, text: str, then_s: float) -> None:
        before = self.policy_watch.current()
        self.text = text
        self.reload(then_s)
        assert self.policy_watch.current() is before
        assert not self.policy_watch.state.valid

    def reload(self, then_s: float) -> None:
        self.policy_watch.reload()
        if (now := self.policy_watch.current()) is not None:
            self.programs.change_policy(now)
        self.go(then_s)

    @rule(name=PROGRAMS, away_s=st.sampled_from([0.0, 3.0, 40.0, 300.0]), then_s=MOMENTS)
    def a_program_is_restarted(self, name: str, away_s: float, then_s: float) -> None:
        self.programs.kill(name)
        self.go(away_s)
        with judged():
            self.programs.start(name)
        self.go(then_s)

    @rule(name=PROGRAMS, away_s=st.sampled_from([0.0, 20.0]), sooner_s=ranged(0.05, 40))
    def a_program_is_killed_while_it_works(self, name: str, sooner_s: float, away_s: float) -> None:
        def kill() -> None:
            if name in self.programs.lives:
                self.programs.kill(name)
                self.agenda.after(away_s, lambda: self.programs.start(name))

        self.agenda.after(sooner_s, kill)
        self.go(sooner_s + away_s + 1.0)

    # --- what holds ---

    @invariant()
    def cached_objects_are_as_they_came(self) -> None:
        with judged():
            self.programs.invariants.unchanged()

    @invariant()
    def handlers_fail_only_where_the_line_does(self) -> None:
        assert [e for e in self.programs.observer.errors if not any(lost in e for lost in LOST)] == []

    def teardown(self) -> None:
        if hasattr(self, "programs"):
            note(self.programs.log.text()[-20_000:].decode())
            self.all_is_well_at_last()

    def all_is_well_at_last(self) -> None:
        """Everything that was opened ends, but for what the cluster itself still has on the move."""
        self.weather.clear()
        self.programs.line.api = Api()
        self.plane.set_webhook_down(is_down=False)
        for name in (DESCHEDULER, SOFT_TAINTER):
            self.programs.go_on(name)
        for node in [node["metadata"]["name"] for node in self.store.list(NODE)]:
            self.ask(functools.partial(self.plane.set_node_ready, node, ready=True))
            self.ask(functools.partial(self.plane.uncordon, node))
        self.go(CALM_S)
        with judged():
            self.programs.judge_taints()
        if self.left():
            self.go(LONGER_S)
        assert not self.left()

    def left(self) -> list[Entry]:
        """Entries that wait for nothing."""
        unfinished = [
            m for m in self.store.list(VMIM) if at(m, "status", "phase") not in ("Succeeded", "Failed")
        ]
        marked = [v for v in self.store.list(VMI) if at(v, "status", "evacuationNodeName")]
        moving = {m["spec"]["vmiName"] for m in unfinished} | {v["metadata"]["name"] for v in marked}
        entries = self.programs.ledger.entries
        return [e for e in entries if e.phase is not Phase.SETTLING and e.vm.name not in moving]
