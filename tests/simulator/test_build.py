"""The cluster that a scenario describes, and what befalls it."""

from collections import Counter, defaultdict
from typing import Any

import pytest

from simulator.build import Simulation, build
from simulator.kubevirt.objectstore import NODE, VMIM
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.cluster import Cluster, expand
from simulator.scenario.loading import SCENARIOS, load_scenario
from simulator.specs import GIB, VmSpec
from tests.simulator.scenario_builders import NODES, VMS, scenario

QUICK = [path.stem for path in sorted(SCENARIOS.glob("*.yaml")) if path.stem not in ("large", "week")]


def cluster(seed: int = 1, **changes: Any) -> Cluster:
    return expand(scenario(**changes), seed)


def by_node(vms: tuple[VmSpec, ...]) -> dict[str | None, list[VmSpec]]:
    found: defaultdict[str | None, list[VmSpec]] = defaultdict(list)
    for vm in vms:
        found[vm.node].append(vm)
    return dict(found)


def happening(*happenings: dict[str, Any], seed: int = 1, **changes: Any) -> Simulation:
    return build(scenario(happenings=list(happenings), **changes), seed)


def ready(simulation: Simulation, node: str) -> str | None:
    found = simulation.store.get(NODE, "", node)
    return found["status"]["conditions"][0]["status"] if found else None


