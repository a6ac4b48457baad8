"""Durations as people write them in Kubernetes manifests: ``30s``, ``5m``, ``1h30m``, ``500ms``."""

import re
from datetime import timedelta

LONGEST = timedelta(hours=8760)
"""One year: what is longer is a slip, and keeps sums with instants far from overflow."""

_SYNTAX = re.compile(r"(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?", re.ASCII)
_MILLISECOND = timedelta(milliseconds=1)


def parse_duration(text: str) -> timedelta:
    """Whole numbers with units ``h``, ``m``, ``s``, ``ms``, each at most once and in this order.

    Raises ``ValueError`` for anything else, and beyond :data:`LONGEST`.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    hours, minutes, seconds, milliseconds = (int(number or 0) for number in match.groups())
    duration = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    if duration > LONGEST:
        raise ValueError(f"longer than {format_duration(LONGEST)}: {text!r}")
    return duration


def format_duration(duration: timedelta) -> str:
    """The shortest text that :func:`parse_duration` reads as the same whole milliseconds (non-negative)."""
    milliseconds = duration // _MILLISECOND
    parts: list[str] = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
