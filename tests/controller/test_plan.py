"""``vm-rebalancer plan``: its output on simulated clusters, and that it says what the descheduler does.

Golden files: ``pytest tests/controller/test_plan.py --update`` writes them anew.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console
from rich.text import Text

from controller import cli, plan_command, report
from controller.plan import sources
from controller.plan.explain import story
from controller.plan.look import Look, Looker, earlier
from controller.plan.make import plan_report
from controller.plan.sources import Cluster, LookError
from controller.plan.text import as_plain_text, text_of
from controller.policy.model import Metrics, Policy
from controller.ports import MetricsSource
from controller.report import PlanReport, VmStory
from controller.utilization.reading import Answer, MetricsError, Sample
from simulator.engine.look import scenario
from simulator.engine.run import Run, policy_for, run
from simulator.scenario.loading import load_scenario
from tests.simulator.promtool import run_rule_test

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plan"
GOLDEN_LINES = {
    "next-moves": "--scenario hotspot --minute 11.5",
    "limits-reached": "--scenario hotspot --minute 14",
    "wide": "--scenario hotspot --minute 14 -o wide",
    "no-useful-move": "--scenario unmovable --minute 30",
    "no-useful-move-wide": "--scenario unmovable --minute 30 -o wide",
    "nothing-over": "--scenario mixed --minute 30",
    "explain-next": "--scenario hotspot --minute 11.5 --explain vm/small-000",
    "explain-moving": "--scenario hotspot --minute 14 --explain vm/large-013",
    "explain-moved": "--scenario hotspot --minute 14 --explain vm/vms/small-000",
    "explain-not-migratable": "--scenario unmovable --minute 30 --explain vm/huge-012",
    "explain-pinned": "--scenario unmovable --minute 30 --explain vm/huge-010",
}
ONE_IN_ALL = """
apiVersion: vm-rebalancer.io/v1alpha1
kind: RebalancePolicy
mode: Predictive
evictions: {limits: {node: 1, total: 1}}
"""


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EntryPoint("scenario", "simulator.engine.look:scenario", sources.SOURCES_GROUP)
    monkeypatch.setattr(sources, "entry_points", lambda *, group, name: [plugin])


def plan(line: str) -> Result:
    return CliRunner().invoke(cli.main, ["plan", *shlex.split(line)], prog_name="vm-rebalancer")


@cache
def simulated(name: str, minute: float, policy_file: str | None = None) -> tuple[Cluster, Policy]:
    return scenario(name, minute, 1, policy_file)


def look(name: str = "hotspot", minute: float = 11.5) -> Look:
    return Looker(*simulated(name, minute)).look()


class Broken:
    def instant(self, expression: str, metrics: Metrics) -> Answer:
        raise MetricsError("query: no route to host")


def unmeasured() -> Look:
    cluster, policy = simulated("hotspot", 11.5)
    return Looker(replace(cluster, metrics=Broken()), policy).look()


def move_from(shown: PlanReport, node: str) -> report.Move:
    (found,) = (plan.move for plan in shown.plans if plan.node == node)
    assert found is not None
    return found


# --- output ---


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("name", GOLDEN_LINES)
def test_shows_the_golden_text(name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    result = plan(GOLDEN_LINES[name])
    assert (result.exit_code, result.stderr) == (0, "")
    if update_golden:
        path.write_text(result.stdout, encoding="utf-8")
    assert result.stdout == path.read_text(encoding="utf-8"), "compare, then run with --update"


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(GOLDEN_LINES)


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(("explain", "kind"), [("", PlanReport), (" --explain vm/small-000", VmStory)])
def test_json_and_yaml_hold_the_whole_report(explain: str, kind: type[PlanReport | VmStory]) -> None:
    line = f"--scenario hotspot --minute 11.5{explain} -o"
    shown = msgspec.json.decode(plan(f"{line} json").stdout, type=kind)
    expected = story(look(), "vm/small-000") if explain else plan_report(look())
    assert shown == expected
    assert msgspec.convert(yaml.safe_load(plan(f"{line} yaml").stdout), type=kind) == expected


def test_every_field_of_the_json_is_documented() -> None:
    """The structure is promised to scripts, so it stands in the manual."""
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    structs = [s for s in vars(report).values() if isinstance(s, type) and issubclass(s, report.Shown)]
    fields = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
    assert [field for field in sorted(fields) if f"`{field}`" not in text] == []


@pytest.mark.parametrize("shown", [plan_report(look()), story(look(), "vm/small-000")])
def test_colours_tell_nothing_that_words_do_not(shown: PlanReport | VmStory) -> None:
    out = StringIO()
    console = Console(file=out, width=10_000, color_system="truecolor", force_terminal=True, highlight=False)
    for part in text_of(shown, wide=True):
        console.print(part)
    coloured = out.getvalue()
    assert "\x1b[" in coloured
    lines = (line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines())
    assert "\n".join(lines).rstrip() == as_plain_text(text_of(shown, wide=True)).rstrip()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_colour", [False, True])
def test_a_terminal_gets_colours_unless_it_wants_none(
    no_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    monkeypatch.setattr(plan_command.sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    plan_command._print(plan_report(look()), wide=False, again=False)
    red = re.search(r"\x1b\[[0-9;]*3[0-7]m", out.getvalue())
    assert (red is None) is no_colour


def test_a_narrow_terminal_breaks_lines_and_tables_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table squeezed into 80 columns has one letter a line; as with kubectl, lines are left to the terminal."""
    out = Terminal()
    monkeypatch.setattr(plan_command.sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "80")
    plan_command._print(plan_report(look()), wide=True, again=False)
    plain = Text.from_ansi(out.getvalue()).plain
    assert "over-utilised" in plain
    assert "above its threshold by 0.700" in plain


