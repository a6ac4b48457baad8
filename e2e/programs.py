"""A replica of one of the two programs: its process, and what it says about itself."""

from collections.abc import Mapping, Sequence
from http.client import HTTPConnection

from prometheus_client.parser import text_string_to_metric_families

from e2e.processes import Process, Processes
from e2e.waiting import NOT_YET

_ANSWER_S = 5.0


class Program:
    """What its arguments do not say, where it listens and which cluster it talks to, comes by its environment.

    ``launcher``: what starts it.
    """

    def __init__(
        self,
        processes: Processes,
        account: str,
        launcher: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        port: int,
    ) -> None:
        self._processes = processes
        self.account = account
        self._launcher = launcher
        self._arguments = arguments
        self._environment = {**environment, "VM_REBALANCER_LISTEN": f"127.0.0.1:{port}"}
        self.port = port
        self.process = self._start()
        self.restarts = 0

    def _start(self) -> Process:
        return self._processes.start(self.account, [*self._launcher, *self._arguments], self._environment)

    def start_again(self) -> None:
        """As the kubelet does with a container that has ended."""
        self.process.may_end = True
        self.process = self._start()
        self.restarts += 1

    def is_ready(self) -> bool:
        return self._get("/readyz")[0] == 200

    def is_healthy(self) -> bool:
        return self._get("/healthz")[0] == 200

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of ``vm_rebalancer_<name>`` that carry these labels; 0 if there are none."""
        return sum(value for value, carried in self._samples(name) if labels.items() <= carried.items())

    def samples(self, name: str) -> list[float]:
        """The values of all samples of ``vm_rebalancer_<name>``."""
        return [value for value, _ in self._samples(name)]

    def page(self) -> dict[str, list[tuple[float, dict[str, str]]]]:
        """Its whole page of metrics: name -> values and labels."""
        found: dict[str, list[tuple[float, dict[str, str]]]] = {}
        for family in text_string_to_metric_families(self._get("/metrics")[1]):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.value, sample.labels))
        return found

    def series_count(self) -> int:
        """How many samples its page of metrics has."""
        return sum(map(len, self.page().values()))

    def _samples(self, name: str) -> list[tuple[float, dict[str, str]]]:
        return self.page().get(f"vm_rebalancer_{name}", [])

    def leads(self) -> bool:
        """Whether it holds the lease and may write. False, too, if it does not answer."""
        try:
            return self.process.exit_code is None and self.metric("is_leader") == 1
        except NOT_YET:
            return False

    def decides(self) -> bool:
        """Whether it leads, and has read the cluster afresh."""
        return self.leads() and self.has_decided()

    def has_decided(self) -> bool:
        """Whether it ever came so far."""
        return "deciding from now on" in self.process.output()

    def _get(self, path: str) -> tuple[int, str]:
        """Raises OSError, HTTPException."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()
