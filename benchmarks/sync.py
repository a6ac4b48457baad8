"""How long until the caches are full: 2,000 nodes and 30,000 virt-launcher pods, over loopback.

python -m benchmarks.sync

Server and clients are processes of their own. Compared are our reflectors, once with streaming lists and once
with pages, and the ``kubernetes`` package's SharedInformer. The server is a stand-in that costs less than a
real one; the ratio is what counts.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from benchmarks.api_objects import NODES, PODS, launcher, node, serve

LIMIT_S = 240.0


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mb: float


def ours(kubeconfig: str) -> None:
    from controller.cluster.caches import ClusterCaches
    from controller.cluster.resources import RESOURCES
    from informers.clock import SystemClock
    from informers.reflector import Reflector
    from informers.transport import Transport

    caches, clock, rng = ClusterCaches(), SystemClock(), random.Random(1)
    transport = Transport.from_kubeconfig(kubeconfig)
    for informer in (caches.nodes, caches.launchers):
        resource_of = RESOURCES[informer.name]
        Reflector(resource_of, transport, informer, clock, rng, print).start()
    _wait_for(lambda: len(caches.nodes.lister) == NODES and len(caches.launchers.lister) == PODS)


def theirs(kubeconfig: str) -> None:
    from kubernetes.client import CoreV1Api
    from kubernetes.config import new_client_from_config
    from kubernetes.informer import SharedInformer

    api = CoreV1Api(new_client_from_config(kubeconfig))  # type: ignore[no-untyped-call]
    shared: Any = SharedInformer
    nodes = shared(api.list_node)
    pods = shared(api.list_pod_for_all_namespaces, label_selector="kubevirt.io=virt-launcher")
    for informer in (nodes, pods):
        informer.start()
    _wait_for(lambda: len(nodes.cache.list_keys()) == NODES and len(pods.cache.list_keys()) == PODS)


def _wait_for(done: Callable[[], bool]) -> None:
    never = Event()
    while not done():
        never.wait(0.02)


CLIENTS: dict[str, tuple[str, str, Callable[[str], None]]] = {
    "streaming": ("ours, streaming lists", "", ours),
    "pages": ("ours, pages of 500", "/old", ours),
    "shared": ("kubernetes SharedInformer", "", theirs),
}


def client(name: str, kubeconfig: str) -> None:
    started = time.perf_counter()
    CLIENTS[name][2](kubeconfig)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
    print(json.dumps(cost), flush=True)
    os._exit(0)  # at once, whatever the threads are doing


def measure(name: str, folder: Path, port: int) -> Cost:
    path = folder / name
    path.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port}{CLIENTS[name][1]}")))
    command = [sys.executable, "-m", "benchmarks.sync", "client", name, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "it", "user": {"token": "any"}}],
    }


def main() -> None:
    sizes = ", ".join(f"{len(json.dumps(obj, separators=(',', ':'))):,} B" for obj in (node(), launcher()))
    print(f"{NODES:,} nodes and {PODS:,} launcher pods ({sizes} each)")
    command = [sys.executable, "-m", "benchmarks.sync", "serve"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            port = int(next(iter(server.stdout or ())))
            costs = {name: measure(name, Path(folder), port) for name in CLIENTS}
        finally:
            server.terminate()
    base = costs["shared"]
    print(
        f"{'':<28}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}{'':>4}{'of wall':>9}{'of CPU':>8}{'of memory':>11}"
    )
    for name, cost in costs.items():
        ratios = [mine / its for mine, its in zip(cost, base, strict=True)]
        row = f"{cost.wall_s:>8.1f}{cost.cpu_s:>8.1f}{cost.peak_mb:>9.0f}"
        print(f"{CLIENTS[name][0]:<28}{row}{'':>4}{ratios[0]:>9.0%}{ratios[1]:>8.0%}{ratios[2]:>11.0%}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve(lambda port: print(port, flush=True))
        case ["client", name, kubeconfig]:
            client(name, kubeconfig)
        case _:
            main()
