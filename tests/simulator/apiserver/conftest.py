"""Served clusters for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from informers.testing import ManualClock
from tests.simulator.apiserver.builders import asked
from tests.simulator.apiserver.harness import START, Connected, Served


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One cluster for all tests of a file; its time stands still unless a test lets it pass."""
    with Served(asked(tmp_path_factory.mktemp("served")), ManualClock(START)) as served:
        yield served


@pytest.fixture
def api(shared: Served) -> Iterator[Connected]:
    """The admin's client of the shared cluster."""
    client = shared.client()
    yield client
    client.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A cluster for one test."""
    with Served(asked(tmp_path), ManualClock(START)) as served:
        yield served


@pytest.fixture
def admin(served: Served) -> Iterator[Connected]:
    """The admin's client of the test's own cluster."""
    client = served.client()
    yield client
    client.close()
