"""What the security lint is told to overlook has a reason beside it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("informers", "controller", "simulator", "benchmarks", "hack")
OVERLOOKED = re.compile(r"# noqa: (S[0-9]{3})(, *[A-Z]+[0-9]+)*(?P<why>.*)")
IS_CHECKED = re.compile(r'\bassert\b.*, "')
"""An assertion that says what holds."""


def overlooked() -> list[tuple[str, str]]:
    """Where, and the line."""
    return [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix == ".py" or (package == "hack" and path.is_file())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OVERLOOKED.search(line)
    ]


def test_everything_overlooked_has_a_reason() -> None:
    found = overlooked()
    assert len(found) > 5
    assert [
        where
        for where, line in found
        if not (match := OVERLOOKED.search(line)) or not (match["why"].strip(" -") or IS_CHECKED.search(line))
    ] == []
