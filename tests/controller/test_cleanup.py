"""``soft-tainter --cleanup``: what it takes off, what it leaves, and how it ends."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controller import cleanup
from controller.cleanup import clean_up
from controller.cluster.objects import Node, Taint
from controller.lease import NotLeaderError
from controller.taints.desired import APPROPRIATE, OVER
from informers.errors import ApiError, NoAnswer
from informers.informer import Informer
from tests.builders import node
from tests.controller.running_programs import kubeconfig_for, options, process
from tests.simulator.apiserver.builders import JSON_PATCH, LEASES, NODES, lease
from tests.simulator.apiserver.harness import DEADLINE_S, Connected, Served

OURS = [{"key": OVER, "effect": "PreferNoSchedule"}, {"key": APPROPRIATE, "effect": "PreferNoSchedule"}]
FOREIGN = [
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": OVER, "effect": "NoExecute"},
    {"key": f"x{OVER}", "effect": "PreferNoSchedule"},
]
"""Somebody else's: another key, another effect, another prefix."""
QUICK = ("--lease-duration=1500ms", "--renew-deadline=1s", "--retry-period=100ms", "--lease=vm-rebalancer/l")


# --- against a served cluster ---


def put_taints(admin: Connected, name: str, taints: list[dict[str, str]]) -> None:
    patch = [{"op": "add", "path": "/spec/taints", "value": taints}]
    assert admin.ask("PATCH", f"{NODES}/{name}", patch, content_type=JSON_PATCH).status == 200


def taints_of(admin: Connected, name: str) -> list[dict[str, str]]:
    taints: list[dict[str, str]] = admin.get(f"{NODES}/{name}")["spec"].get("taints") or []
    return taints


def cleaned_up(tmp_path: Path) -> tuple[int, str]:
    """Exit code and log."""
    arguments = ("soft-tainter", "--cleanup", "--kubeconfig", str(tmp_path / "kubeconfig"), *QUICK)
    with process(tmp_path / "log", *arguments) as running:
        return running.process.wait(DEADLINE_S), running.log


def test_takes_our_taints_off_and_nobody_elses_and_keeps_the_lease_it_took(
    tmp_path: Path, served: Served, admin: Connected
) -> None:
    put_taints(admin, "node-00", [FOREIGN[0], *OURS, *FOREIGN[1:]])
    put_taints(admin, "node-01", OURS)
    put_taints(admin, "node-02", FOREIGN)
    admin.ask("POST", LEASES, lease("l", "the running tainter"))
    code, log = cleaned_up(tmp_path)
    assert code == 0, log
    assert [taints_of(admin, f"node-0{n}") for n in range(3)] == [FOREIGN, [], FOREIGN]
    spec = admin.get(f"{LEASES}/l")["spec"]
    assert spec["holderIdentity"] not in ("", "the running tainter")
    assert spec["leaseDurationSeconds"] == 120


def test_nothing_to_take_off_is_fine(tmp_path: Path, served: Served, admin: Connected) -> None:
    code, log = cleaned_up(tmp_path)
    assert code == 0, log
    assert admin.get(f"{LEASES}/l")["spec"]["leaseDurationSeconds"] == 120


def test_a_conflict_is_tried_again(tmp_path: Path, served: Served, admin: Connected) -> None:
    put_taints(admin, "node-00", OURS)
    admin.control("faults", kind="error", status=409, verbs=["patch"], resources=["nodes"], count=1)
    code, log = cleaned_up(tmp_path)
    assert code == 0, log
    assert taints_of(admin, "node-00") == []


def test_nodes_that_keep_their_taints_are_named_and_the_exit_code_is_1(
    tmp_path: Path, served: Served, admin: Connected
) -> None:
    put_taints(admin, "node-00", OURS)
    put_taints(admin, "node-01", OURS)
    admin.control("faults", kind="error", status=403, verbs=["patch"], resources=["nodes"], names=["node-01"])
    code, log = cleaned_up(tmp_path)
    assert code == 1
    assert "node node-01 still carries soft taints of ours" in log
    assert "node node-00 still" not in log
    assert taints_of(admin, "node-00") == []


