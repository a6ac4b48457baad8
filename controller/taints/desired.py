"""Which soft taints nodes should carry: pure, from a classification. Only ``PreferNoSchedule``, only our own keys.

A taint is identified by key and effect, so a node that is to repel more strongly carries more keys. Without
under-utilised nodes, appropriate ones are not tainted: there would be nowhere better to go.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from controller.cluster.objects import Node, Taint
from controller.policy.model import SoftTaintMode, SoftTaints, TaintScale, TaintScheme
from controller.utilization.classify import Classification, NodeClass, NodeVerdict

PREFIX = "nodeutilization.vm-rebalancer.io"
EFFECT = "PreferNoSchedule"
OVER = f"{PREFIX}/overutilized"
APPROPRIATE = f"{PREFIX}/appropriate"


def is_ours(taint: Taint) -> bool:
    """Ours by key prefix and effect: the same key with another effect was set by somebody else."""
    return taint.effect == EFFECT and taint.key.startswith(f"{PREFIX}/")


def desired_keys(
    node: str,
    classification: Classification | None,
    policy: SoftTaints,
    max_age: timedelta,
    started_at: datetime,
) -> frozenset[str] | None:
    """Our taint keys for one node; ``None``: leave what is there.

    A node that is not eligible (left the selector, cordoned) carries none. A node without a value, and every node
    while a round is skipped, keeps its taints until its last value, or the start of the program, is older than
    ``max_age``.
    """
    if policy.mode is not SoftTaintMode.ENABLED:
        return frozenset()  # nobody would take them off later
    if classification is None:
        return None
    verdict = classification.nodes.get(node)
    if verdict is None:
        return frozenset()
    if classification.skipped or verdict.node_class is NodeClass.UNKNOWN:
        last = max(verdict.last_seen or started_at, started_at)
        return None if classification.at - last < max_age else frozenset()
    return _keys(verdict, classification, policy)


def may_still_be_over(node: Node, classification: Classification | None, policy: SoftTaints) -> bool:
    """Whether the node is tainted as over-utilised, and above its threshold, only not ``sustain`` times in a row yet.

    The first snapshot below the threshold takes the taints off; so what counts is new here, not the node's trouble:
    the program has started again, or asks other queries. The taints stay until it can tell.
    """
    verdict = classification.nodes.get(node.name) if classification is not None else None
    if verdict is None or policy.mode is not SoftTaintMode.ENABLED:
        return False
    tainted = any(key.startswith(OVER) for key in our_keys(node.taints))
    return tainted and verdict.streak > 0 and verdict.node_class is not NodeClass.OVER


def _keys(verdict: NodeVerdict, classification: Classification, policy: SoftTaints) -> frozenset[str]:
    over = verdict.node_class is NodeClass.OVER
    if policy.scheme is TaintScheme.SINGLE:
        return frozenset({OVER}) if over else frozenset()
    if policy.scheme is TaintScheme.GRADED:
        return _levels(verdict, classification, policy) if over else frozenset()
    if over:
        return frozenset({OVER, APPROPRIATE})
    any_under = any(v.node_class is NodeClass.UNDER for v in classification.nodes.values())
    return (
        frozenset({APPROPRIATE}) if any_under and verdict.node_class is NodeClass.APPROPRIATE else frozenset()
    )


def _levels(verdict: NodeVerdict, classification: Classification, policy: SoftTaints) -> frozenset[str]:
    """1..levels keys by how much of the room above the threshold the worst query has used up.

    Linear: level k from (k-1)/levels of the room. Exponential: level k from (2^(k-1) - 1)/(2^levels - 1) of it, so
    that the first levels come quickly.
    """
    share = 0.0
    for query, value in verdict.values.items():
        over = classification.limits[query].over
        if over < 1.0:
            share = max(share, (value - over) / (1.0 - over))
    if policy.scale is TaintScale.LINEAR:
        starts = [k / policy.levels for k in range(policy.levels)]
    else:
        starts = [(2**k - 1) / (2**policy.levels - 1) for k in range(policy.levels)]
    level = max(1, sum(share >= start for start in starts))
    return frozenset(f"{OVER}-level-{k}" for k in range(1, level + 1))


def merged(present: Sequence[Taint], keys: Iterable[str]) -> list[Taint]:
    """``present`` with exactly ``keys`` of ours: foreign taints untouched and in place, ours that stay too.

    Ours have no value; one that somebody gave it is taken off again.
    """
    wanted = set(keys)
    kept = [t for t in present if not is_ours(t) or (t.key in wanted and not t.value)]
    there = {t.key for t in kept if is_ours(t)}
    return [*kept, *(Taint(key=key, value="", effect=EFFECT) for key in sorted(wanted - there))]


def our_keys(taints: Iterable[Taint]) -> frozenset[str]:
    return frozenset(t.key for t in taints if is_ours(t))
