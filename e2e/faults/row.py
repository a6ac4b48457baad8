"""A row of the fault matrix."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.faults.scene import Scene
from e2e.faults.signs import Sign

Deed = Callable[[Scene], object]
SLOW = "vms.busy.memory_gib=64"
"""Migrations that take some ten seconds at six times the speed: there is one under way whenever trouble begins."""


def a_vm_moves(scene: Scene) -> object:
    return scene.lab.cluster.truth().on_the_move


def no_deed(_: Scene) -> None:
    """What has happened cannot be undone, or is over by itself."""


def as_it_is(_: Scene) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Row:
    """``begins`` once ``when`` holds; ``shows`` and ``lasts_s``: the trouble goes on until both are so; ``ends``."""

    name: str
    kind: str
    begins: Deed
    ends: Deed = no_deed
    shows: tuple[Sign, ...]
    """All of them must be seen while it lasts. Empty: nobody is to notice, since nothing is wrong for us."""
    lasts_s: float = 5.0
    when: Deed = a_vm_moves
    recovers: Deed | None = None
    """What else must become true after the end."""
    goes_on_meanwhile: bool = False
    """Balancing must not wait for the end."""
    restarts: bool = False
    """A program may end by itself, as its lease is lost, and is started again."""
    scenario: str = "crowd"
    settings: tuple[str, ...] = (SLOW,)
    policy: Callable[[Scene], Mapping[str, Any]] = as_it_is
    """Changes to the scenario's."""
    chart_values: tuple[str, ...] = ()
    stuck_after_s: float | None = None
    """What the policy's ``migrationTimeout`` is to be; else the scenario's."""
    by_proxy: bool = False
    """The programs ask Prometheus through ``scene.proxy``."""
    traced: bool = False
    """The programs send traces, which come to ``scene.collected``."""
    one_of_its_kind: bool = False
    """The row that is played when there is time for one of each kind only."""

    @property
    def id(self) -> str:
        """As pytest's -k takes it."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.kind} {self.name}".lower()).strip("-")
