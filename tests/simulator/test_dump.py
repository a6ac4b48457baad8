"""What is taken over from a dump of a real cluster."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simulator.build import build
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.dump import Assumed, Dump, parse_dump, read_dump
from simulator.scenario.loading import load_scenario
from simulator.specs import GIB, NodeSpec, VmSpec
from tests.simulator.dump_builders import Json, launcher, listing, node, pod, vmi

RECORDED = Path(__file__).parents[1] / "data" / "cluster-dump.json"


def parsed(*items: Json) -> Dump:
    return parse_dump(listing(*items), Assumed())


def the_node(*items: Json) -> NodeSpec:
    (spec,) = parsed(*items).cluster.nodes
    return spec


def the_vm(*items: Json) -> VmSpec:
    (spec,) = parsed(node(), *items).cluster.vms
    return spec


class TestRecordedCluster:
    def test_has_the_real_clusters_nodes_and_vms(self) -> None:
        cluster = read_dump(str(RECORDED), Assumed(demand=0.2, touched=0.5)).cluster
        assert len(cluster.nodes) == 10
        assert {(n.cores, n.memory_bytes, n.taints) for n in cluster.nodes} == {(128, 2355 * GIB, ())}
        assert Counter((vm.vcpus, vm.guest_bytes / GIB) for vm in cluster.vms) == {
            (8, 80): 56, (8, 64): 61, (8, 32): 3, (4, 16): 24, (4, 8): 4,
        }  # fmt: skip
        assert {(vm.eviction_strategy, vm.migratable, vm.demand, vm.touched) for vm in cluster.vms} == {
            ("LiveMigrate", True, 0.2, 0.5)
        }
        assert Counter(vm.node for vm in cluster.vms)["node-01"] == 5

    def test_the_default_scenario_runs_on_it(self) -> None:
        simulation = build(load_scenario("hotspot", cluster=str(RECORDED)), seed=1)
        assert len(simulation.world.layout().vm_keys) == 148
        simulation.agenda.run_until(900)
        over = simulation.world.node_vm_demand_cores() > 0.8 * simulation.world.layout().cores
        assert over.sum() == 2

    def test_what_refers_to_other_nodes_is_told(self) -> None:
        with pytest.raises(ScenarioErrors, match=r"happenings\[0\]\.nodes: no node 'node-10'"):
            build(
                load_scenario(
                    "hotspot",
                    ["happenings=[{kind: cordon, nodes: [node-10]}]"],
                    cluster=str(RECORDED),
                ),
                seed=1,
            )


class TestNodes:
    def test_other_pods_requests_count_as_used_and_requested(self) -> None:
        found = the_node(
            node(),
            pod("node-a", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1"}),
            pod(
                "node-a", {"memory": "512Mi"}, initContainers=[{"resources": {"requests": {"memory": "2Gi"}}}]
            ),
            pod("node-a", {"cpu": "4"}, phase="Succeeded"),
            launcher(),
        )
        assert (found.other_requests_cpu_cores, found.other_requests_memory_bytes) == (1.5, 3 * GIB)
        assert (found.other_cpu_cores, found.other_memory_bytes) == (1.5, 3 * GIB)

    def test_those_that_cannot_run_vms_are_left_out(self) -> None:
        control_plane = node("master", labels={"kubevirt.io/schedulable": "false"})
        assert the_node(control_plane, node("node-a")).name == "node-a"

    def test_one_with_vms_stays_though_it_takes_no_more(self) -> None:
        found = the_node(node("node-a", labels={"kubevirt.io/schedulable": "false"}), vmi())
        assert found.labels["kubevirt.io/schedulable"] == "false"

    def test_peoples_taints_stay_and_a_soft_tainters_go(self) -> None:
        taints = [
            {"key": "gpu", "effect": "NoSchedule", "timeAdded": None},
            {"key": "nodeutilization.descheduler.openshift.io/overutilized", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]
        found = parsed(
            node(spec={"taints": taints, "unschedulable": True}), node("node-b", conditions=None)
        ).cluster
        assert found.nodes[0].taints == ({"key": "gpu", "effect": "NoSchedule"},)
        assert found.cordoned == ("node-a",)
        assert found.not_ready == ("node-b",)

    @pytest.mark.parametrize(
        ("written", "cores", "gib"),
        [
            ({"cpu": "15500m", "memory": "33000Mi"}, 15.5, 33000 / 1024),
            ({"cpu": 8, "memory": "2.5Gi"}, 8, 2.5),
            ({"cpu": "1e1", "memory": "68719476736"}, 10, 64),
            ({"cpu": "4", "memory": "64G"}, 4, 64e9 / GIB),
            ({"cpu": "4", "memory": "134217728k"}, 4, 134217728e3 / GIB),
        ],
    )
    def test_quantities_are_read_as_kubernetes_writes_them(
        self, written: Json, cores: float, gib: float
    ) -> None:
        found = the_node(node(allocatable=written))
        assert found.cores == cores
        assert found.memory_bytes / GIB == pytest.approx(gib)


class TestVms:
    @pytest.mark.parametrize(
        ("domain", "vcpus", "gib"),
        [
            ({"cpu": {"cores": 2, "sockets": 2, "threads": 2}, "memory": {"guest": "8Gi"}}, 8, 8),
            ({"cpu": {"sockets": 4}, "memory": {"guest": "1024Mi"}}, 4, 1),
            ({"cpu": None, "resources": {"requests": {"cpu": "3", "memory": "2Gi"}}}, 3, 2),
            ({"resources": {"limits": {"cpu": "500m", "memory": "2Gi"}}}, 1, 2),
            ({"memory": {"guest": "2Gi"}, "resources": {"requests": {"memory": "1Gi"}}}, 1, 2),
        ],
    )
    def test_size_comes_from_the_domain(self, domain: Json, vcpus: float, gib: float) -> None:
        found = the_vm(vmi(domain=domain))
        assert (found.vcpus, found.guest_bytes / GIB) == (vcpus, gib)

    def test_facts_for_selection_come_from_vmi_and_launcher(self) -> None:
        found = the_vm(
            vmi(
                metadata={
                    "annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""},
                    "labels": {"app": "db", "kubevirt.io/nodeName": "node-a"},
                },
                spec={"evictionStrategy": None},
                conditions=[{"type": "LiveMigratable", "status": "False"}],
            ),
            launcher(priority=100),
        )
        assert found.opted_out
        assert found.priority == 100
        assert found.eviction_strategy is None
        assert not found.migratable
        assert found.labels == {"app": "db"}
        assert found.group == "shop"

    def test_ages_count_from_the_newest_object(self) -> None:
        newest = vmi("vm-b", metadata={"creationTimestamp": "2026-01-01T12:30:00Z"})
        first, second = parsed(node(), vmi(), newest).cluster.vms
        assert (first.age_s, second.age_s) == (1800, 0)

    def test_a_selector_that_leaves_one_node_pins(self) -> None:
        items = [node("node-a"), node("node-b", labels={"gpu": "yes"}), node("node-c", labels={"gpu": "yes"})]
        items += [vmi(), launcher(nodeSelector={"kubernetes.io/hostname": "node-a"})]
        items += [vmi("vm-b", "node-b"), launcher("vm-b", "node-b", nodeSelector={"gpu": "yes"})]
        assert [vm.pinned_to for vm in parsed(*items).cluster.vms] == ["node-a", None]

    def test_launchers_that_keep_away_from_their_likes_are_a_group(self) -> None:
        def rule(match: Json) -> Json:
            term = {"labelSelector": {"matchLabels": match}, "topologyKey": "kubernetes.io/hostname"}
            return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

        items: list[Any] = [node("node-a"), node("node-b")]
        for name, where, labels, match in (
            ("db-0", "node-a", {"app": "db"}, {"app": "db"}),
            ("db-1", "node-b", {"app": "db"}, {"app": "db"}),
            ("web", "node-a", {"app": "web"}, {"app": "db"}),
            ("moved", "node-a", {}, {"kubevirt.io/created-by": "uid-moved"}),
        ):
            items += [vmi(name, where), launcher(name, where, labels=labels, affinity=rule(match))]
        assert [vm.anti_affinity_group for vm in parsed(*items).cluster.vms] == [
            "apart-0",
            "apart-0",
            None,
            None,
        ]

    def test_only_running_ones_are_taken(self) -> None:
        assert parsed(node(), vmi(phase="Succeeded", nodeName="gone"), vmi(phase="Pending")).cluster.vms == ()


class TestKubeVirt:
    def test_limits_and_strategy_are_taken_over_unless_the_scenario_sets_them(self, tmp_path: Path) -> None:
        kubevirt = {
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt"},
            "spec": {
                "configuration": {
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "migrations": {"parallelMigrationsPerCluster": 7, "bandwidthPerMigration": "64Mi"},
                }
            },
        }
        (tmp_path / "dump.json").write_bytes(listing(node(), kubevirt))
        scenario = load_scenario(
            "hotspot",
            ["kubevirt.parallel_outbound_migrations_per_node=4"],
            cluster=str(tmp_path / "dump.json"),
        )
        found = build(scenario, seed=1).store.list("KubeVirt")[0]["spec"]["configuration"]
        assert found["evictionStrategy"] == "LiveMigrateIfPossible"
        assert found["migrations"]["parallelMigrationsPerCluster"] == 7
        assert found["migrations"]["parallelOutboundMigrationsPerNode"] == 4
        assert found["migrations"]["bandwidthPerMigration"] == "64Mi"


class TestBadDumps:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", "cluster: no JSON"),
            (b"NAME STATUS\n", "cluster: no JSON"),
            (b"[]", "cluster: no list of objects, but list; allowed: the output of kubectl get nodes,"),
            (b'{"kind": "Node"}', "cluster: no list of objects, but Node"),
            (b'{"kind": "List", "items": null}', "cluster: no list of objects, but List"),
            (listing(), "Node: none; allowed: at least one node"),
            (listing(vmi()), "Node: none"),
            (listing(node(labels={"kubevirt.io/schedulable": ""})), "Node: no node that can run VMs among 1"),
            (
                listing(node(allocatable={"cpu": "x", "memory": "1Gi"})),
                "Node node-a status.allocatable.cpu: 'x'",
            ),
            (listing(node(allocatable={"cpu": "1"})), "Node node-a status.allocatable.memory: None"),
            (listing(node(allocatable={"cpu": "0", "memory": "1"})), "Node node-a status.allocatable: {"),
            (
                listing(node(), vmi(node_name="node-z")),
                "VirtualMachineInstance shop/vm-a status.nodeName: 'node-z'; allowed: a node of the same dump",
            ),
            (
                listing(node(), vmi(domain={})),
                "VirtualMachineInstance shop/vm-a spec.domain.memory.guest: None",
            ),
            (
                listing(node(), pod("node-a", {"cpu": "many"})),
                "Pod default/daemon containers.resources.requests.cpu: 'many'; allowed: a quantity",
            ),
        ],
    )
    def test_one_line_names_object_field_and_what_is_allowed(self, data: bytes, expected: str) -> None:
        with pytest.raises(ScenarioErrors) as caught:
            parse_dump(data, Assumed(), source="dump.json")
        (problem,) = caught.value.problems
        assert str(problem).startswith(expected)
        assert str(caught.value).startswith("dump.json: ")

    def test_all_bad_objects_are_named_at_once(self) -> None:
        with pytest.raises(ScenarioErrors) as caught:
            parsed(node(), vmi(domain={}), vmi("vm-b", node_name="gone"))
        assert len(caught.value.problems) == 2

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ScenarioErrors, match=r"none\.json: cluster: No such file"):
            read_dump("none.json", Assumed())

    def test_nulls_for_lists_and_maps_are_empty(self) -> None:
        bare: Json = node(spec={"taints": None})
        idle = {
            "kind": "Pod",
            "metadata": {"name": "x", "labels": None},
            "spec": {"nodeName": "node-a", "containers": None},
        }
        found = parsed(
            bare, idle, vmi(metadata={"labels": None, "annotations": None}), launcher(nodeSelector=None)
        )
        assert found.cluster.vms[0].labels == {}
