"""``/debug/decisions`` of running programs, and what ``plan --from-controller`` makes of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller import cli
from controller.runtime import run_descheduler, run_soft_tainter
from tests.controller.running_programs import Start, asked, config, options
from tests.simulator.apiserver.builders import LEASES, lease
from tests.simulator.apiserver.harness import Connected, Served, until

PAGE = "/debug/decisions"

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_a_stand_by_says_who_leads(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path
) -> None:
    admin.ask("POST", LEASES, lease("l", "other"))
    given = options(config(tmp_path), policy, leader_elect=True)
    running = start(given)
    expected = {"identity": given.identity, "holder": "other"}
    until(lambda: json.loads(asked(running.number, PAGE)[1]).items() >= expected.items())
    assert asked(running.number, PAGE)[0] == 503
    line = ["plan", "--from-controller", f"http://127.0.0.1:{running.number}"]
    result = CliRunner().invoke(cli.main, line, prog_name="vm-rebalancer")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "stands by and decides nothing; the lease is held by other" in result.stderr


def test_plan_shows_what_a_running_descheduler_has_decided(
    tmp_path: Path, served: Served, start: Start, policy: Path
) -> None:
    running = start(options(config(tmp_path), policy))
    until(lambda: running.metric("refresh_duration_seconds_count") > 0)
    until(lambda: "node-00" in asked(running.number, PAGE)[1])
    line = ["plan", "--from-controller", f"http://127.0.0.1:{running.number}"]
    result = CliRunner().invoke(cli.main, line, prog_name="vm-rebalancer")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Nothing is decided: only 0 of 3 eligible nodes have a value" in result.stdout


def test_a_soft_tainter_has_no_such_page(tmp_path: Path, served: Served, start: Start, policy: Path) -> None:
    running = start(options(config(tmp_path), policy), run_soft_tainter)
    assert asked(running.number, PAGE)[0] == 404
    line = ["plan", "--from-controller", f"http://127.0.0.1:{running.number}"]
    result = CliRunner().invoke(cli.main, line, prog_name="vm-rebalancer")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it answers 404 Not Found" in result.stderr


def test_nothing_is_claimed_before_the_first_look(tmp_path: Path, served: Served, start: Start) -> None:
    empty = tmp_path / "policy.yaml"
    empty.write_text("")
    running = start(options(config(tmp_path), empty), run_descheduler)
    status, body = asked(running.number, PAGE)
    assert (status, json.loads(body)["head"]["skipped"]) == (200, "no valid policy was seen yet")