# --- what a served cluster cannot do on demand ---


class FakeElection:
    """Leads at once unless told otherwise; nobody runs it."""

    leads = True
    problem = "403 Forbidden"
    kept = 120.0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def run(self, _: object) -> bool:
        return True

    def writes_allowed(self) -> bool:
        return self.leads

    def time_to_write(self) -> timedelta:
        return timedelta(seconds=10) if self.leads else timedelta(0)

    def keep_others_out(self, _: object) -> None:
        pass

    def kept_out_s(self) -> float:
        return self.kept


class FakeReflector:
    """Lists the tainted ``nodes``; ``errors`` are raised by the first lists instead."""

    nodes: tuple[Node, ...] = ()
    errors: tuple[ApiError, ...] = ()

    def __init__(self, _: object, __: object, informer: Informer[Node], *___: object) -> None:
        self._informer = informer
        self._errors = list(self.errors)

    def start(self) -> None:
        pass

    def resync(self, _: object) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self._informer.replace(list(self.nodes))


class FakePatcher:
    """Does what ``act`` does."""

    act: Callable[[Node], bool] = staticmethod(lambda _: True)

    def __init__(self, *_: object) -> None:
        pass

    def replace_taints(self, node: Node, taints: Any) -> bool:
        return type(self).act(node)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, fake in (
        ("LeaderElection", FakeElection),
        ("Reflector", FakeReflector),
        ("TaintPatcher", FakePatcher),
    ):
        monkeypatch.setattr(cleanup, name, fake)
    monkeypatch.setattr(
        FakeReflector, "nodes", (node(taints=[Taint(key=OVER, value="", effect="PreferNoSchedule")]),)
    )
    monkeypatch.setattr(cleanup, "LEASE_WITHIN_S", 0.5)
    return monkeypatch


def cleaned_up_here(tmp_path: Path) -> int:
    return clean_up(
        options(kubeconfig_for("http://127.0.0.1:1", tmp_path / "config"), program="soft-tainter")
    )


def test_nodes_that_were_never_listed_are_not_clean(
    tmp_path: Path, faked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what they carry."""
    faked.setattr(FakeReflector, "errors", (NoAnswer("no fresh list"),) * cleanup.ROUNDS)
    assert cleaned_up_here(tmp_path) == 1
    assert "the nodes were not to be listed" in caplog.text


def test_a_lease_lost_on_the_way_is_said_and_the_exit_code_is_1(
    tmp_path: Path, faked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Node) -> bool:
        raise NotLeaderError("the lease does not allow it")

    faked.setattr(FakePatcher, "act", staticmethod(refuse))
    assert cleaned_up_here(tmp_path) == 1
    assert "node node-1: the lease does not allow it" in caplog.text


def test_a_lease_that_is_not_to_be_had_is_said_with_the_reason(
    tmp_path: Path, faked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faked.setattr(FakeElection, "leads", False)
    assert cleaned_up_here(tmp_path) == 1
    assert "the lease was not to be had within 0 s: 403 Forbidden" in caplog.text


def test_a_lease_that_could_not_be_kept_longer_is_said(
    tmp_path: Path, faked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The taints are off, but the tainter may put them on again."""
    faked.setattr(cleanup, "KEPT_WITHIN_S", 0.25)
    faked.setattr(FakeElection, "kept", 15.0)
    faked.setattr(FakeReflector, "nodes", ())
    assert cleaned_up_here(tmp_path) == 0
    assert "the lease may run out sooner than in 0:02:00" in caplog.text


def test_a_list_that_fails_at_first_is_tried_again(tmp_path: Path, faked: pytest.MonkeyPatch) -> None:
    faked.setattr(FakeReflector, "errors", (NoAnswer("no fresh list"),))
    assert cleaned_up_here(tmp_path) == 0
