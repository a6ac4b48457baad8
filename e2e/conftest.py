"""Labs for tests: each test gets its own, which is checked, and ends with it. Privileges are judged over all labs."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import privileges
from e2e.lab import Lab
from e2e.ports import Ports

LAB = pytest.StashKey[Lab]()
"""While it is there."""
NOTES = pytest.StashKey[dict[str, str]]()
"""What was to be said of it at its end."""
FAILED = pytest.StashKey[bool]()
PRIVILEGES = pytest.StashKey[Path]()
"""Where labs leave their notes; the same in all processes of a session."""
VERDICT = pytest.StashKey[list[str]]()
COLLECTED = pytest.StashKey[set[Path]]()
SELECTED = pytest.StashKey[bool]()
"""Whether somebody has asked for a part of the suite only."""
_WHOLE = "whole-suite"
_TIMEOUT_S = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="also cases that are marked full: many, of known kinds"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: one more of a kind, runs with --full only")
    config.addinivalue_line(
        "markers", "one_of_its_kind: the row of the fault matrix that stands for its kind"
    )
    config.addinivalue_line("markers", "live_cluster: runs only if KUBECONFIG is set")
    config.addinivalue_line(
        "markers", "any_cluster: also runs against the cluster of KUBECONFIG, if that is set"
    )
    given = getattr(config, "workerinput", {}).get("privileges")
    config.stash[PRIVILEGES] = Path(given or tempfile.mkdtemp(prefix="vm-rebalancer-privileges-"))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _is_worker(config) or PRIVILEGES not in config.stash:
        return
    shutil.rmtree(config.stash[PRIVILEGES], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist: a worker is told where the notes go."""
    node.workerinput["privileges"] = str(node.config.stash[PRIVILEGES])


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[SELECTED] = True


def pytest_collection_finish(session: pytest.Session) -> None:
    """With pytest-xdist workers collect, and the session's end is elsewhere: so this is a note, too."""
    here = Path(__file__).parent
    whole = (
        session.config.stash[COLLECTED] >= set(here.rglob("test_*.py"))
        and not any("::" in argument for argument in session.config.args)
        and not session.config.stash.get(SELECTED, False)
    )
    if whole and "KUBECONFIG" not in os.environ:
        (session.config.stash[PRIVILEGES] / _WHOLE).touch()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails a session in which somebody did what is not granted, or in which something is granted for nothing."""
    if _is_worker(session.config):
        return
    directory = session.config.stash[PRIVILEGES]
    notes = privileges.read_notes(directory)
    faults = [f"not granted: {call}" for call in privileges.not_granted(notes)]
    whole = (directory / _WHOLE).exists() and not session.config.option.collectonly
    if exitstatus == pytest.ExitCode.OK and whole:
        faults += [f"granted for nothing: {grant}" for grant in privileges.never_used(notes)]
        session.config.stash[VERDICT] = faults or [f"all that is granted was used, in {len(notes)} labs"]
    elif faults:
        session.config.stash[VERDICT] = faults
    if faults and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if VERDICT in config.stash:
        terminalreporter.section("least privilege")
        for line in config.stash[VERDICT]:
            terminalreporter.line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = {item.path for item in items}
    left_out = set() if config.getoption("--full") else {"full"}
    left_out |= set() if os.environ.get("KUBECONFIG") else {"live_cluster"}
    items[:] = [item for item in items if left_out.isdisjoint(mark.name for mark in item.iter_markers())]
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
        if lab.cluster.audit.exists():
            requests = lab.cluster.requests()
            privileges.write_note(request.config.stash[PRIVILEGES], request.node.nodeid, lab.chart, requests)
        stash[NOTES] = lab.notes()
        del stash[LAB]
        lab.end()
