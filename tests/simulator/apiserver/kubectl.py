"""The real kubectl."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulator.apiserver.harness import DEADLINE_S

ROOT = Path(__file__).parents[3]


class Kubectl:
    """Runs kubectl with one kubeconfig, in a home directory of its own."""

    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self._program = program
        self._environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """What it prints. Fails with what it complains about."""
        done = self.try_(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603  our own program, our own arguments
            [self._program, *arguments],
            input=text,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 2,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Let it run on; its output is a pipe."""
        return subprocess.Popen(  # noqa: S603
            [self._program, *arguments], env=self._environment, stdout=subprocess.PIPE, text=True
        )


def kubectl_program() -> Path:
    """`hack/tools` brings it; CI must have it, elsewhere a test without it is skipped."""
    own = ROOT / ".tools" / "kubectl"
    found = str(own) if own.exists() else shutil.which("kubectl")
    if found:
        return Path(found)
    if os.environ.get("CI"):
        pytest.fail("kubectl is not installed: hack/tools")
    pytest.skip("kubectl is not installed: hack/tools")
