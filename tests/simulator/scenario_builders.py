"""Small scenarios as documents, for tests of what reads and builds them."""

from typing import Any

import yaml

from simulator.scenario.loading import parse_scenario
from simulator.scenario.schema import Scenario

NODES = {"node": {"count": 3, "cores": 16, "memory_gib": 128}}
VMS = {"vm": {"count": 6, "vcpus": 4, "memory_gib": 8}}


def document(**changes: Any) -> dict[str, Any]:
    """Three nodes node-00 … node-02 with two VMs each; ``changes`` replace top-level keys."""
    return {"description": "A small cluster.", "nodes": NODES, "vms": VMS, **changes}


def text(**changes: Any) -> str:
    return yaml.safe_dump(document(**changes), sort_keys=False)


def scenario(**changes: Any) -> Scenario:
    return parse_scenario(text(**changes))
