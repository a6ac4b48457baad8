"""The one place where the suite waits: until something is the case, and no longer than a deadline."""

import time
from collections.abc import Callable
from http.client import HTTPException
from typing import TypeVar

T = TypeVar("T")

EVERY_S = 0.1
NOT_YET = (OSError, HTTPException)
"""What does not answer (yet, or for the moment) raises one of these."""


def until(
    probe: Callable[[], T],
    *,
    within_s: float,
    what: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> T:
    """What ``probe`` returns, as soon as that is truthy. Fails if it is not in time, with what it was last.

    ``meanwhile`` is called between two looks, and raises if there is no use in waiting any longer.
    """
    ends_s = time.monotonic() + within_s
    while True:
        try:
            last: object = probe()
        except NOT_YET as error:
            last = error
        else:
            if last:
                return last  # type: ignore[return-value]
        meanwhile()
        if time.monotonic() >= ends_s:
            raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {last!r}")
        time.sleep(EVERY_S)
