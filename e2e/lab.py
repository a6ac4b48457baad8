"""A cluster, a Prometheus and the programs, each a process, for one test."""

import math
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import yaml

from e2e import chart, claims
from e2e.cluster import SPEED, Cluster, RefusedError
from e2e.ports import Ports
from e2e.processes import PROGRAM, Processes
from e2e.programs import Program
from e2e.prometheus import Prometheus
from e2e.truth import Truth
from e2e.waiting import until

T = TypeVar("T")
Document = dict[str, Any]

STARTS_WITHIN_S = 40.0
ACTS_WITHIN_S = 60.0
"""From an empty Prometheus to the first eviction: metrics need some 25 s to be there."""
BALANCES_WITHIN_S = 120.0
_CONFIG_MAPS = f"/api/v1/namespaces/{chart.NAMESPACE}/configmaps"


class Lab:
    """``start`` it, run programs, ``end`` it. Everything it waits for fails early if a process has ended by itself."""

    def __init__(self, directory: Path, ports: Ports) -> None:
        self._directory = directory
        self._ports = ports
        self.processes = Processes(directory)
        prometheus_port = ports.free()
        self.cluster = Cluster(self.processes, directory, f"http://127.0.0.1:{prometheus_port}")
        self.prometheus = Prometheus(self.processes, self.cluster.files, prometheus_port)
        self.programs: list[Program] = []
        self.launcher: Sequence[str] = [PROGRAM]
        """What programs are started by from now on."""
        self.environment: dict[str, str] = {}
        """Of the programs that are started as the chart does, on top of what they need."""
        self.stuck_after_s = math.inf
        """``migrationTimeout`` in the cluster's seconds, where it matters."""
        self.restarts = False
        """Whether programs that end are started again, as the kubelet does; else none may end by itself."""
        self.chart = chart.Chart([])
        self._policy: Document = {}
        self._foreign_taints: Mapping[str, frozenset[tuple[str, str, str]]] = {}

    def start(self, scenario: str, *settings: str, chart_values: tuple[str, ...] = ()) -> None:
        """Serve the cluster and its metrics. ``settings``: of the scenario; ``chart_values``: as for helm."""
        self.chart = chart.Chart.render(*chart_values)
        self.cluster.start(scenario, self.chart, settings)
        self.until(self._is_served, STARTS_WITHIN_S, "the cluster is served")
        self._foreign_taints = self.cluster.foreign_taints()
        self._policy = yaml.safe_load((self.cluster.files / "policy.yaml").read_text(encoding="utf-8"))
        self.prometheus.start()
        self.until(self.prometheus.is_ready, STARTS_WITHIN_S, "Prometheus is ready")

    def _is_served(self) -> bool:
        return (self.cluster.files / "policy.yaml").exists() and self.cluster.truth().now_s > 0

    # --- the policy ---

    def policy(self, changes: Mapping[str, Any] | None = None) -> Document:
        """The scenario's, with times that suit the speed, and with these changes."""
        return _merged(self._policy, changes or {})

    def set_policy(self, document: Document) -> None:
        """Put it where the programs look for it."""
        manifest = config_map(yaml.safe_dump(document))
        try:
            self.cluster.ask("PUT", f"{_CONFIG_MAPS}/{chart.CONFIG_MAP}", manifest)
        except RefusedError as error:
            if error.status != 404:
                raise
            self.cluster.ask("POST", _CONFIG_MAPS, manifest)

    @property
    def limits(self) -> claims.Limits:
        limits = self._policy["evictions"]["limits"]
        return claims.Limits(limits["node"], limits["total"], self.stuck_after_s)

    # --- the programs ---

    def launch(self, account: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Program:
        """Start a program."""
        program = Program(self.processes, account, self.launcher, arguments, environment, self._ports.free())
        self.programs.append(program)
        return program

    def launch_installed(self, program: str, *flags: str, replica: int = 0) -> Program:
        """Start a replica as the chart does, and with these flags, too."""
        account = chart.account(program, replica)
        kubeconfig = str(self.cluster.kubeconfig_of(account))
        return self.launch(
            account,
            [*self.chart.arguments(program), *flags],
            {**self.environment, "VM_REBALANCER_KUBECONFIG": kubeconfig},
        )

    def run(self, program: str, *, replicas: int = 1) -> list[Program]:
        """Start replicas as the chart does, and wait until they have read the cluster."""
        started = [self.launch_installed(program, replica=replica) for replica in range(replicas)]
        for one in started:
            self.until(one.is_ready, STARTS_WITHIN_S, f"{one.account} is ready")
        return started

    def run_all(self) -> None:
        """Two deschedulers and a soft-tainter under the scenario's policy."""
        self.set_policy(self.policy())
        self.run("descheduler", replicas=2)
        self.run("soft-tainter")

    def replicas(self, program: str = "descheduler") -> list[Program]:
        return [one for one in self.programs if one.account.startswith(program)]

    def leader(self, program: str = "descheduler") -> Program:
        """The replica that decides, once there is one."""
        replicas = self.replicas(program)
        return self.until(
            lambda: next((one for one in replicas if one.decides()), None), STARTS_WITHIN_S, "one decides"
        )

    # --- waiting ---

    def until(self, probe: Callable[[], T | None], within_s: float, what: str) -> T:
        """What the probe returns once that is truthy."""
        found = until(probe, within_s=within_s, what=what, meanwhile=self._look_after)
        assert found is not None
        return found

    def _look_after(self) -> None:
        for program in self.programs if self.restarts else ():
            if program.process.exit_code is not None:
                program.start_again()
        self.processes.check()

    def until_truth(self, claim: Callable[[Truth], object], within_s: float, what: str) -> Truth:
        """The truth as soon as it is like that."""

        def probe() -> Truth | None:
            truth = self.cluster.truth()
            return truth if claim(truth) else None

        return self.until(probe, within_s, what)

    def until_balanced(self) -> Truth:
        return self.until_truth(lambda truth: truth.is_balanced, BALANCES_WITHIN_S, "the cluster is balanced")

    def let_pass(self, seconds: float) -> None:
        """Let the cluster live on for so long, in real time, while everybody has the chance to do wrong."""
        end_s = self.until_truth(lambda _: True, seconds + 10, "the cluster answers").now_s + seconds * SPEED
        self.until_truth(lambda truth: truth.now_s >= end_s, 2 * seconds + 10, f"{seconds:g} s have passed")

    # --- the end ---

    def check_unharmed(self) -> None:
        """What must hold after every case."""
        if not self.cluster.was_started:
            return
        assert self.cluster.is_running, "the API server has ended"
        truth = self.cluster.truth()
        assert truth.shutdowns == [], "VMs went down"
        assert claims.exceeded(truth, self.limits) == [], "limits were exceeded"
        assert claims.evicted_twice(self.cluster.requests()) == [], "pods were evicted twice"
        now = self.cluster.foreign_taints()
        changed = {n for n, taints in self._foreign_taints.items() if now.get(n, taints) != taints}
        assert changed == set(), "taints of others were changed"
        assert [p.account for p in self.programs if "Traceback" in p.process.output()] == [], (
            "something broke"
        )

    def end(self) -> None:
        self.processes.end()

    def notes(self) -> dict[str, str]:
        """What helps to understand a failure."""
        return {**self.processes.logs(), "truth": self._truth_in_words()}

    def _truth_in_words(self) -> str:
        try:
            truth = self.cluster.truth()
        except (OSError, HTTPException, RefusedError) as error:
            return f"not to be had: {error}"
        nodes = ", ".join(f"{name} {node.demand:.0%}" for name, node in truth.nodes.items())
        moves = [str(move) for move in truth.migrations]
        writes = [str(r) for r in self.cluster.requests() if r.writes and not r.renews]
        return "\n".join([f"{truth.time} = {truth.now_s:.1f} s: {nodes}", *moves, *map(str, writes)])


def config_map(policy: str) -> Document:
    """The manifest that the chart's arguments name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": chart.CONFIG_MAP, "namespace": chart.NAMESPACE},
        "data": {"policy.yaml": policy},
    }


def _merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> Document:
    """Mappings are merged key by key, everything else is replaced."""
    merged = dict(document)
    for key, value in changes.items():
        nested = merged.get(key)
        if isinstance(nested, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(nested, value)
        else:
            merged[key] = value
    return merged
