"""The policy is edited while the programs run."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubectl import Kubectl
from e2e.lab import ACTS_WITHIN_S, Lab, config_map

NOTICED_WITHIN_S = 10.0


@pytest.fixture
def kubectl(lab: Lab, tmp_path: Path) -> Kubectl:
    return Kubectl(lab.cluster.kubeconfig, tmp_path)


def test_an_edited_policy_takes_effect_without_a_restart_and_a_bad_one_does_not(
    lab: Lab, kubectl: Kubectl
) -> None:
    """From Predictive to Automatic, then to something broken, then back: each by ``kubectl apply``."""

    def apply(**changes: Any) -> None:
        manifest = config_map(yaml.safe_dump(lab.policy(changes)))
        kubectl("apply", "--filename=-", text=yaml.safe_dump(manifest))

    def moves() -> int:
        return len(lab.cluster.truth().own_moves)

    lab.start("crowd")
    apply(mode="Predictive")
    (program,) = lab.run("descheduler")
    lab.until(lambda: program.metric("node_class", node="node-00") == 2, ACTS_WITHIN_S, "it sees the crowd")
    lab.until(lambda: "should send VM" in program.process.output(), ACTS_WITHIN_S, "it has decided")
    assert moves() == 0

    apply(mode="Automatic")
    lab.until(moves, ACTS_WITHIN_S, "Automatic is in force")

    apply(mode="Automagic", evictions={"settle": "soon"})
    lab.until(lambda: program.metric("policy_valid") == 0, NOTICED_WITHIN_S, "the fault is shown")
    so_far = moves()
    lab.until(lambda: moves() > so_far, ACTS_WITHIN_S, "the last good policy stays in force")
    assert {"mode", "evictions.settle"} <= set(_named_as_faulty(program.process.output()))

    apply(mode="Predictive")
    lab.until(lambda: program.metric("policy_valid") == 1, NOTICED_WITHIN_S, "the repair is noticed")
    lab.let_pass(1)
    since = lab.cluster.truth().time
    lab.let_pass(10)
    assert lab.cluster.evictions(since=since) == []
    assert lab.cluster.truth().crowded


def _named_as_faulty(log: str) -> list[str]:
    """Paths of fields in lines such as ``…: mode: found 'Automagic'; allowed: …``."""
    return [part.strip() for line in log.splitlines() if "ERROR" in line for part in line.split(": ")]
