"""Processes that are started, frozen, killed, and never outlive the test.

Each has a group of its own, which gets the signals. Where util-linux' ``setpriv`` is, the kernel kills them even if
this process is killed itself.
"""

import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.waiting import until

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "vm-rebalancer")
_SETPRIV = shutil.which("setpriv")
_WITH_US = [_SETPRIV, "--pdeathsig", "KILL", "--"] if _SETPRIV else []
_TAIL_BYTES = 6_000
_KILLED_WITHIN_S = 10.0


class Process:
    """A running one; its output goes to ``log``, behind what is already there."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.may_end = False
        """Whether its end is part of the plan."""
        with log.open("ab") as output:
            self._running = subprocess.Popen(
                [*_WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**_own_environment(), **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative: the signal that ended it."""
        return self._running.poll()

    def signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            os.killpg(self.pid, number)

    def freeze(self) -> None:
        """It stands still until it is thawed. Returns once it does."""
        self.signal(signal.SIGSTOP)
        until(lambda: self._state() == "T", within_s=5, what=f"{self.name} stands still")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.may_end = True
        self.signal(signal.SIGKILL)
        self._running.wait(_KILLED_WITHIN_S)

    def terminate(self) -> None:
        self.may_end = True
        self.signal(signal.SIGTERM)

    def wait(self, within_s: float) -> int:
        """Its exit code, once it has ended. Fails if it does not in time."""
        self.may_end = True
        try:
            return self._running.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {within_s:g} s") from None

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        return self.output()[-_TAIL_BYTES:]

    def _state(self) -> str:
        """Linux' letter for what its main thread does: ``T`` is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


class Processes:
    """All that one test has started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Process] = []

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        process = Process(name, command, self._directory / f"{name}.log", environment or {})
        self._all.append(process)
        return process

    def check(self) -> None:
        """Fails if one has ended that should not have."""
        for process in self._all:
            if process.exit_code is not None and not process.may_end:
                raise AssertionError(f"{process.name} has ended with {process.exit_code}:\n{process.tail()}")

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._all:
            process.kill()

    def logs(self) -> dict[str, str]:
        """The end of each log."""
        return {process.name: process.tail() for process in self._all}


def _own_environment() -> dict[str, str]:
    """Ours, without what would tell the programs which cluster to talk to, and how."""
    ours = ("KUBECONFIG", "KUBERNETES_", "VM_REBALANCER_", "PROMETHEUS_", "OTEL_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
