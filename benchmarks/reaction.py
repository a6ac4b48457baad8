"""How long from a migration's end to the node's next decision, while the cluster chatters.

python -m benchmarks.reaction

A simulated cluster is served over HTTPS by a process of its own, six times faster than real; ten of its nodes want
far too much, and send one small VM after the other. Beside that, nodes, launcher pods and VMIs of the size that they
have in real clusters are written so often that watches bring 500 events a second. Measured is from the moment when
the API server has a VMIM as Succeeded (a little before it is on the wire) until the ledger has seen it (the
transition to Settling), and until the VM's former node has been considered again.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.api_objects import launcher, node
from controller.cluster.caches import ClusterCaches
from controller.cluster.resources import RESOURCES
from controller.descheduler import Descheduler
from controller.evictions.answers import EvictionAnswer
from controller.evictions.api import EvictionRequests
from controller.evictions.entry import Entry, Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.views import Alarm
from controller.policy.model import Metrics
from controller.policy.parse import parse_policy
from controller.policy.presets import QUERIES
from controller.utilization import reading
from controller.utilization.classify import Classification
from controller.utilization.reading import Answer, Sample, Snapshot
from informers.clock import SystemClock
from informers.reflector import Reflector
from informers.transport import Transport
from simulator.apiserver.serving import Running, Serving, serving
from simulator.kubevirt.objectstore import NODE, POD, VMI, VMIM, ObjectStore, WatchEvent
from simulator.scenario.loading import parse_scenario

HOT, COLD, CORES = 10, 30, 128
VMS_PER_HOT, VMS_PER_COLD = 100, 20
VM_CORES = 1.2
MEMORY_BYTES, DIRTY_BYTES_PER_S = 1.3e9, 1e6
EVENTS_PER_S = 500
BATCHES_PER_S = 50
SAMPLES = 300
LIMIT_S = 90.0
SPEED = 6.0
UTILIZATION = QUERIES["PrometheusCPUUsage"].expression

SCENARIO = f"""
description: Ten of forty nodes want 94 % of their cores.
minutes: 600
nodes:
  node: {{count: {HOT + COLD}, cores: {CORES}, memory_gib: 1024}}
vms:
  hot:
    count: {HOT * VMS_PER_HOT}
    vcpus: 2
    memory_gib: 2
    demand: {VM_CORES / 2}
    placement: [{", ".join(f"node-{number:02}" for number in range(HOT))}]
  cold:
    count: {COLD * VMS_PER_COLD}
    vcpus: 2
    memory_gib: 2
    demand: 0.1
    placement: [{", ".join(f"node-{number:02}" for number in range(HOT, HOT + COLD))}]
kubevirt:
  parallel_migrations_per_cluster: {2 * HOT}
  setup_bytes: 1.0e+8
  pod_scheduling_s: [0.5, 1.5]
  pod_start_s: [1, 3]
"""
POLICY = f"""
apiVersion: vm-rebalancer.io/v1alpha1
kind: RebalancePolicy
mode: Automatic
metrics:
  url: http://127.0.0.1:9
  allowHttp: true
  actualUtilizationProfile: PrometheusCPUUsage
  refreshInterval: 5s
  timeout: 5s
  maxAge: 30s
