"""What both programs stand on: where the API server and the Lease are, fresh lists, the alarm on the Lease."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller import platform
from controller.cluster.resources import RESOURCES
from controller.evictions.views import Alarm
from controller.lease import SHUTDOWN_ALARM
from controller.platform import Platform, StartError, connect, lease_name
from informers.errors import NoAnswer
from informers.testing import ManualClock
from informers.transport import Transport
from tests.controller.decision_builders import entry
from tests.controller.io.fake_api import LeaseServer
from tests.controller.io.lease_world import Steps, manual_clock
from tests.controller.running_programs import kubeconfig_for, options, policy_text

URL = "http://127.0.0.1:1"


# --- where things are ---


@pytest.mark.parametrize(
    ("given", "inside", "expected"),
    [
        ({"kubeconfig": None}, True, "in_cluster"),
        ({"kubeconfig": None}, False, "from_kubeconfig"),
        ({"kubeconfig": "k"}, True, "from_kubeconfig"),
        ({"kubeconfig": None, "context": "c"}, True, "from_kubeconfig"),
        ({"kubeconfig": None, "context": "c"}, False, "from_kubeconfig"),
    ],
)
def test_a_flag_about_the_kubeconfig_counts_more_than_the_pod_we_are_in(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], inside: bool, expected: str
) -> None:
    used: list[str] = []
    for name in ("in_cluster", "from_kubeconfig"):
        monkeypatch.setattr(Transport, name, lambda *_, name=name: used.append(name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1" if inside else "")
    connect(options(**given))
    assert used == [expected]


def test_a_pod_without_a_service_account_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(StartError, match="the pod's service account: "):
        connect(options(kubeconfig=None))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"lease": "a/l", "policy_config_map": "b/p"}, ("a", "l")),
        ({"lease": None, "policy_config_map": "b/p"}, ("b", "vm-rebalancer-descheduler")),
        ({"lease": None, "policy_file": "p"}, ("mine", "vm-rebalancer-descheduler")),
    ],
)
def test_the_lease_is_where_it_is_said_else_beside_the_policy_else_beside_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: tuple[str, str]
) -> None:
    (tmp_path / "namespace").write_text("mine\n")
    monkeypatch.setattr(platform, "_NAMESPACE_FILE", str(tmp_path / "namespace"))
    assert lease_name(options(**given)) == expected


def made(tmp_path: Path, **given: Any) -> Platform:
    kubeconfig = kubeconfig_for(URL, tmp_path / "config")
    (tmp_path / "policy.yaml").write_text(policy_text(URL))
    return Platform(options(kubeconfig, tmp_path / "policy.yaml", **given), frozenset(RESOURCES))


def test_without_election_it_may_write_and_shows_that(tmp_path: Path) -> None:
    assert made(tmp_path).registry.get_sample_value("vm_rebalancer_is_leader") == 1.0
    assert made(tmp_path, leader_elect=True).registry.get_sample_value("vm_rebalancer_is_leader") == 0.0


def test_every_informer_has_its_age_among_the_metrics(tmp_path: Path) -> None:
    made_one = made(tmp_path, policy_file=None, policy_config_map="ns/p")
    ages = {
        name: made_one.registry.get_sample_value(
            "vm_rebalancer_informer_last_contact_seconds", {"resource": name}
        )
        for name in (*RESOURCES, "policy")
    }
    assert None not in ages.values()


def test_what_an_informer_reports_is_counted_and_said_but_not_while_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made_one = made(tmp_path)
    made_one._informer_failed("nodes", NoAnswer("the connection broke"))
    made_one.stop.set()
    made_one._informer_failed("nodes", NoAnswer("given up"))
    count = made_one.registry.get_sample_value("vm_rebalancer_informer_errors_total", {"resource": "nodes"})
    assert count == 1.0
    assert [r.message for r in caplog.records] == ["informer nodes: the connection broke"]


# --- fresh lists ---


def resyncing(made_one: Platform, resync: Callable[[str], None]) -> Platform:
    for name, reflector in made_one.reflectors.items():
        reflector.resync = lambda _, name=name: resync(name)  # type: ignore[method-assign]
    return made_one


def test_is_freshly_synced_only_if_everything_was_listed_afresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_for_vmis(name: str) -> None:
        if name == "vmis":
            raise NoAnswer("vmis: no fresh list within 60 s")

    assert resyncing(made(tmp_path), lambda _: None).freshly_synced()
    assert not resyncing(made(tmp_path), fail_for_vmis).freshly_synced()
    assert "vmis: no fresh list within 60 s" in caplog.text


def test_stopping_does_not_wait_for_fresh_lists(tmp_path: Path) -> None:
    made_one, listed = made(tmp_path), threading.Event()
    resyncing(made_one, lambda _: listed.wait(10) and None)
    made_one.stop.set()
    assert not made_one.freshly_synced()
    listed.set()


# --- the alarm ---


class Leading:
    """A platform whose election takes place on a clock of the test, at a server of Leases."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock: ManualClock = manual_clock()
        self.server = LeaseServer()
        monkeypatch.setattr(platform, "SystemClock", lambda: self.clock)
        monkeypatch.setattr(platform, "connect", lambda _: self.server)
        self._given: dict[str, Any] = {"leader_elect": True, "lease": "rebalancing/l"}
        self._tmp_path = tmp_path
        self.platform = self.restart()

    def restart(self) -> Platform:
        """Another process, on the same Lease."""
        self.platform = made(self._tmp_path, **self._given)
        self.platform.policy.reload()
        return self.platform

    def lead(self, *actions: Callable[[], object]) -> None:
        """Acquire, do these, renewing after each, and give back."""
        assert self.platform.election is not None
        assert self.platform.election.run(Steps(self.clock, *actions, lambda: None))

    def change_policy(self, text: str) -> None:
        (self._tmp_path / "policy.yaml").write_text(text)
        self.platform.policy.reload()

    def raise_alarm(self) -> None:
        policy = self.platform.policy.current()
        assert policy is not None
        self.platform.emitter.alarmed(Alarm("a VM went down", policy.digest), entry())

    @property
    def kept(self) -> bool:
        return SHUTDOWN_ALARM in self.server.annotations