def unschedulable(simulation: Simulation) -> set[str]:
    nodes = simulation.store.list(NODE)
    return {node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")}


def running(simulation: Simulation) -> set[str]:
    return set(simulation.world.layout().vm_keys)


class TestPlacement:
    def test_hotspot_crowds_two_nodes_and_spreads_the_rest_evenly(self) -> None:
        found = by_node(expand(load_scenario("hotspot"), 1).vms)
        vcpus = {node: sum(vm.vcpus for vm in vms) for node, vms in found.items()}
        assert vcpus == {"node-00": 160, "node-01": 176, **{f"node-0{n}": 92 for n in range(2, 10)}}
        assert [len(found[f"node-0{n}"]) for n in range(10)] == [22, 22] + 8 * [13]
        # 112 % and 124 % of 128 cores at 90 %.
        assert [round(vcpus[n] * 0.9 / 128, 2) for n in ("node-00", "node-01")] == [1.12, 1.24]

    def test_even_means_vcpus_per_core(self) -> None:
        nodes = {
            "small": {"count": 1, "cores": 16, "memory_gib": 512},
            "big": {"count": 1, "cores": 48, "memory_gib": 512},
        }
        found = by_node(cluster(nodes=nodes, vms={"vm": {"count": 16, "vcpus": 4, "memory_gib": 4}}).vms)
        assert {node: len(vms) for node, vms in found.items()} == {"small-00": 4, "big-00": 12}

    def test_named_nodes_take_only_their_share(self) -> None:
        vms = {
            "a": {"count": 4, "vcpus": 1, "memory_gib": 1, "placement": ["node-01", "node-02"]},
            "b": {"count": 3, "vcpus": 1, "memory_gib": 1, "placement": {"node-00": 2}},
        }
        found = cluster(vms=vms).vms
        assert Counter((vm.group, vm.node) for vm in found if vm.group == "a") == {
            ("a", "node-01"): 2,
            ("a", "node-02"): 2,
        }
        assert [vm.node for vm in found if vm.group == "b"][:2] == ["node-00", "node-00"]

    def test_zones_and_hard_taints_are_kept(self) -> None:
        tainted = {"count": 1, "cores": 16, "memory_gib": 64, "taints": [{"key": "gpu"}]}
        nodes = {"node": {**NODES["node"], "zones": ["a", "b"]}, "gpu": tainted}
        vms = {"vm": VMS["vm"], "b": {"count": 4, "vcpus": 1, "memory_gib": 1, "zone": "b"}}
        found = cluster(nodes=nodes, vms=vms)
        assert [node.labels.get("topology.kubernetes.io/zone") for node in found.nodes] == [
            "a",
            "b",
            "a",
            None,
        ]
        assert {vm.node for vm in found.vms if vm.group == "b"} == {"node-01"}
        assert "gpu-00" not in {vm.node for vm in found.vms}

    def test_sets_of_anti_affine_vms_share_no_node(self) -> None:
        vms = {"db": {"count": 9, "vcpus": 1, "memory_gib": 1, "anti_affine_sets_of": 3}}
        sets = Counter((vm.anti_affinity_group, vm.node) for vm in cluster(vms=vms).vms)
        assert len(sets) == 9
        assert len({group for group, _ in sets}) == 3

    def test_pinned_vms_are_pinned_to_where_they_start(self) -> None:
        for vm in cluster(vms={"vm": {**VMS["vm"], "pinned": True}}).vms:
            assert vm.pinned_to == vm.node is not None

    def test_the_scheduler_places_those_left_to_it(self) -> None:
        built = build(scenario(vms={"vm": {**VMS["vm"], "placement": "scheduler"}}), 1)
        assert Counter(built.world.node_of(key) for key in running(built)) == {
            f"node-0{n}": 2 for n in range(3)
        }

    @pytest.mark.parametrize(
        ("group", "expected"),
        [
            (
                {"count": 5, "vcpus": 4, "memory_gib": 100},
                "vms.vm: 2 of 5 VMs (4 vCPUs, 100 GiB) fit on none of the nodes",
            ),
            (
                {"count": 1, "vcpus": 200, "memory_gib": 1},
                "vms.vm: 1 of 1 VMs (200 vCPUs, 1 GiB) fit on none",
            ),
            (
                {"count": 2, "vcpus": 1, "memory_gib": 100, "placement": ["node-01"]},
                "vms.vm: 1 of 2 VMs (1 vCPUs, 100 GiB) fit on none of the nodes it may start on",
            ),
            (
                {"count": 800, "vcpus": 0.1, "memory_gib": 0.01},
                "vms.vm: 53 of 800 VMs (0.1 vCPUs, 0.01 GiB) fit on none of the nodes",
            ),
        ],
    )
    def test_what_does_not_fit_is_one_clear_line(self, group: dict[str, Any], expected: str) -> None:
        nodes = {"node": {**NODES["node"], "memory_gib": 160}}
        if group["count"] == 800:
            nodes["node"]["memory_gib"] = 1600
        with pytest.raises(ScenarioErrors) as caught:
            cluster(nodes=nodes, vms={"vm": group})
        (problem,) = caught.value.problems
        assert str(problem).startswith(expected)

    def test_the_scheduler_finding_no_room_is_one_clear_line_too(self) -> None:
        with pytest.raises(ScenarioErrors, match=r"vms\.vm: VM vms/vm-000 fits on no node"):
            build(scenario(vms={"vm": {"vcpus": 1, "memory_gib": 500, "placement": "scheduler"}}), 1)


class TestVms:
    def test_dirty_rates_are_spread_over_the_range_and_stay_when_vms_are_added(self) -> None:
        group = {"count": 100, "vcpus": 0.1, "memory_gib": 0.5, "dirty_mb_per_s": [60, 500]}
        rates = [vm.dirty_bytes_per_s / 1e6 for vm in cluster(vms={"vm": group}).vms]
        assert 60 <= min(rates) < 80
        assert 480 < max(rates) <= 500
        more = cluster(vms={"other": group, "vm": {**group, "count": 120}}).vms
        assert [vm.dirty_bytes_per_s / 1e6 for vm in more if vm.group == "vm"][:100] == rates
        assert [vm.dirty_bytes_per_s / 1e6 for vm in cluster(2, vms={"vm": group}).vms] != rates

    def test_ways_to_be_immovable_take_turns_among_half_of_the_hot_vms(self) -> None:
        vms = expand(load_scenario("unmovable"), 1).vms
        hot = [vm for vm in vms if vm.node in ("node-00", "node-01")]
        ways = Counter(
            (vm.migratable, vm.eviction_strategy, vm.pinned_to == vm.node, vm.opted_out) for vm in hot
        )
        assert ways == {
            (True, "LiveMigrate", False, False): 22,
            (False, "LiveMigrate", False, False): 5,
            (False, "LiveMigrateIfPossible", False, False): 5,
            (True, "None", False, False): 4,
            (True, "LiveMigrate", True, False): 4,
            (True, "LiveMigrate", False, True): 4,
        }
        others = [vm for vm in vms if vm not in hot]
        assert all(vm.migratable and not vm.opted_out and vm.pinned_to is None for vm in others)

    def test_hotplug_pods_stand_beside_their_launchers(self) -> None:
        built = build(scenario(vms={"vm": {**VMS["vm"], "hotplug": True}}), 1)
        pods = [pod["metadata"]["labels"].get("kubevirt.io") for pod in built.store.list("Pod")]
        assert Counter(pods) == {"virt-launcher": 6, "hotplug-disk": 6}


class TestShipped:
    @pytest.mark.parametrize("name", QUICK)
    def test_runs_for_a_quarter_of_an_hour(self, name: str) -> None:
        built = build(load_scenario(name), 1)
        built.agenda.run_until(900)
        assert built.world.totals().cpu_used_s > 0

    def test_large_has_a_thousand_nodes_and_twenty_thousand_vms(self) -> None:
        found = expand(load_scenario("large"), 1)
        assert (len(found.nodes), len(found.vms)) == (1000, 20_000)
        assert {len(vms) for vms in by_node(found.vms).values()} == {20}

    @pytest.mark.parametrize(
        ("name", "minute", "over"),
        [
            ("hotspot", 9, 0),
            ("hotspot", 11, 2),
            ("calm", 30, 0),
            ("balanced", 30, 0),
            ("hopeless", 5, 10),
            ("mixed", 15, 2),
        ],
    )
    def test_trouble_is_where_and_when_it_should_be(self, name: str, minute: float, over: int) -> None:
        built = build(load_scenario(name), 1)
        built.agenda.run_until(minute * 60)
        demand = built.world.node_vm_demand_cores() / built.world.layout().cores
        assert (demand > 0.8).sum() == over

    def test_hotspot_uses_54_percent_of_the_memory(self) -> None:
        built = build(load_scenario("hotspot"), 1)
        used = built.world.node_memory_bytes().sum() / built.world.layout().memory_bytes.sum()
        assert used == pytest.approx(0.54, abs=0.005)

    def test_pilot_left_alone_is_as_troubled_as_the_measured_one(self) -> None:
        built = build(load_scenario("pilot"), 1)
        built.agenda.run_until(36 * 60)
        # Measured without any rebalancer: 1,881 node-seconds over, 1,742 core-seconds starved.
        assert float(built.world.totals().over_s) == pytest.approx(1881, rel=0.15)
        assert 500 < float(built.world.totals().starved_core_s) < 3500

    def test_week_reaches_the_documented_levels(self) -> None:
        built = build(load_scenario("week"), 1)
        layout = built.world.layout()

        def shares(day: float, hour: float) -> tuple[float, float]:
            built.agenda.run_until((day * 24 + hour) * 3600)
            cpu, memory = built.world.node_demand_cores().sum(), built.world.node_memory_bytes().sum()
            return cpu / layout.cores.sum(), memory / layout.memory_bytes.sum()

        assert shares(0, 9)[0] == pytest.approx(0.20, abs=0.02)
        assert shares(0, 14)[0] == pytest.approx(0.30, abs=0.03)
        assert shares(1, 2)[1] == pytest.approx(0.68, abs=0.02)
        assert shares(1, 10.52)[0] == pytest.approx(0.49, abs=0.03)
        assert shares(5, 14)[0] == pytest.approx(0.18, abs=0.02)

    def test_the_same_seed_gives_the_same_cluster_and_course(self) -> None:
        def fingerprint(seed: int) -> tuple[Any, ...]:
            built = build(load_scenario("churn"), seed)
            built.agenda.run_until(1200)
            where = tuple((key, built.world.node_of(key)) for key in built.world.layout().vm_keys)
            return where, float(built.world.totals().cpu_used_s), built.store.list(VMIM)

        assert fingerprint(3) == fingerprint(3)
        assert fingerprint(3) != fingerprint(4)


class TestHappenings:
    def test_vms_come_and_go_at_the_asked_rate(self) -> None:
        built = happening({"kind": "churn", "group": "vm", "starts_per_minute": 1, "stops_per_minute": 0.5})
        built.agenda.run_until(3600)
        # 60 starts and 30 stops on average.
        assert 20 < len(running(built)) - 6 < 40
        assert built.control_plane.shutdowns == []

    def test_new_vms_are_young_and_get_the_load_of_their_group(self) -> None:
        load = {"demand": 0.1, "hotspots": [{"vms": {"groups": ["vm"]}, "start_minute": 5, "demand": 0.9}]}
        built = happening({"kind": "start-vms", "group": "vm", "count": 2, "at_minute": 10}, load=load)
        built.agenda.run_until(590)
        assert len(running(built)) == 6
        built.agenda.run_until(700)
        assert {"vms/vm-006", "vms/vm-007"} < running(built)
        assert built.world.vm_demand_cores("vms/vm-007") == pytest.approx(3.6)

    def test_a_template_has_no_vms_until_they_are_started(self) -> None:
        vms = {"vm": VMS["vm"], "late": {"count": 0, "vcpus": 1, "memory_gib": 1}}
        built = happening({"kind": "start-vms", "group": "late", "count": 3, "at_minute": 1}, vms=vms)
        assert len(running(built)) == 6
        built.agenda.run_until(300)
        assert running(built) >= {"vms/late-000", "vms/late-001", "vms/late-002"}

    def test_stopped_vms_stay_down(self) -> None:
        built = happening({"kind": "stop-vms", "vms": {"nodes": ["node-00"]}, "at_minute": 1})
        built.agenda.run_until(1800)
        assert len(running(built)) == 4
        assert built.control_plane.shutdowns == []

    def test_other_people_migrate_vms(self) -> None:
        built = happening({"kind": "migrate", "start_minute": 1, "every_minutes": 10})
        built.agenda.run_until(3000)
        assert [record.asked_by for record in built.control_plane.migrations] == ["other"] * 5
        assert {record.outcome for record in built.control_plane.migrations} == {"Succeeded"}

    def test_a_migration_is_aborted(self) -> None:
        every = {"start_minute": 1, "every_minutes": 10}
        later = {"start_minute": 1.1, "every_minutes": 10}
        built = happening({"kind": "migrate", **every}, {"kind": "abort", **later})
        built.agenda.run_until(3000)
        assert {record.outcome for record in built.control_plane.migrations} <= {"Cancelled", "Failed"}

    def test_an_upgrade_drains_reboots_and_uncordons_one_node_after_another(self) -> None:
        drain = {"kind": "drain", "nodes": ["node-00", "node-01"], "at_minute": 5, "reboot_minutes": 10}
        built = happening(drain, minutes=120)
        courses: list[tuple[frozenset[str], str | None, str | None]] = []
        for minute in range(60):
            built.agenda.run_until(60.0 * minute)
            state = (frozenset(unschedulable(built)), ready(built, "node-00"), ready(built, "node-01"))
            if not courses or courses[-1] != state:
                courses.append(state)
        first, second, none = frozenset({"node-00"}), frozenset({"node-01"}), frozenset[str]()
        down = [(who, zero, one) for who, zero, one in courses if "False" in (zero, one)]
        assert down == [(first, "False", "True"), (second, "True", "False")]
        assert courses[0] == courses[-1] == (none, "True", "True")
        assert len(running(built)) == 6
        assert built.control_plane.shutdowns == []

    def test_nodes_join_and_go(self) -> None:
        built = happening(
            {"kind": "join-nodes", "group": "node", "count": 2, "at_minute": 1},
            {"kind": "remove-nodes", "nodes": ["node-03", "node-00"], "at_minute": 2},
        )
        built.agenda.run_until(90)
        assert built.world.layout().node_names == tuple(f"node-0{n}" for n in range(5))
        built.agenda.run_until(1200)
        assert built.world.layout().node_names == ("node-01", "node-02", "node-04")
        assert len(running(built)) == 6

    def test_lost_nodes_come_back_empty(self) -> None:
        built = happening({"kind": "lose-nodes", "nodes": ["node-00"], "start_minute": 1, "for_minutes": 20})
        built.agenda.run_until(150)
        assert ready(built, "node-00") == "Unknown"
        assert len(running(built)) == 4
        built.agenda.run_until(1800)
        assert ready(built, "node-00") == "True"
        assert {built.world.node_of(key) for key in running(built)} == {"node-01", "node-02"}

    def test_a_node_is_not_ready_for_a_while(self) -> None:
        built = happening(
            {
                "kind": "not-ready",
                "nodes": ["node-00"],
                "start_minute": 5,
                "every_minutes": 10,
                "for_minutes": 2,
            }
        )
        seen = []
        for minute in (4, 6, 8, 16):
            built.agenda.run_until(60.0 * minute)
            seen.append(ready(built, "node-00"))
        assert seen == ["True", "False", "True", "False"]
        assert len(running(built)) == 6

    def test_nodes_are_cordoned_for_a_while(self) -> None:
        built = happening({"kind": "cordon", "nodes": ["node-01"], "start_minute": 5, "for_minutes": 5})
        seen = []
        for minute in (4, 6, 11):
            built.agenda.run_until(60.0 * minute)
            seen.append(unschedulable(built))
        assert seen == [set(), {"node-01"}, set()]

    def test_the_webhook_is_out_of_reach_for_a_while(self) -> None:
        built = happening({"kind": "webhook-down", "start_minute": 1, "for_minutes": 2})
        pod = next(pod for pod in built.store.list("Pod"))["metadata"]
        statuses = []
        for time_s in (0, 90, 200):
            built.agenda.run_until(time_s)
            statuses.append(built.control_plane.evict(pod["namespace"], pod["name"], dry_run=True).status)
        assert statuses == [429, 500, 429]

    def test_a_backup_holds_a_rebalancers_migration_back(self) -> None:
        built = happening({"kind": "backup", "vms": {"groups": ["vm"]}, "for_minutes": 10})
        built.agenda.run_until(30)
        pod = next(pod for pod in built.store.list("Pod"))["metadata"]
        built.control_plane.evict(
            pod["namespace"], pod["name"], dry_run=False, requested_by="sigs.k8s.io/descheduler"
        )
        built.agenda.run_until(590)
        assert [record.started_s for record in built.control_plane.migrations] == [None]
        built.agenda.run_until(800)
        assert [record.outcome for record in built.control_plane.migrations] == ["Succeeded"]

    def test_what_has_gone_meanwhile_is_no_error(self) -> None:
        gone = ["node-02"]
        built = happening(
            {"kind": "remove-nodes", "nodes": gone, "at_minute": 1},
            {"kind": "cordon", "nodes": gone, "start_minute": 2, "for_minutes": 1},
            {"kind": "not-ready", "nodes": gone, "start_minute": 2, "for_minutes": 1},
            {"kind": "lose-nodes", "nodes": gone, "start_minute": 2, "for_minutes": 1},
            {"kind": "drain", "nodes": [*gone, "node-01"], "at_minute": 3},
            {"kind": "migrate", "start_minute": 1, "every_minutes": 0.5},
            {"kind": "abort", "every_minutes": 0.3, "way": "evacuate-cancel"},
            {"kind": "stop-vms", "vms": {}, "at_minute": 30},
        )
        built.agenda.run_until(3600)
        assert running(built) == set()


class TestMetrics:
    def test_troubles_reach_the_answers(self) -> None:
        built = build(scenario(troubles=[{"kind": "missing", "nodes": ["node-01"]}]), 1)
        built.agenda.run_until(60)
        name = "vm_rebalancer:node_cpu_utilization:avg1m"
        samples, _ = built.troubles.apply(name, built.metrics.series(name), built.agenda.now_s)
        assert [labels["instance"] for labels, _, _ in samples] == ["node-00", "node-02"]

    def test_series_begin_with_the_load_of_the_beginning(self) -> None:
        built = build(scenario(load={"demand": 0.1, "hotspots": [{"demand": 0.5}]}), 1)
        built.agenda.run_until(16)
        values = [value for _, value, _ in built.metrics.series("vm_rebalancer:node_cpu_utilization:avg1m")]
        assert values == pytest.approx([2 * 4 * 0.5 / 16] * 3)

    def test_memory_is_that_of_the_nodes(self) -> None:
        built = build(scenario(load={"touched": 0.5}), 1)
        assert built.world.node_memory_bytes() / GIB == pytest.approx([8] * 3)
