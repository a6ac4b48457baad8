"""Which soft taints nodes should carry, and how the list on a node becomes that."""

from collections.abc import Sequence

import pytest

from controller.cluster.objects import Taint
from controller.policy.model import SoftTaintMode, SoftTaints, TaintScale, TaintScheme
from controller.taints.desired import (
    APPROPRIATE,
    EFFECT,
    OVER,
    PREFIX,
    desired_keys,
    is_ours,
    merged,
    our_keys,
)
from controller.utilization.classify import Classification, Edges, NodeClass, NodeVerdict
from tests.builders import START
from tests.controller.decision_builders import (
    MINUTE,
    QUERY,
    SECOND,
    SOFT_TAINTS,
    classification,
    soft_taints,
    verdict,
)

UNKNOWN, UNDER, FAIR, OVERLOADED = NodeClass
MAX_AGE = 3 * MINUTE
SINGLE = soft_taints(scheme=TaintScheme.SINGLE)
BOTH = {OVER, APPROPRIATE}


def ours(key: str, value: str = "") -> Taint:
    return Taint(key, value, EFFECT)


def keys(
    found: Classification | None, policy: SoftTaints = SOFT_TAINTS, node: str = "node-1", started: int = 0
) -> frozenset[str] | None:
    return desired_keys(node, found, policy, MAX_AGE, START + started * SECOND)


def of_classes(*node_classes: NodeClass) -> Classification:
    return classification(*(verdict(f"node-{n}", c) for n, c in enumerate(node_classes, 1)))


# --- schemes ---


@pytest.mark.parametrize(
    ("scheme", "node_class", "expected"),
    [
        (TaintScheme.SINGLE, OVERLOADED, {OVER}),
        (TaintScheme.SINGLE, FAIR, set()),
        (TaintScheme.SINGLE, UNDER, set()),
        (TaintScheme.TIERED, OVERLOADED, BOTH),
        (TaintScheme.TIERED, FAIR, {APPROPRIATE}),
        (TaintScheme.TIERED, UNDER, set()),
        (TaintScheme.GRADED, FAIR, set()),
        (TaintScheme.GRADED, UNDER, set()),
    ],
)
def test_a_node_that_is_to_repel_more_carries_more_keys(
    scheme: TaintScheme, node_class: NodeClass, expected: set[str]
) -> None:
    assert keys(of_classes(node_class, UNDER), soft_taints(scheme=scheme)) == expected


def test_without_under_utilised_nodes_appropriate_ones_are_not_tainted() -> None:
    """There would be nowhere better to go."""
    assert keys(of_classes(FAIR, OVERLOADED, UNKNOWN)) == set()
    assert keys(of_classes(OVERLOADED, FAIR)) == BOTH


@pytest.mark.parametrize(
    ("value", "scale", "level"),
    [
        (0.51, TaintScale.LINEAR, 1),
        (0.66, TaintScale.LINEAR, 1),
        (0.67, TaintScale.LINEAR, 2),
        (0.83, TaintScale.LINEAR, 2),
        (0.84, TaintScale.LINEAR, 3),
        (1.0, TaintScale.LINEAR, 3),
        (0.51, TaintScale.EXPONENTIAL, 1),
        (0.57, TaintScale.EXPONENTIAL, 1),
        (0.58, TaintScale.EXPONENTIAL, 2),
        (0.71, TaintScale.EXPONENTIAL, 2),
        (0.72, TaintScale.EXPONENTIAL, 3),
    ],
)
def test_grades_by_the_room_left_above_the_threshold(value: float, scale: TaintScale, level: int) -> None:
    """The threshold is 0.5; levels begin at 0, 1/3 and 2/3 of the room, or at 0, 1/7 and 3/7 of it."""
    graded = soft_taints(scheme=TaintScheme.GRADED, levels=3, scale=scale)
    found = classification(verdict(values={QUERY: value}))
    assert keys(found, graded) == {f"{OVER}-level-{k}" for k in range(1, level + 1)}


def test_a_threshold_at_the_top_leaves_no_room_to_grade() -> None:
    graded = soft_taints(scheme=TaintScheme.GRADED)
    found = classification(verdict(values={QUERY: 1.0}), limits=Edges(0.2, 1.0))
    assert keys(found, graded) == {f"{OVER}-level-1"}


def test_the_worst_query_grades() -> None:
    graded = soft_taints(scheme=TaintScheme.GRADED)
    found = Classification(
        START,
        {"node-1": verdict(values={"cpu": 0.6, "memory": 0.9})},
        {"cpu": Edges(0.2, 0.5), "memory": Edges(0.2, 0.5)},
    )
    assert keys(found, graded) == {f"{OVER}-level-{k}" for k in (1, 2, 3)}


