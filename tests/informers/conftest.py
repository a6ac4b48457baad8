"""Clients of the test server, and the proof that no thread outlives its test."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from informers import connection, reflector, watchstate
from informers.transport import Transport
from tests.informers.api_server import ApiServer, Connect, write_kubeconfig
from tests.informers.served import Served, item


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Transports with the token ``secret-token``, closed after the test."""
    transports: list[Transport] = []

    def from_kubeconfig(server: ApiServer) -> Transport:
        path = write_kubeconfig(tmp_path / f"kubeconfig-{len(transports)}", server.url)
        transports.append(Transport.from_kubeconfig(path))
        return transports[-1]

    yield from_kubeconfig
    for transport in transports:
        transport.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of reflectors are short, and they notice soon that they are stopped."""
    monkeypatch.setattr(connection, "SLICE_S", 0.02)
    monkeypatch.setattr(watchstate, "BASE_DELAY_S", 0.02)
    monkeypatch.setattr(watchstate, "MAX_DELAY_S", 0.1)
    monkeypatch.setattr(reflector, "SPREAD_S", 0.02)


@pytest.fixture
def served() -> Served:
    source = Served()
    source.put(item("a"), item("b"), item("c"))
    return source
