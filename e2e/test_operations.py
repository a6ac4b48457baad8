"""The ways to stop it that docs/operations.md gives, as they stand there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e import tools
from e2e.lab import ACTS_WITHIN_S, Lab

MANUAL = tools.ROOT / "docs" / "operations.md"
SHELL_WITHIN_S = 30.0
ENDS_WITHIN_S = 10.0


def documented(after: str) -> str:
    """The commands of the manual that come next after these words."""
    text = MANUAL.read_text(encoding="utf-8")
    found = re.search(re.escape(after) + r".*?\n```sh\n(.+?)\n```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def moving(lab: Lab) -> Lab:
    """More than one node is over-utilised, and a VM is on the move."""
    lab.start("crowd")
    lab.run_all()
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "the first VM moves")
    return lab


def shell(command: str, kubeconfig: Path, home: Path) -> None:
    path = f"{Path(tools.kubectl()).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=SHELL_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_documented_command_stops_evicting_and_lets_migrations_end(moving: Lab, tmp_path: Path) -> None:
    leader = moving.leader()

    shell(documented("## Stop it at once"), moving.cluster.kubeconfig, tmp_path)

    moving.until(
        lambda: leader.metric("policy_info", mode="Predictive") == 1, ACTS_WITHIN_S, "the policy is in force"
    )
    moving.let_pass(1)  # a request that was on the wire already
    since = moving.cluster.truth().time
    truth = moving.until_truth(
        lambda truth: not truth.on_the_move, ACTS_WITHIN_S, "what was on the move ends"
    )
    moving.let_pass(10)
    assert moving.cluster.evictions(since=since) == []
    assert moving.cluster.truth().crowded, "there would have been something to do"
    assert {move.outcome for move in truth.own_moves} == {"Succeeded"}
    assert leader.decides()
    moving.until(
        lambda: not any(leader.samples("migrations_in_flight")),
        ACTS_WITHIN_S,
        "it has followed them to the end",
    )


def test_taken_away_and_brought_back_it_goes_on(moving: Lab) -> None:
    """Scaled to zero and up again. Meanwhile KubeVirt ends what it has begun."""
    gone = list(moving.programs)
    for program in gone:
        program.process.terminate()
    for program in gone:
        assert program.process.wait(ENDS_WITHIN_S) == 0, program.process.tail()
    since = moving.cluster.truth().time
    truth = moving.until_truth(
        lambda truth: not truth.on_the_move, ACTS_WITHIN_S, "what was on the move ends"
    )
    assert {move.outcome for move in truth.own_moves} == {"Succeeded"}
    assert truth.crowded
    assert moving.cluster.evictions(since=since) == []

    for program in gone:
        program.start_again()

    moving.until_balanced()


def test_one_vm_is_kept_where_it_is(lab: Lab, tmp_path: Path) -> None:
    """Its migration would go on for ever, and KubeVirt would begin another one if only that were deleted."""
    lab.start("crowd", "kubevirt.stuck_probability=1")
    lab.run_all()
    truth = lab.until_truth(lambda truth: truth.on_the_move, ACTS_WITHIN_S, "a VM moves")
    move = truth.on_the_move[0]
    namespace, name = move.vm.split("/")

    command = documented("To stop one VM for good").replace("web-3", name).replace("shop", namespace)
    shell(command, lab.cluster.kubeconfig, tmp_path)

    lab.until_truth(
        lambda truth: not [m for m in truth.on_the_move if m.vm == move.vm],
        ACTS_WITHIN_S,
        "its migration ends",
    )
    lab.let_pass(10)
    truth = lab.cluster.truth()
    assert [m.attempt for m in truth.own_moves if m.vm == move.vm] == [1]
    assert truth.vms[move.vm] == move.source
