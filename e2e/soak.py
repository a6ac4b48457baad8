"""What programs take of the machine as time goes by, and what must not make them take more and more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from e2e.lab import Lab
from e2e.programs import Program

SCENARIO = "soak"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Use:
    """Of one process, at one time."""

    time_s: float
    """Of the cluster."""
    memory_mib: float
    """Resident."""
    threads: float
    descriptors: float
    queue_depth: float
    series: float
    """On its page of metrics."""


QUANTITIES = ("memory_mib", "threads", "descriptors", "queue_depth", "series")


def use_of(program: Program, time_s: float) -> Use:
    """Linux only. Raises OSError if it does not answer or is no longer there."""
    proc = Path(f"/proc/{program.process.pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text(encoding="ascii").splitlines())
    return Use(
        time_s=time_s,
        memory_mib=int(status["VmRSS"].split()[0]) / 1024,
        threads=int(status["Threads"]),
        descriptors=len(list((proc / "fd").iterdir())),
        queue_depth=program.metric("workqueue_keys"),
        series=program.series_count(),
    )


def per_hour(uses: Sequence[Use], quantity: str) -> float:
    """The slope of the straight line that fits best, in an hour of the cluster's time. Needs two samples."""
    hours = np.array([use.time_s for use in uses]) / 3600
    values = np.array([getattr(use, quantity) for use in uses])
    return float(np.polyfit(hours, values, 1)[0])


class Visits:
    """What a cluster goes through now and then, and what makes a program open something new each time.

    A node joins and another goes for good, tokens change, watches break, and the policy asks for metrics in
    another way. Nothing of this is ever the same again, so what is kept of each shows in the numbers.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._count = 0

    def go_on(self) -> None:
        """Once more."""
        cluster, self._count = self._lab.cluster, self._count + 1
        cluster.act("add_node", spec=_node(self._count))
        if self._count > 1:
            cluster.act("remove_node", name=_node(self._count - 1)["name"])
        for program in self._lab.programs:
            cluster.control("tokens", account=program.account, do="rotate")
        cluster.control("watches", do="break")
        timeout = {"timeout": "4s" if self._count % 2 else "5s"}
        self._lab.set_policy(self._lab.policy({"metrics": timeout}))


def _node(number: int) -> dict[str, object]:
    return {
        "name": f"visitor-{number:04}",
        "cores": 128,
        "memory_bytes": 2355 * _GIB,
        "nic_bytes_per_s": 1.25e9,
        "other_memory_bytes": 692 * _GIB,
    }
