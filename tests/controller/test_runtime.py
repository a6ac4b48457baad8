"""The programs as a whole, from their options to their exit code, against a served cluster."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from controller import composition, platform, runtime
from controller.lease import SHUTDOWN_ALARM, LeaderElection
from controller.policy.parse import parse_policy
from controller.runtime import run_descheduler, run_soft_tainter
from controller.telemetry.emit import Emitter
from tests.controller.io.http_server import HttpServer
from tests.controller.running_programs import (
    ENDS_WITHIN_S,
    Start,
    config,
    free_port,
    hanging,
    kubeconfig_for,
    leading,
    options,
    policy_text,
    writes,
)
from tests.simulator.apiserver.builders import CONFIG_MAPS, LEASES, config_map, lease
from tests.simulator.apiserver.harness import Connected, Served, until

PROGRAMS = [run_descheduler, run_soft_tainter]
NEXT_REFRESH = 'vm_rebalancer_workqueue_keys{queue="decisions",state="delayed"} 1.0'
pytestmark = pytest.mark.usefixtures("no_thread_is_left")


# --- health and readiness ---


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (run_descheduler, "kubevirts, nodes, vmis, vmims, launchers, placed, policy"),
        (run_soft_tainter, "nodes, policy"),
    ],
)
def test_says_what_is_not_listed_yet_and_turns_ready(
    tmp_path: Path, served: Served, admin: Connected, start: Start, program: Any, names: str
) -> None:
    admin.control("faults", kind="error", status=503, verbs=["list", "watch"])
    running = start(options(config(tmp_path), policy_config_map="vm-rebalancer/p"), program)
    assert running.reasons("/readyz") == {"caches": f"not listed yet: {names}"}
    assert running.reasons("/healthz") == {}
    admin.ask("DELETE", "/simulator/faults")
    until(lambda: not running.reasons("/readyz"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_waits_for_an_api_server_that_is_away_and_says_so(
    tmp_path: Path, policy: Path, start: Start, caplog: pytest.LogCaptureFixture, program: Any
) -> None:
    away = kubeconfig_for(f"http://127.0.0.1:{free_port()}", tmp_path / "away")
    running = start(options(away, policy), program)
    until(lambda: "informer nodes: cannot connect to 127.0.0.1:" in caplog.text)
    assert "nodes" in running.reasons("/readyz")["caches"]
    assert running.reasons("/healthz") == {}
    assert running.stop() == 0


def test_is_unhealthy_once_a_handler_hangs(
    tmp_path: Path, served: Served, start: Start, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hanging() as prometheus:
        policy.write_text(policy_text(prometheus.url))
        running = start(options(config(tmp_path), policy))
        until(lambda: bool(prometheus.requests))
        assert running.reasons("/healthz") == {}
        monkeypatch.setattr(runtime, "HANDLER_WITHIN_S", 0.0)
        assert running.reasons("/healthz")["workers"].startswith("a handler has been running for ")
        assert running.stop() == 0


def test_is_unhealthy_once_looking_at_the_policy_hangs(
    tmp_path: Path, served: Served, start: Start, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hang(_: object) -> bool:
        reached.set()
        return go_on.wait(ENDS_WITHIN_S)

    monkeypatch.setattr(platform.PolicyWatch, "reload", hang)
    running = start(options(config(tmp_path), policy))
    assert reached.wait(ENDS_WITHIN_S)
    monkeypatch.setattr(runtime, "HANDLER_WITHIN_S", 0.0)
    assert "workers" in running.reasons("/healthz")
    go_on.set()


def test_is_unhealthy_without_any_contact(
    tmp_path: Path, served: Served, start: Start, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(options(config(tmp_path), policy), run_soft_tainter)
    until(lambda: not running.reasons("/readyz"))
    assert running.reasons("/healthz") == {}
    monkeypatch.setattr(platform, "SILENT_FOR_S", -1.0)
    assert running.reasons("/healthz") == {"informers": "no contact for -1 s: nodes"}


def test_looking_at_the_policy_survives_whatever_happens_to_it(
    tmp_path: Path, served: Served, start: Start, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(options(config(tmp_path), policy))
    until(lambda: running.metric("policy_valid") == 1)
    reload = platform.PolicyWatch.reload
    failures = iter([LookupError("odd"), SystemExit(3)])

    def fail_at_first(watch: platform.PolicyWatch) -> bool:
        for error in failures:
            raise error
        return reload(watch)

    monkeypatch.setattr(runtime, "LOOK_AT_POLICY", runtime.LOOK_AT_POLICY / 10)
    monkeypatch.setattr(platform.PolicyWatch, "reload", fail_at_first)
    policy.write_text("broken")
    until(lambda: running.metric("policy_valid") == 0)
    assert running.metric("handler_errors_total") == 1
    assert running.code is None


# --- policy ---


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_policy_it_is_up_and_decides_nothing(
    tmp_path: Path,
    served: Served,
    start: Start,
    policy: Path,
    prometheus: HttpServer,
    caplog: pytest.LogCaptureFixture,
    program: Any,
) -> None:
    policy.unlink()
    with caplog.at_level(logging.INFO):
        running = start(options(config(tmp_path), policy), program)
        until(lambda: "deciding from now on" in caplog.text and "no readable file" in caplog.text)
    assert running.reasons("/readyz") == running.reasons("/healthz") == {}
    assert running.metric("policy_valid") == 0
    assert prometheus.requests == []
    policy.write_text(policy_text(prometheus.url))
    until(lambda: bool(prometheus.requests))
    assert running.metric("policy_valid") == 1


def test_a_changed_policy_is_followed_at_once_and_a_bad_one_never(
    tmp_path: Path,
    served: Served,
    admin: Connected,
    start: Start,
    prometheus: HttpServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The refresh interval is an hour: it is the change that makes it ask."""

    def put(text: str) -> None:
        answer = admin.ask("PUT", f"{CONFIG_MAPS}/p", config_map("p", **{"policy.yaml": text}))
        assert answer.status < 300

    admin.ask("POST", CONFIG_MAPS, config_map("p", **{"policy.yaml": policy_text(prometheus.url + "/first")}))
    running = start(options(config(tmp_path), policy_config_map="vm-rebalancer/p"))
    until(lambda: any(r.path.startswith("/first") for r in prometheus.requests))
    put("apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\nmode: Auto\n")
    until(lambda: running.metric("policy_valid") == 0)
    assert 'mode: found "Auto"; allowed: Predictive, Automatic' in caplog.text
    assert running.metric("is_leader") == 1
    put(policy_text(prometheus.url + "/second"))
    until(lambda: any(r.path.startswith("/second") for r in prometheus.requests))
    until(lambda: running.metric("policy_valid") == 1)
    admin.ask("DELETE", f"{CONFIG_MAPS}/p")
    until(lambda: running.metric("policy_valid") == 0)
    assert all(r.path.startswith(("/first", "/second")) for r in prometheus.requests)


