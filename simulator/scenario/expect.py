"""What a scenario expects of a run's scores, and whether a run keeps to it."""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from simulator.report.scores import Scores
from simulator.scenario.checking import Problem, unknown_name

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
ALLOWED_BOUND = 'a relation and a number ("<= 20"), a number (exactly that), or "== null"'
SCORES = tuple(
    field.encode_name
    for field in msgspec.structs.fields(Scores)
    if field.encode_name not in {"scenario", "seed", "policy_digest"}
)


class Bound(NamedTuple):
    relation: str
    value: float | None
    """``None``: the score must be null (with ``==``)."""

    def holds(self, score: float | None) -> bool:
        if score is None or self.value is None:
            return self.relation == "==" and score is None and self.value is None
        return RELATIONS[self.relation](score, self.value)

    def __str__(self) -> str:
        return f"{self.relation} {'null' if self.value is None else format(self.value, 'g')}"


def parse_bound(text: str | float) -> Bound:
    """Raises ``ValueError`` if it is none."""
    refusal = f"{text!r} is no bound; allowed: {ALLOWED_BOUND}"
    if not isinstance(text, str):
        return Bound("==", float(text))
    match = re.fullmatch(r"\s*(<=|>=|==|<|>)\s*(\S+)\s*", text)
    if match is None:
        raise ValueError(refusal)
    relation, value = match.groups()
    if value == "null":
        if relation != "==":
            raise ValueError(refusal)
        return Bound(relation, None)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(refusal)
    return Bound(relation, number)


def check_expect(expect: Mapping[str, str | float]) -> Iterator[Problem]:
    """Unknown scores and malformed bounds."""
    for score, bound in expect.items():
        if score not in SCORES:
            yield unknown_name(f"expect.{score}", score, SCORES, "score")
        try:
            parse_bound(bound)
        except ValueError:
            yield Problem(f"expect.{score}", repr(bound), ALLOWED_BOUND)


def unmet(expect: Mapping[str, str | float], scores: Mapping[str, object]) -> list[str]:
    """The expectations that a run does not keep, one line each; empty: it keeps them all.

    ``scores``: score -> number or None, as ``simulate -o json`` prints them. Raises ``ValueError`` for a
    malformed bound and ``KeyError`` for a score that is not there.
    """
    failures = []
    for name, text in expect.items():
        bound, score = parse_bound(text), scores[name]
        if score is not None and not isinstance(score, int | float):
            raise ValueError(f"{name}: {score!r} is not a number")
        if not bound.holds(score):
            shown = "null" if score is None else f"{score:g}"
            failures.append(f"{name} is {shown}, expected {bound}")
    return failures
