"""How the programs end: in time whatever hangs, with the lease given back, and without having told a secret."""

import json
import logging
import signal
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.controller.io.http_server import HttpServer, Request, reply
from tests.controller.running_programs import (
    ENDS_WITHIN_S,
    Start,
    black_hole,
    config,
    hanging,
    kubeconfig_for,
    leading,
    options,
    policy_text,
    process,
)
from tests.simulator.apiserver.builders import LEASES
from tests.simulator.apiserver.harness import Connected, Served, until

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_a_taken_port_is_one_clear_line(tmp_path: Path, policy: Path) -> None:
    kubeconfig = kubeconfig_for("http://127.0.0.1:1", tmp_path / "away")
    with hanging() as taken:
        arguments = ("--kubeconfig", str(kubeconfig), "--policy-file", str(policy), "--leader-elect=false")
        with process(
            tmp_path / "log", "soft-tainter", *arguments, "--listen", f"127.0.0.1:{taken.port}"
        ) as running:
            assert running.process.wait(ENDS_WITHIN_S) == 1
            (line,) = running.log.splitlines()
    assert line == f"Error: cannot listen on 127.0.0.1:{taken.port}: Address already in use"


def test_stopping_does_not_wait_for_a_query_and_gives_the_lease_back(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path
) -> None:
    with hanging() as prometheus:
        policy.write_text(policy_text(prometheus.url))
        running = leading(tmp_path, start, policy, admin)
        until(lambda: bool(prometheus.requests))
        assert running.stop() == 0
    assert admin.get(f"{LEASES}/l")["spec"].get("holderIdentity", "") == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("connecting", [False, True])
def test_ends_in_time_though_the_api_server_does_not_answer(
    tmp_path: Path, policy: Path, number: signal.Signals, connecting: bool
) -> None:
    """Once connections are made and nothing is said, once they cannot even be made."""
    silent: AbstractContextManager[Any] = black_hole() if connecting else nullcontext()
    with hanging() as server, silent as hole:
        kubeconfig = kubeconfig_for(hole or server.url, tmp_path / "config")
        arguments = ("--kubeconfig", str(kubeconfig), "--policy-file", str(policy), "--lease", "ns/l")
        with process(tmp_path / "log", "descheduler", *arguments, "--log-format", "json") as running:
            running.wait_until_up()
            until(lambda: connecting or len(server.requests) >= 7)
            for _ in range(2):
                running.process.send_signal(number)
            assert running.process.wait(ENDS_WITHIN_S) == 0, running.log
            lines = [json.loads(line) for line in running.log.splitlines()]
    assert {"time", "level", "message"} <= set.intersection(*(set(line) for line in lines))
    assert "stopping" in [line["message"] for line in lines]


def test_no_secret_is_in_logs_or_metrics(
    tmp_path: Path, served: Served, start: Start, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Prometheus refuses, and repeats what it was sent."""
    (tmp_path / "token").write_text("canary-of-the-token-file\n")
    (tmp_path / "headers").write_text("X-Tenant: canary-of-the-headers-file\n")

    def repeat(request: Request) -> Any:
        return reply(403, f"no: {request.headers}".encode())

    more = f", tokenFile: '{tmp_path / 'token'}', headersFile: '{tmp_path / 'headers'}'"
    with HttpServer(repeat) as prometheus, caplog.at_level(logging.DEBUG):
        policy.write_text(policy_text(prometheus.url).replace(", tokenFile: ''", more))
        running = start(options(config(tmp_path), policy, leader_elect=True))
        until(lambda: running.metric("refresh_failures_total") > 0)
        page = running.page()
        assert running.stop() == 0
    sent = str([request.headers for request in prometheus.requests])
    client = served.client()
    client.close()
    assert "no metrics: " in caplog.text
    for secret in ("canary-of-the-token-file", "canary-of-the-headers-file", client.token):
        assert secret in sent or secret == client.token
        assert secret not in caplog.text
        assert secret not in page
