"""Whatever people, programs and accidents do: limits hold, VMs run once, migrations end, sums of requests are right."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.kubevirt.manifests import APP, LAUNCHER
from simulator.kubevirt.objectstore import NODE, POD, VMI, VMIM, ApiError, at
from simulator.kubevirt.options import KubeVirtOptions
from simulator.kubevirt.plane import is_finished
from simulator.kubevirt.quantities import parse_bytes, parse_cpu
from simulator.specs import GIB
from tests.simulator.kubevirt_builders import Cluster, cluster, node, vm

IN_ALL, OFF_A_NODE = 3, 2
NODES = ("node-0", "node-1", "node-2", "node-3")
VMS = {
    "plain-0": vm("plain-0", guest_bytes=80 * GIB),
    "plain-1": vm("plain-1", guest_bytes=80 * GIB),
    "plain-2": vm("plain-2"),
    "paired-0": vm("paired-0", node="node-1", anti_affinity_group="pair"),
    "paired-1": vm("paired-1", node="node-2", anti_affinity_group="pair"),
    "pinned": vm("pinned", pinned_to="node-0"),
    "fixed": vm("fixed", migratable=False),
    "unprotected": vm("unprotected", node="node-1", eviction_strategy=None),
    "possible": vm("possible", node="node-1", migratable=False, eviction_strategy="LiveMigrateIfPossible"),
    "external": vm("external", node="node-2", eviction_strategy="External"),
    "busy": vm("busy", node="node-2", dirty_bytes_per_s=2e9),
}

names = st.sampled_from(sorted(VMS))
nodes = st.sampled_from(NODES)
waits = st.tuples(st.just("wait"), st.one_of(st.floats(0.05, 5), st.floats(5, 300)))
evictions = st.tuples(st.just("evict"), names)
operations = st.one_of(
    waits,
    waits,
    evictions,
    evictions,
    st.tuples(st.sampled_from(["migrate", "cancel", "stop", "start", "delete", "create", "hotplug"]), names),
    st.tuples(st.just("backup"), names, st.booleans()),
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(
        st.sampled_from(["cordon", "uncordon", "drain", "lose", "remove", "add", "ready", "not ready"]), nodes
    ),
)
options = st.builds(
    KubeVirtOptions,
    webhook=st.sampled_from(["newer", "older"]),
    annotation=st.sampled_from(["newer", "older"]),
    failure_probability=st.sampled_from([0.0, 0.4]),
    failed_target_stays_probability=st.sampled_from([0.0, 1.0]),
    slow_factor=st.sampled_from([1.0, 5.0]),
    parallel_migrations_per_cluster=st.just(IN_ALL),
    parallel_outbound_migrations_per_node=st.just(OFF_A_NODE),
)


def act(built: Cluster, operation: tuple[Any, ...]) -> None:
    control, (verb, what, *rest) = built.control, operation
    match verb:
        case "wait":
            built.run(what)
        case "evict":
            for pod in built.pods(what):
                control.evict("vms", pod["metadata"]["name"], dry_run=False)
        case "abort":
            for vmim in built.store.list(VMIM)[what:]:
                control.delete_migration("vms", vmim["metadata"]["name"])
        case "create":
            control.create_vm(vm(what, node=None, age_s=0.0))
        case "add":
            control.add_node(node(what))
        case "ready" | "not ready":
            control.set_node_ready(what, ready=verb == "ready")
        case "backup":
            control.set_backup("vms", what, running=rest[0])
        case _:
            of_nodes: dict[str, Callable[[str], object]] = {
                "cordon": control.cordon,
                "uncordon": control.uncordon,
                "drain": control.drain,
                "lose": control.lose_node,
                "remove": control.remove_node,
            }
            of_vms: dict[str, Callable[[str, str], object]] = {
                "migrate": control.create_migration,
                "cancel": control.evacuate_cancel,
                "stop": control.stop_vm,
                "start": control.start_vm,
                "delete": control.delete_vm,
                "hotplug": control.hotplug_volume,
            }
            if verb in of_nodes:
                of_nodes[verb](what)
            else:
                of_vms[verb]("vms", what)


def check_limits(built: Cluster) -> None:
    unfinished = [m for m in built.control.migrations if not m.outcome]
    assert all(count == 1 for count in Counter(m.vm for m in unfinished).values())
    in_slots = [m for m in unfinished if len(m.phases) > 1]
    assert len(in_slots) <= IN_ALL
    assert all(count <= OFF_A_NODE for count in Counter(m.source for m in in_slots).values())


def check_launchers(built: Cluster) -> None:
    """A running VM has one launcher that runs, two while it migrates and until the completed one has ended."""
    for name in VMS:
        ends = [m.ended_s for m in built.control.migrations if m.vm == f"vms/{name}"]
        migrates = any(end is None or end > built.agenda.now_s - 1.0 for end in ends)
        alive = [p for p in built.running(name) if "deletionTimestamp" not in p["metadata"]]
        if built.control.is_running("vms", name):
            assert 1 <= len(alive) <= 1 + migrates, name
            assert built.world.node_of(f"vms/{name}") in {p["spec"]["nodeName"] for p in alive}


def check_requests(built: Cluster) -> None:
    sums = {n["metadata"]["name"]: [0, 0, 0] for n in built.store.list(NODE)}
    for pod in built.store.list(POD):
        on = pod["spec"].get("nodeName")
        if on not in sums or is_finished(pod):
            continue
        sums[on][2] += 1
        for container in pod["spec"]["containers"]:
            sums[on][0] += parse_cpu(container["resources"]["requests"]["cpu"])
            sums[on][1] += parse_bytes(container["resources"]["requests"]["memory"])
    assert {name: list(built.scheduler.requested(name)) for name in sums} == sums


def check_objects(built: Cluster) -> None:
    for name in VMS:
        finished = [phase for phase in built.phases(name) if phase in ("Succeeded", "Failed")]
        assert len(finished) <= 6
    running = {name for name in VMS if built.control.is_running("vms", name)}
    assert set(built.world.layout().vm_keys) == {f"vms/{name}" for name in running}
    for name in running:
        assert built.store.get(VMI, "vms", name) is not None


def heal(built: Cluster) -> None:
    """Give every unfinished migration the time to end, and KubeVirt no reason to make another."""
    for name in NODES:
        with suppress(ApiError):
            built.control.add_node(node(name))
        built.control.set_node_ready(name, ready=True)
        built.control.uncordon(name)
    for name in VMS:
        with suppress(ApiError):
            built.control.set_backup("vms", name, running=False)
    for _ in range(2):  # a VM on its way up may be marked by nobody, one on its way down may
        for name in VMS:
            with suppress(ApiError):
                built.control.evacuate_cancel("vms", name)
        built.run(8 * 3600)


def check_rest(built: Cluster) -> None:
    assert all(m.outcome for m in built.control.migrations)
    assert all(at(m, "status", "phase") in ("Succeeded", "Failed") for m in built.store.list(VMIM))
    overhead = built.world.node_demand_cores() - built.world.node_vm_demand_cores()
    assert abs(overhead).max() < 1e-9
    for name in VMS:
        vmi = built.store.get(VMI, "vms", name)
        assert (vmi is not None) is built.control.is_running("vms", name)
        if vmi is not None:
            (launcher,) = built.running(name)
            assert (
                built.world.node_of(f"vms/{name}")
                == vmi["status"]["nodeName"]
                == launcher["spec"]["nodeName"]
            )
            assert vmi["status"]["activePods"] == {launcher["metadata"]["uid"]: launcher["spec"]["nodeName"]}
    live = {
        f"{p['metadata']['annotations']['kubevirt.io/domain']}"
        for p in built.store.list(POD)
        if is_launcher(p)
    }
    assert live <= {vmi["metadata"]["name"] for vmi in built.store.list(VMI)}


def is_launcher(pod: Any) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(APP) == LAUNCHER)


@settings(max_examples=100, deadline=None)
@given(options, st.lists(operations, min_size=10, max_size=60), st.integers(0, 1000))
def test_whatever_happens_the_cluster_stays_sound(
    chosen: KubeVirtOptions, todo: list[tuple[Any, ...]], seed: int
) -> None:
    built = cluster(*VMS.values(), nodes=len(NODES), options=chosen, seed=seed)
    before: list[tuple[Any, str]] = []
    built.store.subscribe(lambda event: before.append((event.object, json.dumps(event.object))))
    for operation in todo:
        with suppress(ApiError):
            act(built, operation)
        built.run(0.01)
        check_limits(built)
        check_launchers(built)
        check_requests(built)
        check_objects(built)
    heal(built)
    check_rest(built)
    check_requests(built)
    assert all(json.dumps(obj) == text for obj, text in before)
    versions = [int(event.object["metadata"]["resourceVersion"]) for _, event in built.events]
    assert versions == sorted(set(versions))