thresholds: {{utilizationThresholds: {{under: 0.5, over: 0.6}}, sustain: 1}}
evictions: {{limits: {{node: 1, total: {HOT}}}, minGain: 0.001, settle: 20s, minVmAge: 1s}}
"""


# --- the cluster, in a process of its own ---


async def serve(kubeconfig: Path) -> None:
    """Prints, for each migration that has succeeded, the VM and the monotonic time."""
    asked = Serving(scenario=parse_scenario(SCENARIO), kubeconfig=kubeconfig, speed=SPEED)
    async with serving(asked, SystemClock()) as running:
        store = running.live.simulation.store
        _make_as_large_as_real(running, store)
        store.subscribe(_note_success)
        print("ready", flush=True)
        await _chatter(running, store)


def _note_success(event: WatchEvent) -> None:
    if event.kind == VMIM and event.type == "MODIFIED" and event.object["status"].get("phase") == "Succeeded":
        metadata, vmi = event.object["metadata"], event.object["spec"]["vmiName"]
        print(json.dumps([f"{metadata['namespace']}/{vmi}", time.monotonic()]), flush=True)


def _make_as_large_as_real(running: Running, store: ObjectStore) -> None:
    for kind, template in ((NODE, node()), (POD, launcher()), (VMI, launcher())):
        padding = "x" * len(json.dumps(template))
        for obj in store.list(kind):
            _annotate(running, store, kind, obj, "padding", padding)


async def _chatter(running: Running, store: ObjectStore) -> None:
    """Write objects of all three kinds in turn, for ever, so many in each batch."""
    kinds = cycle((NODE, POD, VMI))
    rng = random.Random(1)
    begin_s = time.monotonic()
    for batch in range(1, sys.maxsize):
        for _ in range(EVENTS_PER_S // BATCHES_PER_S):
            kind = next(kinds)
            _annotate(running, store, kind, rng.choice(store.list(kind)), "beat", str(batch))
        await asyncio.sleep(max(0.0, begin_s + batch / BATCHES_PER_S - time.monotonic()))


def _annotate(
    running: Running, store: ObjectStore, kind: str, obj: dict[str, Any], name: str, value: str
) -> None:
    namespace, own = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    changes: dict[tuple[str, ...], Any] = {("metadata", "annotations", f"example.com/{name}"): value}
    running.live.do(lambda: store.update(kind, namespace, own, changes))


# --- the descheduler ---


class LoadOfCaches:
    """What Prometheus would say: each VM's load where the cache has it."""

    def __init__(self, caches: ClusterCaches) -> None:
        self._caches = caches

    def instant(self, expression: str, metrics: Metrics) -> Answer:  # noqa: ARG002
        now_s = time.time()
        if expression in (reading.VM_CPU, reading.VM_MEMORY, reading.VM_DIRTY_RATE):
            vmis = self._caches.vmis.lister.list()
            return Answer(
                [
                    Sample({"namespace": v.namespace, "name": v.name}, _vm_value(expression, v.name))
                    for v in vmis
                ]
            )
        cores = self._cores_of_nodes() if expression in (reading.NODE_CPU, UTILIZATION) else {}
        return Answer(
            [
                Sample({"instance": one.name}, _node_value(expression, cores.get(one.name, 0.0), now_s))
                for one in self._caches.nodes.lister.list()
            ]
        )

    def _cores_of_nodes(self) -> dict[str, float]:
        cores: dict[str, float] = defaultdict(float)
        for vmi in self._caches.vmis.lister.list():
            cores[vmi.node_name] += _cores(vmi.name)
        return cores


def _vm_value(expression: str, vm: str) -> float:
    if expression == reading.VM_CPU:
        return _cores(vm)
    return MEMORY_BYTES if expression == reading.VM_MEMORY else DIRTY_BYTES_PER_S


def _cores(vm: str) -> float:
    return VM_CORES if vm.startswith("hot") else 0.2


def _node_value(expression: str, cores: float, now_s: float) -> float:
    if expression.startswith("timestamp("):
        return now_s
    return cores / CORES if expression == UTILIZATION else cores


