"""The Python client's own SharedInformer keeps its cache by this API, whatever happens to its watch."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulator.apiserver.builders import MERGE, NODES, VMIMS, migration
from tests.simulator.apiserver.harness import DEADLINE_S, Connected, Served

client = pytest.importorskip("kubernetes.client")
config = pytest.importorskip("kubernetes.config")
informer = pytest.importorskip("kubernetes.informer")


class Followed:
    """An informer that runs, and the names of what it has reported."""

    def __init__(self, list_function: Callable[..., Any], **options: Any) -> None:
        self.informer = informer.SharedInformer(list_function, **options)
        self.reported: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
            self.informer.add_event_handler(kind, self._reporter(kind))

    def __enter__(self) -> "Followed":
        self.informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.informer.stop()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S), self.reported

    def cached(self) -> dict[str, Any]:
        return {obj.metadata.name: obj for obj in self.informer.cache.list()}

    def _reporter(self, kind: str) -> Callable[[Any], None]:
        def report(obj: Any) -> None:
            metadata = obj["metadata"] if isinstance(obj, dict) else obj.metadata.to_dict()
            with self._changed:
                self.reported.append((kind, metadata["name"]))
                self._changed.notify_all()

        return report


@pytest.fixture
def core(served: Served) -> Any:
    return client.CoreV1Api(config.new_client_from_config(str(served.what.kubeconfig)))


def label(admin: Connected, node: str, value: str) -> None:
    admin.ask("PATCH", f"{NODES}/{node}", {"metadata": {"labels": {"a": value}}}, content_type=MERGE)


def test_lists_then_follows(admin: Connected, core: Any) -> None:
    with Followed(core.list_node) as nodes:
        nodes.wait(lambda: len(nodes.reported) == 3)
        label(admin, "node-01", "x")
        nodes.wait(lambda: ("MODIFIED", "node-01") in nodes.reported)
        assert nodes.cached()["node-01"].metadata.labels["a"] == "x"
        admin.ask("DELETE", f"{NODES}/node-02")
        nodes.wait(lambda: ("DELETED", "node-02") in nodes.reported)
        assert nodes.cached().keys() == {"node-00", "node-01"}


def test_goes_on_after_its_watch_was_broken(admin: Connected, core: Any) -> None:
    with Followed(core.list_node) as nodes:
        nodes.wait(lambda: len(nodes.reported) == 3)
        label(admin, "node-00", "x")
        nodes.wait(lambda: ("MODIFIED", "node-00") in nodes.reported)
        admin.control("watches", do="end")
        label(admin, "node-01", "y")
        nodes.wait(lambda: ("MODIFIED", "node-01") in nodes.reported)


def test_lists_anew_after_a_410(admin: Connected, core: Any) -> None:
    with Followed(core.list_node) as nodes:
        nodes.wait(lambda: len(nodes.reported) == 3)
        label(admin, "node-00", "x")
        nodes.wait(lambda: ("MODIFIED", "node-00") in nodes.reported)
        admin.control("faults", kind="watch", do="expire", count=1)
        admin.control("watches", do="end")
        label(admin, "node-02", "z")
        nodes.wait(lambda: ("MODIFIED", "node-02") in nodes.reported)
        assert nodes.cached()["node-02"].metadata.labels["a"] == "z"


def test_follows_pods_by_label(served: Served, admin: Connected, core: Any) -> None:
    with Followed(
        core.list_namespaced_pod, namespace="vms", label_selector="kubevirt.io=virt-launcher"
    ) as pods:
        pods.wait(lambda: len(pods.reported) == 7)
        admin.ask("POST", VMIMS, migration("mine", "web-000"))
        served.pass_time(120)
        pods.wait(lambda: len({name for _, name in pods.reported}) == 8)
