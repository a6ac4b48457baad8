"""A real Prometheus that scrapes the simulated cluster and the programs, and evaluates the chart's recording rules."""

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import yaml

from e2e import tools
from e2e.cluster import SPEED
from e2e.processes import Process, Processes

_LOOKBACK_S = 300 / SPEED
_ANSWER_S = 10.0
_TARGETS = "programs.json"


class Target(NamedTuple):
    """A program to scrape, with the labels that the chart's ServiceMonitor gives it."""

    job: str
    pod: str
    port: int


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """May be stopped and started again: its data and its address stay."""

    def __init__(self, processes: Processes, files: Path, port: int) -> None:
        self._processes = processes
        self._files = files
        self._port = port
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        config = self._files / "prometheus.yml"
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
        if "programs" not in {job["job_name"] for job in document["scrape_configs"]}:
            document["scrape_configs"].append(
                {"job_name": "programs", "file_sd_configs": [{"files": [str(self._files / _TARGETS)]}]}
            )
            config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self._process = self._processes.start(
            "prometheus",
            [
                tools.prometheus(),
                f"--config.file={self._files}/prometheus.yml",
                f"--storage.tsdb.path={self._files}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
                f"--query.lookback-delta={_LOOKBACK_S:g}s",
                "--log.level=warn",
            ],
            {"GOMAXPROCS": "1"},
        )

    def scrape(self, targets: Iterable[Target], namespace: str) -> None:
        """These programs from now on, each at its port of this machine. It takes a moment."""
        groups = [
            {
                "targets": [f"127.0.0.1:{target.port}"],
                "labels": {"namespace": namespace, "job": target.job, "pod": target.pod},
            }
            for target in targets
        ]
        new = self._files / f"{_TARGETS}.new"
        new.write_text(json.dumps(groups), encoding="utf-8")
        os.replace(new, self._files / _TARGETS)  # never seen half written

    def ask(self, expression: str) -> list[Sample]:
        """The answer to an instant query. Raises OSError, HTTPException."""
        answer = self._get(f"/api/v1/query?{urlencode({'query': expression})}")
        assert answer["status"] == "success", answer
        assert answer["data"]["resultType"] == "vector", answer
        return [Sample(element["metric"], float(element["value"][1])) for element in answer["data"]["result"]]

    def _get(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def kill(self) -> None:
        """Connections to it are refused from now on."""
        assert self._process is not None
        self._process.kill()

    @contextmanager
    def silenced(self) -> Iterator["Silence"]:
        """In its place is something that takes connections and says nothing."""
        self.kill()
        with socket.create_server(("127.0.0.1", self._port)) as listener:
            silence = Silence(listener)
            yield silence
            silence.hang_up()

    def is_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        finally:
            connection.close()


class Silence:
    """Somebody who listens and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._taken: list[socket.socket] = []

    def heard(self) -> int:
        """How many have connected so far; each of them waits now."""
        try:
            while True:
                self._taken.append(self._listener.accept()[0])
        except BlockingIOError:
            return len(self._taken)

    def hang_up(self) -> None:
        for connection in self._taken:
            connection.close()
