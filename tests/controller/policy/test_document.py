"""YAML is read without its traps, and no document costs more than a moment."""

import pytest

from controller.policy.document import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, UnreadableError, read_document
from controller.policy.parse import default_policy, parse_policy
from controller.policy.problems import PolicyErrors, Problem
from tests.controller.policy.builders import config_map, policy_text


def refusal(text: str) -> Problem:
    with pytest.raises(UnreadableError) as caught:
        read_document(text)
    return caught.value.problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-02", "2024-01-02"),
        ("010", "010"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("-0.5", -0.5),
        ("7", 7),
        ("'7'", "7"),
        ("~", None),
        ("True", True),
        ("[a, 1]", ["a", 1]),
        (r'"\ud83d\ude00"', "\U0001f600"),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ],
)
def test_reads_by_the_rules_of_yaml_1_2(text: str, value: object) -> None:
    assert read_document(text).value == value


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "\ufeff"])
def test_an_empty_document_is_refused(text: str) -> None:
    assert refusal(text).found == "an empty document"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: c: d\n", 2, "mapping values are not allowed"),
        ("a: 1\n\tb: 2\n", 2, "cannot start any token"),
        ("a: 'x\n", 2, "unexpected end of stream"),
        ("a: *nowhere", 1, "undefined alias"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "tags"),
        ("a: !secret x", 1, "tags"),
        ("a: 1\nb: &b [*b]\n", 2, "an alias inside of what it stands for"),
        ("a: 1\n? [b]\n: c\n", 2, "as a key"),
        ("a: 1\nb: \x07\n", 2, '"\\u0007"'),
        (r'a: "\ud83d"', 1, "half a character"),
        ("[" * 100_000, 1, "deeper"),
        ("- " * 100_000, 1, "deeper"),
    ],
)
def test_a_syntax_error_has_its_line(text: str, line: int, said: str) -> None:
    problem = refusal(text)
    assert problem.line == line
    assert said in problem.found


def test_a_key_may_not_come_twice() -> None:
    (problem,) = read_document("a: 1\nb:\n  c: 1\n  c: 2\n").duplicates
    assert (problem.path, problem.line, problem.found) == ("b.c", 4, "the key again (first on line 3)")


def test_repeated_keys_are_reported_among_the_other_problems() -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(policy_text("mode: x\nmode: Automatic\nextra: 1\n"))
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (3, "mode"),
        (4, "mode"),
        (5, "extra"),
    ]


def test_size_is_bounded() -> None:
    assert "characters" in refusal("#" * (MAX_CHARACTERS + 1)).found
    assert "values" in refusal("[" + "a," * MAX_VALUES + "]").found


def test_aliases_count_as_often_as_they_are_used() -> None:
    """The billion laughs: ten lines that stand for 9 ** 9 values."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "values" in refusal("\n".join(lines)).found


def test_depth_is_bounded_behind_aliases_too() -> None:
    half = MAX_DEPTH - 2
    text = f"a: &a {'[' * half}{']' * half}\nb: {'[' * half}*a{']' * half}\n"
    assert "deeper" in refusal(text).found


def test_reads_the_policy_inside_of_a_config_map() -> None:
    assert parse_policy(config_map(policy_text())) == default_policy()


def test_lines_are_those_of_the_manifest() -> None:
    text = config_map(policy_text("evictions:\n  settle: never\n"))
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(text)
    (problem,) = caught.value.problems
    assert text.splitlines()[problem.line - 1].strip() == "settle: never"


def test_a_policy_in_quotes_has_no_lines_of_its_own() -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy('kind: ConfigMap\ndata:\n  policy.yaml: "kind: RebalancePolicy\\nkind: x\\n"\n')
    assert {problem.line for problem in caught.value.problems} == {0}


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("", "data"),
        ("data: text", "data"),
        ("data: {}", 'data."policy.yaml"'),
        ("data: {policy.yaml: {mode: Automatic}}", 'data."policy.yaml"'),
        ("data: {policy.yaml: ''}", ""),
        ("data: {}\ndata: {}", "data"),
    ],
)
def test_a_config_map_without_a_policy_is_refused(rest: str, path: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy(f"apiVersion: v1\nkind: ConfigMap\n{rest}")
    (problem,) = caught.value.problems
    assert problem.path == path


def test_a_key_of_the_config_map_that_looks_alike_is_named() -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse_policy("kind: ConfigMap\ndata: {policy.yml: x}")
    assert caught.value.problems[0].nearest == "policy.yml"
