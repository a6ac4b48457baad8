"""Soft taints, for any list on a node and any classification."""

from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.objects import Taint
from controller.policy.model import SoftTaintMode, TaintScale, TaintScheme
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
from controller.utilization.classify import Edges, NodeClass
from tests.builders import START
from tests.controller.decision_builders import MINUTE, QUERY, classification, soft_taints, verdict

KEYS = [OVER, APPROPRIATE, *(f"{OVER}-level-{k}" for k in range(1, 4))]
keys = st.one_of(
    st.sampled_from(KEYS),
    st.sampled_from([PREFIX, f"{PREFIX}/", f"x.{OVER}", f"{PREFIX}.evil/a", "node.kubernetes.io/not-ready"]),
    st.text(max_size=20),
)
taints = st.builds(
    Taint,
    keys,
    st.one_of(st.just(""), st.text(max_size=5)),
    st.sampled_from([EFFECT, EFFECT, "NoSchedule", "NoExecute", ""]),
)
on_nodes = st.lists(taints, max_size=10, unique_by=lambda t: (t.key, t.effect))
"""As the API server allows them: no two of the same key and effect."""
wanted = st.sets(st.sampled_from(KEYS))


def foreign(present: list[Taint]) -> list[Taint]:
    return [t for t in present if not is_ours(t)]


@given(on_nodes, wanted)
def test_foreign_taints_keep_order_and_content(present: list[Taint], keys: set[str]) -> None:
    before = list(present)
    after = merged(present, keys)
    assert foreign(after) == foreign(present)
    assert all(any(kept is t for kept in after) for t in foreign(present)), "the very same, value and all"
    assert present == before


@given(on_nodes, wanted)
def test_the_result_carries_exactly_the_wanted_keys_of_ours(present: list[Taint], keys: set[str]) -> None:
    after = merged(present, keys)
    assert our_keys(after) == keys
    assert len({(t.key, t.effect) for t in after}) == len(after), "or the API server refuses it"
    assert all(t.effect == EFFECT and t.key.startswith(f"{PREFIX}/") for t in after if t not in present)


@given(on_nodes, wanted)
def test_merging_again_changes_nothing(present: list[Taint], keys: set[str]) -> None:
    once = merged(present, keys)
    assert merged(once, keys) == once


@given(on_nodes, wanted)
def test_taking_ours_off_gives_back_what_others_set(present: list[Taint], keys: set[str]) -> None:
    assert merged(merged(present, keys), set()) == foreign(present)


@given(st.sampled_from(KEYS), st.sampled_from(["NoSchedule", "NoExecute", ""]), wanted)
def test_the_same_key_with_another_effect_is_foreign(key: str, effect: str, keys: set[str]) -> None:
    somebodys = Taint(key, "", effect)
    assert merged([somebodys], keys)[0] is somebodys


values = st.floats(0.0, 1.0)
scales = st.sampled_from(TaintScale)
levels = st.integers(1, 10)


def graded(value: float, over: float, count: int, scale: TaintScale) -> frozenset[str]:
    policy = soft_taints(scheme=TaintScheme.GRADED, levels=count, scale=scale)
    found = classification(verdict(values={QUERY: value}), limits=Edges(0.0, over))
    given_keys = desired_keys("node-1", found, policy, MINUTE, START)
    assert given_keys is not None
    return given_keys


@given(values, values, values, levels, scales)
def test_a_higher_value_never_carries_fewer_levels(
    one: float, other: float, over: float, count: int, scale: TaintScale
) -> None:
    low, high = sorted((one, other))
    assert graded(low, over, count, scale) <= graded(high, over, count, scale)


@given(values, values, levels, scales)
def test_levels_are_counted_from_one_without_a_gap(
    value: float, over: float, count: int, scale: TaintScale
) -> None:
    found = graded(value, over, count, scale)
    assert 1 <= len(found) <= count
    assert found == {f"{OVER}-level-{k}" for k in range(1, len(found) + 1)}


@given(values, values, levels)
def test_exponential_levels_come_no_later_than_linear_ones(value: float, over: float, count: int) -> None:
    assert graded(value, over, count, TaintScale.EXPONENTIAL) >= graded(value, over, count, TaintScale.LINEAR)


@given(
    st.lists(st.sampled_from(NodeClass), min_size=1, max_size=6),
    st.sampled_from(TaintScheme),
    st.sampled_from(SoftTaintMode),
)
def test_under_utilised_nodes_carry_nothing_and_keys_are_always_ours(
    node_classes: list[NodeClass], scheme: TaintScheme, mode: SoftTaintMode
) -> None:
    found = classification(*(verdict(f"node-{n}", c) for n, c in enumerate(node_classes)))
    for number, node_class in enumerate(node_classes):
        carried = desired_keys(f"node-{number}", found, soft_taints(scheme=scheme, mode=mode), MINUTE, START)
        if carried is None:
            assert mode is SoftTaintMode.DISABLED or node_class is NodeClass.UNKNOWN
            continue
        assert all(is_ours(Taint(key, "", EFFECT)) for key in carried)
        if node_class is NodeClass.UNDER:
            assert not carried
