"""A scenario is data: what it may say, and what is said about one that is wrong."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controller.policy.parse import default_policy
from controller.policy.render import effective_document
from simulator.scenario import cluster_schema, schema
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.cluster_schema import Replay, Strict
from simulator.scenario.documents import POLICY_SECTIONS
from simulator.scenario.expect import SCORES, parse_bound, unmet
from simulator.scenario.loading import SCENARIOS, json_schema, list_scenarios, load_scenario, parse_scenario
from tests.simulator.scenario_builders import document, scenario, text

SHIPPED = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def problems(yaml_text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioErrors) as caught:
        parse_scenario(yaml_text, overrides=overrides)
    return [str(problem) for problem in caught.value.problems]


class TestShipped:
    def test_there_are_all_that_the_documentation_promises(self) -> None:
        assert set(SHIPPED) == {
            "hotspot", "failing", "unmovable", "balanced", "calm", "hopeless", "pilot", "week",
            "flapping", "drain", "mixed", "churn", "slow", "stuck", "large",
        }  # fmt: skip

    @pytest.mark.parametrize("name", SHIPPED)
    def test_says_what_happens_and_what_a_good_rebalancer_does(self, name: str) -> None:
        shipped = load_scenario(name)
        assert shipped.name == name
        assert shipped.description
        assert shipped.expectation
        assert shipped.expect
        assert (SCENARIOS / f"{name}.yaml").read_text().startswith("# ")

    def test_are_listed_with_what_happens_in_them(self) -> None:
        listed = dict(list_scenarios())
        assert sorted(listed) == SHIPPED
        assert listed["hopeless"] == "All nodes are equally overloaded."

    def test_hotspot_has_the_measured_clusters_148_vms(self) -> None:
        vms = load_scenario("hotspot").vms
        sizes = {(g.count, g.vcpus, g.memory_gib, g.dirty_mb_per_s) for g in vms.values()}
        assert sizes == {
            (56, 8, 80, (60, 500)),
            (61, 8, 64, (25, 250)),
            (3, 8, 32, 50),
            (24, 4, 16, 25),
            (4, 4, 8, 6),
        }

    def test_one_that_extends_another_keeps_its_cluster_but_not_its_expectations(self) -> None:
        hotspot, failing = load_scenario("hotspot"), load_scenario("failing")
        assert failing.vms == hotspot.vms
        assert failing.load == hotspot.load
        assert failing.kubevirt.failure_probability == 0.3
        assert failing.expect["minutes_to_balance"] != hotspot.expect["minutes_to_balance"]


class TestErrors:
    def test_every_error_is_found_at_once(self) -> None:
        found = problems(
            text(
                nodes={"node": {"count": 0, "cores": 16, "memory_gib": 128, "colour": "red"}},
                vms={"vm": {"vcpus": 4}},
                load={"hotspot": []},
                minutes="soon",
            )
        )
        assert found == [
            "nodes.node.count: 0; allowed: a whole number >= 1 and <= 100000",
            "nodes.node.colour: no key 'colour'; allowed: count, cores, memory_gib, nic_gbit_per_s, labels, "
            "taints, zones, other_cpu_cores, other_memory_gib, other_requests_cpu_cores, "
            "other_requests_memory_gib",
            "vms.vm.memory_gib: missing; allowed: a number > 0",
            "load.hotspot: no key 'hotspot'; allowed: demand, touched, constant, daily, replay, hotspots, noise, "
            "spikes, tick_seconds (did you mean hotspots?)",
            "minutes: 'soon'; allowed: a number > 0 and <= 100000",
        ]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"nodes": {}}, "nodes: none; allowed: at least one group of nodes, or cluster"),
            ({"cluster": "dump.json"}, "cluster: given beside nodes or vms"),
            (
                {"nodes": {"Node_1": {"cores": 1, "memory_gib": 1}}},
                "nodes: key 'Node_1'; allowed: text matching",
            ),
            ({"minutes": float("nan")}, "minutes: nan; allowed: a number"),
            ({"trouble_start_minute": 61}, "trouble_start_minute: 61; allowed: up to minutes (60)"),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "eviction_strategy": "LiveMigrat"}}},
                "vms.vm.eviction_strategy: 'LiveMigrat'; allowed: LiveMigrate, LiveMigrateIfPossible, None, "
                "External or null (did you mean LiveMigrate?)",
            ),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "zone": "a"}}},
                "vms.vm.zone: no zone with nodes 'a'; allowed: none",
            ),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "placement": ["node-0"]}}},
                "vms.vm.placement: no node 'node-0'; allowed: node-00, node-01, node-02 (did you mean node-02?)",
            ),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "count": 2, "placement": {"node-00": 3}}}},
                "vms.vm.placement: 3 VMs; allowed: up to the group's count (2)",
            ),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "anti_affine_sets_of": 4}}},
                "vms.vm.anti_affine_sets_of: 4 VMs that may not share a node; allowed: up to the number of nodes (3)",
            ),
            (
                {"vms": {"vm": {"vcpus": 1, "memory_gib": 1, "dirty_mb_per_s": [9, 3]}}},
                "vms.vm.dirty_mb_per_s: [9, 3]; allowed: [low, high]",
            ),
            (
                {"load": {"hotspots": [{}]}},
                "load.hotspots[0]: nothing to set; allowed: demand, factor or touched",
            ),
            (
                {"load": {"hotspots": [{"demand": 1, "factor": 2}]}},
                "load.hotspots[0]: demand and factor; allowed: one of them",
            ),
            (
                {"load": {"hotspots": [{"demand": 1, "start_minute": 5, "end_minute": 5}]}},
                "load.hotspots[0].end_minute: 5; allowed: more than start_minute (5)",
            ),
            (
                {"load": {"hotspots": [{"demand": 1, "every_minutes": 5, "for_minutes": 6}]}},
                "load.hotspots[0].for_minutes: 6; allowed: up to every_minutes (5)",
            ),
            (
                {"load": {"spikes": [{"per_minute": 1, "vms": {"groups": ["vms"]}}]}},
                "load.spikes[0].vms.groups: no VM group 'vms'; allowed: vm (did you mean vm?)",
            ),
            (
                {"load": {"noise": [{"std": 0.1, "vms": {"nodes": {"hottest": 1, "random": 1}}}]}},
                "load.noise[0].vms.nodes: hottest and random; allowed: one of hottest, fullest, random, "
                "most_committed_at_start",
            ),
            (
                {"immovable": [{"vms": {"nodes": {"hottest": 1}}}]},
                "immovable[0].vms.nodes: hottest; allowed: names, or most_committed_at_start",
            ),
            (
                {"happenings": [{"kind": "drian", "nodes": ["node-00"], "at_minute": 1}]},
                "happenings[0].kind: no kind 'drian'; allowed: churn, start-vms, stop-vms, migrate, abort, "
                "backup, webhook-down, join-nodes, cordon, drain, lose-nodes, remove-nodes, not-ready, "
                "stalled-watches, restart, policy (did you mean drain?)",
            ),
            ({"happenings": [{"at_minute": 1}]}, "happenings[0].kind: missing; allowed: churn, "),
            (
                {"happenings": [{"kind": "lose-nodes", "nodes": ["node-09"]}]},
                "happenings[0].nodes: no node 'node-09'; allowed: node-00, node-01, node-02",
            ),
            (
                {"happenings": [{"kind": "churn", "group": "web"}]},
                "happenings[0].group: no VM group to make VMs of 'web'; allowed: vm",
            ),
            (
                {"troubles": [{"kind": "missing", "nodes": ["nodes-*"]}]},
                "troubles[0].nodes: no node 'nodes-*'; allowed: node-00",
            ),
            (
                {"troubles": [{"kind": "missing", "every_minutes": 5}]},
                "troubles[0]: every_minutes and for_minutes need each other",
            ),
            (
                {"expect": {"vms_shutdown": "== 0"}},
                "expect.vms_shutdown: no score 'vms_shutdown'; allowed: vms_shut_down",
            ),
            ({"expect": {"migrations": "few"}}, "expect.migrations: 'few'; allowed: a relation and a number"),
            (
                {"kubevirt": {"failure_probability": 3}},
                "kubevirt.failure_probability: 3; allowed: a number >= 0",
            ),
        ],
    )
    def test_one_line_says_where_what_and_what_is_allowed(
        self, changes: dict[str, Any], expected: str
    ) -> None:
        (found,) = problems(text(**changes))
        assert found.startswith(expected)

    @pytest.mark.parametrize(
        ("broken", "expected"),
        [
            ("a: [1", "line 1, column 6: "),
            ("description: a\ndescription: b\n", "line 2, column 1: key 'description' given twice"),
            ("", "document: empty; allowed: a mapping"),
            ("- 1\n", "document: list; allowed: a mapping"),
            ("a: \x00", "document: unacceptable character"),
            ("? [1, 2]\n: x\n", "document: while constructing a mapping"),
            ("a: !!python/object:os.system x", "line 1, column 4: could not determine a constructor"),
        ],
    )
    def test_what_is_no_yaml_mapping_is_named_with_its_place(self, broken: str, expected: str) -> None:
        (found,) = problems(broken)
        assert found.startswith(expected) or "unhashable" in found
        assert "\n" not in found

    def test_an_unknown_name_gets_the_nearest(self) -> None:
        with pytest.raises(ScenarioErrors, match=r"no scenario 'hotpsot'.*\(did you mean hotspot\?\)"):
            load_scenario("hotpsot")

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioErrors, match=r"none\.yaml: file: No such file"):
            load_scenario(str(tmp_path / "none.yaml"))

    def test_a_directory_is_no_scenario(self, tmp_path: Path) -> None:
        (tmp_path / "x.yaml").mkdir()
        with pytest.raises(ScenarioErrors, match="Is a directory"):
            load_scenario(str(tmp_path / "x.yaml"))


class TestExtending:
    def test_mappings_are_merged_and_lists_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "base.yaml").write_text(text(load={"demand": 0.5, "noise": [{"std": 0.1}, {"std": 0.2}]}))
        child = {"extends": "base.yaml", "description": "child", "load": {"noise": [{"std": 0.3}]}}
        (tmp_path / "child.yaml").write_text(yaml.safe_dump(child))
        extended = load_scenario(str(tmp_path / "child.yaml"))
        assert extended.name == "child"
        assert extended.load.demand == 0.5
        assert [noise.std for noise in extended.load.noise] == [0.3]
        assert extended.nodes == scenario().nodes

    def test_a_file_extends_a_shipped_scenario_by_name(self) -> None:
        mine = parse_scenario("{extends: calm, description: longer, minutes: 90}")
        assert mine.minutes == 90
        assert mine.load == load_scenario("calm").load

    def test_circles_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("{extends: b.yaml, description: a}")
        (tmp_path / "b.yaml").write_text("{extends: a.yaml, description: b}")
        with pytest.raises(ScenarioErrors, match="extends this one; allowed: no circles"):
            load_scenario(str(tmp_path / "a.yaml"))

    def test_files_are_meant_relative_to_the_scenario_that_names_them(self, tmp_path: Path) -> None:
        (tmp_path / "my.yaml").write_text(
            "{description: mine, cluster: dump.json, load: {replay: {file: a.csv}}}"
        )
        mine = load_scenario(str(tmp_path / "my.yaml"))
        assert mine.cluster == str(tmp_path / "dump.json")
        assert mine.load.replay == Replay(file=str(tmp_path / "a.csv"))

    def test_a_dump_takes_the_place_of_nodes_vms_and_expectations(self) -> None:
        mine = load_scenario("hotspot", cluster="dump.json")
        assert mine.cluster == "dump.json"
        assert [*mine.nodes, *mine.vms, *mine.expect] == []
        assert mine.load == load_scenario("hotspot").load


class TestOverrides:
    def test_a_number_in_a_list_can_be_set(self) -> None:
        assert load_scenario("hotspot", ["load.hotspots[0].factor=3"]).load.hotspots[0].factor == 3

    def test_mappings_on_the_way_come_into_being(self) -> None:
        changed = parse_scenario(
            text(), overrides=["kubevirt.failure_probability=0.5", "policy.evictions.order=LowestPriority"]
        )
        assert changed.kubevirt.failure_probability == 0.5
        assert changed.policy == {"evictions": {"order": "LowestPriority"}}

    def test_sections_of_the_policy_need_not_be_called_that(self) -> None:
        short = parse_scenario(text(), overrides=["softTaints.scheme=Graded", "mode=Predictive"])
        assert short.policy == {"softTaints": {"scheme": "Graded"}, "mode": "Predictive"}
        head = {"apiVersion", "kind"}
        assert effective_document(default_policy()).keys() - head == POLICY_SECTIONS
        assert not POLICY_SECTIONS & set(schema.Scenario.__struct_fields__)

    def test_a_value_is_yaml(self) -> None:
        changed = parse_scenario(
            text(), overrides=["load.noise=[{std: 0.1}]", 'nodes.node.labels["a.b/c"]=x']
        )
        assert [noise.std for noise in changed.load.noise] == [0.1]
        assert changed.nodes["node"].labels == {"a.b/c": "x"}

    def test_the_last_one_wins(self) -> None:
        assert parse_scenario(text(), overrides=["minutes=5", "minutes=6"]).minutes == 6

    @pytest.mark.parametrize(
        ("assignment", "expected"),
        [
            ("minutes", "minutes: no assignment; allowed: path=value"),
            ("=3", "=3: no assignment"),
            ("load..demand=3", "load..demand=3: no assignment"),
            ("minutes=[1", "minutes: while parsing"),
            ("minutes=x", "minutes: 'x'; allowed: a number > 0 and <= 100000"),
            ("load.hotspots[0].factor=3", "load.hotspots: no list to take [0] of"),
            ("load.noise[2].std=3", "load.noise[2]: out of range; allowed: [0] to [0]"),
            ("load.noise.std=3", "load.noise: no mapping to take 'std' of; allowed: load.noise[0] to [0]"),
            ("minutes.x=3", "minutes: no mapping to take 'x' of; allowed: nothing below it"),
            ("load.demnd=3", "load.demnd: no key 'demnd'; allowed: demand, "),
        ],
    )
    def test_a_wrong_path_or_value_is_named(self, assignment: str, expected: str) -> None:
        (found,) = problems(text(minutes=30, load={"noise": [{"std": 0.1}]}), assignment)
        assert found.startswith(expected)


OF_A_RUN = {"migrations": 12, "vms_shut_down": 0, "minutes_to_balance": None}


class TestExpectations:
    def test_kept_ones_are_not_mentioned(self) -> None:
        expect: dict[str, str | float] = {
            "migrations": "<= 12",
            "vms_shut_down": 0,
            "minutes_to_balance": "== null",
        }
        assert unmet(expect, OF_A_RUN) == []

    def test_broken_ones_are_told_with_what_was_found(self) -> None:
        expect: dict[str, str | float] = {
            "migrations": "< 12",
            "minutes_to_balance": "<= 20",
            "vms_shut_down": "> 0.5",
        }
        assert unmet(expect, OF_A_RUN) == [
            "migrations is 12, expected < 12",
            "minutes_to_balance is null, expected <= 20",
            "vms_shut_down is 0, expected > 0.5",
        ]

    def test_a_number_is_no_null(self) -> None:
        assert unmet({"migrations": "== null"}, OF_A_RUN) == ["migrations is 12, expected == null"]

    @pytest.mark.parametrize("bound", ["20", "<= ", "<= many", "<= nan", "< null", "≤ 3", ""])
    def test_what_is_no_bound_is_refused(self, bound: str) -> None:
        with pytest.raises(ValueError, match="is no bound"):
            parse_bound(bound)

    def test_cover_every_score_of_a_run(self) -> None:
        assert "starved_cpu_minutes" in SCORES
        assert "policy_digest" not in SCORES


def structs() -> list[type[msgspec.Struct]]:
    return [
        item
        for item in (vars(cluster_schema) | vars(schema)).values()
        if isinstance(item, type) and issubclass(item, Strict) and item is not Strict
    ]


class TestDocumentation:
    def test_every_key_is_in_the_documented_schema(self) -> None:
        documented = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
        fields = [(struct.__name__, field) for struct in structs() for field in struct.__struct_fields__]
        missing = [
            f"{name}.{field}" for name, field in fields if not re.search(rf"[`{{]{field}\b", documented)
        ]
        assert missing == []

    def test_every_shipped_scenario_is_documented(self) -> None:
        documented = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
        assert [name for name in SHIPPED if f"`{name}`" not in documented] == []

    def test_the_json_schema_knows_every_key_and_explains_the_ones_that_need_it(self) -> None:
        found = json_schema()
        definitions = found["$defs"]
        assert set(definitions["Scenario"]["properties"]) == set(schema.Scenario.__struct_fields__)
        assert definitions["Hotspot"]["properties"]["start_minute"]["minimum"] == 0
        assert definitions["VmGroup"]["properties"]["opted_out"]["description"].startswith(
            "Carries the annotation"
        )
        assert definitions["Scenario"]["additionalProperties"] is False
        msgspec.json.encode(found)

    def test_a_document_is_not_changed_by_being_read(self) -> None:
        original = document(load={"demand": 0.5})
        before = yaml.safe_dump(original)
        parse_scenario(before, overrides=["load.demand=0.1"])
        assert yaml.safe_dump(original) == before
