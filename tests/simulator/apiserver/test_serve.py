"""``vm-rebalancer serve`` as a process: what it writes, that it is ready when it says so, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import urllib3
import yaml
from click.testing import CliRunner

from controller.policy.parse import parse_policy
from simulator.apiserver.faults import Fault
from simulator.apiserver.prometheus import configuration, faster_rules, lookback
from simulator.engine.run import policy_for
from simulator.scenario.loading import load_scenario
from simulator.serve import RULES, faster_policy, serve
from tests.simulator.apiserver.builders import NODES, SCENARIO, VMIS
from tests.simulator.apiserver.harness import DEADLINE_S, Connected


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A server that is ready, and what it has printed."""
    code = "from simulator.serve import serve; serve()"
    with subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as running:
        try:
            assert running.stdout is not None
            lines = []
            for line in running.stdout:
                lines.append(line.rstrip())
                if lines[-1] == "ready":
                    break
            assert lines[-1:] == ["ready"], lines
            yield running, lines
        finally:
            running.kill()


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    return str(tmp_path / "small.yaml")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_is_ready_when_it_says_so_and_ends_when_it_is_told_to(
    tmp_path: Path, scenario: str, number: signal.Signals
) -> None:
    with process(scenario, "--kubeconfig", str(tmp_path / "config")) as (running, lines):
        client = Connected(tmp_path / "config")
        assert lines[0] == "scenario small: 3 nodes, 7 VMs, 1 x real time"
        assert client.url in lines[1]
        with client.watch(VMIS) as events:
            assert len([next(events) for _ in range(7)]) == 7
            running.send_signal(number)
            assert running.wait(DEADLINE_S) == 0, "watches are open: it ends all the same"
        client.close()


def test_writes_what_prometheus_and_the_programs_need(tmp_path: Path, scenario: str) -> None:
    directory = tmp_path / "prometheus"
    arguments = (
        "--kubeconfig",
        str(tmp_path / "config"),
        "--speed",
        "6",
        "--account",
        f"reader={tmp_path / 'reader'}",
    )
    with process(scenario, *arguments, "--prometheus-config", str(directory)) as (_, lines):
        page = next(line.split()[1] for line in lines if line.startswith("metrics"))
        target = yaml.safe_load((directory / "prometheus.yml").read_text())["scrape_configs"][0][
            "static_configs"
        ]
        assert target == [{"targets": [re.sub(r"http://|/metrics", "", page)]}]
        pool = urllib3.PoolManager(retries=False)
        assert b"kube_node_info" in pool.request("GET", page).data
        pool.clear()
        assert "--query.lookback-delta 50s" in " ".join(lines)
        reader = Connected(tmp_path / "reader")
        assert reader.ask("GET", NODES).status == 200
        reader.close()
    policy = parse_policy((directory / "policy.yaml").read_text())
    assert policy.evictions.settle == timedelta(seconds=20)


def test_all_windows_and_intervals_of_the_rules_are_shorter_and_nothing_else() -> None:
    text = RULES.read_text()
    faster = faster_rules(text, 6)
    assert set(re.findall(r"\[\d+\w+\]", faster)) == {"[10s]", "[20s]"}
    assert [group["interval"] for group in yaml.safe_load(faster)["groups"]] == ["5s"]
    names = [
        [rule["record"] for rule in yaml.safe_load(rules)["groups"][0]["rules"]] for rules in (text, faster)
    ]
    assert names[0] == names[1]
    back = faster.replace("[10s]", "[1m]").replace("[20s]", "[2m]").replace("interval: 5s", "interval: 30s")
    assert back == text
    assert faster_rules(text, 1).replace("[60s]", "[1m]").replace("[120s]", "[2m]") == text


def test_prometheus_looks_as_often_as_the_cluster_is_fast() -> None:
    assert yaml.safe_load(configuration("127.0.0.1:1", 4))["global"] == {
        "scrape_interval": "7500ms",
        "scrape_timeout": "7500ms",
        "evaluation_interval": "7500ms",
    }
    assert lookback(1) == "300s"


def test_a_faster_policy_has_all_times_divided_but_for_how_long_an_answer_may_take() -> None:
    before = policy_for(load_scenario("hotspot"))
    after = faster_policy(before, 6, "http://127.0.0.1:9090")
    assert after.metrics.refresh_interval == timedelta(seconds=5)
    assert after.evictions.cooldown.base == timedelta(seconds=150)
    assert after.evictions.breaker.rest == timedelta(minutes=10)
    assert after.metrics.timeout == min(before.metrics.timeout, after.metrics.refresh_interval)
    assert (after.metrics.url, after.metrics.allow_http) == ("http://127.0.0.1:9090", True)
    assert after.thresholds == before.thresholds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no scenario 'nothing'"),
        (["--speed", "7"], "7.0 is not in the range 1<=x<=6"),
        (["--account", "x"], "'x', allowed: NAME=FILE"),
        (["--rbac", __file__], "not YAML"),
    ],
)
def test_refuses_a_bad_command_line_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(serve, [*arguments, "--kubeconfig", str(tmp_path / "config")])
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert "Traceback" not in done.output


def test_says_which_port_is_taken(tmp_path: Path, scenario: str) -> None:
    with process(scenario, "--kubeconfig", str(tmp_path / "config")):
        port = Connected(tmp_path / "config").url.rpartition(":")[2]
        done = CliRunner().invoke(serve, [scenario, "--kubeconfig", str(tmp_path / "other"), "--port", port])
    assert isinstance(done.exception, OSError)
    assert "address already in use" in str(done.exception)


def test_the_manual_knows_every_option_and_fault() -> None:
    manual = (RULES.parents[3] / "docs/serve.md").read_text()
    options = [option for parameter in serve.params for option in parameter.opts if option.startswith("--")]
    kinds = [kind.__struct_config__.tag for kind in get_args(Fault)]
    fields = {field.encode_name for kind in get_args(Fault) for field in msgspec.structs.fields(kind)}
    assert [name for name in (*options, *kinds, *fields) if f"`{name}" not in manual] == []


def test_the_audit_log_goes_to_a_file(tmp_path: Path, scenario: str) -> None:
    audit = tmp_path / "audit.jsonl"
    with process(scenario, "--kubeconfig", str(tmp_path / "config"), "--audit", str(audit)):
        client = Connected(tmp_path / "config")
        client.get(NODES)
        client.close()
        (entry,) = [json.loads(line) for line in audit.read_text().splitlines()]
    assert (entry["user"], entry["verb"], entry["resource"]) == ("kubernetes-admin", "list", "nodes")
