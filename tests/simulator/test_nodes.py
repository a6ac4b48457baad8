"""Nodes: taints, cordon, drain, not ready, lost, removed."""

import pytest

from simulator.kubevirt.objectstore import NODE, POD, AlreadyExists, Invalid, NotFound, at
from tests.simulator.kubevirt_builders import Cluster, cluster, node, vm

TAINT = {"key": "a/b", "value": "true", "effect": "PreferNoSchedule"}


def taint_keys(built: Cluster, name: str = "node-0") -> list[str]:
    return [taint["key"] for taint in at(built.node(name), "spec", "taints") or ()]


def ready(built: Cluster, name: str = "node-0") -> str:
    (condition,) = [c for c in built.node(name)["status"]["conditions"] if c["type"] == "Ready"]
    status: str = condition["status"]
    return status


def test_taints_are_replaced_only_if_the_node_is_as_it_was_read() -> None:
    built = cluster(nodes=1)
    version = built.node("node-0")["metadata"]["resourceVersion"]
    assert built.control.replace_taints("node-0", version, [TAINT])
    assert built.node("node-0")["spec"]["taints"] == [TAINT]
    assert not built.control.replace_taints("node-0", version, [])
    assert built.node("node-0")["spec"]["taints"] == [TAINT]
    version = built.node("node-0")["metadata"]["resourceVersion"]
    assert built.control.replace_taints("node-0", version, [])
    assert "taints" not in built.node("node-0")["spec"]


def test_two_taints_with_the_same_key_and_effect_are_invalid() -> None:
    built = cluster(nodes=1)
    with pytest.raises(Invalid, match=r'Node "node-0" is invalid: metadata.taints\[1\]: Duplicate value'):
        built.control.replace_taints("node-0", "1", [TAINT, TAINT])


def test_unknown_and_doubled_nodes_are_refused() -> None:
    built = cluster(nodes=1)
    for ask in (
        built.control.cordon,
        built.control.drain,
        built.control.lose_node,
        built.control.remove_node,
    ):
        with pytest.raises(NotFound, match='nodes "nowhere" not found'):
            ask("nowhere")
    with pytest.raises(AlreadyExists):
        built.control.add_node(node("node-0"))


def test_cordon_is_a_flag_and_a_taint() -> None:
    built = cluster(nodes=1)
    built.control.cordon("node-0")
    assert built.node("node-0")["spec"]["unschedulable"] is True
    assert taint_keys(built) == ["node.kubernetes.io/unschedulable"]
    built.control.uncordon("node-0")
    assert built.node("node-0")["spec"] == {}


def test_a_drain_empties_the_node_by_migrations_that_are_not_ours() -> None:
    built = cluster(*(vm(f"vm-{n}") for n in range(5)))
    built.control.drain("node-0")
    assert not built.control.is_drained("node-0")
    built.run(600)
    assert built.control.is_drained("node-0")
    assert len(built.control.migrations) == 5
    assert {m.asked_by for m in built.control.migrations} == {"other"}
    assert {m["spec"]["priority"] for n in range(5) for m in built.vmims(f"vm-{n}")} == {"system-critical"}
    assert built.control.shutdowns == []
    assert built.node("node-0")["spec"]["unschedulable"] is True


def test_a_drain_takes_down_what_its_strategy_does_not_protect() -> None:
    built = cluster(vm(eviction_strategy=None), vm("fixed", migratable=False))
    built.control.drain("node-0")
    built.run(300)
    assert [(r.vm, r.cause) for r in built.control.shutdowns] == [("vms/vm", "other")]
    assert built.vmi()["status"]["nodeName"] != "node-0"
    assert built.vmi("fixed")["status"]["nodeName"] == "node-0"
    assert not built.control.is_drained("node-0")


def test_uncordon_ends_a_drain() -> None:
    built = cluster(*(vm(f"vm-{n}", migratable=False) for n in range(2)))
    built.control.drain("node-0")
    built.run(20)
    built.control.uncordon("node-0")
    built.control.create_vm(vm("late"))
    built.run(300)
    assert built.control.migrations == []


