"""YAML text to plain values, with the line of each and without YAML's traps.

A policy is read by the rules of YAML 1.2 (``yes`` and ``10:30`` are text), without tags and merge keys.
Size, depth and the number of values are bounded, those behind aliases counted as often as they are used; so
no document can cost more than a moment.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from controller.policy.problems import Problem, printable, quote

MAX_CHARACTERS = 256 * 1024
MAX_VALUES = 5_000
MAX_DEPTH = 16

Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | None"

_ONE_POLICY = "one YAML document with apiVersion and kind"
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_PLAIN_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?")
_SIMPLE_KEY = re.compile(r"[A-Za-z_][\w-]{0,59}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    value: Value
    lines: Mapping[str, int]
    """Path -> line, from 1. What is inside of an aliased value has the lines of where it is written."""
    literals: Mapping[str, int]
    """Path -> first line of the text, for block literals (``|``), whose lines are lines of the document."""
    duplicates: tuple[Problem, ...]
    """Keys that a mapping holds twice; ``value`` has the first one."""


class UnreadableError(ValueError):
    """The text is no YAML document that could be looked into; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_document(text: str, *, first_line: int | None = 1) -> Document:
    """Parse one YAML document. Raises :class:`UnreadableError`.

    ``first_line`` is the line on which ``text`` begins; ``None``: it has no lines that a message could name.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(Problem("", f"more than {MAX_CHARACTERS} characters", "a shorter text"))
    try:
        root = yaml.compose(text, Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        raise UnreadableError(_syntax_problem(error, first_line)) from None
    except yaml.YAMLError as error:  # the reader's: no mark, but a position
        position = getattr(error, "position", 0)
        character = quote(text[position : position + 1])
        line = _line(text.count("\n", 0, position), first_line)
        raise UnreadableError(
            Problem("", f"the character {character}", "printable text", line=line)
        ) from None
    if root is None:
        raise UnreadableError(Problem("", "an empty document", _ONE_POLICY))
    values = _Values(first_line)
    value = values.of(root, "", 1)
    return Document(value, values.lines, values.literals, tuple(values.duplicates))


def child_path(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    name = key if _SIMPLE_KEY.fullmatch(key) else quote(key)
    return f"{path}.{name}" if path else name


def resolve_plain(text: str) -> str | int | float | bool | None:
    """What an unquoted scalar stands for.

    ``010``, which is 8 to some and 10 to others, ``.inf`` and ``.nan`` are text: none of them passes for a
    number.
    """
    if text in _PLAIN_WORDS:
        return _PLAIN_WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Composer(yaml.BaseLoader):
    """Builds the node graph and stops at what is too deep, too large, tagged, or contains itself."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._sizes: dict[yaml.Node | None, int] = {}
        """Values in each finished node, aliases expanded."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            self._stop(event, "tags have no use in a policy")
        if self._depth >= MAX_DEPTH:
            self._stop(event, _TOO_DEEP)
        before = self._values
        self._depth += 1
        self._values += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if node not in self._sizes:
                self._stop(event, "an alias inside of what it stands for")
            self._values += self._sizes[node]
        else:
            self._sizes[node] = self._values - before
        if self._values > MAX_VALUES:
            self._stop(event, f"more than {MAX_VALUES} values, aliases expanded")
        return node

    def _stop(self, event: yaml.Event, why: str) -> None:
        raise yaml.MarkedYAMLError(problem=why, problem_mark=event.start_mark)  # type: ignore[arg-type]


class _Values:
    """Nodes to plain values."""

    def __init__(self, first_line: int | None) -> None:
        self.lines: dict[str, int] = {}
        self.literals: dict[str, int] = {}
        self.duplicates: list[Problem] = []
        self._first_line = first_line

    def of(self, node: yaml.Node, path: str, depth: int) -> Value:
        line = _line(node.start_mark.line, self._first_line)
        if depth > MAX_DEPTH:  # by way of aliases
            raise UnreadableError(Problem("", _TOO_DEEP, _ONE_POLICY, line=line))
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            if node.style == "|":
                self.literals.setdefault(path, line + 1)
            text = _whole_characters(node.value, line)
            return text if node.style else resolve_plain(text)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, child_path(path, at), depth + 1) for at, item in enumerate(node.value)]
        return self._mapping(node, path, depth)

    def _mapping(self, node: yaml.Node, path: str, depth: int) -> Value:
        mapping: dict[str, Value] = {}
        for key_node, value_node in node.value:
            line = _line(key_node.start_mark.line, self._first_line)
            if not isinstance(key_node, yaml.ScalarNode):
                raise UnreadableError(
                    Problem(path, "a list or a mapping as a key", "names as keys", line=line)
                )
            key = _whole_characters(key_node.value, line)
            key_path = child_path(path, key)
            if key in mapping:
                first = f" (first on line {self.lines[key_path]})" if line else ""
                self.duplicates.append(Problem(key_path, f"the key again{first}", "each key once", line=line))
                continue
            self.lines[key_path] = line
            mapping[key] = self.of(value_node, key_path, depth + 1)
        return mapping


def _whole_characters(text: str, line: int) -> str:
    """JSON writes characters beyond U+FFFF as two escapes, which YAML reads as two halves."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UnreadableError(
            Problem("", f"half a character in {quote(text)}", "whole ones", line=line)
        ) from None


def _line(offset: int, first_line: int | None) -> int:
    return 0 if first_line is None else first_line + offset


def _syntax_problem(error: yaml.MarkedYAMLError, first_line: int | None) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = printable(", ".join(part for part in (error.context, error.problem) if part))
    line = _line(mark.line, first_line) if mark else 0
    return Problem("", f"an error in the YAML ({said})", _ONE_POLICY, line=line)
