"""Both programs on a simulated cluster; one of them is killed once, and another takes its place."""

import msgspec

from controller.cluster.objects import Node, Taint
from controller.evictions.views import Alarm
from controller.policy.model import Policy
from controller.taints.desired import OVER
from simulator.build import Simulation, build
from simulator.engine.befall import befall
from simulator.engine.programs import DESCHEDULER, SOFT_TAINTER, Programs
from simulator.engine.run import policy_for
from simulator.kubevirt.objectstore import NODE, WatchEvent, at
from simulator.record import MigrationRecord
from simulator.scenario.schema import Scenario
from tests.crashes.steps import Crash, Steps, watching

CROWDED = 0.8
SEED = 1
_API_SECOND_S = 1.0
"""The API's times are whole seconds: whoever reads the end of a move from them may be early by as much."""


class CrashingPrograms(Programs):
    """``away_s``: how long nobody is there after the crash."""

    def crash_by(self, steps: Steps, away_s: float) -> None:
        self._steps = steps
        self._away_s = away_s

    def start(self, name: str) -> None:
        try:
            super().start(name)
        except Crash:
            self.died(name)

    def died(self, name: str) -> None:
        super().died(name)
        self._steps.died()
        self._agenda.after(self._away_s, lambda: self.start(name))


class CrashingRun:
    """``alarm``: what the Lease keeps from the start, until the policy is changed to ``next_policy`` at a time."""

    def __init__(
        self,
        scenario: Scenario,
        steps: Steps,
        *,
        away_s: float,
        alarm: Alarm | None = None,
        next_policy: tuple[float, Policy] | None = None,
    ) -> None:
        self.scenario = scenario
        self.steps = steps
        self.simulation: Simulation = build(scenario, SEED)
        self._agenda = self.simulation.agenda
        policy = policy_for(scenario)
        self._cooldown_s = policy.evictions.cooldown.base.total_seconds()
        command = f"{scenario.name}, {steps.crash_at}"
        self._programs = CrashingPrograms(self.simulation, policy, scenario.api, SEED, command)
        self._programs.observer.alarm = alarm
        self._programs.crash_by(steps, away_s)
        befall(self._programs, scenario, self._agenda)
        if next_policy is not None:
            time_s, changed = next_policy
            self._agenda.at(time_s, lambda: self._programs.change_policy(changed))
        self.tainted: dict[str, list[bool]] = {}
        """Node -> whether it was tainted as over-utilised, whenever that changed."""
        self.simulation.store.subscribe(self._note_taints)

    def go(self, minutes: float = 0.0) -> "CrashingRun":
        """To the end of the scenario, or for so many minutes of it. Raises ``BrokenInvariant``."""
        with watching(self.steps):
            self._programs.start(DESCHEDULER)
            self._programs.start(SOFT_TAINTER)
            self._programs.run_until((minutes or self.scenario.minutes) * 60.0)
            self._programs.judge_taints()
        return self

    def _note_taints(self, event: WatchEvent) -> None:
        if event.kind == NODE:
            now = any(taint["key"] == OVER for taint in at(event.object, "spec", "taints") or ())
            history = self.tainted.setdefault(event.object["metadata"]["name"], [False])
            if history[-1] != now:
                history.append(now)

    # --- what came of it ---

    @property
    def errors(self) -> list[str]:
        """What handlers raised."""
        return self._programs.observer.errors

    @property
    def moves(self) -> list[MigrationRecord]:
        """First attempts of migrations that our evictions caused."""
        migrations = self.simulation.control_plane.migrations
        return [m for m in migrations if m.asked_by == "rebalancer" and m.attempt == 1]

    def moved_too_soon(self) -> list[str]:
        """Moves of VMs that had moved, whoever asked for it, less than the cool-down's base before."""
        ended = [m for m in self.simulation.control_plane.migrations if m.outcome == "Succeeded"]
        return [
            f"{move.vm} at {move.created_s:.1f} s, arrived at {before.ended_s:.1f} s"
            for move in self.moves
            for before in ended
            if before.vmi_uid == move.vmi_uid and before.ended_s is not None
            if before.ended_s <= move.created_s < before.ended_s + self._cooldown_s - _API_SECOND_S
        ]

    def open_entries(self) -> list[str]:
        return [f"{entry.vm} {entry.phase}" for entry in self._programs.ledger.entries]

    def crowded(self) -> set[str]:
        """Nodes whose VMs want more than 80 % of their cores."""
        world = self.simulation.world
        world.advance()
        layout = world.layout()
        nodes = zip(layout.node_names, layout.cores, world.node_demand_cores(), strict=True)
        return {name for name, cores, wanted in nodes if wanted > CROWDED * cores}

    def taints(self) -> dict[str, tuple[Taint, ...]]:
        """By node."""
        nodes = self.simulation.store.list(NODE)
        return {node["metadata"]["name"]: msgspec.convert(node, Node).taints for node in nodes}