# --- modes ---


@pytest.mark.parametrize("mode", [SoftTaintMode.CLEANUP_ONLY, SoftTaintMode.DISABLED])
def test_without_soft_taints_ours_go_whatever_is_known(mode: SoftTaintMode) -> None:
    """Nobody would take them off later, and they would keep repelling pods."""
    cleanup = soft_taints(mode=mode)
    for found in (None, of_classes(OVERLOADED), classification(skipped="no metrics")):
        assert keys(found, cleanup) == set()


# --- nodes of which little is known ---


def test_before_the_first_classification_everything_stays() -> None:
    assert keys(None) is None


def test_a_node_that_does_not_take_part_carries_none() -> None:
    """It left the selector, or was cordoned."""
    assert keys(of_classes(OVERLOADED), node="node-9") == set()


def later(node: NodeVerdict, seconds: int, *, skipped: str = "") -> Classification:
    return classification(node, at=START + seconds * SECOND, skipped=skipped)


@pytest.mark.parametrize(("seconds", "expected"), [(0, None), (179, None), (180, set()), (9000, set())])
def test_a_node_without_a_value_keeps_its_taints_until_max_age(
    seconds: int, expected: set[str] | None
) -> None:
    assert keys(later(verdict(node_class=UNKNOWN, last_seen=START), seconds)) == expected


def test_a_node_never_seen_keeps_them_for_max_age_after_the_start() -> None:
    """Else a restart without metrics would untaint the whole cluster at once."""
    never = verdict(node_class=UNKNOWN, last_seen=None)
    assert keys(later(never, 279), started=100) is None
    assert keys(later(never, 280), started=100) == set()


def test_a_value_from_before_the_start_gives_max_age_from_the_start_on() -> None:
    long_ago = verdict(node_class=UNKNOWN, last_seen=START - 60 * MINUTE)
    assert keys(later(long_ago, 100), started=0) is None


def test_while_a_round_is_skipped_every_node_keeps_its_taints() -> None:
    skipped = later(verdict(node_class=FAIR, last_seen=START), 100, skipped="only 1 of 5 nodes")
    assert keys(skipped) is None
    assert keys(later(verdict(last_seen=START), 180, skipped="only 1 of 5 nodes")) == set()


# --- the list on the node ---


FOREIGN = [
    Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    Taint("dedicated", "gpu", EFFECT),
    Taint("example.com/x", "1", "NoExecute"),
    Taint(f"x.{OVER}", "", EFFECT),
    Taint(f"{PREFIX}.example.evil/a", "", EFFECT),
    Taint(PREFIX, "", EFFECT),
    Taint(OVER, "", "NoSchedule"),
    Taint(OVER, "", "NoExecute"),
]


@pytest.mark.parametrize("taint", FOREIGN)
def test_foreign_is_what_differs_in_key_or_effect(taint: Taint) -> None:
    """The same key with another effect was set by somebody else; a prefix of the prefix is not ours."""
    assert not is_ours(taint)


@pytest.mark.parametrize("key", [OVER, APPROPRIATE, f"{OVER}-level-7", f"{PREFIX}/of-an-older-version"])
def test_ours_is_anything_soft_under_our_prefix(key: str) -> None:
    assert is_ours(ours(key))


@pytest.mark.parametrize(
    ("present", "wanted", "expected"),
    [
        ([], set(), []),
        ([], BOTH, [ours(APPROPRIATE), ours(OVER)]),
        ([ours(OVER)], set(), []),
        ([ours(OVER)], BOTH, [ours(OVER), ours(APPROPRIATE)]),
        ([ours(OVER), *FOREIGN], {APPROPRIATE}, [*FOREIGN, ours(APPROPRIATE)]),
        ([FOREIGN[0], ours(OVER), FOREIGN[1]], {OVER}, [FOREIGN[0], ours(OVER), FOREIGN[1]]),
        ([Taint(OVER, "", "NoSchedule")], {OVER}, [Taint(OVER, "", "NoSchedule"), ours(OVER)]),
    ],
)
def test_changes_ours_and_nothing_else(
    present: Sequence[Taint], wanted: set[str], expected: Sequence[Taint]
) -> None:
    assert merged(present, wanted) == expected


def test_sees_our_keys_among_others() -> None:
    assert our_keys([*FOREIGN, ours(OVER)]) == {OVER}
