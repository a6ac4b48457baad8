"""Random scenarios: small clusters with every load, happening, trouble and policy there is, in any mixture.

Node-00 is crowded in each of them, and what is odd is the exception: otherwise nothing would ever move.
"""

from typing import Any

from hypothesis import strategies as st

Drawn = st.SearchStrategy[dict[str, Any]]


def ranged(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda x: round(x, 2))


def optional(name: str, values: st.SearchStrategy[Any]) -> Drawn:
    """Absent in two of three cases."""
    return st.one_of(st.just({}), st.just({}), values.map(lambda value: {name: value}))


@st.composite
def merged(draw: st.DrawFn, *parts: Drawn) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for part in parts:
        answer |= draw(part)
    return answer


NODES = merged(
    st.fixed_dictionaries(
        {"count": st.integers(3, 6), "cores": st.sampled_from([16, 32]), "memory_gib": st.just(1024)}
    ),
    optional("zones", st.just(["a", "b"])),
    optional("nic_gbit_per_s", st.sampled_from([1, 25])),
    optional("other_cpu_cores", ranged(0, 4)),
    optional("other_memory_gib", st.just(600)),
)
BIG_NODES = merged(
    st.fixed_dictionaries({"count": st.integers(1, 2), "cores": st.just(64), "memory_gib": st.just(2048)}),
    optional("taints", st.just([{"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}])),
)
PLACEMENTS = st.sampled_from([["node-00"], ["node-00", "node-01"], {"node-02": 1}, "scheduler"])
VM_GROUP = merged(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 12),
            "vcpus": st.sampled_from([1, 2, 4, 8]),
            "memory_gib": st.sampled_from([2, 8, 16, 48]),
            "dirty_mb_per_s": st.sampled_from([5, 50, [20, 600]]),
        }
    ),
    optional("eviction_strategy", st.sampled_from(["LiveMigrateIfPossible", "None", "External", None])),
    optional("migratable", st.booleans()),
    optional("opted_out", st.just(True)),
    optional("hotplug", st.just(True)),
    optional("priority", st.integers(-10, 10)),
    optional("age_minutes", st.sampled_from([1, 4, 100])),
    st.one_of(
        optional("placement", PLACEMENTS),
        optional("anti_affine_sets_of", st.just(2)),
        optional("pinned", st.just(True)),
    ),
    optional("demand", ranged(0, 1)),
    optional("touched", ranged(0, 1)),
)
HOT_GROUP = st.fixed_dictionaries(
    {
        "count": st.integers(6, 12),
        "vcpus": st.sampled_from([4, 8]),
        "memory_gib": st.just(8),
        "demand": ranged(0.6, 1),
        "placement": st.just(["node-00"]),
    }
)
SOME_VMS = st.sampled_from(
    [
        {},
        {"nodes": {"hottest": 1}},
        {"nodes": {"fullest": 1}},
        {"nodes": {"random": 1}},
        {"nodes": ["node-01"]},
        {"groups": ["a"]},
        {"count": 4},
        {"fraction": 0.5},
    ]
)
HOTSPOT = merged(
    st.fixed_dictionaries({"vms": SOME_VMS, "start_minute": st.integers(0, 10)}),
    st.one_of(
        st.fixed_dictionaries({"every_minutes": st.integers(6, 9), "for_minutes": st.integers(2, 5)}),
        optional("end_minute", st.integers(11, 20)),
    ),
    st.one_of(
        st.fixed_dictionaries({"demand": ranged(0.5, 1)}),
        st.fixed_dictionaries({"factor": ranged(0.3, 3)}),
        st.fixed_dictionaries({"touched": ranged(0.5, 1)}),
    ),
)
LOAD = merged(
    st.fixed_dictionaries({"demand": ranged(0.1, 0.8), "touched": ranged(0.1, 0.9)}),
    optional(
        "constant", st.lists(st.fixed_dictionaries({"vms": SOME_VMS, "demand": ranged(0, 1)}), max_size=1)
    ),
    optional("daily", st.just([{"vms": {"groups": ["b"]}, "demand": {0: 0.1, 0.3: 0.9}}])),
    optional("hotspots", st.lists(HOTSPOT, min_size=1, max_size=3)),
    optional("noise", st.sampled_from([[{"std": 0.1}], [{"vms": {"groups": ["a"]}, "std": 0.3, "sets": 1}]])),
    optional("spikes", st.just([{"per_minute": 3}])),
)
IMMOVABLE = st.lists(
    st.fixed_dictionaries(
        {
            "vms": st.sampled_from([{"fraction": 0.3}, {"groups": ["hot"], "fraction": 0.5}]),
            "ways": st.lists(
                st.sampled_from(
                    [
                        "not-migratable",
                        "not-migratable-if-possible",
                        "strategy-none",
                        "pinned",
                        "opted-out",
                    ]
                ),
                min_size=1,
                unique=True,
            ),
        }
    ),
    max_size=1,
)
KUBEVIRT = merged(
    optional("webhook", st.just("older")),
    optional("webhook_down", st.just(True)),
    optional("annotation", st.just("older")),
    optional("cluster_eviction_strategy", st.sampled_from(["LiveMigrate", "LiveMigrateIfPossible", "None"])),
    optional("parallel_migrations_per_cluster", st.integers(1, 5)),
    optional("parallel_outbound_migrations_per_node", st.integers(1, 3)),
    optional("bandwidth_per_migration_bytes_per_s", st.sampled_from([5e7, 5e8])),
    optional("completion_timeout_per_gib_s", st.sampled_from([3, 30])),
    optional("progress_timeout_s", st.just(20)),
    optional("failure_probability", ranged(0, 0.7)),
    optional("stuck_probability", ranged(0, 0.3)),
    optional("failed_target_stays_probability", st.just(1)),
    optional("slow_factor", st.just(10)),
    optional("throttle_probability", ranged(0, 0.5)),
    optional("reaction_s", st.just([0.5, 5])),
    optional("pod_scheduling_s", st.just([1, 60])),
    optional("restart_s", st.just([5, 10])),
)
SOME_NODES = st.sampled_from([["node-00"], ["node-01"], ["node-01", "node-02"]])
SPANS = st.fixed_dictionaries({"start_minute": st.integers(1, 9), "for_minutes": st.integers(1, 7)})
INSTANTS = st.fixed_dictionaries({"at_minute": st.integers(1, 14)})
AGAIN = st.fixed_dictionaries({"start_minute": st.integers(0, 4), "every_minutes": st.integers(1, 4)})


def happening(kind: str, *parts: Drawn, **fixed: st.SearchStrategy[Any]) -> Drawn:
    return merged(st.just({"kind": kind}), st.fixed_dictionaries(dict(fixed)), *parts)


STALLED = merged(
    st.fixed_dictionaries({"start_minute": ranged(0.5, 12), "for_minutes": ranged(0.1, 6)}),
    optional("resources", st.sampled_from([["vmis"], ["vmims"], ["nodes"], ["launchers", "vmis"]])),
    optional("listed_anew", st.just(True)),
)
RESTART = merged(
    st.fixed_dictionaries({"start_minute": ranged(0.5, 6), "every_minutes": ranged(0.5, 7)}),
    optional("program", st.just("soft-tainter")),
    optional("away_seconds", st.sampled_from([0, 1, 90])),
)
API = merged(
    optional("answer_seconds", st.sampled_from([0.5, [0, 3], [0, 20], 40])),
    optional("lost_request_probability", ranged(0, 0.5)),
    optional("lost_answer_probability", ranged(0, 0.5)),
)
HAPPENING = st.one_of(
    happening("stalled-watches", STALLED),
    happening("restart", RESTART),
    happening("policy", INSTANTS, policy=st.deferred(lambda: POLICY)),
    happening("migrate", AGAIN, vms=st.sampled_from([{"count": 1}, {"groups": ["hot"], "count": 2}])),
    happening("abort", AGAIN, way=st.sampled_from(["delete-migration", "evacuate-cancel"])),
    happening("backup", SPANS, vms=st.sampled_from([{"count": 3}, {"groups": ["hot"]}])),
    happening("webhook-down", SPANS),
    happening("cordon", SPANS, nodes=SOME_NODES),
    happening("not-ready", SPANS, nodes=SOME_NODES),
    happening("lose-nodes", SPANS, nodes=SOME_NODES),
    happening("remove-nodes", INSTANTS, nodes=SOME_NODES),
    happening("drain", INSTANTS, nodes=SOME_NODES, reboot_minutes=st.integers(0, 3)),
    happening("join-nodes", INSTANTS, group=st.just("node"), count=st.integers(1, 2)),
    happening("stop-vms", INSTANTS, vms=st.sampled_from([{"count": 2}, {"groups": ["hot"], "count": 1}])),
    happening("start-vms", INSTANTS, group=st.just("a"), count=st.integers(1, 3)),
    happening("churn", group=st.just("a"), starts_per_minute=ranged(0, 1), stops_per_minute=ranged(0, 1)),
)
TROUBLE = merged(
    st.sampled_from(
        [
            *(
                {"kind": kind}
                for kind in ("missing", "nan", "infinite", "stale", "partial", "outage", "late")
            ),
            {"kind": "out-of-range", "value": 87},
            {"kind": "out-of-range", "value": 1.03},
            {"kind": "duplicate", "factor": 1.5},
            {"kind": "relabel", "to": "ip:port"},
            {"kind": "relabel", "to": "fqdn"},
            {"kind": "relabel", "to": "host:port"},
        ]
    ),
    st.fixed_dictionaries(
        {
            "start_minute": st.integers(0, 12),
            "every_minutes": st.integers(5, 8),
            "for_minutes": st.integers(1, 4),
            "probability": ranged(0.1, 1),
        }
    ),
    optional("nodes", st.sampled_from([["node-00"], ["node-0[1-3]"]])),
    optional("series", st.sampled_from([["*vmi*"], ["*:score"], ["*memory*"]])),
)
EVICTIONS = merged(
    st.one_of(
        optional("limits", st.sampled_from([{"node": n, "total": t} for n, t in ((2, 3), (1, 1), (5, 9))])),
        optional("multiEvictions", st.sampled_from(["Modest", "Rapid"])),
    ),
    optional("order", st.just("LowestPriority")),
    optional("minVmAge", st.sampled_from(["0s", "1m"])),
    optional("minGain", st.sampled_from([0.0, 0.05])),
    optional("settle", st.sampled_from(["30s", "5m"])),
    optional("acknowledgeTimeout", st.just("20s")),
    optional("migrationTimeout", st.just("2m")),
    optional("cooldown", st.just({"base": "1m", "max": "4m", "window": "1h"})),
    optional("breaker", st.just({"failures": 2, "within": "5m", "rest": "5m"})),
    optional("priorityThreshold", st.integers(-5, 5)),
)
PROFILES = st.sampled_from(
    ["PrometheusCPUUsage", "PrometheusCPUPSIPressure", "PrometheusMemoryPSIPressure", "PrometheusCPUCombined"]
)
METRICS = merged(
    optional("actualUtilizationProfile", PROFILES),
    st.sampled_from([{}, {}, {"refreshInterval": "10s"}, {"refreshInterval": "2m"}, {"maxAge": "1m"}]),
    optional("minCoverage", st.sampled_from([0.0, 1.0])),
)
THRESHOLDS = merged(
    st.sampled_from([{}, {"utilizationThresholds": "Low"}, {"deviationThresholds": "Medium"}]),
    optional("sustain", st.integers(1, 3)),
    optional("floor", st.just({"cpu": 0.1, "memory": 0.1, "pressure": 0.01})),
)
SOFT_TAINTS = st.sampled_from([{"scheme": "Single"}, {"scheme": "Graded"}, {"mode": "CleanupOnly"}])
POLICY: Drawn = merged(
    st.sampled_from([{}] * 7 + [{"mode": "Predictive"}]),
    optional("metrics", METRICS),
    optional("thresholds", THRESHOLDS),
    optional("evictions", EVICTIONS),
    optional("softTaints", SOFT_TAINTS),
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario document. Its VMs may be too many for its nodes."""
    big = draw(optional("big", BIG_NODES))
    happenings = st.lists(HAPPENING, max_size=4, unique_by=lambda one: one["kind"])
    return {
        "description": "drawn at random",
        "minutes": draw(st.sampled_from([12, 25])),
        "nodes": {"node": draw(NODES)} | big,
        "vms": {"hot": draw(HOT_GROUP)} | {name: draw(VM_GROUP) for name in ("a", "b", "c")},
        "immovable": draw(IMMOVABLE),
        "load": draw(LOAD),
        "kubevirt": draw(KUBEVIRT),
        "api": draw(API),
        "happenings": draw(happenings),
        "troubles": draw(st.lists(TROUBLE, max_size=3)),
        "policy": draw(POLICY),
    }
