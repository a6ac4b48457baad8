"""Cluster events, faults, policies and restarts in any order, against the real handlers, in virtual time.

After each rule the limits hold, no VM was shut down by us or moved inside its cool-down, soft taints are as the last
classification demands, others' taints and cached objects are untouched, the queue is small; and when all is well again
every entry that was opened has ended.
"""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.cluster_machine import ClusterMachine
from tests.properties.effort import PATIENCE_S, effort

pytestmark = pytest.mark.timeout(PATIENCE_S)


def test_whatever_happens_in_whatever_order_the_invariants_hold() -> None:
    run_state_machine_as_test(ClusterMachine, settings=effort(120, steps=40))
