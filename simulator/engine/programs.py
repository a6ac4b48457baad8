"""The rebalancer's two programs on a simulated cluster, and the loop in which they and the world take turns.

Each program is a process of its own: with its own caches, killed and started anew without the other.
"""

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import Node
from controller.descheduler import Descheduler
from controller.evictions.views import LedgerView
from controller.keys import Refresh
from controller.policy.model import Policy
from controller.ports import DescheduleObserver
from controller.softtainter import Refresh as TainterRefresh
from controller.softtainter import SoftTainter
from controller.telemetry.fanout import DescheduleFanout
from controller.telemetry.spans import Span
from controller.telemetry.tracing import Tracer
from informers.informer import Informer
from informers.workers import Workers
from simulator.build import Simulation
from simulator.engine.events import EventLog
from simulator.engine.invariants import Invariants
from simulator.engine.line import Line
from simulator.engine.observer import RunObserver
from simulator.engine.ports import AgendaClock, SimulatedEvictions, SimulatedMetrics, SimulatedPatcher
from simulator.engine.tainting import Tainting
from simulator.engine.watches import Stream, streams
from simulator.kubevirt.objectstore import WatchEvent
from simulator.scenario.schema import Api
from simulator.seeds import plain_random

DESCHEDULER, SOFT_TAINTER = "descheduler", "soft-tainter"
_THREADS = 4
"""Of each program: while so many handlers wait for answers, no other works."""


class Killed(BaseException):
    """The program was killed while a handler of it waited for an answer, or ends by itself in the midst of one.

    No ``Exception``: nobody may take it for a handler's trouble and go on.
    """


class Life:
    """One process: from its start until it is killed."""

    def __init__(
        self, simulation: Simulation, informers: dict[str, Informer[Any]], rng: random.Random
    ) -> None:
        self._store = simulation.store
        self.streams = {s.name: s for s in streams(informers, simulation.agenda, rng)}
        self.alive = True
        self.workers: Workers[Any]
        self.refresh_key: object
        simulation.store.subscribe(self._receive)

    def list_all(self) -> None:
        for stream in self.streams.values():
            stream.list(self._store)

    @property
    def complete_s(self) -> float:
        return min(stream.complete_s for stream in self.streams.values())

    def wake(self) -> None:
        """As when another policy is in force."""
        self.workers.add(self.refresh_key)

    def _receive(self, event: WatchEvent) -> None:
        for stream in self.streams.values() if self.alive else ():
            stream.receive(event)


