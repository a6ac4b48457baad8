"""The report is one file that tells the truth about its runs, whatever their names and sizes."""

import base64
import gzip
import json
import pickle
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import plotly.graph_objects as go
import pytest

from simulator.engine.run import Run, policy_for, run
from simulator.record import OVER, FollowedRecord, MigrationRecord, RunRecord, ShutdownRecord, WhyNot
from simulator.report.html import ReportError, render, write_report
from simulator.report.scores import by_label
from simulator.report.style import TimeAxis, shorten
from simulator.report.waterfall import MAX_ROWS
from simulator.report.words import verdicts
from simulator.scenario.loading import load_scenario
from tests.simulator.builders import migration, run_record, samples
from tests.simulator.made_up_runs import (
    baseline_record,
    hotspot_record,
    large_record,
    many_record,
    week_record,
)

EVIL = "<img src=x onerror=alert(1)>\"'&</script>"


def payload_of(page: str) -> dict[str, Any]:
    packed = re.search(r'id="payload">([^<]+)<', page)
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def text_of(page: str) -> str:
    """The page without its packed parts and its style."""
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def facts_of(runs: list[RunRecord]) -> list[str]:
    return [fact["text"] for line in verdicts(by_label(runs)) for fact in line["facts"]]


RUNS = {
    "one": [hotspot_record()],
    "against": [hotspot_record(), baseline_record()],
    "seeds": [
        hotspot_record(seed=1),
        hotspot_record(seed=2),
        baseline_record(seed=1),
        baseline_record(seed=2),
    ],
    "large": [large_record(times=20)],
    "idle": [run_record()],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_every_plot_has_its_place_and_is_one_that_plotly_knows(runs: list[RunRecord]) -> None:
    page = render(runs)
    payload = payload_of(page)
    assert set(re.findall(r'class="plot" id="([^"]+)"', page)) == set(payload["figures"])
    for figure in payload["figures"].values():
        go.Figure(figure)  # raises on a property that plotly does not have
    for name, choices in payload["choices"].items():
        for changed in choices.values():
            go.Heatmap(changed)
        assert payload["figures"][name]["data"][0]["z"] == choices["CPU demand"]["z"]


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = render(RUNS["against"])
    assert not re.search(r"(src|href|url)\s*[=(]", page.replace(page_library(page), ""))


def page_library(page: str) -> str:
    packed = re.search(r'id="library">([^<]+)<', page)
    assert packed is not None
    return packed[1]


def test_the_same_runs_give_the_same_bytes() -> None:
    assert render([hotspot_record()]) == render([hotspot_record()])


def test_names_and_texts_cannot_become_html() -> None:
    """VM names, node names and policies come from outside; a report may be opened by somebody else."""
    record = hotspot_record(
        scenario=EVIL, description=EVIL, expectation=EVIL, label=EVIL, policy_yaml=EVIL, command=EVIL,
        shutdowns=[ShutdownRecord(900.0, EVIL, EVIL, EVIL)], why_not={EVIL: WhyNot(1, EVIL)},
    )  # fmt: skip
    record.migrations.append(migration(EVIL, EVIL, "worker-03", 800.0, 860.0, failure=EVIL))
    page = render([record, baseline_record()])
    assert "<img" not in page
    assert page.count("</script>") == 3
    assert "<img" not in json.dumps(payload_of(page)["figures"])


def test_a_report_stays_small_however_long_and_large_the_run() -> None:
    for record in (large_record(), week_record()):
        page = render([record])
        assert len(page) < 3_000_000
        for figure in payload_of(page)["figures"].values():
            for trace in figure["data"]:
                limit = 600 if trace["type"] == "heatmap" else 1500 * 6
                assert len(trace["x"]) <= limit


def test_one_hot_node_among_a_thousand_has_a_row_and_a_line() -> None:
    demand = np.full((10, 1000), 0.2)
    demand[4:6, 777] = 1.1
    record = large_record(samples=samples(demand), migrations=[], decisions=[])
    figures = payload_of(render([record]))["figures"]
    assert "worker-778" in figures["heat-0"]["layout"]["yaxis"]["ticktext"]
    assert "worker-778" in [trace.get("name") for trace in figures["curves-0"]["data"]]
    assert "spread-0" in figures


def test_a_short_peak_survives_thinning() -> None:
    record = week_record()
    record.samples.demand[12_345, 3] = 1.2
    figures = payload_of(render([record]))["figures"]
    assert max(value for row in figures["heat-0"]["data"][0]["z"] for value in row) == 1.2


def test_a_missing_value_is_a_gap_and_not_a_zero() -> None:
    demand = np.full((121, 2), 0.2)
    demand[30:40, 1] = np.nan
    figures = payload_of(render([run_record(samples=samples(demand))]))["figures"]
    assert figures["heat-0"]["data"][0]["z"][1][35] is None
    assert figures["eyes-0"]["data"][0]["text"][1][35] == "no value"


def test_seeds_show_the_median_run_and_the_same_seed_of_the_other() -> None:
    runs = [
        hotspot_record(seed=s, overutilized_node_seconds=t) for s, t in ((1, 900.0), (2, 100.0), (3, 500.0))
    ]
    runs += [baseline_record(seed=s) for s in (1, 2, 3)]
    page = text_of(render(runs))
    assert "rebalancer, seed 3" in page
    assert "baseline, seed 3" in page


def test_a_failed_migration_stays_in_its_lane() -> None:
    record = run_record(migrations=[migration("a/1", "node-a", "node-b", 60.0, 120.0, outcome="Failed")])
    bar = payload_of(render([record]))["figures"]["lanes-0"]["data"][0]
    assert bar["name"] == "failed (1)"
    assert [y for y in bar["y"] if y is not None] == [0.0] * 5


def test_a_migration_tells_its_vms_whole_history() -> None:
    record = baseline_record()
    returned = record.migrations[-1]
    data = payload_of(render([record]))["figures"]["lanes-0"]["data"]
    texts = [text for trace in data for text in trace["text"] if text and returned.vm in text]
    assert any(text.count("→") >= 3 for text in texts)


# --- the waterfall ---


def bars_of(record: RunRecord) -> tuple[list[str], dict[str, list[float]]]:
    """Rows from top to bottom, and phase -> seconds of each."""
    figure = payload_of(render([record]))["figures"]["waterfall-0"]
    return figure["layout"]["yaxis"]["ticktext"], {trace["name"]: trace["x"] for trace in figure["data"]}


def phased(vm: str, created_s: float, **changes: Any) -> MigrationRecord:
    """Pending for 2 s, then scheduling 4, preparing 3 and 1, running 50."""
    entered = ((0, "Pending"), (2, "Scheduling"), (6, "PreparingTarget"), (9, "TargetReady"), (10, "Running"))
    phases = [*((created_s + after, phase) for after, phase in entered), (created_s + 60, "Succeeded")]
    return migration(vm, "node-a", "node-b", created_s, created_s + 60, phases=phases, **changes)


def test_an_eviction_is_told_from_the_request_until_the_metrics_show_it() -> None:
    move = phased("a/1", 100.0)
    followed = FollowedRecord("a/1", 97.0, move.vmim_uid, 160.0, 300.0)
    rows, bars = bars_of(run_record(migrations=[move], followed=[followed]))
    assert rows == ["a/1"]
    assert bars == {
        "requested": [3.0], "pending": [2.0], "scheduling": [4.0], "preparing": [4.0], "running": [50.0],
        "settling": [140.0],
    }  # fmt: skip
    assert list(bars) == ["requested", "pending", "scheduling", "preparing", "running", "settling"]


def test_only_the_first_attempt_was_requested_and_only_the_last_one_settles() -> None:
    failed = phased("a/1", 100.0, outcome="Failed")
    retry = phased("a/1", 200.0, attempt=2)
    followed = FollowedRecord("a/1", 97.0, retry.vmim_uid, 260.0, 400.0)
    rows, bars = bars_of(run_record(migrations=[failed, retry], followed=[followed]))
    assert rows == ["a/1 failed", "a/1"]
    assert bars["requested"] == [3.0, 0.0]
    assert bars["settling"] == [0.0, 140.0]


def test_what_still_settles_at_the_end_settles_until_then() -> None:
    move = phased("a/1", 3500.0)
    followed = FollowedRecord("a/1", 3499.0, move.vmim_uid, 3560.0)
    assert bars_of(run_record(migrations=[move], followed=[followed]))[1]["settling"] == [40.0]


def test_each_eviction_of_a_vm_has_its_own_request() -> None:
    moves = [phased("a/1", 100.0), phased("a/1", 2000.0)]
    followed = [FollowedRecord("a/1", m.created_s - 5.0, m.vmim_uid) for m in moves]
    assert bars_of(run_record(migrations=moves, followed=followed))[1]["requested"] == [5.0, 5.0]


def test_what_others_asked_for_was_not_requested_by_us() -> None:
    move = phased("a/1", 100.0, asked_by="other")
    assert (
        "requested" not in bars_of(run_record(migrations=[move], followed=[FollowedRecord("a/1", 90.0)]))[1]
    )


def test_an_unknown_phase_has_its_own_name() -> None:
    move = migration("a/1", "node-a", "node-b", 0.0, 9.0, phases=[(0.0, "Pending"), (4.0, "Synchronizing")])
    assert bars_of(run_record(migrations=[move]))[1] == {"pending": [4.0], "Synchronizing": [5.0]}


def test_of_many_evictions_the_longest_are_shown_below_the_median_of_all() -> None:
    record = many_record()
    rows, bars = bars_of(record)
    assert rows[0] == "median of 200"
    assert len(rows) == MAX_ROWS + 1
    took = sorted((m.ended_s or 0.0) - m.created_s for m in record.migrations)
    moving = [sum(seconds) - 1.0 for seconds in zip(*(bars[p] for p in bars if p != "settling"), strict=True)]
    assert min(moving[1:]) == pytest.approx(took[-MAX_ROWS], abs=0.1)


def test_a_run_of_the_rebalancer_knows_requests_and_settling() -> None:
    asked = load_scenario("hotspot")
    record = run(Run(msgspec.structs.replace(asked, minutes=16), 1, policy_for(asked), "")).record
    _, bars = bars_of(record)
    assert max(bars["requested"]) > 0
    assert all(seconds < 5 for seconds in bars["requested"])
    assert max(bars["settling"]) > 60


# --- why nothing moved ---


def test_a_run_in_which_nothing_was_over_utilised_says_so() -> None:
    assert "No node was judged to be over-utilised, so no VM was considered." in text_of(
        render([run_record()])
    )


def test_a_program_that_gives_no_reasons_is_not_said_to_have_had_none() -> None:
    classes = np.full((121, 2), OVER)
    record = run_record(samples=samples(np.full((121, 2), 0.9), node_class=classes))
    assert "No reasons were recorded." in text_of(render([record]))


def test_plots_without_anything_to_show_are_left_out() -> None:
    figures = payload_of(render([run_record()]))["figures"]
    assert set(figures) == {"heat-0", "flight-0", "curves-0", "eyes-0"}


def test_the_verdict_says_what_people_fear_first() -> None:
    facts = facts_of([baseline_record()])
    assert facts[0] == "2 VMs shut down"
    assert facts[-1] == "2 repeated, 2 undone"
    assert facts_of([hotspot_record()])[0] == "no VM shut down"


def test_the_verdict_of_an_idle_run_praises_doing_nothing() -> None:
    assert facts_of([run_record()]) == ["no VM shut down", "no node ever over 80 %", "nothing moved"]


def test_the_verdict_admits_that_balance_was_not_reached() -> None:
    hopeless = run_record(over_intervals={"node-a": [(0.0, 3600.0)]}, overutilized_node_seconds=3600.0)
    assert "still over-utilised at the end" in facts_of([hopeless])
    seeds = [hopeless, run_record(seed=2)]
    assert "still over-utilised at the end with 1 of 2 seeds" in facts_of(seeds)


@pytest.mark.parametrize(
    ("code", "said"),
    [("NoUsefulMove", "no useful move"), ("node_limit", "node limit"), ("NoPSIMetrics", "no PSI metrics")],
)
def test_reason_codes_are_told_as_words(code: str, said: str) -> None:
    assert f">{said}<" in render([run_record(why_not={code: WhyNot(3, "node-a: an example")})])


def test_an_unwritable_path_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.html"
    with pytest.raises(ReportError) as caught:
        write_report(path, [run_record()])
    assert str(caught.value) == f"cannot write the report to {path}: No such file or directory"


def test_a_written_report_is_the_rendered_one(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", [run_record()])
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render([run_record()])


def test_a_report_needs_a_run() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        render([])


def test_a_record_survives_the_way_from_a_worker_process() -> None:
    record = hotspot_record()
    assert render([pickle.loads(pickle.dumps(record))]) == render([record])  # noqa: S301


def test_samples_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"samples\.demand: shape \(3, 1\), needs \(3, 2\)"):
        samples(np.zeros((3, 1)), utilization=np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("end_s", "said"), [(3600.0, "60.0 min"), (86_400.0, "1.0 h"), (7 * 86_400.0, "Mon 01:00")]
)
def test_times_are_told_in_the_unit_of_the_run(end_s: float, said: str) -> None:
    assert TimeAxis(end_s).say(3600.0) == said


def test_long_names_keep_both_ends() -> None:
    assert shorten("worker-07") == "worker-07"
    assert shorten("worker-eu-central-1a-0042", 12) == "worke…1a-0042"[:6] + "a-0042"
