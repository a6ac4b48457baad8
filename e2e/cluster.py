"""A simulated cluster: ``vm-rebalancer serve`` as a process, and its control endpoint."""

import base64
import json
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from e2e import chart
from e2e.processes import PROGRAM, Process, Processes
from e2e.truth import Request, Truth, read_audit

SPEED = 6
SCENARIOS = Path(__file__).parent / "scenarios"
ACCOUNTS = tuple(
    chart.account(program, replica) for program in chart.PROGRAMS for replica in range(chart.REPLICAS)
)
_ANSWER_S = 10.0


class RefusedError(Exception):
    """The API server has answered with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Cluster:
    """Its process, and the admin's way into it: nothing here goes through code that the programs use."""

    def __init__(self, processes: Processes, directory: Path, prometheus_url: str) -> None:
        self._processes = processes
        self.directory = directory
        self._prometheus_url = prometheus_url
        self.kubeconfig = directory / "admin.kubeconfig"
        """The admin's."""
        self.files = directory / "prometheus"
        """Prometheus' configuration and rules, and a policy, all with times that suit the speed."""
        self.audit = directory / "audit.jsonl"
        """There once the cluster has been started."""
        self._process: Process | None = None

    def start(self, scenario: str, rendered: chart.Chart, settings: Sequence[str]) -> None:
        """``settings``: as for the command's ``--set``. It is ready once it answers."""
        rbac = self.directory / "rbac.yaml"
        rendered.write_rbac(rbac)
        own = SCENARIOS / f"{scenario}.yaml"
        pairs: list[tuple[str, object]] = [
            ("--kubeconfig", self.kubeconfig),
            ("--speed", SPEED),
            ("--rbac", rbac),
            ("--audit", self.audit),
            ("--prometheus-config", self.files),
            ("--prometheus-url", self._prometheus_url),
            *(("--account", f"{name}={self.kubeconfig_of(name)}") for name in ACCOUNTS),
            *(("--set", setting) for setting in settings),
        ]
        flags = [str(word) for pair in pairs for word in pair]
        self._process = self._processes.start(
            "serve", [PROGRAM, "serve", str(own) if own.exists() else scenario, *flags]
        )

    @property
    def was_started(self) -> bool:
        return self._process is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def freeze(self) -> None:
        """API server and exporter take connections and say nothing."""
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        assert self._process is not None
        self._process.thaw()

    def kubeconfig_of(self, account: str) -> Path:
        return self.directory / f"{account}.kubeconfig"

    # --- the API, as its admin ---

    def ask(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """The decoded answer. Raises RefusedError, and OSError if there is no answer."""
        document = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        address = urlsplit(cluster["server"])
        connection = HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=_ANSWER_S,
            context=ssl.create_default_context(cadata=authority),
        )
        try:
            headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": content_type}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 300:
            raise RefusedError(response.status, text)
        return json.loads(text) if text else None

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        items: list[dict[str, Any]] = self.ask("GET", path)["items"]
        return items

    def foreign_taints(self) -> Mapping[str, frozenset[tuple[str, str, str]]]:
        """Node -> (key, value, effect) of taints that are neither ours nor the node lifecycle controller's."""
        return {
            node["metadata"]["name"]: frozenset(
                (taint["key"], taint.get("value", ""), taint["effect"])
                for taint in node["spec"].get("taints") or ()
                if not taint["key"].startswith(("nodeutilization.vm-rebalancer.io/", "node.kubernetes.io/"))
            )
            for node in self.items("/api/v1/nodes")
        }

    def own_taints(self) -> Mapping[str, list[str]]:
        """Node -> the keys of our taints, without their prefix; nodes without one are left out."""
        prefix = "nodeutilization.vm-rebalancer.io/"
        found = {
            node["metadata"]["name"]: [
                taint["key"].removeprefix(prefix)
                for taint in node["spec"].get("taints") or ()
                if taint["key"].startswith(prefix)
            ]
            for node in self.items("/api/v1/nodes")
        }
        return {name: keys for name, keys in found.items() if keys}

    # --- the control endpoint ---

    def control(self, action: str, **body: object) -> Any:
        """POST to the control endpoint: ``restart``, ``watches``, ``compact``, ``tokens``, ``clock``, ``exporter``."""
        return self.ask("POST", f"/simulator/{action}", body)

    def fault(self, kind: str, **what: object) -> None:
        """Hit requests from now on: ``error``, ``latency``, ``cut``, ``garbage``, ``watch``."""
        self.control("faults", kind=kind, **what)

    def end_faults(self) -> None:
        self.ask("DELETE", "/simulator/faults")

    def act(self, do: str, **arguments: object) -> Any:
        """Have something happen in the cluster: ``drain``, ``lose_node``, ``stop_vm``, ``delete_migration`` …"""
        return self.control("cluster", do=do, arguments=arguments)["result"]

    def truth(self) -> Truth:
        return msgspec.convert(self.ask("GET", "/simulator/truth"), Truth)

    # --- the audit log ---

    def requests(self) -> list[Request]:
        return read_audit(self.audit)

    def writes_of(self, account: str) -> list[Request]:
        """What it has asked for that would change something, but for its Lease."""
        return [r for r in self.requests() if r.by(account) and r.writes and not r.renews]

    def evictions(self, *, since: datetime | None = None) -> list[Request]:
        """Real ones, by our accounts."""
        return [
            r
            for r in self.requests()
            if r.evicts and (since is None or r.time >= since) and any(r.by(account) for account in ACCOUNTS)
        ]