def test_a_node_not_ready_for_a_while_keeps_its_vms() -> None:
    built = cluster(vm())
    built.control.set_node_ready("node-0", ready=False)
    assert ready(built) == "False"
    assert taint_keys(built) == ["node.kubernetes.io/not-ready"] * 2
    built.run(200)
    built.control.set_node_ready("node-0", ready=True)
    built.run(600)
    assert (ready(built), taint_keys(built)) == ("True", [])
    assert built.world.node_of("vms/vm") == "node-0"


def test_a_node_not_ready_for_long_loses_its_vms() -> None:
    built = cluster(vm())
    built.control.set_node_ready("node-0", ready=False)
    built.run(600)
    assert built.vmi()["status"]["nodeName"] != "node-0"
    assert built.control.shutdowns == []


def test_a_lost_node_is_noticed_and_its_vms_come_up_elsewhere() -> None:
    built = cluster(vm())
    built.control.lose_node("node-0")
    assert not built.control.is_running("vms", "vm")
    assert built.world.node_vm_demand_cores().sum() == 0.0
    assert ready(built) == "True"
    built.run(60)
    assert ready(built) == "Unknown"
    assert built.node("node-0")["metadata"]["labels"]["kubevirt.io/schedulable"] == "false"
    assert built.vmi()["status"]["phase"] == "Running"
    built.run(600)
    assert built.control.is_running("vms", "vm")
    assert built.vmi()["status"]["nodeName"] != "node-0"
    assert [p["spec"]["nodeName"] for p in built.pods()] == [built.vmi()["status"]["nodeName"]]


def test_a_lost_node_that_comes_back_has_been_restarted() -> None:
    built = cluster(vm())
    before = built.vmi()["metadata"]["uid"]
    built.control.lose_node("node-0")
    built.run(100)
    built.control.set_node_ready("node-0", ready=True)
    built.run(150)
    assert built.control.is_running("vms", "vm")
    assert built.vmi()["metadata"]["uid"] != before


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_copy_from_or_to_a_lost_node_fails(which: str) -> None:
    built = cluster(vm(), nodes=2)
    built.control.create_migration("vms", "vm")
    built.run(20)
    built.control.lose_node({"source": "node-0", "target": "node-1"}[which])
    built.run(5)
    assert built.control.migrations[0].outcome == "Failed"
    built.run(900)
    assert built.control.is_running("vms", "vm")


def test_a_removed_node_leaves_nothing_behind() -> None:
    built = cluster(vm(), vm("arriving", node="node-1"))
    built.control.add_node(node("more", other_requests_cpu_cores=1.0))
    built.control.remove_node("more")
    built.control.create_migration("vms", "arriving")
    built.run(20)
    gone = built.control.migrations[0].target
    assert gone is not None
    built.control.remove_node(gone)
    built.run(400)
    assert built.control.migrations[0].outcome == "Failed"
    assert {n["metadata"]["name"] for n in built.store.list(NODE)} == {"node-0", "node-1", "node-2"} - {gone}
    assert gone not in {p["spec"].get("nodeName") for p in built.store.list(POD)}
    assert all(built.control.is_running("vms", name) for name in ("vm", "arriving"))


def test_vms_of_a_removed_node_come_up_elsewhere() -> None:
    built = cluster(vm())
    built.control.remove_node("node-0")
    built.run(200)
    assert built.vmi()["status"]["nodeName"] in ("node-1", "node-2")


def test_what_else_runs_on_a_node_requests_room_there() -> None:
    built = cluster(nodes=0)
    built.control.add_node(
        node("node-0", other_requests_cpu_cores=3.5, other_requests_memory_bytes=float(1 << 30))
    )
    requested = built.scheduler.requested("node-0")
    assert (requested.cpu_millis, requested.memory_bytes, requested.pods) == (3500, 1 << 30, 1)
