"""Label and field selectors in the API's text forms (``k8s.io/apimachinery/pkg/labels`` and ``fields``)."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.apiserver.refusals import bad_request
from simulator.apiserver.resources import Resource
from simulator.kubevirt.objectstore import Json, Path, at

_TOKEN = re.compile(r"\s*(?:(?P<word>[^\s,()!=<>]+)|(?P<sign>==|!=|[=!,()<>]))\s*")
_FIELD = re.compile(r"((?:[^\\,=!]|\\.)+?)(!=|==|=)((?:[^\\,]|\\.)*)")
_SIGNS = {"=": "in", "==": "in", "!=": "notin", "<": "<", ">": ">"}


class Requirement(NamedTuple):
    key: str
    operator: str
    """in, notin, exists, absent, <, >"""
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        if value is None or not value.lstrip("-").isdigit():
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == ">" else int(value) < bound


class FieldRequirement(NamedTuple):
    path: Path
    value: str
    equal: bool

    def holds(self, obj: Json) -> bool:
        return (_text(at(obj, *self.path), self.path) == self.value) == self.equal


class Selector(NamedTuple):
    """What a list or watch asks for: every requirement must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: Json) -> bool:
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            if not all(requirement.holds(labels) for requirement in self.labels):
                return False
        return all(requirement.holds(obj) for requirement in self.fields)


def parse_selector(labels: str, fields: str, resource: Resource) -> Selector:
    """Raises `Refusal` (400)."""
    return Selector(parse_labels(labels), parse_fields(fields, resource))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """``a=b,a!=b,k in (x,y),k notin (x),k,!k,n>1``; empty: everything. Raises `Refusal` (400)."""
    tokens = _Tokens(text)
    found: list[Requirement] = []
    while tokens:
        found.append(_requirement(tokens))
        if tokens:
            tokens.expect(",")
            if not tokens:
                raise tokens.wrong("an identifier after ','")
    return tuple(found)


def parse_fields(text: str, resource: Resource) -> tuple[FieldRequirement, ...]:
    """``a=b,a!=b``. Raises `Refusal` (400), for fields that the resource does not select by too."""
    found: list[FieldRequirement] = []
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{text[position:]}'")
        label, sign, value = match.groups()
        path = resource.selectable.get(_unescaped(label))
        if path is None:
            raise bad_request(_unknown_field(label, resource))
        found.append(FieldRequirement(path, _unescaped(value), sign != "!="))
        position = match.end() + 1  # the comma
    return tuple(found)


class _Tokens:
    """The words and signs of a label selector, consumed from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, bool]] = []
        position = 0
        while position < len(text) and not text[position:].isspace():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.wrong("an identifier")
            self._found.append((match["word"] or match["sign"], match["word"] is not None))
            position = match.end()

    def __bool__(self) -> bool:
        return bool(self._found)

    def wrong(self, expected: str) -> Exception:
        rest = self._found[0][0] if self._found else ""
        return bad_request(
            f"unable to parse requirement: found '{rest}', expected: {expected} in {self._text!r}"
        )

    def peek(self) -> str:
        return self._found[0][0] if self._found else ""

    def word(self) -> str:
        if not self._found or not self._found[0][1]:
            raise self.wrong("an identifier")
        return self._found.pop(0)[0]

    def take(self, *signs: str) -> str:
        """The next sign if it is one of these."""
        if self._found and not self._found[0][1] and self._found[0][0] in signs:
            return self._found.pop(0)[0]
        return ""

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise self.wrong(f"'{sign}'")


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.take("!"):
        return Requirement(tokens.word(), "absent")
    key = tokens.word()
    if not tokens or tokens.peek() == ",":
        return Requirement(key, "exists")
    if tokens.peek() in ("in", "notin"):
        return Requirement(key, tokens.word(), _values(tokens))
    sign = tokens.take(*_SIGNS)
    if not sign:
        raise tokens.wrong("in, notin, =, ==, !=, <, >")
    value = "" if not tokens or tokens.peek() == "," else tokens.word()
    if sign in "<>" and not value.lstrip("-").isdigit():
        raise tokens.wrong("an integer")
    return Requirement(key, _SIGNS[sign], frozenset((value,)))


def _values(tokens: _Tokens) -> frozenset[str]:
    tokens.expect("(")
    values: list[str] = []
    while True:
        values.append("" if tokens.peek() in (",", ")") else tokens.word())
        if tokens.take(")"):
            return frozenset(values)
        tokens.expect(",")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _unknown_field(label: str, resource: Resource) -> str:
    if resource.fields or resource.custom:
        return f"field label not supported: {label}"
    return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _text(value: Any, path: Path) -> str:
    """A field as selectors compare it: absent is empty, but a flag that is absent is false."""
    if isinstance(value, bool) or path == ("spec", "unschedulable"):
        return "true" if value else "false"
    return "" if value is None else str(value)
