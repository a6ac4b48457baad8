"""Each alert fires when it must, and nothing fires while all is well or makes up for itself.

`promtool test rules` runs the rendered rules; a case lists everything that fires, so no alert comes along uninvited.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.policy.presets import QUERIES
from tests.charts.alerts import (
    LONG,
    NEVER,
    Series,
    alert_names,
    firing,
    rendered_alerts,
    series,
    until_then,
)


def healthy() -> dict[str, str]:
    """Two replicas of each program; the first one leads. The policy acts, and every node has every metric."""
    found: dict[str, str] = {}
    for program in ("descheduler", "soft-tainter"):
        for pod, leads in ((0, True), (1, False)):
            found |= {
                series("is_leader", program, pod): f"{int(leads)}x{LONG}",
                series("policy_valid", program, pod): f"1x{LONG}",
                series("policy_info", program, pod, mode="Automatic", digest="d"): f"1x{LONG}",
                series("metrics_age_seconds", program, pod): f"25x{LONG}" if leads else NEVER,
                series("handler_errors_total", program, pod): f"0x{LONG}",
                series("informer_last_contact_seconds", program, pod, resource="nodes"): f"60x{LONG}",
                series("lease_transitions_total", program, pod): f"17x{LONG}",
                requests("200", program, pod): f"0+1x{LONG}",
            }
    return found | balanced_cluster()


def balanced_cluster() -> dict[str, str]:
    return {
        series("shutdown_alarm"): f"0x{LONG}",
        series("migrations_in_flight", phase="Running"): f"2x{LONG}",
        series("migrations_in_flight", phase="Retrying"): f"0x{LONG}",
        series("evictions_total", result="Triggered"): f"0+1x{LONG}",
        series("node_class", node="worker-1"): f"2x{LONG}",
        series("nodes", **{"class": "over"}): f"1x{LONG}",
        series("foreign_descheduler_marks_total"): f"0x{LONG}",
        MOVED: f"0x{LONG}",
        MISPLACED: f"0.3x{LONG}",
        **{recorded(name, node): f"0x{LONG}" for name in EVERY_NODE_HAS for node in WORKERS},
    }


def requests(code: str, program: str = "descheduler", pod: int = 0, **what: str) -> str:
    return series(
        "api_requests_total", program, pod, **{"code": code, "verb": "watch", "resource": "nodes", **what}
    )


def recorded(name: str, node: str) -> str:
    """Of the recording rules."""
    return f'vm_rebalancer:{name}{{instance="{node}"}}'


WORKERS = ("worker-1", "worker-2", "worker-3")
UTILISATION, PRESSURE = "node_cpu_utilization:avg1m", "node_cpu_pressure:rate1m"
EVERY_NODE_HAS = ("worker:info", UTILISATION, PRESSURE)
MOVED = series("load_moved_nodes_total", resource="cpu")
MISPLACED = series("load_misplaced_nodes", resource="cpu")


def moving(moved_a_step: float, misplaced: str) -> Series:
    """Steps are of 30 s: 0.01 moved a step is 1.2 nodes' worth an hour."""
    return {MOVED: f"0+{moved_a_step}x{LONG}", MISPLACED: misplaced}


