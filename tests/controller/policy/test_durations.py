"""Durations read as in Kubernetes manifests; what they print reads the same."""

from datetime import timedelta

import pytest

from controller.policy.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration", "canonical"),
    [
        ("30s", timedelta(seconds=30), "30s"),
        ("5m", timedelta(minutes=5), "5m"),
        ("1h30m", timedelta(minutes=90), "1h30m"),
        ("48h", timedelta(days=2), "48h"),
        ("120s", timedelta(minutes=2), "2m"),
        ("500ms", timedelta(milliseconds=500), "500ms"),
        ("1m90s", timedelta(seconds=150), "2m30s"),
        ("0s", timedelta(), "0s"),
        ("1h1ms", timedelta(hours=1, milliseconds=1), "1h1ms"),
        ("8760h", LONGEST, "8760h"),
    ],
)
def test_reads_and_prints(text: str, duration: timedelta, canonical: str) -> None:
    assert parse_duration(text) == duration
    assert format_duration(duration) == canonical
    assert parse_duration(canonical) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "5 s",
        "-5s",
        "+5s",
        "1.5h",
        "1d",
        "5S",
        "1m1h",
        "1m1m",
        "5sec",
        "8761h",
        "9" * 20 + "h",
        "٣s",
    ],
)
def test_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)
