"""From command-line options to a running program, and down again.

Standing by, a replica lists and watches, and knows the policy; it decides once it holds the lease. Without the lease no
request that writes leaves any more, and the process ends, so that a fresh one starts from the cluster's state.
"""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from threading import Event, Thread
from typing import Any

from controller.cluster.resources import RESOURCES
from controller.composition import Program, descheduler, soft_tainter
from controller.health import Check, HealthServer
from controller.platform import Options, Platform
from controller.telemetry.collect import Reading, Readings, of_queue
from informers.reflector import Reflector
from informers.workers import Again, Workers
from informers.workqueue import WorkQueue

log = logging.getLogger("vm-rebalancer")

LOOK_AT_POLICY = timedelta(seconds=5)
"""A file changes without an event."""
HANDLER_WITHIN_S = 300.0
"""A handler that runs for longer hangs: every request in it has a deadline."""
WORKERS_STOP_WITHIN = timedelta(seconds=3.5)
COMPANION_STOPS_WITHIN = timedelta(seconds=0.7)
"""There are two at most."""
LEASE_STOPS_WITHIN_S = 2.5
REST_STOPS_WITHIN_S = 0.8
"""All together: one that is connecting cannot be told, and many may be."""
HEALTH_STOPS_WITHIN = timedelta(seconds=0.5)


def run_descheduler(options: Options) -> int:
    """Run until stopped (0) or until the lease is lost (1). Raises StartError."""
    return _Run(Platform(options, frozenset(RESOURCES)), descheduler).go()


def run_soft_tainter(options: Options) -> int:
    """Run until stopped (0) or until the lease is lost (1). Raises StartError."""
    return _Run(Platform(options, frozenset({"nodes"})), soft_tainter).go()


class _Run:
    """One run of a program, from start to stop."""

    def __init__(self, platform: Platform, make: Callable[[Platform], Program]) -> None:
        self._platform = platform
        self._program = make(platform)
        self._lost = Event()
        self._lease_thread: Thread | None = None
        self._policy_workers: Workers[str] = Workers(
            WorkQueue(), self._look_at_policy, platform.clock, self._program.failed
        )
        platform.config_maps.add_handler(lambda _: ["policy"], self._policy_workers.add)
        platform.policy.subscribe(lambda _: self._program.wake())
        platform.registry.register(Readings(self._readings))

    def go(self) -> int:
        host, port = self._platform.options.listen
        health = HealthServer(
            host,
            port,
            live=self._live_checks(),
            ready={"caches": self._platform.synced, "informers": self._platform.in_contact},
            registry=self._platform.registry,
            clock=self._platform.clock,
            pages=self._program.pages,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._platform.stop.set())
        health.start()  # whoever gets an answer may stop it
        try:
            self._start()
            self._lead()
            self._platform.stop.wait()
        finally:
            self._stop(health)
        return 1 if self._lost.is_set() else 0

    def _live_checks(self) -> Mapping[str, Check]:
        return {
            "informers": self._platform.in_contact,
            "workers": self._workers_go_on,
            "lease": self._lease_goes_on,
        }

    def _workers_go_on(self) -> str:
        every = self._program.workers, self._policy_workers
        longest_s = max(workers.statistics().longest_running_s for workers in every)
        return f"a handler has been running for {longest_s:.0f} s" if longest_s > HANDLER_WITHIN_S else ""

    def _readings(self) -> Iterator[Reading]:
        yield from of_queue("decisions", self._program.workers.statistics())
        yield from of_queue("policy", self._policy_workers.statistics())

    def _lease_goes_on(self) -> str:
        thread = self._lease_thread
        return "the thread of the lease has ended" if thread is not None and not thread.is_alive() else ""

    def _look_at_policy(self, _: str) -> Again:
        if not self._platform.options.policy_config_map or self._platform.config_maps.has_synced:
            self._platform.policy.reload()
        return Again(LOOK_AT_POLICY)

    def _start(self) -> None:
        for reflector in self._platform.reflectors.values():
            reflector.start()
        self._policy_workers.add("policy")
        self._policy_workers.start(1)
        election = self._platform.election
        if election is not None:
            self._lease_thread = Thread(target=self._hold_lease, name="lease", daemon=True)
            self._lease_thread.start()

    def _hold_lease(self) -> None:
        assert self._platform.election is not None  # noqa: S101 - started only then
        held = False
        try:
            held = self._platform.election.run(self._platform.give_back)
        except Exception:
            log.exception("the lease is given up")
        finally:  # without the lease nothing is left to do
            if not held and not self._platform.stop.is_set():
                self._lost.set()
            self._platform.stop.set()

    def _lead(self) -> None:
        """Wait until this replica may decide, read everything afresh, and let the workers go."""
        platform = self._platform
        while platform.synced():
            if platform.stop.wait(0.1):
                return
        if platform.election is not None:
            log.info("caches have synced; waiting for the lease as %s", platform.options.identity)
            if not platform.election.wait_until_safe(platform.stop):
                return
            while not platform.freshly_synced():
                if platform.stop.wait(1.0):
                    return
        platform.forget_old_alarm()
        for companion in self._program.companions:
            companion.start()
        log.info("deciding from now on")
        self._program.start()
        self._program.workers.start(platform.options.workers)

    def _stop(self, health: HealthServer) -> None:
        """Finish what is under way, then give the lease back: no write may follow that. Bounded all along."""
        log.info("stopping")
        self._program.hush()
        if not self._program.workers.stop(WORKERS_STOP_WITHIN):
            log.warning("a handler is still running; its request ends with the process")
        for companion in self._program.companions:
            companion.stop(COMPANION_STOPS_WITHIN)
        self._platform.give_back.set()
        if self._lease_thread is not None:
            self._lease_thread.join(LEASE_STOPS_WITHIN_S)
        rest: list[Workers[str] | Reflector[Any]] = [
            self._policy_workers,
            *self._platform.reflectors.values(),
        ]
        for each in rest:
            each.stop(timedelta(0))  # tell all of them first
        self._platform.transport.close()
        until_s = self._platform.clock.monotonic() + REST_STOPS_WITHIN_S
        for each in rest:
            each.stop(timedelta(seconds=max(0.0, until_s - self._platform.clock.monotonic())))
        health.stop(HEALTH_STOPS_WITHIN)
