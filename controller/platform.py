"""What both programs stand on: the API connection, caches, policy, lease and metrics, wired but not yet running."""

import logging
import random
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from controller.cluster.caches import ClusterCaches
from controller.cluster.resources import RESOURCES, ConfigMap, config_map
from controller.evictions.views import Alarm
from controller.lease import LeaderElection, LeaseTiming, ShutdownAlarm, Stop
from controller.policy.watch import PolicyState, PolicyWatch
from controller.telemetry.calls import note_calls
from controller.telemetry.collect import Reading, Readings, of_informers, of_lease, of_taints
from controller.telemetry.emit import Emitter
from controller.telemetry.meter import Meter
from controller.telemetry.names import Metrics
from informers.clock import SystemClock
from informers.errors import ApiError
from informers.informer import Informer
from informers.reflector import Reflector
from informers.transport import Transport

log = logging.getLogger("vm-rebalancer")

SYNC_WITHIN = timedelta(seconds=60)
SILENT_FOR_S = 600.0
"""An informer without contact for so long makes the program unhealthy: restarting is the last resort."""
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class StartError(Exception):
    """The program cannot start; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Options:
    """As given on the command line; ``policy_config_map`` and ``lease`` are namespace/name."""

    program: str
    kubeconfig: str | None
    context: str | None
    policy_config_map: str | None
    policy_file: str | None
    leader_elect: bool
    lease: str | None
    lease_timing: LeaseTiming
    listen: tuple[str, int]
    workers: int
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{uuid.uuid4()}")


class Platform:
    """What both programs stand on: API connection, caches, policy, lease, endpoint, metrics."""

    def __init__(self, options: Options, resources: frozenset[str]) -> None:
        self.options = options
        self.clock = SystemClock()
        self.rng = random.Random(options.identity)  # noqa: S311 - jitter
        self.stop = Event()
        self.give_back = Stop()
        """Ends the election."""
        self.transport = connect(options)
        self.caches = ClusterCaches()
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.metrics = Metrics(self.registry, evicts="vmis" in resources)  # who sees no VMs evicts none
        self.election = self._election()
        # Held while an alarm is kept or forgotten: a new one must not be taken for the old one.
        self._alarm_lock = Lock()
        self.meter = Meter(self.metrics, self.clock)
        self.emitter = Emitter(self.clock, self._keep_alarm)
        self.config_maps: Informer[ConfigMap] = Informer("policy")
        self.policy = self._policy_watch()
        self.policy.subscribe(self._policy_changed)
        informers: dict[str, Informer[Any]] = {
            name: informer for name, informer in self.caches.informers().items() if name in resources
        }
        self._informers = informers
        self.reflectors = {name: self._reflector(RESOURCES[name], i) for name, i in informers.items()}
        if options.policy_config_map:
            self.reflectors["policy"] = self._reflector(
                config_map(*named(options.policy_config_map, "--policy-configmap")), self.config_maps
            )
        self._show()

    def _show(self) -> None:
        """Have the state of all this shown as metrics."""
        self.transport.tell(partial(note_calls, self.metrics))
        self.meter.show_nodes(self.caches.nodes.lister)
        self.metrics.is_leader.set_function(lambda: float(self.may_write()))
        for name, reflector in self.reflectors.items():
            self.metrics.informer_age.labels(name).set_function(reflector.age_of_last_contact)
        self.registry.register(Readings(self._readings))

    def _readings(self) -> Iterator[Reading]:
        yield from of_informers(reflector.statistics() for reflector in self.reflectors.values())
        yield from of_taints(self.caches.nodes.lister.list())
        if self.election is not None:
            yield from of_lease(self.election.transitions)

    def time_to_write(self) -> timedelta:
        """How long a write that begins now may take; zero if the lease does not allow any."""
        return self.election.time_to_write() if self.election is not None else timedelta.max

    def may_write(self) -> bool:
        return self.time_to_write() > timedelta(0)

    def _election(self) -> LeaderElection | None:
        options = self.options
        if not options.leader_elect:
            return None
        namespace, name = lease_name(options)
        return LeaderElection(
            self.transport, namespace, name, options.identity, self.clock, self.rng, options.lease_timing
        )

    def _policy_watch(self) -> PolicyWatch:
        if self.options.policy_file:
            return PolicyWatch.of_file(self.options.policy_file)
        if not self.options.policy_config_map:
            raise StartError("a policy is needed: --policy-configmap NAMESPACE/NAME or --policy-file FILE")
        namespace, name = named(self.options.policy_config_map, "--policy-configmap")
        return PolicyWatch.of_config_map(self.config_maps.lister, namespace, name)

    def _reflector(self, resource: Any, informer: Informer[Any]) -> Reflector[Any]:
        return Reflector(resource, self.transport, informer, self.clock, self.rng, self._informer_failed)

    def _informer_failed(self, name: str, error: Exception) -> None:
        if self.stop.is_set():
            return  # what was under way is given up
        self.meter.informer_failed(name)
        self.emitter.informer_failed(name, error)

    def _policy_changed(self, state: PolicyState) -> None:
        self.meter.policy_changed(state.policy, valid=state.valid)
        self.forget_old_alarm()

    def forget_old_alarm(self) -> None:
        """Take an alarm off the Lease that was raised under another policy than the one in force."""
        if self.election is None:
            return
        with self._alarm_lock:
            policy, alarm = self.policy.current(), self.election.alarm()
            if policy is not None and alarm is not None and alarm.policy_digest != policy.digest:
                self.election.keep_alarm(None)

    def _keep_alarm(self, alarm: Alarm) -> None:
        if self.election is not None:
            with self._alarm_lock:
                self.election.keep_alarm(ShutdownAlarm(alarm.reason, alarm.policy_digest))
            self.give_back.hurry()  # a crash before the next renewal would lose it

    def known_alarm(self) -> Alarm | None:
        kept = self.election.alarm() if self.election is not None else None
        return Alarm(kept.reason, kept.policy_digest) if kept is not None else None

    def synced(self) -> str:
        waiting = [name for name, informer in self._informers.items() if not informer.has_synced]
        if self.options.policy_config_map and not self.config_maps.has_synced:
            waiting.append("policy")
        return f"not listed yet: {', '.join(waiting)}" if waiting else ""

    def in_contact(self) -> str:
        silent = [n for n, r in self.reflectors.items() if r.age_of_last_contact() > SILENT_FOR_S]
        return f"no contact for {SILENT_FOR_S:.0f} s: {', '.join(silent)}" if silent else ""

    def freshly_synced(self) -> bool:
        """Consistent lists, not a cache: what a new leader needs before its first decision."""
        fresh: dict[str, bool] = {}

        def resync(name: str, reflector: Reflector[Any]) -> None:
            try:
                reflector.resync(SYNC_WITHIN)
                fresh[name] = True
            except ApiError as error:
                log.warning("%s: %s", name, error)

        threads = [Thread(target=resync, args=item, daemon=True) for item in self.reflectors.items()]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self.stop.wait(0.05):
                return False
        return len(fresh) == len(threads)


def connect(options: Options) -> Transport:
    """To the API server: as the kubeconfig says, or from within the cluster. Raises StartError."""
    try:
        return Transport.connect(options.kubeconfig, options.context)
    except ValueError as error:
        raise StartError(str(error)) from error


def named(text: str, flag: str) -> tuple[str, str]:
    """Namespace and name of what a flag says. Raises StartError."""
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise StartError(f"{flag}: found {text!r}; allowed: NAMESPACE/NAME")
    return namespace, name


def lease_name(options: Options) -> tuple[str, str]:
    """Namespace and name of the program's Lease. Raises StartError."""
    if options.lease:
        return named(options.lease, "--lease")
    if options.policy_config_map:
        return named(options.policy_config_map, "--policy-configmap")[0], f"vm-rebalancer-{options.program}"
    try:
        return Path(_NAMESPACE_FILE).read_text(encoding="utf-8").strip(), f"vm-rebalancer-{options.program}"
    except OSError:
        raise StartError("where the Lease is must be said: --lease NAMESPACE/NAME") from None
