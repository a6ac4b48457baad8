"""The page of metrics that a running program serves."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from controller.runtime import run_descheduler, run_soft_tainter
from controller.telemetry.meter import Meter
from controller.telemetry.names import COLLECTED, Metrics
from informers.testing import ManualClock
from tests.builders import START
from tests.controller.decision_builders import classification, verdict
from tests.controller.running_programs import InThread, Start, config, options
from tests.simulator.apiserver.builders import DESCHEDULER, PODS, eviction
from tests.simulator.apiserver.harness import Connected, Served, until
from tests.simulator.promtool import promtool

DOMAIN = "kubevirt.io/domain"

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.parametrize("program", [run_descheduler, run_soft_tainter])
def test_the_page_has_all_there_is_to_show_and_is_as_prometheus_wants_it(
    tmp_path: Path, served: Served, start: Start, policy: Path, program: Any
) -> None:
    running = start(options(config(tmp_path), policy, leader_elect=True), program)
    until(lambda: running.metric("refresh_duration_seconds_count") > 0)
    page = running.page()
    assert running.stop() == 0
    done = subprocess.run(  # noqa: S603
        [promtool(), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    # What the client library itself shows (``process_…``, ``python_…``) is not ours to name.
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("python_gc_")]
    assert (complaints, done.stdout) == ([], "")
    shown = {family.name for family in text_string_to_metric_families(page)}
    families = Metrics(CollectorRegistry(), evicts=program is run_descheduler).families
    listed = {family.name.removesuffix("_total") for family in families}
    ours = {name for name in shown if name.startswith(("vm_rebalancer_", "descheduler_"))}
    assert {name for name in ours if not name.endswith("_created")} == listed


def test_what_evicts_nothing_claims_nothing_about_evictions() -> None:
    """Its zeros would be taken for the descheduler's."""
    tainter, whole = (Metrics(CollectorRegistry(), evicts=evicts) for evicts in (False, True))
    less = {family.name for family in whole.families} - {family.name for family in tainter.families}
    assert {"vm_rebalancer_evictions_total", "vm_rebalancer_shutdown_alarm"} < less
    assert {name for name in less if name.startswith("descheduler_")} == {
        family.name for family in whole.families if family.name.startswith("descheduler_")
    }
    shown = {family.name for family in tainter.registry.collect()}
    assert shown == {family.name.removesuffix("_total") for family in tainter.families} - {
        family.name.removesuffix("_total") for family in COLLECTED
    }
    Meter(tainter, ManualClock(START)).classified(classification(verdict("node-1")))


def test_requests_informers_queues_and_the_lease_are_measured(
    tmp_path: Path, served: Served, start: Start, policy: Path
) -> None:
    running = start(options(config(tmp_path), policy, leader_elect=True), run_descheduler)
    until(lambda: running.metric("refresh_duration_seconds_count") > 0)
    samples = found(running)
    assert running.stop() == 0
    assert samples[("api_requests_total", ("watch", "nodes", "200"))] >= 1
    assert samples[("api_requests_total", ("create", "leases", "201"))] == 1
    assert samples[("informer_lists_total", ("vmis",))] >= 1
    assert samples[("workqueue_adds_total", ("decisions",))] >= 1
    assert samples[("workqueue_queue_duration_seconds_count", ("policy",))] >= 1
    assert samples[("is_leader", ())] == 1


def test_evictions_by_another_descheduler_are_noticed_and_drains_are_none(
    tmp_path: Path, served: Served, admin: Connected, start: Start, policy: Path
) -> None:
    running = start(options(config(tmp_path), policy), run_descheduler)
    # Once it has classified it has read the ledger off the cluster, too.
    until(lambda: running.metric("metrics_coverage_ratio") == 0)
    evict(admin, "web-001", requested_by="")
    evict(admin, "web-000", requested_by=DESCHEDULER)
    until(lambda: running.metric("foreign_descheduler_marks_total") == 1)
    served.pass_time(2)
    until(lambda: running.metric("migrations_in_flight") == 2)
    assert running.metric("foreign_descheduler_marks_total") == 1
    assert running.stop() == 0


def evict(admin: Connected, vmi: str, *, requested_by: str) -> None:
    pods = admin.get(PODS)["items"]
    (name,) = (p["metadata"]["name"] for p in pods if p["metadata"].get("annotations", {}).get(DOMAIN) == vmi)
    answer = admin.ask("POST", f"{PODS}/{name}/eviction", eviction(name, requested_by=requested_by))
    assert "triggered evacuation" in answer.body["message"]


def found(running: InThread) -> dict[tuple[str, tuple[str, ...]], float]:
    """Name and values of labels, in a fixed order, -> value."""
    order = ("verb", "resource", "code", "queue")
    return {
        (
            sample.name.removeprefix("vm_rebalancer_"),
            tuple(sample.labels[label] for label in order if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(running.page())
        for sample in family.samples
    }
