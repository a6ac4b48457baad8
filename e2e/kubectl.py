"""The real kubectl, with one kubeconfig."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e import tools
from e2e.processes import Process, Processes

WITHIN_S = 30.0


class Kubectl:
    """Runs to its end, or starts, kubectl in a home directory of its own."""

    def __init__(self, kubeconfig: Path | str, home: Path) -> None:
        self._program = tools.kubectl()
        self._environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """What it prints. Fails with what it complains about."""
        done = self._run(arguments, text)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def refusal(self, *arguments: str) -> str:
        """What it complains about; empty if it does not."""
        done = self._run(arguments)
        return done.stderr if done.returncode != 0 else ""

    def _run(self, arguments: Sequence[str], text: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._program, *arguments],
            input=text,
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """The objects that ``kubectl get`` with these arguments finds."""
        items: list[dict[str, Any]] = json.loads(self("get", *arguments, "--output=json"))["items"]
        return items

    def start(self, processes: Processes, *arguments: str) -> Process:
        """Let it run beside the test; its end is part of the plan."""
        process = processes.start("kubectl", [self._program, *arguments], self._environment)
        process.may_end = True
        return process
