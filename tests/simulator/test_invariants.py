"""A check that cannot fail is none: each invariant of a run, and a controller that breaks it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from controller.cluster.objects import Node, Taint
from controller.descheduler import Descheduler
from controller.evictions.entry import Entry
from controller.evictions.views import LedgerView
from controller.following import Following
from controller.keys import Consider
from controller.survey import Survey
from controller.taints.desired import is_ours, merged
from simulator.build import build
from simulator.engine.ports import BrokenInvariant
from simulator.engine.programs import DESCHEDULER, SOFT_TAINTER, Programs
from simulator.engine.run import Finished, Run, policy_for, run
from simulator.kubevirt.objectstore import NODE
from simulator.scenario.loading import parse_scenario
from simulator.scenario.schema import Scenario

HOT: dict[str, Any] = {
    "description": "One crowded node.",
    "minutes": 25,
    "nodes": {"node": {"count": 4, "cores": 16, "memory_gib": 256}},
    "vms": {
        "hot": {"count": 7, "vcpus": 4, "memory_gib": 8, "demand": 0.7, "placement": ["node-00"]},
        "cool": {"count": 7, "vcpus": 2, "memory_gib": 4, "demand": 0.3},
    },
}
FOREIGN = [{"key": "team", "value": "a", "effect": "PreferNoSchedule"}]
Patch = pytest.MonkeyPatch


def hot(**changes: Any) -> Scenario:
    return parse_scenario(yaml.safe_dump({**HOT, **changes}))


def ran(scenario: Scenario) -> Finished:
    return run(Run(scenario, 1, policy_for(scenario), "as in the test"))


def without_the_gate(patch: Patch) -> None:
    patch.setattr("controller.evictions.plan.why_closed", lambda *_: None)
    patch.setattr("controller.descheduler.why_closed", lambda *_: None)


def without_kubevirts_limits(patch: Patch) -> None:
    patch.setattr("controller.survey.effective_limits", lambda limits, _: limits)


def without_cool_downs(patch: Patch) -> None:
    patch.setattr(LedgerView, "cooling_until", lambda *_: None)


def without_memory_over_restarts(patch: Patch) -> None:
    patch.setattr(Following, "rebuild", lambda *_: [])
    patch.setattr("controller.following.finished_migrations", lambda *_, **__: [])


def without_ever_looking_up(patch: Patch) -> None:
    patch.setattr(Following, "_look_up", lambda _, entry, __: entry)


def taking_off_what_others_set(patch: Patch) -> None:
    def ours(present: list[Taint], keys: frozenset[str]) -> list[Taint]:
        return [taint for taint in merged(present, keys) if is_ours(taint)]

    patch.setattr("controller.softtainter.merged", ours)


def changing_what_is_cached(patch: Patch) -> None:
    loads = Survey.load_of

    def load_of(self: Survey, vm: Any) -> Any:
        vmi = self._view.vmi(vm)
        if vmi is not None:
            msgspec.structs.force_setattr(vmi, "phase", "Odd")
        return loads(self, vm)

    patch.setattr(Survey, "load_of", load_of)


def waking_each_other_for_ever(patch: Patch) -> None:
    def consider(self: Descheduler, node: str, _: Any) -> None:
        self.workers.add(Consider(node))

    patch.setattr("simulator.engine.ports._MOST_LOOKS", 1_000)
    patch.setattr(Descheduler, "_consider", consider)


def never_settling(patch: Patch) -> None:
    patch.setattr("controller.evictions.lifecycle._settle", lambda entry, *_: entry)


CHASING = {
    "hotspots": [{"vms": {"nodes": {"hottest": 1}}, "every_minutes": 6, "for_minutes": 5, "demand": 0.9}]
}
RESTARTED = [{"kind": "restart", "start_minute": 7, "every_minutes": 2, "away_seconds": 1}]
MANY = {"evictions": {"limits": {"node": 3, "total": 9}}}


@pytest.mark.parametrize(
    ("broken", "changes", "words"),
    [
        (without_the_gate, {}, "already 1 on the move from node-00"),
        (
            without_kubevirts_limits,
            {"policy": MANY, "kubevirt": {"parallel_migrations_per_cluster": 1}},
            "already 1 VMs",
        ),
        (without_cool_downs, {"load": CHASING, "minutes": 60}, "its VM moved at .* and rests for"),
        (
            without_memory_over_restarts,
            {"load": CHASING, "happenings": RESTARTED, "minutes": 60},
            "rests for",
        ),
        (
            without_ever_looking_up,
            {"api": {"lost_request_probability": 0.5}, "minutes": 40},
            "is Unknown since",
        ),
        (
            taking_off_what_others_set,
            {"nodes": {"node": {**HOT["nodes"]["node"], "taints": FOREIGN}}},
            "taints of others",
        ),
        (changing_what_is_cached, {}, "in the cache of the descheduler was changed"),
        (waking_each_other_for_ever, {}, "handlers go on and on"),
        (never_settling, {"minutes": 30}, "is Settling since"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_controller_that_breaks_an_invariant_is_caught(
    broken: Callable[[Patch], None], changes: dict[str, Any], words: str, monkeypatch: Patch
) -> None:
    scenario = hot(**changes)
    assert ran(scenario).record.migrations, "as it is, it breaks none, and something moves"
    broken(monkeypatch)
    with pytest.raises(BrokenInvariant, match=words):
        ran(scenario)


def programs_on(scenario: Scenario) -> tuple[Programs, Any]:
    simulation, policy = build(scenario, 1), policy_for(scenario)
    programs = Programs(simulation, policy, scenario.api, 1, "as in the test")
    programs.start(DESCHEDULER)
    programs.start(SOFT_TAINTER)
    return programs, simulation


def stripped(simulation: Any) -> None:
    node = simulation.store.get(NODE, "", "node-00")
    assert msgspec.convert(node, Node).taints, "it is over-utilised"
    simulation.control_plane.replace_taints("node-00", node["metadata"]["resourceVersion"], [])


def test_a_tainter_that_leaves_a_node_without_its_taints_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr("controller.softtainter._keys_of_node", lambda _: [])
    programs, simulation = programs_on(hot())
    programs.run_until(95.0)
    stripped(simulation)
    with pytest.raises(BrokenInvariant, match=r"node-00 carries \[\], its classification asks for"):
        programs.run_until(121.0)


def test_what_somebody_took_off_comes_back_before_the_next_refresh() -> None:
    programs, simulation = programs_on(hot())
    programs.run_until(95.0)
    stripped(simulation)
    programs.run_until(121.0)
    programs.judge_taints()


def test_a_stalled_watch_brings_all_it_missed_when_it_goes_on_or_is_listed() -> None:
    for listed_anew in (False, True):
        programs, simulation = programs_on(hot())
        programs.stall(DESCHEDULER)
        complete_s = programs.lives[DESCHEDULER].complete_s
        programs.run_until(300.0)
        assert programs.lives[DESCHEDULER].complete_s == complete_s
        programs.go_on(DESCHEDULER, listed_anew=listed_anew)
        programs.run_until(1500.0)
        assert not [entry for entry in programs.ledger.entries if entry.in_flight]
        assert simulation.control_plane.migrations


def test_a_request_that_was_sent_arrives_though_who_sent_it_was_killed() -> None:
    programs, simulation = programs_on(hot(api={"answer_seconds": 10}))
    seen: list[Entry] = []

    def kill() -> None:
        seen.extend(programs.ledger.entries)
        assert not simulation.control_plane.migrations
        programs.kill(DESCHEDULER)

    # It is opened with the refresh at 60 s; the dry run is answered 10 s later, and the request arrives 5 s after that.
    simulation.agenda.at(72.5, kill)
    programs.run_until(90.0)
    assert [str(entry.phase) for entry in seen] == ["Requested"]
    assert [m.vm for m in simulation.control_plane.migrations] == [str(seen[0].vm)]
    programs.start(DESCHEDULER)
    programs.run_until(91.0)
    assert [entry.vm for entry in programs.ledger.entries] == [seen[0].vm], "it is taken up again"
