"""A program of ours, run in a thread of the test or as a process, against servers on the loopback address."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller import runtime
from controller.health import HealthServer
from controller.lease import LeaseTiming
from controller.platform import Options
from e2e.ports import Ports
from informers import connection, reflector, watchstate
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.simulator.apiserver.builders import LEASES
from tests.simulator.apiserver.harness import Connected, until

QUICK = LeaseTiming(timedelta(seconds=1.5), timedelta(seconds=1), timedelta(seconds=0.1))
"""A first leader waits one lease duration, in real time, before it may write."""
ENDS_WITHIN_S = 10.0
_PORTS = Ports()
NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}


def options(kubeconfig: Path | str | None = None, policy: Path | None = None, **changes: Any) -> Options:
    """Without a lease, and with a policy file, unless told otherwise."""
    return Options(
        **{
            "program": "descheduler",
            "kubeconfig": str(kubeconfig) if kubeconfig is not None else None,
            "context": None,
            "policy_config_map": None,
            "policy_file": str(policy) if policy is not None else None,
            "leader_elect": False,
            "lease": "vm-rebalancer/l",
            "lease_timing": QUICK,
            "listen": ("127.0.0.1", 0),
            "workers": 2,
            **changes,
        }
    )


def policy_text(url: str, *, mode: str = "Predictive", more: str = "") -> str:
    """Metrics are asked for once an hour; what makes it ask sooner is what a test is about."""
    return (
        "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\n"
        f"mode: {mode}\nmetrics: {{url: '{url}', allowHttp: true, tokenFile: '', caFile: '', "
        f"refreshInterval: 1h, maxAge: 2h, timeout: 30s{more}}}\n"
    )


def kubeconfig_for(url: str, path: Path) -> Path:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    return path


def empty_prometheus(_: Request) -> Reply:
    return reply(200, NOTHING)


@contextmanager
def hanging() -> Iterator[HttpServer]:
    """Takes every request and answers none."""

    def answer(_: Request) -> Reply:
        return server.hang()

    with HttpServer(answer) as server:
        yield server


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of a port where connecting itself hangs: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"
        for filler in fillers:
            filler.close()


def free_port() -> int:
    """One that nobody is given by chance until somebody listens there."""
    return _PORTS.free()


def asked(port: int, path: str) -> tuple[int, str]:
    """Raises OSError."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read().decode()
    finally:
        client.close()


class Port:
    """What a program says at its port."""

    number = 0

    def reasons(self, path: str) -> dict[str, str]:
        """Check -> why it fails; and the status goes with that."""
        status, body = asked(self.number, path)
        answer = json.loads(body)
        failed = {check["name"]: check["reason"] for check in answer["checks"] if not check["ok"]}
        assert (status == 200) == answer["ok"] == (not failed)
        return failed

    def page(self) -> str:
        return asked(self.number, "/metrics")[1]

    def metric(self, name: str) -> float:
        """The sum of all samples."""
        families = text_string_to_metric_families(self.page())
        samples = [s for family in families for s in family.samples if s.name == f"vm_rebalancer_{name}"]
        return sum(sample.value for sample in samples)


class InThread(Port):
    """``run_descheduler`` or ``run_soft_tainter`` in a thread; signals come by ``terminate``."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, program: Callable[[Options], int], given: Options
    ) -> None:
        self.code: int | None = None
        self.error: BaseException | None = None
        self._handlers: dict[int, Callable[..., None]] = {}
        self._listens = threading.Event()
        started = HealthServer.start

        def start(server: HealthServer) -> int:
            assert self._handlers, "whoever gets an answer may stop it"
            self.number = started(server)
            self._listens.set()
            return self.number

        def handle(number: int, handler: Callable[..., None]) -> None:
            self._handlers[number] = handler

        monkeypatch.setattr(HealthServer, "start", start)
        monkeypatch.setattr(runtime.signal, "signal", handle)
        self._thread = threading.Thread(target=self._run, args=(program, given), name="program")
        self._thread.start()
        assert self._listens.wait(ENDS_WITHIN_S)

    def terminate(self) -> None:
        self._handlers[runtime.signal.SIGTERM](runtime.signal.SIGTERM, None)

    def wait(self) -> int | None:
        self._thread.join(ENDS_WITHIN_S)
        assert not self._thread.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error
        return self.code

    def stop(self) -> int | None:
        self.terminate()
        return self.wait()

    def _run(self, program: Callable[[Options], int], given: Options) -> None:
        try:
            self.code = program(given)
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.error = error
            self._listens.set()


Start = Callable[..., InThread]


class AsProcess(Port):
    """``vm-rebalancer …``; its log goes to a file."""

    def __init__(self, arguments: tuple[str, ...], log: Path, environment: Mapping[str, str]) -> None:
        self.number = free_port()
        self._log = log
        code = "from controller.cli import main; main()"
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-c", code, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "VM_REBALANCER_LISTEN": f"127.0.0.1:{self.number}",
                    **environment,
                },
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def answers(self) -> bool:
        try:
            asked(self.number, "/healthz")
        except OSError:
            assert self.process.poll() is None, self.log
            return False
        return True

    def wait_until_up(self) -> None:
        until(self.answers)


@contextmanager
def process(log: Path, *arguments: str, **environment: str) -> Iterator[AsProcess]:
    running = AsProcess(arguments, log, environment)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def make_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short, and what is told to stop notices soon."""
    monkeypatch.setattr(connection, "SLICE_S", 0.02)
    monkeypatch.setattr(watchstate, "BASE_DELAY_S", 0.02)
    monkeypatch.setattr(watchstate, "MAX_DELAY_S", 0.1)
    monkeypatch.setattr(reflector, "SPREAD_S", 0.02)
    monkeypatch.setattr(runtime, "LOOK_AT_POLICY", timedelta(seconds=0.05))


def writes(audit: Path) -> list[dict[str, Any]]:
    """What was asked of the served cluster and would change it."""
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    return [e for e in entries if e["verb"] not in ("get", "list", "watch") and e["resource"]]


def config(tmp_path: Path) -> Path:
    """Where a served cluster leaves its kubeconfig."""
    return tmp_path / "kubeconfig"


def leading(tmp_path: Path, start: Start, policy: Path, admin: Connected) -> InThread:
    running = start(options(config(tmp_path), policy, leader_elect=True))
    until(lambda: running.metric("is_leader") == 1)
    assert admin.get(f"{LEASES}/l")["spec"]["holderIdentity"]
    return running
