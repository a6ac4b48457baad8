"""Reads the fields of one mapping, notes what is wrong with them, and goes on."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeVar

from controller.cluster.selectors import LabelSelector, SelectorError, parse_selector
from controller.policy.document import MAX_VALUES, Value, child_path
from controller.policy.durations import LONGEST, format_duration, parse_duration
from controller.policy.problems import Problems, describe, nearest_name, printable

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

NO_TIME = timedelta()
_LONGEST_PATH = 4_000
_LONGEST_SELECTOR = 4_000


class Section:
    """A mapping at ``path``. Leaving its ``with`` block reports every key that was not asked for.

    Each reading method returns the field's value, or its default if the field is absent or wrong; the
    latter is a problem, and so is absence where ``required``. An ``optional`` section that is absent or
    empty has all its defaults; a field that is present but empty is wrong.
    """

    def __init__(self, value: Value, path: str, problems: Problems, *, optional: bool = True) -> None:
        self._path = path
        self._problems = problems
        self._known: list[str] = []
        self._fields: dict[str, Value] = value if isinstance(value, dict) else {}
        self._readable = isinstance(value, dict) or (value is None and optional)
        if not self._readable:
            problems.add(path, describe(value), "a mapping")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        for key in self._fields:
            if key not in self._known:
                self.problem(key, "an unknown field", ", ".join(self._known), nearest_name(key, self._known))

    def path(self, key: str) -> str:
        return child_path(self._path, key)

    def holds(self, key: str) -> bool:
        return key in self._fields

    def sound(self, *keys: str) -> bool:
        """Whether these fields have no problem so far: only then is it worth comparing them."""
        return not self._problems.touch(*(self.path(key) for key in keys))

    def problem(self, key: str, found: str, allowed: str, nearest: str = "") -> None:
        self._problems.add(self.path(key), found, allowed, nearest)

    def at_most(self, key: str, value: timedelta, other: str, limit: timedelta) -> None:
        """The duration at ``key`` may not be longer than that of another field."""
        if value > limit and self.sound(key, other):
            self.problem(key, format_duration(value), f"at most {other} ({format_duration(limit)})")

    def section(self, key: str) -> "Section":
        self._known.append(key)
        return Section(self._fields.get(key), self.path(key), self._problems)

    def sections(self, key: str, *, at_most: int) -> "list[Section]":
        """A list of mappings; absent: empty."""
        none: list[Value] = []
        items = self._read(
            key, none, f"a list of at most {at_most} mappings", lambda value: _list(value, at_most)
        )
        path = self.path(key)
        return [
            Section(item, child_path(path, index), self._problems, optional=False)
            for index, item in enumerate(items)
        ]

    def choice(self, key: str, default: E) -> E:
        """One of the values of ``default``'s type."""
        options = {str(option): option for option in type(default)}
        return options[self.name(key, str(default), options)]

    def name(self, key: str, default: str, names: Iterable[str], *, required: bool = False) -> str:
        """One of ``names``."""
        names = tuple(names)
        return self._read(
            key, default, ", ".join(names), lambda value: _name(value, names), required=required, names=names
        )

    def name_or_section(self, key: str, names: Iterable[str], fields: str) -> "str | Section | None":
        """One of ``names`` or a mapping with ``fields``; ``None``: absent or wrong."""
        if isinstance(self._fields.get(key), dict):
            return self.section(key)
        names = tuple(names)
        allowed = ", ".join((*names, fields))
        return self._read(key, "", allowed, lambda value: _name(value, names), names=names) or None

    def flag(self, key: str, default: bool) -> bool:
        return self._read(
            key, default, "true or false", lambda value: value if isinstance(value, bool) else None
        )

    def text(
        self, key: str, default: str, allowed: str, check: Callable[[str], object], *, required: bool = False
    ) -> str:
        return self._read(key, default, allowed, lambda value: _text(value, check), required=required)

    def file(self, key: str, default: str) -> str:
        """An absolute path, or empty. What else is there is not shown: it may be what should be in the file."""
        allowed = "an absolute path, or empty for none"
        return self._read(key, default, allowed, lambda value: _text(value, _is_file), show=_kind)

    def texts(
        self, key: str, default: Sequence[str], allowed: str, check: Callable[[str], object]
    ) -> tuple[str, ...]:
        """A list of texts, each of them checked."""
        items = self._read(key, list[Value](default), f"a list, each {allowed}", _list)
        texts: list[str] = []
        for index, item in enumerate(items):
            text = _text(item, check)
            if text is None:
                self._problems.add(child_path(self.path(key), index), describe(item), allowed)
            else:
                texts.append(text)
        return tuple(texts)

    def integer(self, key: str, default: int, lowest: int, highest: int) -> int:
        allowed = f"a whole number from {lowest} to {highest}"
        return self._read(key, default, allowed, lambda value: _integer(value, lowest, highest))

    def integer_or_null(self, key: str, lowest: int, highest: int) -> int | None:
        """Absent is null."""
        if self._fields.get(key) is None:
            self._known.append(key)
            return None
        allowed = f"null, or a whole number from {lowest} to {highest}"
        return self._read(key, lowest, allowed, lambda value: _integer(value, lowest, highest))

    def fraction(self, key: str, default: float, *, required: bool = False) -> float:
        return self._read(key, default, "a number from 0 to 1 (1 is 100 %)", _fraction, required=required)

    def duration(
        self, key: str, default: timedelta, shortest: timedelta = NO_TIME, *, required: bool = False
    ) -> timedelta:
        span = f"{format_duration(shortest)} to {format_duration(LONGEST)}"
        allowed = f"a duration from {span}, written like 90s, 1h30m or 500ms"
        return self._read(key, default, allowed, lambda value: _duration(value, shortest), required=required)

    def selector(self, key: str, default: str) -> LabelSelector:
        """A label selector in Kubernetes' string syntax; an empty one matches everything."""
        allowed = "a label selector, such as tier=gold,zone in (a,b),!fixed"
        text = self.text(key, default, allowed, lambda text: len(text) <= _LONGEST_SELECTOR)
        try:
            return parse_selector(text)
        except SelectorError as error:
            self.problem(key, f"{describe(text)} ({printable(str(error))})", allowed)
            return parse_selector(default)

    def _read(
        self,
        key: str,
        default: T,
        allowed: str,
        convert: Callable[[Value], T | None],
        *,
        required: bool = False,
        names: Sequence[str] = (),
        show: Callable[[Value], str] = describe,
    ) -> T:
        """``convert`` gives ``None`` for what is not allowed; a misspelt value may mean one of ``names``."""
        self._known.append(key)
        if key not in self._fields:
            if required and self._readable:
                self.problem(key, "nothing", allowed)
            return default
        value = self._fields[key]
        converted = convert(value)
        if converted is None:
            nearest = nearest_name(value, names) if isinstance(value, str) else ""
            self.problem(key, show(value), allowed, nearest)
            return default
        return converted


def _name(value: Value, names: Sequence[str]) -> str | None:
    return value if isinstance(value, str) and value in names else None


def _text(value: Value, check: Callable[[str], object]) -> str | None:
    return value if isinstance(value, str) and check(value) else None


def _is_file(text: str) -> bool:
    return not text or (text.startswith("/") and text.isprintable() and len(text) <= _LONGEST_PATH)


def _kind(value: Value) -> str:
    return f"a text of {len(value)} characters" if isinstance(value, str) else describe(value)


def _list(value: Value, at_most: int = MAX_VALUES) -> list[Value] | None:
    return value if isinstance(value, list) and len(value) <= at_most else None


def _integer(value: Value, lowest: int, highest: int) -> int | None:
    # a bool is an int to Python, not to the person who wrote it
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest
        else None
    )


def _fraction(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return abs(float(value)) if 0 <= value <= 1 else None  # abs: -0.0


def _duration(value: Value, shortest: timedelta) -> timedelta | None:
    if not isinstance(value, str):
        return None
    try:
        duration = parse_duration(value)
    except ValueError:
        return None
    return duration if duration >= shortest else None
