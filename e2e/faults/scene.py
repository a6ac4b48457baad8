"""A lab in which one row is played: both programs as the chart starts them, and what rows and signs speak of."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from e2e.cluster import SPEED
from e2e.collectors import Collected, Collector, by_http
from e2e.faults.proxy import Proxy
from e2e.lab import ACTS_WITHIN_S, Lab
from e2e.programs import Program
from e2e.truth import Move, Truth

if TYPE_CHECKING:
    from e2e.faults.row import Row

BEGINS_WITHIN_S = 90.0
"""From an empty Prometheus to the moment that a row waits for."""
SHOWS_WITHIN_S = 40.0
SETTLE_S = 120.0 / SPEED
REFRESH_S = 30.0 / SPEED
BACK_OFF_S = 15.0
"""Pauses grow with the trouble, to no more than about what it has lasted: no row lasts longer than that for them."""
LOADED_S = 15.0
"""What a machine that has other things to do may add."""
GOES_ON_WITHIN_S = SETTLE_S + 2 * REFRESH_S + BACK_OFF_S + LOADED_S
_CROWDED = 0.94
_VM = {"namespace": "vms", "vcpus": 4, "guest_bytes": 16 << 30, "dirty_bytes_per_s": 0, "demand": 0.75}
_VM_CORES = 3.0
"""What it wants."""


class Scene:
    """``begins_s`` and what was on the way then are known once the trouble has begun."""

    def __init__(self, lab: Lab, proxy: Proxy | None, collector: Collector | None) -> None:
        self.lab = lab
        self._proxy = proxy
        self._collector = collector
        self.begins_s = 0.0
        self.ends_at: datetime | None = None
        self.policy: Mapping[str, Any] = {}
        """That all began with."""
        self.move: Move | None = None
        """One that was under way when the trouble began."""
        self._pages: Mapping[str, Mapping[str, list[tuple[float, dict[str, str]]]]] = {}
        self._logs: Mapping[str, int] = {}
        self._restarts: Mapping[str, int] = {}
        self.notes: dict[str, Any] = {}
        """What a row's beginning leaves for its end."""

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "the row is not by_proxy"
        return self._proxy

    @property
    def collected(self) -> Collected:
        assert self._collector is not None, "the row is not traced"
        return self._collector.collected

    @property
    def vm(self) -> tuple[str, str]:
        """Namespace and name of the VM that was on the move when the trouble began."""
        assert self.move is not None, "no VM was on the move"
        namespace, _, name = self.move.vm.partition("/")
        return namespace, name

    @property
    def noted_vm(self) -> str:
        """Namespace and name of the VM whose VMIM a row has noted."""
        vmim = self.notes["vmim"]
        return f"{vmim['metadata']['namespace']}/{vmim['spec']['vmiName']}"

    def node(self, which: str) -> str:
        """The ``source`` or the ``target`` of the move that was under way when the trouble began."""
        assert self.move is not None, "no VM was on the move"
        found = self.move.source if which == "source" else self.move.target
        assert found, f"the move has no {which} yet"
        return found

    def start(self, row: "Row") -> None:
        """Cluster, Prometheus and programs, under the row's policy."""
        lab = self.lab
        lab.start(row.scenario, *row.settings, chart_values=row.chart_values)
        self.policy = lab.policy(self._changes(row))
        if self._collector is not None:
            lab.environment |= {**self._collector.variables, "OTEL_EXPORTER_OTLP_TIMEOUT": "3"}
        lab.set_policy(dict(self.policy))
        lab.run("descheduler", replicas=2)
        lab.run("soft-tainter")
        lab.leader("soft-tainter")

    def _changes(self, row: "Row") -> Mapping[str, Any]:
        changes = row.policy(self)
        if self._proxy is not None:
            self._proxy.start(self.lab.prometheus.url)
            changes = {**changes, "metrics": {"url": self._proxy.url, **changes.get("metrics", {})}}
        if row.stuck_after_s is not None:
            self.lab.stuck_after_s = row.stuck_after_s * SPEED
            timeout = {"migrationTimeout": f"{row.stuck_after_s:g}s"}
            changes = {**changes, "evictions": {**changes.get("evictions", {}), **timeout}}
        return changes

    def remember(self) -> None:
        """Note how things are right before the trouble."""
        programs = self.lab.programs
        truth = self.lab.cluster.truth()
        self.begins_s = truth.now_s
        ours = [move for move in truth.on_the_move if move.ours]
        self.move = max(ours, key=lambda move: (move.started_s is not None, move.created_s), default=None)
        self._pages = {one.account: one.page() for one in programs}
        self._logs = {one.account: len(one.process.output()) for one in programs}
        self._restarts = {one.account: one.restarts for one in programs}

    # --- what signs look at ---

    def value(self, one: Program, name: str, labels: Mapping[str, str]) -> float:
        return one.metric(name, **labels)

    def value_before(self, one: Program, name: str, labels: Mapping[str, str]) -> float:
        """As it was before the trouble; 0 if the program has been started again since."""
        if self.restarted(one):
            return 0.0
        samples = self._pages.get(one.account, {}).get(f"vm_rebalancer_{name}", [])
        return sum(value for value, carried in samples if labels.items() <= carried.items())

    def said(self, one: Program) -> str:
        """What it has written since the trouble began."""
        return one.process.output()[self._logs.get(one.account, 0) :]

    def restarted(self, one: Program) -> bool:
        return one.restarts > self._restarts.get(one.account, 0)

    # --- what must follow ---

    def until_one_moves(self, since_s: float, what: str) -> None:
        """Until a move of ours has begun since then. If all is balanced before, a node is crowded anew."""

        def moved(truth: Truth) -> bool:
            return any(move.created_s > since_s and move.attempt == 1 for move in truth.own_moves)

        truth = self.lab.until_truth(lambda now: moved(now) or now.is_balanced, GOES_ON_WITHIN_S, what)
        if not moved(truth):
            self._crowd_a_node(truth)
            self.lab.until_truth(moved, ACTS_WITHIN_S + GOES_ON_WITHIN_S, f"{what}, on a node crowded anew")

    def _crowd_a_node(self, truth: Truth) -> None:
        """The one that lacks least for it, of those that can be used."""
        usable = {
            node["metadata"]["name"]
            for node in self.lab.cluster.items("/api/v1/nodes")
            if not node["spec"].get("unschedulable")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
        }
        name = max(usable & truth.nodes.keys(), key=lambda name: truth.nodes[name].demand)
        node = truth.nodes[name]
        for number in range(math.ceil((_CROWDED * node.cores - node.demand_cores) / _VM_CORES)):
            vm = f"crowding-{truth.now_s:.0f}-{number}"
            self.lab.cluster.act("create_vm", spec={**_VM, "name": vm, "node": name})

    def until_it_goes_on(self) -> None:
        """From now on: VMs move again, and the programs are well."""
        truth = self.lab.until_truth(lambda _: True, GOES_ON_WITHIN_S, "the cluster answers")
        self.ends_at = truth.time
        self.until_one_moves(truth.now_s, "balancing goes on")
        for one in self.lab.programs:
            self.lab.until(one.is_ready, GOES_ON_WITHIN_S, f"{one.account} is ready again")
            self.lab.until(one.is_healthy, GOES_ON_WITHIN_S, f"{one.account} is healthy")


@contextmanager
def scene_of(lab: Lab, row: "Row", port: int) -> Iterator[Scene]:
    """``port``: for the proxy."""
    with ExitStack() as ends:
        proxy = Proxy(port) if row.by_proxy else None
        if proxy is not None:
            ends.callback(proxy.stop)
        yield Scene(lab, proxy, ends.enter_context(by_http()) if row.traced else None)
