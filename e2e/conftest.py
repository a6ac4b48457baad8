"""Labs for tests: each test gets its own, which is checked, and ends with it."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from e2e.lab import Lab
from e2e.ports import Ports

LAB = pytest.StashKey[Lab]()
"""While it is there."""
NOTES = pytest.StashKey[dict[str, str]]()
"""What was to be said of it at its end."""
FAILED = pytest.StashKey[bool]()
_TIMEOUT_S = 300


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "any_cluster: also runs against the cluster of KUBECONFIG, if that is set"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    foreign = pytest.mark.skip(reason="KUBECONFIG is set, and this needs a simulated cluster")
    for item in items:
        item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
        simulated = (
            "lab" in getattr(item, "fixturenames", ()) and item.get_closest_marker("any_cluster") is None
        )
        if simulated and os.environ.get("KUBECONFIG"):
            item.add_marker(foreign)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report shows what the processes have said."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        notes = item.stash[LAB].notes() if LAB in item.stash else item.stash.get(NOTES, {})
        report.sections += [(f"end of {name}", text) for name, text in notes.items()]
    return report


@pytest.fixture(scope="session")
def ports() -> Ports:
    return Ports()


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Iterator[Lab]:
    """One that the test has to start. Afterwards nobody may have been harmed in it."""
    stash = request.node.stash
    stash[LAB] = lab = Lab(tmp_path, ports)
    try:
        yield lab
        if not stash.get(FAILED, False):
            lab.check_unharmed()
    finally:
        stash[NOTES] = lab.notes()
        del stash[LAB]
        lab.end()