def test_in_predictive_mode_without_election_nothing_is_written(
    tmp_path: Path, served: Served, start: Start, policy: Path, prometheus: HttpServer
) -> None:
    for program in PROGRAMS:
        running = start(options(config(tmp_path), policy), program)
        until(lambda running=running: running.metric("metrics_age_seconds") < 1e6)
        until(lambda running=running: NEXT_REFRESH in running.page())
        assert running.stop() == 0
    assert writes(tmp_path / "audit.jsonl") == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_observer_that_fails_keeps_no_program_from_its_work(
    tmp_path: Path,
    served: Served,
    start: Start,
    policy: Path,
    prometheus: HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: Any,
) -> None:
    def fail(_: Emitter) -> None:
        raise LookupError("odd")

    monkeypatch.setattr(Emitter, "refreshing", fail)
    running = start(options(config(tmp_path), policy), program)
    until(lambda: bool(prometheus.requests))
    assert running.metric("handler_errors_total") == 0
    assert "an observer failed at" in caplog.text
    assert running.stop() == 0


# --- the lease ---


def test_stands_by_ready_and_silent_while_another_holds_the_lease(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path, prometheus: HttpServer
) -> None:
    admin.ask("POST", LEASES, lease("l", "other"))
    running = start(options(config(tmp_path), policy, leader_elect=True))
    until(lambda: not running.reasons("/readyz") and running.metric("policy_valid") == 1)
    assert running.metric("is_leader") == 0
    assert running.stop() == 0
    assert prometheus.requests == []
    assert [w["verb"] for w in writes(tmp_path / "audit.jsonl")] == ["create"], "the test's own"


