"""Programs of others that the suite needs. CI must have them; elsewhere a test without them is skipped."""

import os
import shutil
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
IN_CI = os.environ.get("CI") == "true"


@cache
def tool(name: str, *, how: str) -> str:
    """Where the program is: what ``hack/tools`` has brought, else what is on the PATH."""
    own = ROOT / ".tools" / name
    found = str(own) if own.exists() else shutil.which(name)
    return found or _missing(f"{name} is not installed: {how}")


def helm() -> str:
    return tool("helm", how="hack/tools")


def kubectl() -> str:
    return tool("kubectl", how="hack/tools")


def prometheus() -> str:
    return tool("prometheus", how="apt-get install prometheus")


def _missing(message: str) -> NoReturn:
    if IN_CI:
        pytest.fail(message)
    pytest.skip(message)
