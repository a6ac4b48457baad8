"""Label selectors of Kubernetes: the string syntax of ``kubectl -l`` and the struct form of API objects.

Semantics are those of ``k8s.io/apimachinery/pkg/labels``: all requirements must hold; ``!=`` and ``notin``
also hold where the key is absent; an empty selector matches everything.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from controller.cluster.wire import Nullable, NullableStruct


class SelectorError(ValueError):
    """The text is no label selector; the message says where, what was found and what is allowed."""


class Operator(StrEnum):
    """Operators of label selectors, and (``Gt``, ``Lt``) of node affinity."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Requirement(NullableStruct, frozen=True):
    """One condition on one label.

    ``operator`` stays a string, so that one we do not know can be decoded; such a requirement never holds.
    """

    key: str
    operator: str
    values: Nullable[tuple[str, ...]] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        """Gt and Lt: both sides must be integers, else the requirement does not hold."""
        if value is None or len(self.values) != 1:
            return False
        found, bound = _integer(value), _integer(self.values[0])
        if found is None or bound is None:
            return False
        return found > bound if self.operator == Operator.GT else found < bound

    def __str__(self) -> str:
        values = ",".join(self.values)
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GT:
                return f"{self.key}>{values}"
            case Operator.LT:
                return f"{self.key}<{values}"
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={values}"
            case Operator.NOT_IN if len(self.values) == 1:
                return f"{self.key}!={values}"
        return f"{self.key} {self.operator.lower()} ({values})"


class LabelSelector(NullableStruct, frozen=True):
    """A conjunction of requirements; both fields empty: matches everything.

    Decodes ``metav1.LabelSelector``; :func:`parse_selector` fills ``match_expressions`` only.
    """

    match_labels: Nullable[Mapping[str, str]] = msgspec.field(default_factory=dict)
    match_expressions: Nullable[tuple[Requirement, ...]] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self.match_expressions)

    @property
    def empty(self) -> bool:
        """Whether it selects everything."""
        return not self.match_labels and not self.match_expressions

    def implied_label(self) -> tuple[str, str] | None:
        """A label (key, value) that everything selected has, if one can be told: a key to look it up by."""
        for key, value in self.match_labels.items():
            return key, value
        for requirement in self.match_expressions:
            if requirement.operator == Operator.IN and len(requirement.values) == 1:
                return requirement.key, requirement.values[0]
        return None

    def __str__(self) -> str:
        """The string form; :func:`parse_selector` reads it back."""
        return ",".join(
            [*(f"{k}={v}" for k, v in self.match_labels.items()), *map(str, self.match_expressions)]
        )


EVERYTHING = LabelSelector()


def parse_selector(text: str) -> LabelSelector:
    """Parse the string syntax of ``kubectl -l``.

    Forms: ``a=b``, ``a==b``, ``a!=b``, ``k in (x,y)``, ``k notin (x)``, ``k``, ``!k``, ``k>1``, ``k<1``.
    Requirements are separated by commas and keep their order; the values of a set are sorted and unique.

    Raises:
        SelectorError: anything else, or a key or value that no label can have.
    """
    parser = _Parser(text)
    requirements: list[Requirement] = []
    if parser.peek().kind != _END:
        requirements.append(parser.requirement())
        while parser.peek().kind != _END:
            parser.expect(",", "',' or the end")
            requirements.append(parser.requirement())
    return LabelSelector(match_expressions=tuple(requirements))


class _Token(NamedTuple):
    kind: str
    """``word``, the symbol itself, or ``""`` at the end."""
    text: str
    column: int


_END = ""
_TOKEN = re.compile(r"\s*(?:(?P<word>[^\s=!(),<>]+)|(?P<symbol>==|!=|[=!(),<>]))")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_COMPARISONS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
}
_SETS = {"in": Operator.IN, "notin": Operator.NOT_IN}


class _Parser:
    """Recursive descent over the tokens of one selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    @staticmethod
    def _split(text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while match := _TOKEN.match(text, position):
            position = match.end()
            if word := match["word"]:
                tokens.append(_Token("word", word, match.start("word")))
            else:
                tokens.append(_Token(match["symbol"], match["symbol"], match.start("symbol")))
        tokens.append(_Token(_END, "", len(text)))
        return tokens

    def peek(self) -> _Token:
        return self._tokens[self._at]

    def take(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != _END:
            self._at += 1
        return token

    def expect(self, kind: str, allowed: str) -> _Token:
        token = self.take()
        if token.kind != kind:
            raise self._error(token, allowed)
        return token

    def requirement(self) -> Requirement:
        if self.peek().kind == "!":
            self.take()
            return Requirement(self._key(), Operator.DOES_NOT_EXIST)
        key = self._key()
        token = self.peek()
        if token.kind in (_END, ","):
            return Requirement(key, Operator.EXISTS)
        self.take()
        if token.kind in _COMPARISONS:
            operator = _COMPARISONS[token.kind]
            return Requirement(key, operator, (self._compared(operator),))
        if token.kind == "word" and token.text in _SETS:
            return Requirement(key, _SETS[token.text], self._values())
        raise self._error(token, "=, ==, !=, >, <, in, notin, ',' or the end")

    def _key(self) -> str:
        token = self.expect("word", "a label key")
        prefix, slash, name = token.text.rpartition("/")
        valid_prefix = not slash or (len(prefix) <= 253 and _PREFIX.fullmatch(prefix) is not None)
        if not valid_prefix or _NAME.fullmatch(name) is None:
            raise self._error(token, "a label key such as app or example.com/app")
        return token.text

    def _compared(self, operator: Operator) -> str:
        """The right side of a comparison; nothing there means the empty value."""
        if operator in (Operator.GT, Operator.LT):
            token = self.expect("word", "an integer")
            if _integer(token.text) is None:
                raise self._error(token, "an integer")
            return token.text
        return self._value() if self.peek().kind == "word" else ""

    def _values(self) -> tuple[str, ...]:
        self.expect("(", "'('")
        if self.peek().kind == ")":
            raise self._error(self.peek(), "at least one value")
        values = {self._value() if self.peek().kind == "word" else ""}
        while (token := self.take()).kind == ",":
            values.add(self._value() if self.peek().kind == "word" else "")
        if token.kind != ")":
            raise self._error(token, "',' or ')'")
        return tuple(sorted(values))

    def _value(self) -> str:
        token = self.take()
        if _NAME.fullmatch(token.text) is None:
            raise self._error(
                token,
                "a label value (at most 63 of letters, digits, '-_.')",
            )
        return token.text

    def _error(self, token: _Token, allowed: str) -> SelectorError:
        found = f"'{token.text}' at column {token.column + 1}" if token.text else "the end"
        return SelectorError(f"label selector {self._text!r}: found {found}, expected {allowed}")


def _integer(text: str) -> int | None:
    """``text`` as Go's ``strconv.ParseInt`` reads it, ``None`` if it does not."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
