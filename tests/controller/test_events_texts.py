"""Messages: one line, without secrets, of a length that Kubernetes takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.telemetry.events import MOST_BYTES, as_message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Get https://me:secret@host/path", "Get https://***@host/path"),
        ("Authorization: Bearer abc.def-123, so", "Authorization: Bearer ***, so"),
        ("GET /q?token=abc&x=1", "GET /q?token=***&x=1"),
        ("found eyJhbGciOi.eyJzdWIi.c2ln here", "found *** here"),
        ("two\nlines\tand\x00more", "two lines and?more"),
    ],
)
def test_a_message_is_one_line_without_secrets(text: str, message: str) -> None:
    assert as_message(text) == message


@given(st.text(st.characters(codec=None), max_size=3 * MOST_BYTES))
def test_any_text_makes_a_message_that_kubernetes_takes(text: str) -> None:
    message = as_message(text)
    assert len(message.encode()) <= MOST_BYTES
    assert message.isprintable()


def test_a_text_of_any_length_is_masked_as_far_as_it_is_shown() -> None:
    assert as_message("Bearer s3cr3t " + "x " * 10_000_000).startswith("Bearer *** x x")


def test_a_long_text_is_cut_and_shows_it() -> None:
    assert as_message("ä" * MOST_BYTES) == "ä" * 510 + "…"