@pytest.mark.parametrize("often", [1, 3])
def test_gives_the_lease_back_however_often_it_is_told_to_stop(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path, often: int
) -> None:
    running = leading(tmp_path, start, policy, admin)
    for _ in range(often):
        running.terminate()
    assert running.wait() == 0
    assert admin.get(f"{LEASES}/l")["spec"].get("holderIdentity", "") == ""


def test_a_lost_lease_ends_the_program_with_exit_code_1_and_without_another_write(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path
) -> None:
    running = leading(tmp_path, start, policy, admin)
    before = admin.get(f"{LEASES}/l")
    admin.ask("DELETE", f"{LEASES}/l")
    admin.ask("POST", LEASES, lease("l", "thief"))
    assert before["spec"]["holderIdentity"] != "thief"
    assert running.wait() == 1
    written = writes(tmp_path / "audit.jsonl")
    assert {w["resource"] for w in written} == {"leases"}
    assert [w["verb"] for w in written if w["status"] < 300][-2:] == ["delete", "create"], "the test's own"
    assert admin.get(f"{LEASES}/l")["spec"]["holderIdentity"] == "thief"


def test_a_lease_thread_that_dies_ends_the_program_with_exit_code_1(
    tmp_path: Path,
    served: Served,
    start: Start,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> bool:
        raise LookupError("odd")

    monkeypatch.setattr(LeaderElection, "run", fail)
    running = start(options(config(tmp_path), policy, leader_elect=True))
    assert running.wait() == 1
    assert "the lease is given up" in caplog.text
    assert "LookupError: odd" in caplog.text


def test_a_replica_whose_lease_thread_has_ended_is_unhealthy(
    tmp_path: Path, policy: Path, served: Served
) -> None:
    run = runtime._Run(
        platform.Platform(options(config(tmp_path), policy), frozenset({"nodes"})), composition.soft_tainter
    )
    assert run._live_checks()["lease"]() == ""
    run._lease_thread = threading.Thread(target=lambda: None)
    run._lease_thread.start()
    run._lease_thread.join()
    assert run._live_checks()["lease"]() == "the thread of the lease has ended"


@pytest.mark.parametrize(("stopping", "lost"), [(True, False), (False, True)])
def test_a_lease_that_runs_out_after_the_stop_was_asked_for_is_no_failure(
    tmp_path: Path, served: Served, policy: Path, monkeypatch: pytest.MonkeyPatch, stopping: bool, lost: bool
) -> None:
    """It cannot be renewed any more when the API server is away as well."""
    monkeypatch.setattr(LeaderElection, "run", lambda *_: False)
    given = options(config(tmp_path), policy, leader_elect=True)
    whole = platform.Platform(given, frozenset({"nodes"}))
    run = runtime._Run(whole, composition.soft_tainter)
    if stopping:
        whole.stop.set()
    run._hold_lease()
    assert run._lost.is_set() == lost
    assert whole.stop.is_set()


def test_the_alarm_outlives_a_restart_and_goes_with_its_policy(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path, prometheus: HttpServer
) -> None:
    digest = parse_policy(policy.read_text()).digest
    kept = json.dumps({"reason": "a VM went down", "policyDigest": digest})
    admin.ask("POST", LEASES, lease("l", "", annotations={SHUTDOWN_ALARM: kept}))
    running = leading(tmp_path, start, policy, admin)
    until(lambda: running.metric("shutdown_alarm") == 1)
    assert SHUTDOWN_ALARM in admin.get(f"{LEASES}/l")["metadata"]["annotations"]
    policy.write_text(policy_text(prometheus.url, mode="Automatic"))
    until(lambda: running.metric("shutdown_alarm") == 0)
    until(lambda: SHUTDOWN_ALARM not in (admin.get(f"{LEASES}/l")["metadata"].get("annotations") or {}))
