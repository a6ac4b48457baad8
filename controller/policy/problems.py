"""What can be wrong with a policy, and how it is said."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from informers.secrets import without_secrets

_SHOWN = 60
"""Characters of a value or name that a message repeats."""
_LONGEST_QUOTED_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. ``str()`` is a single line of printable text, whatever the document held."""

    path: str
    """Such as ``evictions.cooldown.base`` or ``metrics.queries[0].name``; empty: the document itself."""
    found: str
    allowed: str
    nearest: str = ""
    """The valid name that is most like what was found, if one is."""
    line: int = 0
    """From 1; 0: unknown."""

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{place}found {self.found}; allowed: {self.allowed}{hint}"


class PolicyErrors(ValueError):  # noqa: N818 - it is several
    """A policy was refused. ``str()`` has a line per problem: ``<source>:<line>: <path>: found …``."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(
            f"{self.source}:{problem.line}: {problem}" if problem.line else f"{self.source}: {problem}"
            for problem in self.problems
        )


class Problems:
    """Collects problems of one document, and knows the line of each path."""

    def __init__(self, lines: Mapping[str, int]) -> None:
        self._lines = lines
        self._found: list[Problem] = []

    def add(self, path: str, found: str, allowed: str, nearest: str = "") -> None:
        self._found.append(Problem(path, found, allowed, nearest, self._line(path)))

    def touch(self, *paths: str) -> bool:
        """Whether one of these paths, or something below it, has a problem already."""
        return any(
            problem.path == path or problem.path.startswith((f"{path}.", f"{path}["))
            for problem in self._found
            for path in paths
        )

    def in_order(self, *others: Problem) -> list[Problem]:
        """All of them and ``others``, by line."""
        return sorted((*others, *self._found), key=lambda problem: problem.line)

    def _line(self, path: str) -> int:
        """The path's own line, else that of the nearest thing around it that the document holds."""
        while path not in self._lines and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path, 0)


def describe(value: object) -> str:
    """A value as a message shows it: short, on one line, printable ASCII; text in double quotes."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case Mapping():
            return f"a mapping of {len(value)} keys"
        case list():
            return f"a list of {len(value)}"
        case str():
            return quote(value)
        case _:
            return str(value)


def quote(text: str) -> str:
    text = without_secrets(text)
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def printable(text: str) -> str:
    """Somebody else's message, which may repeat parts of the document, on one line of printable ASCII."""
    return json.dumps(text[:_LONGEST_QUOTED_MESSAGE])[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is most like ``name``, upper and lower case aside; empty if none is."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name[:_SHOWN].lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else ""
