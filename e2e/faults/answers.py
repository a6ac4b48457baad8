"""Evictions whose answer is lost, late or illegible, and KubeVirt's webhook out of reach: rows of the fault matrix."""

from collections.abc import Iterator, Mapping

from e2e.faults.deeds import act, end_faults, fault
from e2e.faults.row import SLOW, Row, as_it_is
from e2e.faults.scene import Scene
from e2e.faults.signs import grows

REAL = {"resources": ["pods/eviction"], "dry_run": False}
GIVES_UP_S = 15.0
"""After so long the client waits no longer for the answer to an eviction."""
_TOO_LATE = {"count": 1, "delay_s": GIVES_UP_S + 3}
_LOST: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "broken off after the deed": ("cut", {"count": 2}),
    "broken off before the deed": ("cut", {"count": 2, "carried_out": False}),
    "broken off in the middle of the answer": ("cut", {"count": 2, "half": True}),
    "garbage": ("garbage", {"count": 2}),
    "carried out at once, answered after the client gave up": ("latency", {**_TOO_LATE, "after": True}),
    "carried out only after the client gave up": ("latency", _TOO_LATE),
}
"""Kind of the fault, and what else makes it."""


def is_patient(_: Scene) -> Mapping[str, object]:
    return {"evictions": {"acknowledgeTimeout": "30s"}}


def _lost() -> Iterator[Row]:
    for name, (kind, how) in _LOST.items():
        yield Row(
            name=name,
            kind="lost answer",
            begins=fault(kind, **how, **REAL),
            ends=end_faults,
            shows=(grows("evictions_total", result="NoAnswer"),),
            policy=is_patient if kind == "latency" else as_it_is,
            one_of_its_kind=name == "broken off after the deed",
        )


ROWS = (
    *_lost(),
    Row(
        name="newer, which fails closed",
        kind="webhook down",
        begins=act("set_webhook_down", is_down=True),
        ends=act("set_webhook_down", is_down=False),
        shows=(grows("eviction_dry_runs_total", result="WebhookDown"),),
        one_of_its_kind=True,
    ),
    Row(
        name="older, whose disruption budgets hold",
        kind="webhook down",
        begins=act("set_webhook_down", is_down=True),
        ends=act("set_webhook_down", is_down=False),
        shows=(grows("eviction_dry_runs_total", result="DisruptionBudget"),),
        settings=(SLOW, "kubevirt.webhook=older", "kubevirt.annotation=older"),
    ),
)
