"""How hard the expensive properties look. ``PROPERTY_TIMES=20``: twenty times as hard, at other examples each time."""

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("PROPERTY_TIMES", "1"))
PATIENCE_S = 300 * TIMES
"""For the slowest of them, on a busy machine."""


def effort(examples: int, *, steps: int = 50) -> settings:
    """The same examples in every run, of whatever part of the suite, so that none fails by chance.

    That is so by the profile that tests/conftest.py loads, and as long as what Hypothesis draws from is the same: the
    constants of our modules, which are loaded there, too. With more ``TIMES`` examples are new each time.
    """
    return settings(
        max_examples=examples * TIMES,
        stateful_step_count=steps,
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=list(HealthCheck),
    )
