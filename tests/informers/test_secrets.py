"""Whatever looks like a secret is masked, and what does not is left alone."""

import time

import pytest

from informers.errors import as_shown
from informers.secrets import without, without_secrets

JWT = "eyJhbGciOi.eyJzdWIi.c2ln"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Get https://me:pass@host/path", "Get https://***@host/path"),
        ("Get https://me:pa/ss@host/path", "Get https://***@host/path"),
        ("https://me:pa ss/word@host", "https://***@host"),
        ("me:pass@host:9090", "***@host:9090"),
        ("https://host/?key=a b", "https://host/?***"),
        ("see https://host/?key=a, it says", "see https://host/?*** it says"),
        ("GET /q?token=abc&x=1", "GET /q?token=***&x=1"),
        ("client_secret=abc, X-Amz-Signature=abc", "client_secret=***, X-Amz-Signature=***"),
        ('{"accessToken": "abc", "a": "b"}', '{"accessToken": "***", "a": "b"}'),
        (r"{\"password\":\"abc\"}", r"{\"password\":\"***\"}"),
        ("Authorization: Bearer abc.def-123, so", "Authorization: Bearer ***, so"),
        ("authorization=Bearer%20abc", "authorization=Bearer ***"),
        ("authorization=abc", "authorization=***"),
        ('{"authorization":"Basic bWU6eA=="}', '{"authorization":"Basic ***"}'),
        (f"found {JWT} here", "found *** here"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the bearer token has expired; basic authentication is off",
        'Post "https://virt-api.kubevirt.svc:443/evict?timeout=10s": no route',
        "Post https://virt-api.kubevirt.svc:443/evict?timeout=10s: EOF",
        "prometheus:9090",
        "https://h:99999",
        "node node-1 has 3 of 4 VMs (what else?) // me",
        "secrets is forbidden: cannot list secrets, says me@example.org",
        "image quay.io/kubevirt/virt-launcher@sha256:0123",
    ],
)
def test_what_does_not_is_left_alone(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["Bearer s3cr3t/a+b", "s3cr3t/a+b", r"s3cr3t\/a+b", "s3cr3t%2Fa%2Bb", "Bearer\n s3cr3t/a+b"]
)
def test_a_known_one_is_found_in_every_form(text: str) -> None:
    assert "s3cr3t" not in without(["Bearer s3cr3t/a+b"], f"who is {text}?")


def test_the_name_of_a_scheme_or_a_word_too_short_is_no_secret() -> None:
    assert without(["Bearer abc"], "Bearer is wanted, abcd came") == "Bearer is wanted, abcd came"


@pytest.mark.parametrize(
    "part", ["//", "-eyJ", "eyJ.", "token", "bearer ", "a:", "//a@", "//?", "https:", ' secret"', "  "]
)
def test_no_text_takes_long(part: str) -> None:
    """The time itself is what is promised; square, it would be minutes."""
    begun_s = time.monotonic()
    without_secrets(part * (1_000_000 // len(part)))
    assert time.monotonic() - begun_s < 20


def test_what_others_say_is_shown_on_one_bounded_line_without_secrets() -> None:
    assert as_shown(f"see\n{JWT}\x1b and  the key", 20, ["the key"]) == "see *** and ***"
    assert len(as_shown("x" * 1000, 20)) == 20