class Programs:
    """Starts, kills and drives them. All that they do is held against the ``invariants``, and is in the ``log``.

    ``line`` is the way to the API server; ``lives`` are the programs that run now. ``command`` says how to see a broken
    invariant again. ``tell`` hears the spans of the descheduler's traces, if anybody wants them.
    """

    def __init__(
        self,
        simulation: Simulation,
        policy: Policy,
        api: Api,
        seed: int,
        command: str,
        tell: Callable[[Span], None] | None = None,
    ) -> None:
        self._simulation = simulation
        self._policy = policy
        self._seed = seed
        self._tell = tell
        self._agenda = simulation.agenda
        self.log = EventLog(self._agenda)
        simulation.store.subscribe(self.log.changed)
        self.invariants = Invariants(
            policy, simulation.control_plane, simulation.store, self._agenda, command
        )
        self.observer = RunObserver(self._agenda, self.log, self.invariants)
        self._clock = AgendaClock(simulation.agenda)
        self._metrics = SimulatedMetrics(simulation.metrics, simulation.troubles, simulation.agenda)
        self._births: Counter[str] = Counter()
        self._waiting = 0
        self._descheduler: Descheduler | None = None
        self._tainting: Tainting | None = None
        self._stalled_s = float("-inf")
        self._killed_at: datetime | None = None
        self.lives: dict[str, Life] = {}
        self.line = Line(
            simulation.control_plane,
            simulation.store,
            simulation.agenda,
            plain_random(seed, "line"),
            api,
            self._wait,
            self.invariants.patched,
        )

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def ledger(self) -> LedgerView:
        """Of the descheduler; empty while there is none."""
        return self._descheduler.ledger if self._descheduler is not None else LedgerView(0)

    def change_policy(self, policy: Policy) -> None:
        """One that means the same is no other."""
        if policy.digest == self._policy.digest:
            return
        self._policy = policy
        self.invariants.policy_changed(policy)
        for life in self.lives.values():
            life.wake()

    def start(self, name: str) -> None:
        """Lists, then watches, then the program: as after its start on a cluster that has been running."""
        self._births[name] += 1
        rng = plain_random(self._seed, _component(name, self._births[name]))
        self.lives[name] = self._begin_descheduler(rng) if name == DESCHEDULER else self._begin_tainter(rng)

    def kill(self, name: str) -> None:
        """At once, whatever it is doing. What it has sent arrives all the same."""
        life = self.lives.pop(name, None)
        if life is None:
            return
        life.alive = False
        if name == DESCHEDULER:
            self._descheduler = None
            self._killed_at = self._clock.now()
        else:
            self._tainting = None

    def died(self, name: str) -> None:
        """It has ended by itself."""
        self.kill(name)

    def stall(self, name: str, resources: tuple[str, ...] = ()) -> None:
        """Watches of a program bring nothing any more; ``resources``: which, none given: all."""
        if name == SOFT_TAINTER:
            self._stalled_s = float("inf")
        for stream in self._streams(name, resources):
            stream.stall()

    def go_on(self, name: str, resources: tuple[str, ...] = (), *, listed_anew: bool = False) -> None:
        """They bring what they have missed, or are listed anew."""
        if name == SOFT_TAINTER:
            self._stalled_s = self._agenda.now_s
        for stream in self._streams(name, resources):
            if listed_anew:
                stream.list(self._simulation.store)
            else:
                stream.go_on()

    def run_until(self, time_s: float) -> None:
        """Until then, or until what is asked of the API server then is answered. Raises ``BrokenInvariant``."""
        self._go(time_s, lambda: True)

    def judge_taints(self) -> None:
        """Whether nodes carry now what the soft-tainter's last classification asks for."""
        if self._tainting is not None:
            self._tainting.judge()

    # --- the loop ---

    def _go(self, time_s: float, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            self._work()
            self._look()
            dues = (self._agenda.next_due(), *(life.workers.next_due() for life in self.lives.values()))
            due_s = min((due for due in dues if due is not None), default=time_s)
            if due_s >= time_s or not goes_on():
                break
            self._agenda.run_until(due_s)
            self.invariants.after_step()
        if goes_on():
            self._agenda.run_until(time_s)
            self.invariants.after_step()

    def _work(self) -> None:
        while sum(self._turn(name, life) for name, life in list(self.lives.items())):
            pass

    def _turn(self, name: str, life: Life) -> int:
        if not life.alive or self._waiting >= _THREADS:
            return 0
        try:
            return life.workers.work_ready()
        except Killed:
            if self.lives.get(name) is life:
                self.died(name)
            elif self._waiting:
                raise  # what waits beneath belongs to the same program
            return 1

    def _look(self) -> None:
        for life in self.lives.values():
            self.invariants.queue(life.workers.statistics().queue)
        self.invariants.entries(self.ledger, self.line.troubled_s)

    def _wait(self, seconds: float) -> None:
        """A handler of the descheduler waits; the world goes on, and the other handlers work."""
        life = self.lives[DESCHEDULER]
        self._waiting += 1
        try:
            self._go(self._agenda.now_s + seconds, lambda: life.alive)
        finally:
            self._waiting -= 1
        if not life.alive:
            raise Killed

    # --- making them ---

    def _begin_descheduler(self, rng: random.Random) -> Life:
        caches = ClusterCaches()
        life = Life(self._simulation, caches.informers(), rng)
        self.invariants.know(caches, lambda: life.complete_s, self.line.open_requests)
        descheduler = Descheduler(
            caches,
            self._metrics,
            SimulatedEvictions(self.line, self.invariants.before_eviction),
            self._heard(caches),
            lambda: self._policy,
            self._clock,
        )
        life.list_all()
        life.workers, life.refresh_key = descheduler.workers, Refresh()
        self._descheduler = descheduler
        descheduler.start(self.observer.alarm)
        return life

    def _heard(self, caches: ClusterCaches) -> DescheduleObserver:
        if self._tell is None:
            return self.observer
        process = f"simulated {self._births[DESCHEDULER]}"
        return DescheduleFanout(
            self._clock,
            self.observer,
            Tracer(caches, self._clock, self._tell, process, lambda: self._killed_at),
        )

    def _begin_tainter(self, rng: random.Random) -> Life:
        nodes: Informer[Node] = Informer("nodes")
        self.invariants.know_nodes(nodes)
        life = Life(self._simulation, {"nodes": nodes}, rng)
        tainting = Tainting(
            self.observer,
            nodes.lister,
            self._simulation.store,
            self._clock,
            lambda: self._policy,
            lambda: max(self.line.troubled_s, self._stalled_s),
            self.invariants.fail,
        )
        self._simulation.store.subscribe(tainting.changed)
        patcher = SimulatedPatcher(self.line, self.invariants.before_patch)
        tainter = SoftTainter(nodes, self._metrics, patcher, tainting, lambda: self._policy, self._clock)
        life.list_all()
        life.workers, life.refresh_key = tainter.workers, TainterRefresh()
        self._tainting, self._stalled_s = tainting, float("-inf")
        tainter.start()
        return life

    def _streams(self, name: str, resources: tuple[str, ...]) -> list[Stream]:
        life = self.lives.get(name)
        return [s for n, s in life.streams.items() if not resources or n in resources] if life else []


def _component(name: str, birth: int) -> str:
    watches = "watches" if name == DESCHEDULER else f"watches of the {name}"
    return watches if birth == 1 else f"{watches} {birth}"
