"""Clusters on which the programs have to do all they can do: one without trouble, and one with all kinds of it."""

from typing import Any

import yaml

from simulator.scenario.loading import parse_scenario
from simulator.scenario.schema import Scenario

TIGHT = "node-03"
"""Crowded for good, since its VMs may run nowhere else: it carries our taints to the end."""
FOREIGN = {"key": "example.com/theirs", "value": "here", "effect": "PreferNoSchedule"}

# What the world's truth calls crowded is what the policy calls over-utilised.
_THRESHOLDS: dict[str, Any] = {
    "metrics": {"actualUtilizationProfile": "PrometheusCPUUsage"},
    "thresholds": {"utilizationThresholds": {"under": 0.4, "over": 0.75}},
}

_SMOOTH: dict[str, Any] = {
    "name": "smooth",
    "description": "Half of the VMs on one node have to go. Then those on one of the others want more.",
    "minutes": 28,
    "nodes": {"node": {"count": 4, "cores": 16, "memory_gib": 256, "taints": [FOREIGN]}},
    "vms": {
        "busy": {"count": 9, "vcpus": 4, "memory_gib": 4, "placement": ["node-00"]},
        "fixed": {
            "count": 5,
            "vcpus": 4,
            "memory_gib": 16,
            "demand": 0.75,
            "placement": [TIGHT],
            "pinned": True,
        },
        "calm": {
            "count": 2,
            "vcpus": 4,
            "memory_gib": 32,
            "demand": 0.75,
            "placement": ["node-01", "node-02"],
            "pinned": True,
        },
    },
    "load": {
        "constant": [{"vms": {"groups": ["busy"]}, "demand": 0.5}],
        # All that has come to node-01 and node-02: who has forgotten that moves it again at once.
        "hotspots": [{"vms": {"groups": ["busy"], "nodes": {"fullest": 3}}, "start_minute": 6, "demand": 1}],
    },
    "policy": {**_THRESHOLDS, "evictions": {"limits": {"node": 1, "total": 2}}},
}

_ROUGH: dict[str, Any] = {
    **_SMOOTH,
    "name": "rough",
    "description": "Requests get lost. Migrations fail, wait too long, are cancelled or lose their VM.",
    "minutes": 40,
    "vms": {
        **_SMOOTH["vms"],
        "busy": {**_SMOOTH["vms"]["busy"], "count": 11, "memory_gib": 8},
        "brief": {**_SMOOTH["vms"]["busy"], "count": 2, "memory_gib": 2},
    },
    "load": {"constant": [{"vms": {"groups": ["busy", "brief"]}, "demand": 0.5}]},
    "api": {"answer_seconds": [0.1, 3], "lost_request_probability": 0.1, "lost_answer_probability": 0.1},
    "kubevirt": {"failure_probability": 0.25, "throttle_probability": 0.1},
    "happenings": [
        # They are the first to move.
        {"kind": "stop-vms", "vms": {"groups": ["brief"]}, "at_minute": 1.2},
        {"kind": "stop-vms", "vms": {"groups": ["busy"], "count": 1}, "at_minute": 2.6},
        {"kind": "webhook-down", "start_minute": 1.5, "for_minutes": 0.5},
        # Longer than a migration may take.
        {"kind": "backup", "vms": {"groups": ["busy"]}, "start_minute": 1.9, "for_minutes": 3},
        {"kind": "abort", "way": "evacuate-cancel", "start_minute": 2.9},
        {"kind": "abort", "way": "delete-migration", "start_minute": 2.95},
        {"kind": "migrate", "vms": {"groups": ["busy"], "count": 1}, "start_minute": 5.5},
        {"kind": "abort", "way": "delete-migration", "start_minute": 8, "every_minutes": 1, "end_minute": 12},
    ],
    "policy": {
        **_THRESHOLDS,
        # So whoever starts again decides on the first snapshot, when the cluster shows least.
        "thresholds": {**_THRESHOLDS["thresholds"], "sustain": 1},
        "evictions": {
            "limits": {"node": 2, "total": 3},
            "migrationTimeout": "2m",
            "acknowledgeTimeout": "30s",
        },
    },
}


def _scenario(document: dict[str, Any]) -> Scenario:
    return parse_scenario(yaml.safe_dump(document))


QUIET = _scenario({**_SMOOTH, "load": {"constant": _SMOOTH["load"]["constant"]}})
"""The first half of the story of the next."""
SMOOTH = _scenario(_SMOOTH)
ROUGH = _scenario(_ROUGH)
