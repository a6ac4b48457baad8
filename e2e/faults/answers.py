"""Evictions whose answer is lost, late or illegible, and KubeVirt's webhook out of reach: rows of the fault matrix."""

from e2e.faults.deeds import act, end_faults, fault
from e2e.faults.row import SLOW, Row
from e2e.faults.signs import grows

REAL = {"resources": ["pods/eviction"], "dry_run": False}
GIVES_UP_S = 15.0
"""After so long the client waits no longer for the answer to an eviction."""
LOST = (grows("evictions_total", result="NoAnswer"),)

ROWS = (
    Row(
        name="broken off after the deed",
        kind="lost answer",
        begins=fault("cut", count=2, **REAL),
        ends=end_faults,
        shows=LOST,
        one_of_its_kind=True,
    ),
    Row(
        name="broken off before the deed",
        kind="lost answer",
        begins=fault("cut", count=2, carried_out=False, **REAL),
        ends=end_faults,
        shows=LOST,
    ),
    Row(
        name="broken off in the middle of the answer",
        kind="lost answer",
        begins=fault("cut", count=2, half=True, **REAL),
        ends=end_faults,
        shows=LOST,
    ),
    Row(
        name="garbage",
        kind="lost answer",
        begins=fault("garbage", count=2, **REAL),
        ends=end_faults,
        shows=LOST,
    ),
    Row(
        name="carried out at once, answered after the client gave up",
        kind="lost answer",
        begins=fault("latency", count=1, delay_s=GIVES_UP_S + 3, after=True, **REAL),
        ends=end_faults,
        shows=LOST,
        policy=lambda _: {"evictions": {"acknowledgeTimeout": "30s"}},
    ),
    Row(
        name="carried out only after the client gave up",
        kind="lost answer",
        begins=fault("latency", count=1, delay_s=GIVES_UP_S + 3, **REAL),
        ends=end_faults,
        shows=LOST,
        policy=lambda _: {"evictions": {"acknowledgeTimeout": "30s"}},
    ),
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