def test_names_are_neither_markup_nor_orders_to_the_terminal() -> None:
    shown = msgspec.structs.replace(story(look(), "vm/small-000"), summary="[red]stays\x1b[2J\nput")
    assert "[red]stays [2J put" in as_plain_text(text_of(shown, wide=False))


# --- what it says ---


def test_the_next_move_is_the_one_that_the_descheduler_makes() -> None:
    """The plan is made by the same functions, from what is found in the cluster alone."""
    asked = load_scenario("hotspot")
    made = run(Run(msgspec.structs.replace(asked, minutes=12), 1, policy_for(asked), "")).record.migrations
    shown = plan_report(look())
    for node in ("node-00", "node-01"):
        first = next(m for m in made if m.source == node)
        assert move_from(shown, node).vm == first.vm


def test_a_plan_counts_on_the_moves_before_it(tmp_path: Path) -> None:
    """Else the two plans together would break the limit that each of them keeps."""
    file = tmp_path / "policy.yaml"
    file.write_text(ONE_IN_ALL)
    cluster, policy = scenario("hotspot", 12, 1, str(file))
    worst, second = plan_report(Looker(cluster, policy).look()).plans
    assert worst.rest is None
    assert worst.move is not None
    assert second.rest is not None
    assert second.rest.code == "TotalLimit"


def test_what_waits_for_a_slot_is_told_too() -> None:
    shown = plan_report(look(minute=14))
    for waiting in shown.plans:
        assert waiting.rest is not None
        assert waiting.rest.code == "NodeLimit"
        assert waiting.move is not None


def test_every_vm_of_a_considered_node_is_accounted_for() -> None:
    for name, minute in (("hotspot", 11.5), ("unmovable", 30.0)):
        shown = plan_report(look(name, minute))
        vms = {row.name: row.vms for row in shown.nodes}
        assert shown.plans
        for planned in shown.plans:
            passed = sum(len(group.vms) for group in planned.passed_over)
            assert passed + (planned.move is not None) == vms[planned.node]


def test_the_story_of_a_vm_agrees_with_the_plan() -> None:
    seen = look()
    for planned in plan_report(seen).plans:
        assert planned.move is not None
        assert story(seen, f"vm/{planned.move.vm}").summary.startswith("would move next")
        for group in planned.passed_over:
            for passed in group.vms:
                said = story(seen, f"vm/{passed.vm}").summary
                expected = "may move, but another VM" if group.code == "NotFirst" else passed.text
                assert expected in said


def test_further_looks_ask_for_more_snapshots_until_there_are_enough() -> None:
    looker = Looker(*simulated("hotspot", 11.5))
    assert [plan_report(looker.look()).head.judged_by for _ in range(4)] == [1, 2, 2, 2]


class Remembering:
    """Answers for a little while ago, too: every node at 0.5 then."""

    def __init__(self, metrics: MetricsSource) -> None:
        self._metrics = metrics

    def instant(self, expression: str, metrics: Metrics) -> Answer:
        series = [query.expression for query in metrics.queries]
        if expression in map(earlier, series):
            return Answer([Sample({"instance": f"node-{i:02d}"}, 0.5) for i in range(10)])
        return self._metrics.instant(expression, metrics)


def test_the_first_look_knows_where_values_are_going() -> None:
    cluster, policy = simulated("hotspot", 11.5)
    looker = Looker(replace(cluster, metrics=Remembering(cluster.metrics)), policy)
    trends = {row.name: row.trend for row in plan_report(looker.look()).nodes}
    assert trends["node-00"] is not None
    assert trends["node-00"].change == 0.5
    assert 60 < trends["node-00"].over_s <= 120
    text = as_plain_text(text_of(plan_report(looker.look()), wide=True))
    assert "rising +0.500 in 1m" in text
    assert "falling -0.500 in 1m" in text


