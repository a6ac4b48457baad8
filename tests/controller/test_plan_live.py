"""``vm-rebalancer plan`` on a served cluster: what it reads, with how little it gets by, and its errors."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from controller import cli, plan_command
from controller.plan import sources
from controller.plan.sources import LookError, asking, live_cluster, watched
from controller.policy.parse import default_policy
from informers.clock import SystemClock
from informers.errors import Gone
from informers.transport import Transport
from simulator.apiserver.rbac import read_manifests
from tests.simulator.apiserver.builders import CONFIG_MAPS, asked, config_map
from tests.simulator.apiserver.harness import Connected, Served, until

NO_PROMETHEUS = "http://127.0.0.1:1"
POLICY = f"""
apiVersion: vm-rebalancer.io/v1alpha1
kind: RebalancePolicy
metrics: {{url: "{NO_PROMETHEUS}", allowHttp: true, tokenFile: "", caFile: ""}}
"""
READS = [
    {"apiGroups": [""], "resources": ["nodes", "pods", "configmaps"], "verbs": ["list"]},
    {
        "apiGroups": ["kubevirt.io"],
        "resources": ["virtualmachineinstances", "virtualmachineinstancemigrations", "kubevirts"],
        "verbs": ["list"],
    },
]


def rules(*allowed: dict[str, Any]) -> str:
    """A service account ``viewer`` that may do this."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": "vm-rebalancer"}
    api = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "viewer"}}
    return yaml.safe_dump_all(
        [
            api | {"kind": "ClusterRole", "rules": list(allowed)},
            api | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "viewer", "namespace": "vm-rebalancer"},
            },
        ]
    )


def served(directory: Path, *allowed: dict[str, Any]) -> Served:
    what = asked(
        directory,
        manifests=read_manifests(rules(*allowed), "rules"),
        accounts={"viewer": directory / "viewer"},
    )
    return Served(what, SystemClock())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, *READS) as running:
        yield running


@pytest.fixture
def admin(cluster: Served) -> Iterator[Connected]:
    client = cluster.client()
    yield client
    client.close()


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def plan(kubeconfig: Path, *args: str) -> Result:
    line = ["plan", "--kubeconfig", str(kubeconfig), *args]
    return CliRunner().invoke(cli.main, line, prog_name="vm-rebalancer")


def viewer(cluster: Served) -> Path:
    return cluster.what.accounts["viewer"]


def test_a_read_only_account_is_enough_and_nothing_is_written(cluster: Served, policy_file: Path) -> None:
    result = plan(viewer(cluster), "--policy-file", str(policy_file), "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = json.loads(result.stdout)
    assert [(row["name"], row["vms"]) for row in shown["nodes"]] == [
        ("node-00", 4),
        ("node-01", 3),
        ("node-02", 0),
    ]
    assert len(shown["head"]["notes"]) == 1
    assert shown["head"]["notes"][0].startswith("no metrics: query ")
    assert cluster.what.audit is not None
    audit = [json.loads(line) for line in cluster.what.audit.read_text().splitlines()]
    viewed = [entry for entry in audit if entry["user"].endswith(":viewer")]
    assert {entry["verb"] for entry in viewed} == {"list"}
    assert len(viewed) == 6


def test_explains_a_vm_of_a_live_cluster(cluster: Served, policy_file: Path) -> None:
    result = plan(viewer(cluster), "--policy-file", str(policy_file), "--explain", "vm/fixed-000")
    assert result.exit_code == 0
    assert "it is not live-migratable" in result.stdout


def test_takes_the_policy_from_a_config_map(cluster: Served, admin: Connected) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("policy", **{"policy.yaml": POLICY + "mode: Automatic\n"}))
    result = plan(viewer(cluster), "--policy-configmap", "vm-rebalancer/policy", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["head"]["mode"] == "Automatic"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"policy.yaml": "kind: RebalancePolicy"}, "ConfigMap vm-rebalancer/policy"),
        ({"policy.yml": POLICY}, 'data."policy.yaml": found nothing'),
    ],
)
def test_a_bad_policy_in_a_config_map_is_told(
    cluster: Served, admin: Connected, data: dict[str, str], message: str
) -> None:
    admin.ask("POST", CONFIG_MAPS, config_map("policy", **data))
    result = plan(viewer(cluster), "--policy-configmap", "vm-rebalancer/policy")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_a_config_map_that_is_not_there_is_told(cluster: Served) -> None:
    result = plan(viewer(cluster), "--policy-configmap", "vm-rebalancer/nope")
    assert result.exit_code == 1
    assert result.stderr == "Error: ConfigMap vm-rebalancer/nope: there is none of that name\n"


