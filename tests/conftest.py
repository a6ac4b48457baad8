"""Options of the whole suite, and what property tests have in common."""

import importlib
import pkgutil

import pytest
from hypothesis import settings

from tests.properties.effort import TIMES

_PACKAGES = ("informers", "controller", "simulator", "e2e", "benchmarks")
_NO_MODULES = ("conftest", "crash_launcher")
"""Pytest's own, and a program that runs as soon as it is imported."""


def _import_all_of_ours() -> None:
    """Hypothesis draws from the constants of whatever is loaded: so the same is, whichever tests are run."""
    for package in _PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            name = module.name.rpartition(".")[2]
            if name not in _NO_MODULES and not name.startswith(("test_", "__main__")):
                importlib.import_module(module.name)


_import_all_of_ours()
settings.register_profile("ours", deadline=None, derandomize=TIMES == 1)
settings.load_profile("ours")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="write golden files anew instead of comparing them"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update"))
