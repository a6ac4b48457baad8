"""A policy that somebody has damaged is refused with the place of the damage, or means what is written there.

Fields that stand for others (presets, names of profiles) are compared by what they stand for elsewhere.
"""

import copy
import math
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.cluster.selectors import SelectorError, parse_selector
from controller.policy.durations import parse_duration
from controller.policy.model import Policy
from controller.policy.parse import default_policy, parse_policy
from controller.policy.problems import PolicyErrors
from controller.policy.render import effective_document
from tests.properties.effort import PATIENCE_S, effort
from tests.properties.test_policy import leaf_paths, trees, valid_documents

pytestmark = pytest.mark.timeout(PATIENCE_S)

Path = tuple[str | int, ...]
SHORTHANDS = {
    "actualUtilizationProfile",
    "queries",
    "deviationThresholds",
    "utilizationThresholds",
    "multiEvictions",
}
"""Written one way and shown another, or the one excludes the other."""
WHOLE = effective_document(default_policy())
PLACES = [path for path in leaf_paths(WHOLE) if path and not SHORTHANDS & set(path)]
ODD_WORDS = (
    "1 0.5 true null 30s 1h30m -5s 1e1s 30S 1_000 0x10 1d P1D .5 5m0s a=b * /a /a/../b h https://h http://h"
)
MODES = ["Automatic", "automatic", "Enabled", "BestFit", "Graded"]
SPACED = ["", " 30s", "30s ", "5 s", "a in (b", "\u0967s", "9" * 30 + "s"]
NEAR = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        0.5,
        1.0,
        1e9,
        [],
        {},
        ["a", "a"],
        [None],
        *ODD_WORDS.split(),
        *MODES,
        *SPACED,
    ]
)


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def damaged(document: Any, path: Path, value: Any) -> Any:
    result = copy.deepcopy(document)
    at(result, path[:-1])[path[-1]] = value
    return result


def dotted(path: Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def same(written: Any, shown: Any) -> bool:
    """Whether two values of a field mean the same."""
    if isinstance(written, dict) and isinstance(shown, dict):
        return all(
            value is None or (key in shown and same(value, shown[key])) for key, value in written.items()
        )
    if isinstance(written, list) and isinstance(shown, list):
        return len(written) == len(shown) and all(map(same, written, shown))
    if isinstance(written, bool) or isinstance(shown, bool) or written is None:
        return written is shown
    if isinstance(written, int | float) and isinstance(shown, int | float):
        return math.isclose(written, shown, rel_tol=1e-12)
    if not isinstance(written, str) or not isinstance(shown, str):
        return False
    if written == shown:
        return True
    meanings = [(read(written), read(shown)) for read in (as_duration, as_selector)]
    return any(one is not None and one == other for one, other in meanings)


def as_duration(text: str) -> timedelta | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def as_selector(text: str) -> str | None:
    try:
        return str(parse_selector(text))
    except SelectorError:
        return None


def outcome(document: Any) -> Policy | PolicyErrors:
    try:
        return parse_policy(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    except PolicyErrors as errors:
        return errors


def judge(document: Any, path: Path) -> None:
    """Refused for the place, for what stands above it, or for what has to fit it; or taken as written."""
    policy = outcome(document)
    if isinstance(policy, PolicyErrors):
        section = dotted(path[:1] if isinstance(path[-1], int) or len(path) < 3 else path[:2])
        assert all(problem.found and problem.allowed for problem in policy.problems)
        assert any(problem.path.startswith(section) for problem in policy.problems), str(policy)
        return
    written, shown = at(document, path), effective_document(policy)
    if written is None and isinstance(path[-1], str):  # as if it were not stated
        stated = copy.deepcopy(document)
        del at(stated, path[:-1])[path[-1]]
        assert shown == effective_document(parse_policy(yaml.safe_dump(stated)))
    else:
        assert same(written, at(shown, path)), f"{dotted(path)}: {written!r} is {at(shown, path)!r}"


@effort(600)
@given(st.sampled_from(PLACES), NEAR | trees)
@example(("evictions", "minVmAge"), "1e1s")
def test_a_changed_field_is_refused_by_its_path_or_taken_as_it_is_written(path: Path, value: Any) -> None:
    judge(damaged(WHOLE, path, value), path)


@effort(300)
@given(valid_documents, st.data())
def test_a_changed_field_of_any_policy_is_refused_or_taken_as_written(
    document: Any, data: st.DataObject
) -> None:
    places = [path for path in leaf_paths(document) if path and not SHORTHANDS & set(path)]
    path = data.draw(st.sampled_from(places))
    assume(path[0] not in ("apiVersion", "kind") and len(path) > 1)
    judge(damaged(document, path, data.draw(NEAR)), path)


@effort(300)
@given(
    st.sampled_from([(), *(p for p in PLACES if isinstance(at(WHOLE, p), dict))]),
    st.text(min_size=1, max_size=12),
)
def test_a_key_that_nobody_knows_is_named(path: Path, key: str) -> None:
    assume(key not in at(WHOLE, path) and key not in SHORTHANDS)
    document = copy.deepcopy(WHOLE)
    at(document, path)[key] = 1
    errors = outcome(document)
    assert isinstance(errors, PolicyErrors), f"{dotted(path)}.{key} was taken for nothing"
    assert all(problem.path.startswith(dotted(path)) for problem in errors.problems), str(errors)


@effort(200)
@given(st.sampled_from([p for p in PLACES if isinstance(p[-1], str)]))
def test_what_is_not_stated_is_as_by_default(path: Path) -> None:
    document = copy.deepcopy(WHOLE)
    del at(document, path[:-1])[path[-1]]
    if path in {("apiVersion",), ("kind",)}:
        return
    assert effective_document(parse_policy(yaml.safe_dump(document, sort_keys=False))) == WHOLE
