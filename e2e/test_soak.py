"""Nothing that comes and goes leaves something behind. For longer than a minute: ``python -m benchmarks.soak``."""

from collections.abc import Sequence

from e2e.lab import Lab
from e2e.programs import Program
from e2e.soak import SCENARIO, Use, Visits, use_of

WARM_UP_VISITS = 15
VISITS = 40
EVERY_S = 0.5
AT_THE_ENDS = 10
"""So many samples at either end are compared: what is open varies from one moment to the next."""
MORE = {"threads": 3, "descriptors": 10, "queue_depth": 30, "series": 20, "memory_mib": 25}
"""Allowed growth. One thing kept of each visit would be 30 more."""


def test_visits_of_all_kinds_leave_nothing_behind(lab: Lab) -> None:
    """Nodes with new names, new tokens, broken watches and new policies, each time while VMs move."""
    lab.start(SCENARIO)
    lab.set_policy(lab.policy())
    programs = [*lab.run("descheduler"), *lab.run("soft-tainter")]
    for program in programs:
        lab.until(program.decides, 40, f"{program.account} decides")
    visits = Visits(lab)
    for _ in range(WARM_UP_VISITS):
        visits.go_on()
        lab.let_pass(EVERY_S)

    uses: dict[Program, list[Use]] = {program: [] for program in programs}
    for _ in range(VISITS):
        visits.go_on()
        lab.let_pass(EVERY_S)
        for program in programs:
            uses[program].append(use_of(program, lab.cluster.truth().now_s))

    grown = {program.account: _grown(taken) for program, taken in uses.items()}
    assert [
        f"{account}: {quantity} +{more:g}"
        for account, quantities in grown.items()
        for quantity, more in quantities.items()
        if more > MORE[quantity]
    ] == []
    for program in programs:
        lab.until(program.decides, 40, f"{program.account} goes on")


def _grown(uses: Sequence[Use]) -> dict[str, float]:
    """By how much the most of the last samples exceeds the most of the first."""
    first, last = uses[:AT_THE_ENDS], uses[-AT_THE_ENDS:]
    return {
        quantity: max(getattr(use, quantity) for use in last) - max(getattr(use, quantity) for use in first)
        for quantity in MORE
    }
