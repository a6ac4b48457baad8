"""``vm-rebalancer simulate`` as its users call it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli import main
from simulator.report.scores import Scores

POLICY = "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\n"


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments], catch_exceptions=False)


def test_prints_scores_and_writes_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    result = simulate("hotspot", "--minutes", "15", "--report", str(report))
    assert result.exit_code == 0
    assert "Migrations" in result.stdout
    assert str(report) in result.stderr
    assert "hotspot" in report.read_text(encoding="utf-8")


def test_json_on_stdout_has_the_scores_and_nothing_else() -> None:
    result = simulate("balanced", "--minutes", "2", "--no-report", "-o", "json")
    assert list(json.loads(result.stdout)) == list(Scores.__struct_fields__)


def test_against_the_baseline_gives_both() -> None:
    result = simulate(
        "hotspot",
        "--minutes",
        "14",
        "--no-report",
        "-o",
        "json",
        "--against",
        "baseline",
        "--baseline-interval",
        "60",
    )
    both = json.loads(result.stdout)
    assert list(both) == ["rebalancer", "baseline"]
    assert both["baseline"]["migrations"] > 0


def test_against_another_policy_names_it_by_its_file(tmp_path: Path) -> None:
    policy = tmp_path / "careful.yaml"
    policy.write_text(POLICY + "mode: Predictive\n")
    result = simulate("hotspot", "--minutes", "14", "--no-report", "-o", "json", "--against", str(policy))
    both = json.loads(result.stdout)
    assert both["careful"]["migrations"] == 0 < both["rebalancer"]["migrations"]


def test_several_seeds_run_side_by_side_as_they_do_alone() -> None:
    arguments = ("churn", "--minutes", "13", "--no-report", "-o", "json", "--seeds", "2")
    alone = json.loads(simulate(*arguments).stdout)
    beside = json.loads(simulate(*arguments, "--jobs", "2").stdout)
    assert [s["seed"] for s in alone] == [1, 2]
    assert alone == beside


def test_the_event_log_is_json_lines(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    simulate("hotspot", "--minutes", "13", "--no-report", "--events", str(events))
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert {"classified", "planned", "answered", "entry"} <= {line["what"] for line in lines}
    assert [line["time_s"] for line in lines] == sorted(line["time_s"] for line in lines)


def test_a_cluster_dump_takes_the_place_of_the_scenarios_cluster() -> None:
    dump = Path(__file__).parents[1] / "data" / "cluster-dump.json"
    result = simulate("hotspot", "--minutes", "20", "--no-report", "-o", "json", "--cluster", str(dump))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["vms_shut_down"] == 0
    assert found["migrations"] > 0


def test_lists_the_scenarios() -> None:
    result = simulate("--list")
    assert {"hotspot", "calm", "unmovable"} <= {line.split()[0] for line in result.stdout.splitlines()}


def test_says_what_a_scenario_expected_and_did_not_get(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("extends: balanced\ndescription: mine\nexpect: {migrations: '>= 5'}\n")
    result = simulate(str(scenario), "--minutes", "1", "--no-report")
    assert "not as the scenario expects (seed 1): migrations is 0" in result.stderr


BAD = {
    "unknown scenario": ("hotspto",),
    "broken YAML": ("{broken}",),
    "impossible cluster": ("{impossible}",),
    "bad policy": ("hotspot", "--policy", "{bad_policy}"),
    "missing policy": ("hotspot", "--policy", "nowhere.yaml"),
    "unwritable report": ("hotspot", "--report", "{tmp}/no/such/folder/r.html"),
    "unwritable events": ("hotspot", "--no-report", "--events", "{tmp}/no/such/folder/e.jsonl"),
    "bad override": ("hotspot", "--set", "load.hotspots[7].factor=3"),
    "not a dump": ("hotspot", "--cluster", "{broken}"),
    "missing dump": ("hotspot", "--cluster", "nowhere.json"),
    "unknown comparison": ("hotspot", "--against", "basline"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_ends_with_a_clear_line_for_each_problem(what: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [broken\n")
    (tmp_path / "impossible.yaml").write_text(
        "extends: balanced\ndescription: x\nnodes: {node: {count: 1, cores: 1, memory_gib: 1}}\n"
    )
    (tmp_path / "bad_policy.yaml").write_text(POLICY + "mode: Automatik\n")
    names = {name: str(tmp_path / f"{name}.yaml") for name in ("broken", "impossible", "bad_policy")}
    arguments = [argument.format(tmp=tmp_path, **names) for argument in BAD[what]]
    result = simulate(*arguments, "--minutes", "1")
    assert result.exit_code not in (0, None)
    assert result.stdout == ""
    problems = result.stderr.strip().splitlines()
    assert problems[0].startswith("Error: ") or ": mode: found" in problems[0], result.stderr
    assert len(problems) == 1 or all("; allowed: " in problem for problem in problems), result.stderr


def test_the_difference_that_soft_taints_make_can_be_tried() -> None:
    def tried(*options: str) -> str:
        return simulate("hotspot", "--minutes", "40", "--no-report", "-o", "json", *options).stdout

    tiered, graded = tried(), tried("--set", "softTaints.scheme=Graded")
    assert len({tiered, graded, tried("--no-soft-tainter")}) == 3
    assert graded == tried("--set", "policy.softTaints.scheme=Graded")


def test_a_change_to_the_policy_beside_another_policy_is_refused(tmp_path: Path) -> None:
    """It would be without effect, and nobody would know."""
    policy = tmp_path / "mine.yaml"
    policy.write_text(POLICY)
    result = simulate("hotspot", "--policy", str(policy), "--set", "softTaints.scheme=Graded", "--no-report")
    assert result.exit_code == 2
    assert "which --policy takes the place of" in result.stderr
