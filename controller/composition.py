"""How the two programs are put together: decisions, what they stand on, and who hears of them."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from controller.cluster.view import ClusterView
from controller.descheduler import Descheduler
from controller.evictions.api import EvictionRequests
from controller.evictions.views import LedgerView
from controller.health import Page
from controller.keys import Refresh
from controller.platform import Platform, named
from controller.ports import DescheduleObserver
from controller.softtainter import Refresh as TainterRefresh
from controller.softtainter import SoftTainter
from controller.taints.patch import TaintPatcher
from controller.telemetry.decisions import DecisionLog
from controller.telemetry.events import EventObserver, PolicyEvents
from controller.telemetry.export import ConfigurationError, SpanExport, exporting
from controller.telemetry.fanout import DescheduleFanout, TaintFanout
from controller.telemetry.otlp import SERVICE
from controller.telemetry.recorder import EventRecorder
from controller.telemetry.tracing import Tracer
from controller.utilization.prometheus import PrometheusSource
from informers.workers import Workers

log = logging.getLogger("vm-rebalancer")


class Companion(Protocol):
    """Tells of the decisions beside the workers. Nothing leaves it after ``stop``, which says whether it has ended."""

    def start(self) -> None: ...

    def stop(self, within: timedelta) -> bool: ...


@dataclass(frozen=True, slots=True)
class Program:
    """``start`` is called once this replica may decide, ``wake`` whenever the policy has changed.

    ``hush`` ends a query that is under way, so that stopping does not wait for it. ``failed`` tells the observers of a
    handler's failure. ``companions`` are started before
    the first decision and stopped after the last, in this order.
    """

    workers: Workers[Any]
    start: Callable[[], None]
    wake: Callable[[], None]
    hush: Callable[[], None]
    failed: Callable[[object, Exception, timedelta], None]
    companions: Sequence[Companion] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)
    """Of the health port, by path."""


def descheduler(platform: Platform) -> Program:
    """The descheduler, and all that hears of its decisions."""
    source = PrometheusSource()
    observers: list[DescheduleObserver] = [platform.meter, platform.emitter]
    companions: list[Companion] = []
    recorder, policy_events = _event_recorder(platform)
    view = ClusterView.over(platform.caches)
    observers.append(EventObserver(recorder, view, platform.policy.current, platform.clock))
    companions.append(recorder)
    if (export := _span_export(platform)) is not None:
        observers.append(_tracer(platform, export))
        companions.append(export)
    decisions = _decision_log(platform, view, lambda: program.ledger)
    observers.append(decisions)
    observer = DescheduleFanout(platform.clock, *observers)
    program = Descheduler(
        platform.caches,
        source,
        EvictionRequests(platform.transport, platform.time_to_write),
        observer,
        platform.policy.current,
        platform.clock,
    )
    platform.meter.show_ledger(lambda: program.ledger, platform.policy.current)

    def start() -> None:
        if policy_events is not None:
            policy_events.catch_up()
        program.start(platform.known_alarm())

    return Program(
        program.workers,
        start,
        lambda: program.workers.add(Refresh()),
        source.close,
        observer.failed,
        companions,
        {"/debug/decisions": decisions.page},
    )


def _decision_log(platform: Platform, view: ClusterView, ledger: Callable[[], LedgerView]) -> DecisionLog:
    election = platform.election
    return DecisionLog(
        view,
        ledger,
        platform.policy.current,
        platform.clock,
        platform.options.identity,
        platform.may_write,
        (lambda: election.holder) if election is not None else (lambda: ""),
    )


def _event_recorder(platform: Platform) -> tuple[EventRecorder, PolicyEvents | None]:
    """``None`` where the policy is a file: that is no object that Events could be on."""
    recorder = EventRecorder(
        platform.transport,
        platform.time_to_write,
        platform.policy.current,
        platform.clock,
        platform.metrics.events_dropped,
    )
    if not (config_map := platform.options.policy_config_map):
        return recorder, None
    about = PolicyEvents(recorder, platform.config_maps.lister, *named(config_map, "--policy-configmap"))
    platform.policy.subscribe(about.changed)
    return recorder, about


def _span_export(platform: Platform) -> SpanExport | None:
    """``None`` unless traces are asked for. What is wrong with how they are keeps nobody from evicting."""
    identity, dropped = platform.options.identity, platform.metrics.spans_dropped.inc
    try:
        return exporting(os.environ, SERVICE, identity, platform.clock, dropped)
    except ConfigurationError as error:
        log.error("there are no traces: %s", error)  # noqa: TRY400 - the text says it all
        return None


def _tracer(platform: Platform, export: SpanExport) -> Tracer:
    election = platform.election
    told_until = (lambda: election.former_renewal) if election is not None else (lambda: None)
    return Tracer(platform.caches, platform.clock, export.send, platform.options.identity, told_until)


def soft_tainter(platform: Platform) -> Program:
    """The soft-tainter."""
    source = PrometheusSource()
    observer = TaintFanout(platform.clock, platform.meter, platform.emitter)
    tainter = SoftTainter(
        platform.caches.nodes,
        source,
        TaintPatcher(platform.transport, platform.time_to_write),
        observer,
        platform.policy.current,
        platform.clock,
    )
    return Program(
        tainter.workers,
        tainter.start,
        lambda: tainter.workers.add(TainterRefresh()),
        source.close,
        observer.failed,
    )
