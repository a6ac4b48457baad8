"""What the chart says about the programs: their arguments, and what their accounts may do.

Replicas share one account in a real installation. Here each has its own, with the same rights, so that the audit log
tells them apart.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import tools

NAMESPACE = "vm-rebalancer"
RELEASE = "vm-rebalancer"
CONFIG_MAP = f"{RELEASE}-policy"
PROGRAMS = ("descheduler", "soft-tainter")
REPLICAS = 2
LEASE_S = 4.0
"""Shorter than the default, so that a test need not wait long for a lease to run out."""
_VALUES = (
    f"leaderElection.leaseDuration={LEASE_S:g}s",
    "leaderElection.renewDeadline=3s",
    "leaderElection.retryPeriod=500ms",
    "log.format=text",
)
_RBAC = "rbac.authorization.k8s.io/"


@dataclass(frozen=True, slots=True)
class Chart:
    """The rendered objects."""

    objects: list[dict[str, Any]]

    @classmethod
    def render(cls, *values: str) -> "Chart":
        """``values``: as for helm's ``--set``, on top of the suite's own."""
        flags = [flag for value in (*_VALUES, *values) for flag in ("--set", value)]
        chart = str(tools.ROOT / "charts" / "vm-rebalancer")
        command = [tools.helm(), "template", RELEASE, chart, "--namespace", NAMESPACE, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return cls([obj for obj in yaml.safe_load_all(done.stdout) if obj])

    def arguments(self, program: str) -> list[str]:
        """Of the program's container."""
        name = f"{RELEASE}-{program}"
        (deployment,) = (
            o for o in self.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == name
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return [str(argument) for argument in container["args"]]

    def write_rbac(self, path: Path) -> None:
        """The roles, and their bindings to the replicas' accounts."""
        objects = [o for o in self.objects if str(o["apiVersion"]).startswith(_RBAC)]
        path.write_text(yaml.safe_dump_all([_with_replicas(obj) for obj in objects]), encoding="utf-8")


def account(program: str, replica: int) -> str:
    return f"{program}-{replica}"


def _with_replicas(obj: dict[str, Any]) -> dict[str, Any]:
    if "subjects" not in obj:
        return obj
    return {**obj, "subjects": [each for subject in obj["subjects"] for each in _of_replicas(subject)]}


def _of_replicas(subject: dict[str, Any]) -> Iterator[dict[str, Any]]:
    program = str(subject["name"]).removeprefix(f"{RELEASE}-")
    for replica in range(REPLICAS):
        yield {**subject, "name": account(program, replica)}