@pytest.mark.parametrize(
    ("expression", "labels", "then"),
    [
        ("busy", '{__name__="busy", instance="n"}', 12.0),
        ("sum by (instance) (busy) / 2  # a half", '{instance="n"}', 6.0),
    ],
)
def test_what_was_a_little_while_ago_is_asked_in_promql(
    tmp_path: Path, expression: str, labels: str, then: float
) -> None:
    """Of a recorded series and of any other expression, whatever it ends with."""
    asked = {
        "expr": earlier(expression),
        "eval_time": "5m",
        "exp_samples": [{"labels": labels, "value": then}],
    }
    run_rule_test(tmp_path, interval="15s", series={'busy{instance="n"}': "0+1x40"}, expressions=[asked])


# --- without metrics ---


def test_shows_what_is_known_without_values() -> None:
    shown = plan_report(unmeasured())
    assert shown.head.notes == ("no metrics: query: no route to host",)
    assert shown.head.skipped
    assert {row.node_class for row in shown.nodes} == {"Unknown"}
    assert all(row.vms for row in shown.nodes)
    assert shown.plans == ()
    text = as_plain_text(text_of(shown, wide=True))
    assert "Note: no metrics: query: no route to host" in text
    assert "Nothing is decided" in text


def test_tells_a_vm_s_story_without_values() -> None:
    told = story(unmeasured(), "vm/small-000")
    assert told.load is None
    assert told.fits_on
    verdicts = {rule.claim: rule.holds for rule in (*told.rules_of_node, *told.rules_of_vm)}
    assert verdicts["its node is over-utilised"] is None
    assert verdicts["its move would help"] is None
    assert verdicts["an eviction would live-migrate it"] is True


# --- errors ---


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("vm/small-0", "--explain: no VMI is called small-0; did you mean small-0"),
        ("vm/prod/small-000", "--explain: no VMI is called small-000 in namespace prod"),
        ("small-000", "--explain: found 'small-000'; allowed: vm/NAME or vm/NAMESPACE/NAME"),
        ("vm/a/b/c", "--explain: found 'vm/a/b/c'; allowed: vm/NAME or vm/NAMESPACE/NAME"),
    ],
)
def test_a_vm_that_is_not_there_is_an_error(wanted: str, message: str) -> None:
    with pytest.raises(LookError) as raised:
        story(look(), wanted)
    assert str(raised.value).startswith(message)


def lines_of(result: Result) -> Iterator[str]:
    return (line for line in result.stderr.splitlines() if line)


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "exactly one of --policy-configmap and --policy-file is needed"),
        ("--policy-file a --policy-configmap a/b", "exactly one of --policy-configmap and --policy-file"),
        ("--policy-file a --minute 3", "--minute and --seed are for a --scenario"),
        ("--scenario hotspot", "--scenario needs --minute"),
        ("--scenario hotspot --minute 1 --watch --context x", "--context, --watch: not with --scenario"),
        ("--policy-configmap a", "--policy-configmap: found 'a'; allowed: NAMESPACE/NAME"),
    ],
)
def test_wrong_usage_is_told_in_a_line(line: str, message: str) -> None:
    result = plan(line)
    assert result.exit_code == 2
    assert message in list(lines_of(result))[-1]


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--scenario nope --minute 1", "nope"),
        ("--scenario hotspot --minute 1 --policy-file /nowhere", "/nowhere: No such file or directory"),
        ("--scenario hotspot --minute 1 --explain vm/x", "no VMI is called x"),
        ("--policy-file /nowhere", "/nowhere: No such file or directory"),
    ],
)
def test_what_cannot_be_looked_at_is_told_in_a_line(line: str, message: str) -> None:
    result = plan(line)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert len(list(lines_of(result))) == 1


@pytest.mark.usefixtures("simulator")
def test_an_invalid_policy_is_told_problem_by_problem(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ONE_IN_ALL.replace("mode: Predictive", "mode: Perhaps\nthresholds: {sustain: 0}"))
    result = plan(f"--scenario hotspot --minute 1 --policy-file {file}")
    assert result.exit_code == 1
    assert [line.split(": ")[1] for line in lines_of(result)] == ["mode", "thresholds.sustain"]


def test_says_so_where_the_simulator_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "entry_points", lambda *, group, name: [])
    result = plan("--scenario hotspot --minute 1")
    assert result.exit_code == 1
    assert result.stderr == "Error: --scenario needs the simulator, which is not installed\n"
