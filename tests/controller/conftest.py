"""Servers, and programs that run against them and do not outlive their test."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.platform import Options
from controller.runtime import run_descheduler
from informers.testing import ManualClock
from tests.controller.io.http_server import HttpServer
from tests.controller.running_programs import (
    ENDS_WITHIN_S,
    InThread,
    Start,
    empty_prometheus,
    make_quick,
    policy_text,
)
from tests.simulator.apiserver.builders import asked
from tests.simulator.apiserver.harness import START, Connected, Served


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:  # of requests that were given up
        thread.join(ENDS_WITHIN_S)
    assert [thread.name for thread in left if thread.is_alive()] == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(asked(tmp_path), ManualClock(START)) as served:
        yield served


@pytest.fixture
def admin(served: Served) -> Iterator[Connected]:
    client = served.client()
    yield client
    client.close()


@pytest.fixture
def prometheus() -> Iterator[HttpServer]:
    with HttpServer(empty_prometheus) as server:
        yield server


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts programs that are stopped at the end, if they are not yet."""
    make_quick(monkeypatch)
    running: list[InThread] = []

    def begin(given: Options, program: Any = run_descheduler) -> InThread:
        running.append(InThread(monkeypatch, program, given))
        return running[-1]

    yield begin
    for program in running:
        program.stop()


@pytest.fixture
def policy(tmp_path: Path, prometheus: HttpServer) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text(prometheus.url))
    return path
