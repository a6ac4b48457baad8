"""The steps at which programs are killed: what runs without a crash have passed, kept in ``crash_steps.txt``."""

import sys
from pathlib import Path

from e2e.chart import PROGRAMS
from e2e.lab import Lab

KNOWN = Path(__file__).with_suffix(".txt")
_LAUNCHER = Path(__file__).with_name("crash_launcher.py")


def known_steps() -> list[str]:
    return KNOWN.read_text(encoding="utf-8").splitlines()


def add_to_known(steps: set[str]) -> None:
    lines = sorted({*known_steps(), *steps})
    KNOWN.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


class Crashes:
    """Kills one program of a lab at ``point`` (``before …``, ``after …``; empty: none)."""

    def __init__(self, lab: Lab, directory: Path, point: str = "") -> None:
        self._lab = lab
        self._directory = directory
        lab.launcher = [sys.executable, "-P", str(_LAUNCHER), str(directory), point]

    def run_all(self, replicas: int) -> None:
        """As the kubelet would: what has crashed while it starts is started again."""
        self._lab.restarts = True
        self._lab.set_policy(self._lab.policy())
        for program in PROGRAMS:
            self._lab.run(program, replicas=replicas)

    def nobody_comes_again(self) -> None:
        """From now on whoever crashes stays away."""
        self._lab.restarts = False
        for program in self._lab.programs:
            program.process.may_end = True

    @property
    def crashed(self) -> bool:
        return (self._directory / "crashed").exists()

    def passed(self) -> set[str]:
        return set((self._directory / "steps").read_text(encoding="utf-8").splitlines())
