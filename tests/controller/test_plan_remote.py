"""``vm-rebalancer plan --from-controller``: what a running descheduler has decided, read and shown.

Golden files: ``pytest tests/controller/test_plan_remote.py --update`` writes them anew.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller import cli, plan_command
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.health import HealthServer
from controller.plan import remote
from controller.plan.text import as_plain_text, text_of
from controller.report import Decisions
from informers.clock import SystemClock
from tests.controller.controlled_cluster import pod
from tests.controller.decided_cluster import IDENTITY, DecidedCluster
from tests.controller.decision_builders import MINUTE, QUERY, SECOND
from tests.controller.io.http_server import HttpServer, Reply, Request, reply

GOLDEN = Path(__file__).parents[1] / "golden" / "decisions"
OUTPUTS = {"table": "-o table", "wide": "-o wide"}


def plan(line: str) -> Result:
    return CliRunner().invoke(cli.main, ["plan", *shlex.split(line)], prog_name="vm-rebalancer")


def busy_cluster() -> DecidedCluster:
    """One VM was refused, one has moved and settled, one is on the move; two more wait."""
    cluster = DecidedCluster("vm-1", "vm-2", "vm-3", "vm-4", "vm-5")
    cluster.api.rehearsals[pod("vm-1")] = EvictionAnswer(Verdict.REFUSED, "not on a Monday")
    cluster.start()
    cluster.pass_time(10 * SECOND)
    cluster.migrate("vm-2")
    cluster.pass_time(5 * MINUTE)
    cluster.heat("node-1", 0.97)
    cluster.pass_time(MINUTE)
    return cluster


@contextmanager
def served(cluster: DecidedCluster) -> Iterator[str]:
    server = HealthServer(
        "127.0.0.1",
        0,
        live={},
        ready={},
        registry=CollectorRegistry(),
        clock=SystemClock(),
        pages={remote.PATH: cluster.log.page},
    )
    port = server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        assert server.stop(5 * SECOND)


# --- what it shows ---


@pytest.mark.parametrize("name", OUTPUTS)
def test_shows_the_golden_text(name: str, update_golden: bool) -> None:
    with served(busy_cluster()) as url:
        result = plan(f"--from-controller {url} {OUTPUTS[name]}")
    assert (result.exit_code, result.stderr) == (0, "")
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(result.stdout, encoding="utf-8")
    assert result.stdout == path.read_text(encoding="utf-8"), "compare, then run with --update"


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(OUTPUTS)


def test_json_and_yaml_hold_everything() -> None:
    cluster = busy_cluster()
    with served(cluster) as url:
        as_json = plan(f"--from-controller {url} -o json").stdout
        as_yaml = plan(f"--from-controller {url} -o yaml").stdout
    assert msgspec.json.decode(as_json, type=Decisions) == cluster.decisions
    assert msgspec.convert(yaml.safe_load(as_yaml), type=Decisions) == cluster.decisions


def test_says_when_the_vms_were_looked_at_that_were_passed_over() -> None:
    cluster = DecidedCluster("vm-1", "vm-2")
    cluster.start()
    cluster.pass_time(30 * SECOND)
    assert "    1 VM passed over at the last look, 30s ago:\n" in as_plain_text(
        text_of(cluster.decisions, wide=False)
    )


def spiked(raw: Any) -> Any:
    """With what a terminal would obey in each text."""
    match raw:
        case str():
            return f"{raw}\x1b[2J\x9b2J\r"
        case dict():
            return {spiked(key) if key == QUERY else key: spiked(value) for key, value in raw.items()}
        case list() | tuple():
            return [spiked(each) for each in raw]
        case _:
            return raw


@pytest.mark.parametrize("wide", [False, True])
def test_nothing_that_it_says_reaches_the_terminal_as_a_command(wide: bool) -> None:
    """Whoever holds the port may answer what they like; classes that a later version knows are shown, too."""
    cluster = busy_cluster()
    log = replace(cluster.decisions.head, notes=("a note",))
    raw = msgspec.to_builtins(
        replace(cluster.decisions, head=log, alarm="an alarm"), builtin_types=(datetime,)
    )
    text = as_plain_text(text_of(msgspec.convert(spiked(raw), Decisions), wide=wide))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "node-1 [2J" in text


def test_nor_does_what_a_stand_by_says() -> None:
    cluster = busy_cluster()
    cluster.leading, cluster.holder = False, "replica-2\x1b[2J"
    with served(cluster) as url:
        result = plan(f"--from-controller {url}")
    assert "\x1b" not in result.stderr
    assert "replica-2 [2J" in result.stderr


@pytest.mark.parametrize("path", ["", "/", "/debug/decisions"])
def test_takes_the_address_with_and_without_the_path(path: str) -> None:
    with served(busy_cluster()) as url:
        assert plan(f"--from-controller {url}{path}").exit_code == 0


def test_watching_goes_on_while_it_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader takes a moment."""
    cluster = busy_cluster()

    class Impatient(Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == plan_command.ASK_AGAIN_S
            pauses.append(timeout)
            cluster.leading = len(pauses) != 1
            if len(pauses) == 3:
                raise KeyboardInterrupt
            return False

    pauses: list[float] = []
    monkeypatch.setattr(plan_command, "Event", Impatient)
    with served(cluster) as url:
        result = plan(f"--from-controller {url} --watch -o yaml")
    assert result.exit_code == 0
    assert len(list(yaml.safe_load_all(result.stdout))) == 2
    assert result.stderr.count("stands by") == 1


# --- errors ---


def test_a_stand_by_is_an_error_that_names_the_leader() -> None:
    cluster = busy_cluster()
    cluster.leading, cluster.holder = False, "vm-rebalancer-7c_replica-2"
    with served(cluster) as url:
        result = plan(f"--from-controller {url}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: {url} stands by and decides nothing; the lease is held by vm-rebalancer-7c_replica-2\n"
    )


def test_a_new_leader_that_still_waits_is_none_yet() -> None:
    cluster = busy_cluster()
    cluster.leading, cluster.holder = False, IDENTITY
    with served(cluster) as url:
        result = plan(f"--from-controller {url}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has only just got the lease" in result.stderr


def test_nobody_there_is_told_in_a_line() -> None:
    result = plan("--from-controller http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "Error: the descheduler at http://127.0.0.1:1 cannot be asked: cannot connect"
    )
    assert result.stderr.count("\n") == 1


ANSWERS = {
    "not found": (reply(404, b"not found\n"), "it answers 404 Not Found"),
    "a page": (reply(200, b"<html>Welcome to nginx"), "it answers 200 OK, with something else"),
    "other JSON": (reply(200, {"status": "success"}), "it answers 200 OK, with something else"),
    "another version": (
        reply(200, {"apiVersion": "vm-rebalancer.io/v9", "kind": "Decisions"}),
        "it answers 200 OK, with something else",
    ),
    "half of it": (
        reply(200, {"apiVersion": "vm-rebalancer.io/v1alpha1", "kind": "Decisions"}),
        "it answers 200 OK, with something else",
    ),
    "a redirect": (reply(302, b"", {"Location": "http://127.0.0.1:1/"}), "it answers 302 Found"),
    "an odd status": (reply(599, b""), "it answers 599"),
    "no HTTP": ([b"SSH-2.0-OpenSSH_9.6\r\n"], "cannot be asked: what came is no HTTP"),
    "a broken answer": (
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"],
        "cannot be asked: ",
    ),
}


@pytest.mark.parametrize(("answer", "message"), ANSWERS.values(), ids=ANSWERS)
def test_somebody_else_is_told_in_a_line(answer: Reply, message: str) -> None:
    with HttpServer(lambda _: answer) as server:
        result = plan(f"--from-controller {server.url}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_one_that_answers_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no answer."""
    monkeypatch.setattr(remote, "WITHIN_S", 0.5)

    def drip(_: Request) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
        while True:
            server.wait()
            yield b" "

    with HttpServer(drip) as server:
        result = plan(f"--from-controller {server.url}")
    assert result.exit_code == 1
    assert "no answer within 0.5 s" in result.stderr


def test_too_large_an_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_BYTES", 1000)
    with HttpServer(lambda _: reply(200, b" " * 5000)) as server:
        result = plan(f"--from-controller {server.url}")
    assert result.exit_code == 1
    assert "is larger than 1000 bytes" in result.stderr


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://localhost", "http://", "http://[::1", "http://host:port", "unix:/x"]
)
def test_what_is_no_address_is_told(url: str) -> None:
    result = plan(f"--from-controller {url}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: --from-controller: allowed: http://HOST:PORT or https://HOST:PORT\n"


def test_a_password_in_the_address_is_not_repeated() -> None:
    result = plan("--from-controller 'http://admin:hunter2@127.0.0.1:1/?token=hunter2'")
    assert result.exit_code == 1
    assert "hunter2" not in result.output + result.stderr


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("--policy-file a", "--policy-file"),
        ("--scenario hotspot --minute 1", "--scenario, --minute"),
        ("--explain vm/x", "--explain"),
        ("--context c --kubeconfig k", "--kubeconfig, --context"),
    ],
)
def test_what_makes_no_sense_beside_it_is_wrong_usage(more: str, named: str) -> None:
    result = plan(f"--from-controller http://127.0.0.1:1 {more}")
    assert result.exit_code == 2
    assert f"{named}: not with --from-controller" in result.stderr


def test_only_reads() -> None:
    with HttpServer(lambda _: reply(404, b"")) as server:
        plan(f"--from-controller {server.url}")
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("GET", "/debug/decisions", b"")
    assert request.headers.keys() == {"accept", "accept-encoding", "host", "user-agent"}