def test_a_forbidden_resource_is_named(tmp_path: Path, policy_file: Path) -> None:
    with served(tmp_path, READS[0]) as cluster:
        result = plan(viewer(cluster), "--policy-file", str(policy_file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: listing kubevirts is not allowed: 403 Forbidden: ")
    assert result.stderr.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path, policy_file: Path) -> None:
    with served(tmp_path, *READS) as cluster:
        kubeconfig = viewer(cluster)
    result = plan(kubeconfig, "--policy-file", str(policy_file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: the API server cannot be reached: ")
    assert result.stderr.count("\n") == 1


def test_a_missing_kubeconfig_is_told(tmp_path: Path, policy_file: Path) -> None:
    result = plan(tmp_path / "nope", "--policy-file", str(policy_file))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "nope" in result.stderr


def test_lists_all_pages(cluster: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PAGE_SIZE", 2)
    listed = live_cluster(Transport.from_kubeconfig(str(viewer(cluster))), "cluster")
    assert len(listed.caches.launchers.lister) == len(listed.caches.vmis.lister) == 7


class Forgetful:
    """An API server that forgets the rest of a list ``times`` times; each list has two pages of nothing."""

    def __init__(self, times: int) -> None:
        self._times = times

    def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> bytes:
        if "continue" not in query:
            return b'{"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}'
        if self._times:
            self._times -= 1
            raise Gone("the continue token is too old")
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'


def test_a_list_that_the_server_has_forgotten_is_begun_once_more() -> None:
    assert live_cluster(Forgetful(1), "cluster").notes() == ()  # type: ignore[arg-type]
    with pytest.raises(LookError, match="cannot list kubevirts"):
        live_cluster(Forgetful(2), "cluster")  # type: ignore[arg-type]


def test_another_address_of_the_metrics_gets_no_secrets() -> None:
    metrics = asking(default_policy(), "http://localhost:9090").metrics
    assert (metrics.url, metrics.token_file, metrics.headers_file) == ("http://localhost:9090", "", "")


def test_watching_sees_what_changes(cluster: Served, admin: Connected) -> None:
    transport = Transport.from_kubeconfig(str(cluster.what.kubeconfig))
    listed = live_cluster(transport, "cluster")
    with watched(transport, listed) as kept:
        admin.control("cluster", do="cordon", arguments={"name": "node-02"})
        until(lambda: any(node.unschedulable for node in kept.caches.nodes.lister.list()))


def test_an_account_that_may_not_watch_is_told_so(cluster: Served) -> None:
    transport = Transport.from_kubeconfig(str(viewer(cluster)))
    listed = live_cluster(transport, "cluster")
    with watched(transport, listed) as kept:
        until(lambda: any("403 Forbidden" in note for note in kept.notes()))


def test_watch_looks_again_until_interrupted(
    tmp_path: Path, policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == timedelta(seconds=30).total_seconds()
            pauses.append(timeout)
            if len(pauses) == 2:
                raise KeyboardInterrupt
            return False

    pauses: list[float] = []
    monkeypatch.setattr(plan_command, "Event", Impatient)
    with served(tmp_path) as cluster:
        result = plan(cluster.what.kubeconfig, "--policy-file", str(policy_file), "--watch", "-o", "yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(list(yaml.safe_load_all(result.stdout))) == 2
