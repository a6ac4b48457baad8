"""A real Prometheus that scrapes the simulated cluster and evaluates the chart's recording rules."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from e2e import tools
from e2e.cluster import SPEED
from e2e.processes import Process, Processes

_LOOKBACK_S = 300 / SPEED


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
