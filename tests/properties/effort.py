"""How hard the expensive properties look. ``PROPERTY_TIMES=20``: twenty times as hard, at other examples each time."""

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("PROPERTY_TIMES", "1"))
PATIENCE_S = 300 * TIMES
"""For the slowest of them, on a busy machine."""


def effort(examples: int, *, steps: int = 50) -> settings:
    """The same examples in every run, so that none fails by chance; unless they are to be looked for."""
    return settings(
        deadline=None,
        max_examples=examples * TIMES,
        stateful_step_count=steps,
        derandomize=TIMES == 1,
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=list(HealthCheck),
    )