@pytest.fixture
def leading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leading:
    return Leading(tmp_path, monkeypatch)


def test_an_alarm_is_kept_on_the_lease_and_known_after_a_restart(leading: Leading) -> None:
    leading.lead(leading.raise_alarm)
    assert leading.kept
    known: list[Alarm | None] = []
    leading.restart()
    leading.lead(leading.platform.forget_old_alarm, lambda: known.append(leading.platform.known_alarm()))
    policy = leading.platform.policy.current()
    assert policy is not None
    assert known == [Alarm("a VM went down", policy.digest)]
    assert leading.kept


def test_an_alarm_goes_with_its_policy(leading: Leading) -> None:
    leading.lead(leading.raise_alarm, lambda: leading.change_policy(policy_text(URL, mode="Automatic")))
    assert not leading.kept


@pytest.mark.parametrize("text", ["", "kind: Nonsense", policy_text(URL) + "# said otherwise\n"])
def test_a_text_that_is_no_other_policy_leaves_the_alarm(leading: Leading, text: str) -> None:
    leading.lead(leading.raise_alarm, lambda: leading.change_policy(text))
    assert leading.kept


def test_an_alarm_of_a_policy_that_changed_while_nobody_ran_is_forgotten(leading: Leading) -> None:
    leading.lead(leading.raise_alarm)
    leading.restart()
    leading.change_policy(policy_text(URL, mode="Automatic"))
    leading.lead(leading.platform.forget_old_alarm)
    assert not leading.kept


def test_who_stands_by_takes_no_alarm_off(leading: Leading) -> None:
    leading.lead(leading.raise_alarm)
    leading.restart()
    leading.change_policy(policy_text(URL, mode="Automatic"))
    leading.platform.forget_old_alarm()
    assert leading.kept


def test_without_election_an_alarm_is_said_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        made(tmp_path).emitter.alarmed(Alarm("a VM went down", "digest"), entry())
    assert "a VM went down" in caplog.text


def test_a_raised_alarm_is_written_at_once(leading: Leading, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried: list[bool] = []
    monkeypatch.setattr(leading.platform.give_back, "hurry", lambda: hurried.append(True))
    leading.raise_alarm()
    assert hurried == [True]
