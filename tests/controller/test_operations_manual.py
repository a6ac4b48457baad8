"""docs/operations.md: its first command does what it says, and its links lead somewhere."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from controller.policy.model import Mode
from controller.policy.parse import parse_policy
from informers.clock import SystemClock
from tests.simulator.apiserver.builders import CONFIG_MAPS, asked, config_map
from tests.simulator.apiserver.harness import Served
from tests.simulator.apiserver.kubectl import kubectl_program

DOCS = Path(__file__).parents[2] / "docs"
MANUAL = (DOCS / "operations.md").read_text(encoding="utf-8")
POLICY = """\
apiVersion: vm-rebalancer.io/v1alpha1
kind: RebalancePolicy
mode: Automatic
evictions:
  minGain: 0.02
softTaints:
  mode: CleanupOnly
"""


@pytest.mark.timeout(180)
def test_the_first_command_stops_all_evicting_and_changes_nothing_else(tmp_path: Path) -> None:
    program = kubectl_program()
    found = re.search(r"## Stop it at once\n\n```sh\n(.+?)\n```", MANUAL)
    assert found is not None
    with Served(asked(tmp_path), SystemClock()) as served:
        admin = served.client()
        admin.ask("POST", CONFIG_MAPS, config_map("vm-rebalancer-policy", **{"policy.yaml": POLICY}))
        done = subprocess.run(  # noqa: S603
            ["/bin/bash", "-o", "pipefail", "-c", found[1]],
            env={
                "PATH": f"{program.parent}:{os.environ['PATH']}",
                "KUBECONFIG": str(served.what.kubeconfig),
                "HOME": str(tmp_path),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        changed = admin.get(f"{CONFIG_MAPS}/vm-rebalancer-policy")["data"]["policy.yaml"]
        admin.close()
    assert done.returncode == 0, done.stderr
    assert changed == POLICY.replace("mode: Automatic", "mode: Predictive")
    assert parse_policy(changed).mode is Mode.PREDICTIVE


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", MANUAL))))
def test_a_link_leads_somewhere(link: str) -> None:
    page, _, anchor = link.partition("#")
    assert (DOCS / page).is_file()
    assert not anchor or anchor in anchors(DOCS / page)