class Stopwatch:
    """Observer: notes when a VM's entry began to settle, and when its former node was considered next."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[str, list[str]] = {}
        self.settled_s: dict[str, float] = {}
        self.decided_s: dict[str, float] = {}
        self.errors: list[str] = []

    def transition(self, before: Entry | None, after: Entry | None) -> None:
        if before is not None and after is not None and after.phase is Phase.SETTLING is not before.phase:
            with self._lock:
                self.settled_s[str(after.vm)] = time.monotonic()
                self._waiting.setdefault(after.source, []).append(str(after.vm))

    def planned(self, plan: Plan) -> None:
        with self._lock:
            for vm in self._waiting.pop(plan.node, ()):
                self.decided_s[vm] = time.monotonic()

    def failed(self, key: object, error: Exception, retry_after: object) -> None:  # noqa: ARG002
        self.errors.append(f"{key}: {error}")

    def informer_failed(self, name: str, error: Exception) -> None:
        if len(self.decided_s) < SAMPLES:
            self.errors.append(f"informer {name}: {error}")

    def metrics_failed(self, reason: str) -> None:
        self.errors.append(reason)

    def refreshing(self) -> None: ...

    def refreshed(self, snapshot: Snapshot) -> None: ...

    def classified(self, classification: Classification) -> None: ...

    def answered(self, entry: Entry, answer: EvictionAnswer, *, dry_run: bool) -> None: ...

    def alarmed(self, alarm: Alarm, entry: Entry) -> None:
        self.errors.append(f"{entry.vm}: {alarm.reason}")

    def foreign_mark(self, vm: VmKey) -> None: ...


def watch(kubeconfig: str) -> tuple[Stopwatch, float]:
    """Run the descheduler until it has seen enough migrations; also: events a second that it has received."""
    caches, clock, stopwatch, policy = ClusterCaches(), SystemClock(), Stopwatch(), parse_policy(POLICY)
    transport = Transport.from_kubeconfig(kubeconfig)
    reflectors = [
        Reflector(RESOURCES[name], transport, informer, clock, random.Random(1), stopwatch.informer_failed)
        for name, informer in caches.informers().items()
    ]
    descheduler = Descheduler(
        caches,
        LoadOfCaches(caches),
        EvictionRequests(transport, lambda: timedelta.max),
        stopwatch,
        lambda: policy,
        clock,
    )
    for reflector in reflectors:
        reflector.start()
    for _ in _until(LIMIT_S):
        if all(informer.has_synced for informer in caches.informers().values()):
            break
    descheduler.start()
    descheduler.workers.start(4)
    begin_s, before = time.monotonic(), sum(reflector.statistics().events for reflector in reflectors)
    for _ in _until(LIMIT_S):
        if len(stopwatch.decided_s) >= SAMPLES:
            break
    received = sum(reflector.statistics().events for reflector in reflectors) - before
    transport.close()
    return stopwatch, received / (time.monotonic() - begin_s)


def _until(limit_s: float) -> Iterator[None]:
    """Looks, a tenth of a second apart, until the time is over."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        yield
        time.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, log = Path(folder) / "kubeconfig", Path(folder) / "log"
        with log.open("w") as output:
            command = [sys.executable, "-m", "benchmarks.reaction", "serve", str(kubeconfig)]
            server = subprocess.Popen(command, stdout=output)
        try:
            for _ in _until(LIMIT_S):
                if log.read_text().startswith("ready"):
                    break
            stopwatch, events_per_s = watch(str(kubeconfig))
        finally:
            server.terminate()
            server.wait()
        succeeded_s: dict[str, float] = {}
        for line in log.read_text().splitlines()[1:]:
            vm, time_s = json.loads(line)
            succeeded_s.setdefault(vm, time_s)  # it is written again later
    vms = HOT * VMS_PER_HOT + COLD * VMS_PER_COLD
    print(
        f"{HOT + COLD} nodes, {vms:,} VMs, {events_per_s:.0f} watch events a second; "
        f"load of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for what, seen_s in (("ledger transition", stopwatch.settled_s), ("next decision", stopwatch.decided_s)):
        took_ms = sorted(1000 * (seen_s[vm] - succeeded_s[vm]) for vm in seen_s if vm in succeeded_s)
        _print(what, took_ms)
    for error in stopwatch.errors[:5]:
        print(f"error: {error}")


def _print(what: str, took_ms: list[float]) -> None:
    p99 = took_ms[int(0.99 * (len(took_ms) - 1))]
    median = statistics.median(took_ms)
    print(
        f"{what:<18} median {median:6.1f} ms   p99 {p99:6.1f} ms   most {took_ms[-1]:6.1f} ms   of {len(took_ms)}"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", kubeconfig]:
            asyncio.run(serve(Path(kubeconfig)))
        case _:
            main()
