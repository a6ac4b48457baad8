"""Requests that fail, or are slow, verb by verb: rows of the fault matrix."""

from collections.abc import Iterator
from typing import NamedTuple

from e2e.faults.deeds import all_of, end_faults, fault, watches, without_streams
from e2e.faults.row import Deed, Row, no_deed
from e2e.faults.scene import Scene
from e2e.faults.signs import Sign, grows, restarted, says, slow_requests

RETRY_AFTER_S = 3.0
SLOW_S = 2.0
PRODUCTION_LEASE = (
    "leaderElection.leaseDuration=15s",
    "leaderElection.renewDeadline=10s",
    "leaderElection.retryPeriod=2s",
)
"""The suite's own is too short for a request of two seconds."""


class Verb(NamedTuple):
    """``hits``: what a fault needs to know; ``provoked``: done before it, so that there are such requests."""

    name: str
    hits: dict[str, object]
    shows: tuple[Sign, ...]
    provoked: Deed = no_deed
    ends_leaders: bool = False
    recovers: Deed | None = None


def strip_taints(scene: Scene) -> None:
    """Somebody takes our taints off; they come back by the watch."""
    cluster = scene.lab.cluster
    for node in cluster.items("/api/v1/nodes"):
        foreign = [
            taint
            for taint in node["spec"].get("taints") or ()
            if not taint["key"].startswith("nodeutilization.")
        ]
        cluster.ask(
            "PATCH",
            f"/api/v1/nodes/{node['metadata']['name']}",
            {"spec": {"taints": foreign}},
            "application/merge-patch+json",
        )


def tainted_since_the_end(scene: Scene) -> bool:
    return any(
        request.verb == "patch" and request.status == 200 and scene.ends_at and request.time > scene.ends_at
        for request in scene.lab.cluster.writes_of("soft-tainter-0")
    )


def has_tainted(scene: Scene) -> object:
    """A VM moves, and there are taints of ours."""
    return scene.lab.cluster.own_taints() and scene.lab.cluster.truth().on_the_move


VERBS = (
    Verb("get", {"verbs": ["get"]}, (restarted(),), ends_leaders=True),
    Verb("list", {"verbs": ["list"]}, (grows("informer_errors_total"),), provoked=without_streams),
    Verb("watch", {"verbs": ["watch"]}, (grows("informer_errors_total"),), provoked=watches("end")),
    Verb(
        "eviction dry run",
        {"resources": ["pods/eviction"], "dry_run": True},
        (),
    ),
    Verb(
        "eviction",
        {"resources": ["pods/eviction"], "dry_run": False},
        (),
    ),
    Verb(
        "patch",
        {"verbs": ["patch"]},
        (grows("handler_errors_total", "soft-tainter"),),
        provoked=strip_taints,
        recovers=tainted_since_the_end,
    ),
    Verb("update", {"verbs": ["update"]}, (restarted(),), ends_leaders=True),
)


def _shows(verb: Verb, status: int) -> tuple[Sign, ...]:
    if "eviction" not in verb.name:
        return verb.shows
    counter = "eviction_dry_runs_total" if verb.hits["dry_run"] else "evictions_total"
    return (grows(counter, result="Throttled" if status == 429 else "NoAnswer"),)


def _failing() -> Iterator[Row]:
    for verb in VERBS:
        for status in (503, 429):
            for retry_after_s in (None, RETRY_AFTER_S):
                asks = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
                suffix = "" if retry_after_s is None else " with Retry-After"
                yield Row(
                    name=f"{verb.name} {status}{suffix}",
                    kind="API error",
                    begins=all_of(fault("error", status=status, **asks, **verb.hits), verb.provoked),
                    ends=end_faults,
                    shows=_shows(verb, status),
                    restarts=verb.ends_leaders,
                    when=has_tainted if verb.name == "patch" else Row.when,
                    recovers=verb.recovers,
                    one_of_its_kind=(verb.name, status, retry_after_s) == ("eviction", 503, None),
                )


def _slow() -> Iterator[Row]:
    for verb in VERBS:
        yield Row(
            name=verb.name,
            kind="latency",
            begins=all_of(fault("latency", delay_s=SLOW_S, **verb.hits), verb.provoked),
            ends=end_faults,
            shows=(slow_requests(verb=verb.name if "eviction" not in verb.name else "create"),),
            lasts_s=10,
            goes_on_meanwhile=True,
            when=has_tainted if verb.name == "patch" else Row.when,
            recovers=verb.recovers,
            chart_values=PRODUCTION_LEASE,
            one_of_its_kind=verb.name == "eviction",
        )


ROWS = (
    *_failing(),
    Row(
        name="update 503 for less than the renew deadline",
        kind="API error",
        begins=fault("error", status=503, resources=["leases"]),
        ends=end_faults,
        shows=(says("lease .*503", ""),),
        lasts_s=1.0,
    ),
    Row(
        name="a proxy's page instead of the API",
        kind="API error",
        begins=all_of(fault("error", status=502, body="html", resources=["[!l]*"]), watches("break")),
        ends=end_faults,
        shows=(grows("informer_errors_total"),),
    ),
    *_slow(),
)