FIRING: dict[str, tuple[Series, set[str]]] = {
    "all is well": ({}, set()),
    "an eviction took a VM down": ({series("shutdown_alarm"): until_then("1", 1)}, {"ShutdownAlarm"}),
    "no descheduler leads": ({series("is_leader"): until_then("0", 6, "1")}, {"NoLeader"}),
    "no soft-tainter leads": ({series("is_leader", "soft-tainter"): until_then("0", 6, "1")}, {"NoLeader"}),
    "the leader is not there any more": (
        {
            series(name): until_then("_", 12, value)
            for name, value in (("is_leader", "1"), ("metrics_age_seconds", "25"))
        },
        {"NoLeader"},
    ),
    "the lead has passed over": (
        {
            series("is_leader"): until_then("0", 60, "1"),
            series("is_leader", pod=1): until_then("1", 59),
            series("metrics_age_seconds", pod=1): NEVER[: 4 * (LONG - 118)] + "25x118",
        },
        set(),
    ),
    "there never was a policy": (
        {series("policy_valid", pod=pod): f"0x{LONG}" for pod in (0, 1)},
        {"PolicyInvalid"},
    ),
    "the policy has a fault": (
        {series("policy_valid", "soft-tainter"): until_then("0", 3, "1")},
        {"PolicyInvalid"},
    ),
    "the policy had a fault for a minute": ({series("policy_valid"): until_then("0", 1, "1")}, set()),
    "there never were metrics": ({series("metrics_age_seconds"): NEVER}, {"MetricsMissing"}),
    "metrics went away": ({series("metrics_age_seconds"): until_then("181+30", 6, "25")}, {"MetricsMissing"}),
    "metrics are old but not too old": ({series("metrics_age_seconds"): until_then("179", 60, "25")}, set()),
    "Prometheus was away for a few minutes": (
        {series("metrics_age_seconds"): until_then("300", 4, "25")},
        set(),
    ),
    "a migration is stuck": (
        {series("migrations_in_flight", phase="Stuck"): until_then("1", 6)},
        {"MigrationStuck"},
    ),
    "a migration was stuck and ended": (
        {series("migrations_in_flight", phase="Stuck"): until_then("1", 4)},
        set(),
    ),
    "migrations fail again and again": (
        {series("migrations_in_flight", phase="Retrying"): until_then("1", 60)},
        {"MigrationsFailing"},
    ),
    "one VM waits for an attempt now and then": (
        {series("migrations_in_flight", phase="Retrying"): "0 0 0 1 0 0 " * (LONG // 6)},
        set(),
    ),
    "evictions are forbidden": (
        {series("evictions_total", result="Forbidden"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "dry runs are forbidden": (
        {series("eviction_dry_runs_total", result="Forbidden"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "KubeVirt's webhook is down": (
        {series("evictions_total", result="WebhookDown"): until_then("0+1", 5)},
        {"EvictionsFailing"},
    ),
    "one eviction was never answered": (
        {series("evictions_total", result="NoAnswer"): until_then("1", 5)},
        set(),
    ),
    "VMs refuse": ({series("evictions_total", result="NotMigratable"): f"0+1x{LONG}"}, set()),
    "the API server throttles": ({series("evictions_total", result="Throttled"): f"0+1x{LONG}"}, set()),
    "one key fails once a minute": (
        {series("handler_errors_total"): until_then("0+0.5", 60)},
        {"HandlerErrors"},
    ),
    "requests are refused": (
        {requests("200"): until_then("0", 60, "0+1"), requests("403"): until_then("0+0.5", 60)},
        {"ApiErrors"},
    ),
    "requests get no answer": (
        {requests("200"): until_then("0", 60, "0+1"), requests("none"): until_then("0+0.5", 60)},
        {"ApiErrors"},
    ),
    "one resource is refused while others are fine": (
        {requests("403", resource="virtualmachineinstances"): f"0+0.5x{LONG}"},
        {"ApiErrors"},
    ),
    "the API server was away for five minutes": (
        {
            requests("200"): f"0+1x{LONG - 20} {LONG - 20}x10 {LONG - 20}+1x10",
            requests("none"): f"0x{LONG - 20} 0+1x10 10x10",
        },
        set(),
    ),
    "some requests fail": ({requests("503"): f"0+0.3x{LONG}"}, set()),
    "evictions are refused by KubeVirt, as they are when they succeed": (
        {requests("429", resource="pods/eviction"): f"0+1x{LONG}"},
        set(),
    ),
    "watches expire": ({requests("410"): f"0+1x{LONG}"}, set()),
    "nodes change while they are patched, says the API": (
        {requests("422", "soft-tainter", verb="patch"): f"0+1x{LONG}"},
        set(),
    ),
    "nodes change while they are patched": (
        {series("handler_errors_total", "soft-tainter"): f"0+0.1x{LONG}"},
        set(),
    ),
    "a watch is dead": (
        {series("informer_last_contact_seconds", pod=1, resource="vmis"): until_then("0+30", 14, "60")},
        {"ApiSilent"},
    ),
    "a watch is quiet": ({series("informer_last_contact_seconds", resource="vmis"): f"255x{LONG}"}, set()),
    "a node has no value": (
        {series("node_class", node="worker-2"): until_then("-1", 40, "1")},
        {"NodeUnknown"},
    ),
    "a node had no value for a while": (
        {series("node_class", node="worker-2"): until_then("-1", 20, "1")},
        set(),
    ),
    "a node is new": ({series("node_class", node="worker-2"): until_then("0", 5, "_")}, set()),
    "load comes back as fast as it is moved": (moving(0.01, f"1.5x{LONG}"), {"NotConverging"}),
    "load comes back and swings": (moving(0.01, "1.5 1.6 1.45 1.55 " * (LONG // 4)), {"NotConverging"}),
    "load grows faster than it is moved": (moving(0.01, f"1+0.01x{LONG}"), {"NotConverging"}),
    "memory comes back, and CPU is even": (
        {
            series("load_moved_nodes_total", resource="memory"): f"0+0.01x{LONG}",
            series("load_misplaced_nodes", resource="memory"): f"1.5x{LONG}",
        },
        {"NotConverging"},
    ),
    "a long hot phase that gets better": (moving(0.01, f"4-0.01x{LONG}"), set()),
    "a long hot phase that gets better with noise": (
        moving(0.01, " ".join(f"{4 - 0.01 * n + 0.1 * (n % 3):.2f}" for n in range(LONG))),
        set(),
    ),
    "a large cluster that gets better slowly": (moving(0.005, f"40-0.005x{LONG}"), set()),
    "a large cluster that gets better slowly with noise": (
        moving(0.01, " ".join(f"{40 - 0.01 * n + 2 * (n % 2):.2f}" for n in range(LONG))),
        set(),
    ),
    "a wave of load in the last half hour": (
        {MOVED: until_then("0+0.01", 30), MISPLACED: until_then("2", 30, "0.2")},
        set(),
    ),
    "a wave of load, and then it gets better": (
        {MOVED: until_then("0+0.01", 90), MISPLACED: until_then("2-0.01", 90, "0.2")},
        set(),
    ),
    "nothing moves where nothing helps": (moving(0.0, f"5x{LONG}"), set()),
    "one node alone is as even as can be": (moving(0.0, f"0x{LONG}"), set()),
    "moves at night, and since then no node is over-utilised": (
        {**moving(0.01, f"1.5x{LONG}"), series("nodes", **{"class": "over"}): until_then("0", 90, "1")},
        set(),
    ),
    "another descheduler evicts": (
        {series("foreign_descheduler_marks_total"): until_then("1+1", 20)},
        {"OtherDescheduler"},
    ),
    "one VM was evicted in a descheduler's name by hand": (
        {series("foreign_descheduler_marks_total"): until_then("1", 20)},
        set(),
    ),
    "another descheduler evicted yesterday": (
        {series("foreign_descheduler_marks_total"): f"40x{LONG}"},
        set(),
    ),
    "the lease goes to and fro": (
        {series("lease_transitions_total", pod=1): until_then("17+0.2", 30, "17")},
        {"LeaderFlapping"},
    ),
    "an update of the Deployment": (
        {series("lease_transitions_total", pod=1): until_then("19", 30, "17")},
        set(),
    ),
    "some workers were booted without psi=1": (
        {recorded(PRESSURE, "worker-3"): until_then("_", 60)},
        {"PsiOff"},
    ),
    "a worker boots": ({recorded(PRESSURE, "worker-3"): until_then("_", 20)}, set()),
    "no worker has PSI": ({recorded(PRESSURE, node): f"_x{LONG}" for node in WORKERS}, set()),
    "control plane nodes have no PSI": (
        {recorded(UTILISATION, "control-plane-1"): f"0x{LONG}"},
        set(),
    ),
}


@pytest.mark.parametrize("case", FIRING)
def test_fires_exactly(case: str, tmp_path: Path) -> None:
    changed, expected = FIRING[case]
    firing(tmp_path, rendered_alerts(), {**healthy(), **changed}, expected)


def test_every_alert_has_cases_in_which_it_fires() -> None:
    """And each has cases in which it does not: all those of the others."""
    assert set().union(*(expected for _, expected in FIRING.values())) == alert_names()


# --- valid ways to run it, in which nothing may fire ---


def without(given: Mapping[str, str], *parts: str) -> dict[str, str]:
    """Series that nobody writes are not there."""
    return {name: values for name, values in given.items() if not any(part in name for part in parts)}


def predictive() -> dict[str, str]:
    """Nothing is evicted, and nobody is marked by us; another descheduler may be at work to compare with."""
    quiet = without(healthy(), "policy_info", "evictions_total", "in_flight")
    marks = {series("foreign_descheduler_marks_total"): f"0+1x{LONG}"}
    return quiet | marks | {series("policy_info", mode="Predictive", digest="d"): f"1x{LONG}"}


def one_replica() -> dict[str, str]:
    return without(healthy(), "descheduler-1", "soft-tainter-1")


def without_leader_election() -> dict[str, str]:
    """The only replica may always write, and there is no lease."""
    return without(one_replica(), "lease_transitions")


def without_vm_metrics() -> dict[str, str]:
    """Loads are not known: neither imbalance nor what was moved."""
    return without(healthy(), "load_misplaced", "load_moved")


def without_recording_rules() -> dict[str, str]:
    return without(healthy(), "vm_rebalancer:")


VALID = {
    "Predictive": predictive,
    "one replica": one_replica,
    "no leader election": without_leader_election,
    "no metrics of loads": without_vm_metrics,
    "own queries without our recording rules": without_recording_rules,
}


@pytest.mark.parametrize("way", VALID)
def test_a_valid_installation_raises_no_alert(way: str, tmp_path: Path) -> None:
    firing(tmp_path, rendered_alerts(), VALID[way](), set())


def test_a_policy_that_asks_seldom_raises_no_alert(tmp_path: Path) -> None:
    """`maxAge` of the policy is what counts, not a number of the chart's."""
    rules = rendered_alerts(policy={"metrics": {"refreshInterval": "30m", "maxAge": "1h30m"}})
    ages = {
        series("metrics_age_seconds", program): until_then("5300", 60, "25")
        for program in ("descheduler", "soft-tainter")
    }
    firing(tmp_path, rules, {**healthy(), **ages}, set())
    ages = {series("metrics_age_seconds"): until_then("5401", 60, "25")}
    firing(tmp_path, rules, {**healthy(), **ages}, {"MetricsMissing"})


def test_without_soft_tainter_nobody_misses_it(tmp_path: Path) -> None:
    given = without(healthy(), "soft-tainter")
    firing(tmp_path, rendered_alerts(softTainter={"enabled": False}), given, set())
    firing(tmp_path, rendered_alerts(), given, {"NoLeader"})


def test_another_release_s_metrics_raise_no_alert(tmp_path: Path) -> None:
    elsewhere = {series("shutdown_alarm", namespace="elsewhere"): f"1x{LONG}"}
    firing(tmp_path, rendered_alerts(), {**healthy(), **elsewhere}, set())


@pytest.mark.parametrize("profile", QUERIES)
def test_who_reads_no_pressure_misses_none(profile: str, tmp_path: Path) -> None:
    """Utilisation alone is a valid policy on nodes of which some have PSI."""
    rules = rendered_alerts(policy={"metrics": {"actualUtilizationProfile": profile}})
    some = {**healthy(), recorded(PRESSURE, "worker-3"): until_then("_", 60)}
    firing(tmp_path, rules, some, set() if profile == "PrometheusCPUUsage" else {"PsiOff"})


def test_own_queries_say_themselves_whether_they_read_pressure(tmp_path: Path) -> None:
    some = {**healthy(), recorded(PRESSURE, "worker-3"): until_then("_", 60)}
    for expression, expected in (("my:load", set[str]()), ("avg(node_pressure_io)", {"PsiOff"})):
        queries = [{"name": "mine", "query": expression, "window": "1m"}]
        firing(tmp_path, rendered_alerts(policy={"metrics": {"queries": queries}}), some, expected)
