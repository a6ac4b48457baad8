"""Label selectors by example."""

import msgspec
import pytest

from controller.cluster.selectors import LabelSelector, Requirement, SelectorError, parse_selector

LABELS = {"app": "web", "tier": "front", "cores": "8", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (db,web)", True),
        ("app in (db)", False),
        ("other in (db)", False),
        ("app notin (db,cache)", True),
        ("app notin (web)", False),
        ("other notin (web)", True),
        ("app", True),
        ("other", False),
        ("!other", True),
        ("!app", False),
        ("empty=", True),
        ("app=", False),
        ("cores>7", True),
        ("cores>8", False),
        ("cores<9", True),
        ("app<9", False),
        ("other<9", False),
        ("app=web,tier in (front),!other", True),
        ("app=web,tier=back", False),
        (" app = web , tier ", True),
        ("in in (in,notin)", False),
    ],
)
def test_string_selectors_match_as_kubectl_does(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        (",a", "',' at column 1", "a label key"),
        ("a,", "the end", "a label key"),
        ("a b", "'b' at column 3", "=, ==, !="),
        ("a in", "the end", "'('"),
        ("a in ()", "')' at column 7", "at least one value"),
        ("a in (b", "the end", "',' or ')'"),
        ("!a=b", "'=' at column 3", "',' or the end"),
        ("-a=b", "'-a' at column 1", "a label key such as"),
        ("x/y/z=1", "'x/y/z' at column 1", "a label key such as"),
        ("a=b c", "'c' at column 5", "',' or the end"),
        ("a=$", "'$' at column 3", "a label value"),
        (f"a={'v' * 64}", "'vvv", "at most 63"),
        ("a>many", "'many' at column 3", "an integer"),
    ],
)
def test_a_bad_selector_says_where_what_and_what_is_allowed(text: str, found: str, expected: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    message = str(caught.value)
    assert repr(text) in message
    assert f"found {found}" in message
    assert expected in message


def test_the_struct_form_is_the_conjunction_of_both_its_parts() -> None:
    selector = msgspec.json.decode(
        b'{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"In","values":["front"]},'
        b'{"key":"old","operator":"DoesNotExist","values":null}]}',
        type=LabelSelector,
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})
    assert not selector.matches({**LABELS, "old": "1"})
    assert str(selector) == "app=web,tier=front,!old"


def test_null_parts_select_everything() -> None:
    selector = msgspec.json.decode(b'{"matchLabels":null,"matchExpressions":null}', type=LabelSelector)
    assert selector.empty
    assert selector.matches({})


def test_an_operator_nobody_knows_selects_nothing() -> None:
    assert not Requirement("app", "Resembles", ("web",)).matches(LABELS)
