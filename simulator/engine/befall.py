"""What befalls the rebalancer itself in a scenario: restarts, watches that stall, other policies."""

import functools
from typing import Any

import yaml

from controller.policy.model import API_VERSION, KIND, Mode, Policy
from controller.policy.parse import parse_policy
from simulator.agenda import Agenda
from simulator.engine.programs import DESCHEDULER, SOFT_TAINTER, Programs
from simulator.load.times import intervals
from simulator.scenario.schema import ChangePolicy, Restart, Scenario, StalledWatches


def differing(parts: dict[str, Any], source: str) -> Policy:
    """The default policy, Automatic, but for what these parts say. Raises ``PolicyErrors``."""
    text = yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, **parts}, sort_keys=False)
    return parse_policy(text, source=source, default_mode=Mode.AUTOMATIC)


def befall(programs: Programs, scenario: Scenario, agenda: Agenda) -> None:
    """Plan it on the agenda. Raises ``PolicyErrors``."""
    for number, happening in enumerate(scenario.happenings):
        match happening:
            case ChangePolicy():
                policy = differing(happening.policy, f"happenings[{number}].policy")
                agenda.at(happening.at_minute * 60, functools.partial(programs.change_policy, policy))
            case Restart():
                for start_s, _ in intervals(happening, scenario.minutes * 60):
                    agenda.at(start_s, functools.partial(_restart, programs, agenda, happening))
            case StalledWatches():
                for start_s, end_s in intervals(happening, scenario.minutes * 60):
                    agenda.at(start_s, functools.partial(_stall, programs, happening))
                    agenda.at(end_s, functools.partial(_go_on, programs, happening))


def _restart(programs: Programs, agenda: Agenda, happening: Restart) -> None:
    if happening.program in programs.lives:
        programs.kill(happening.program)
        agenda.after(happening.away_seconds, functools.partial(programs.start, happening.program))


def _stall(programs: Programs, happening: StalledWatches) -> None:
    for name in (DESCHEDULER, SOFT_TAINTER):
        programs.stall(name, happening.resources)


def _go_on(programs: Programs, happening: StalledWatches) -> None:
    for name in (DESCHEDULER, SOFT_TAINTER):
        programs.go_on(name, happening.resources, listed_anew=happening.listed_anew)
