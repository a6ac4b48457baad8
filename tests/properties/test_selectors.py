"""Label selectors: the string form round-trips, and means what Kubernetes says it means."""

import string

from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.selectors import LabelSelector, Operator, Requirement, SelectorError, parse_selector

NAMES = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
KEYS = NAMES | st.builds(
    "{}/{}".format, st.from_regex(r"[a-z0-9]{1,5}(\.[a-z]{1,3})?", fullmatch=True), NAMES
)
VALUES = NAMES | st.just("")
SORTED_SETS = st.sets(VALUES, min_size=1, max_size=4).map(lambda values: tuple(sorted(values)))


def requirements(
    keys: st.SearchStrategy[str], sets: st.SearchStrategy[tuple[str, ...]]
) -> st.SearchStrategy[Requirement]:
    integers = st.integers(-999, 999).map(lambda number: (str(number),))
    return st.one_of(
        st.builds(Requirement, keys, st.sampled_from([Operator.IN, Operator.NOT_IN]), sets),
        st.builds(Requirement, keys, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
        st.builds(Requirement, keys, st.sampled_from([Operator.GT, Operator.LT]), integers),
    )


ANY_REQUIREMENTS = st.lists(requirements(KEYS, SORTED_SETS), max_size=5).map(tuple)


@given(ANY_REQUIREMENTS)
def test_a_selector_survives_being_written_and_read(parts: tuple[Requirement, ...]) -> None:
    selector = LabelSelector(match_expressions=parts)
    assert parse_selector(str(selector)) == selector


@given(ANY_REQUIREMENTS, st.sampled_from([" ", "  ", "\t"]))
def test_spaces_around_requirements_mean_nothing(parts: tuple[Requirement, ...], space: str) -> None:
    text = str(LabelSelector(match_expressions=parts))
    assert parse_selector(text.replace(",", f"{space},{space}")) == parse_selector(text)


@given(st.text(max_size=20) | st.text(alphabet=string.ascii_letters[:3] + "=!(),<>in ", max_size=20))
def test_any_text_is_read_or_refused_with_one_clear_line(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        message = str(error)
    else:
        message = ""
        assert parse_selector(str(selector)) == selector
    assert "\n" not in message
    assert not message or "expected" in message


FEW_KEYS, FEW_VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
FEW_LABELS = st.dictionaries(FEW_KEYS, FEW_VALUES)
FEW_SETS = st.sets(FEW_VALUES, min_size=1).map(lambda values: tuple(sorted(values)))


@given(st.lists(requirements(FEW_KEYS, FEW_SETS), max_size=4), FEW_LABELS)
def test_all_requirements_must_hold(parts: list[Requirement], labels: dict[str, str]) -> None:
    selector = LabelSelector(match_expressions=tuple(parts))
    assert selector.matches(labels) == all(part.matches(labels) for part in parts)


@given(FEW_KEYS, FEW_SETS, FEW_LABELS)
def test_the_negative_operators_are_the_opposites_of_the_positive(
    key: str, values: tuple[str, ...], labels: dict[str, str]
) -> None:
    assert Requirement(key, "NotIn", values).matches(labels) != Requirement(key, "In", values).matches(labels)
    assert Requirement(key, "DoesNotExist").matches(labels) != Requirement(key, "Exists").matches(labels)


@given(FEW_LABELS, FEW_LABELS)
def test_match_labels_mean_the_same_as_equality_requirements(
    wanted: dict[str, str], labels: dict[str, str]
) -> None:
    as_labels = LabelSelector(match_labels=wanted)
    assert as_labels.matches(labels) == parse_selector(str(as_labels)).matches(labels)


@given(st.lists(requirements(FEW_KEYS, FEW_SETS), max_size=4), FEW_LABELS, FEW_LABELS)
def test_what_is_selected_has_the_implied_label(
    parts: list[Requirement], wanted: dict[str, str], labels: dict[str, str]
) -> None:
    """An index is searched by it: a selected object without it would be overlooked."""
    selector = LabelSelector(wanted, tuple(parts))
    implied = selector.implied_label()
    if implied is not None and selector.matches(labels):
        assert implied in labels.items()
