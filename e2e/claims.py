"""What must hold in every case, whatever happens, judged by the cluster's truth."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from e2e.cluster import ACCOUNTS
from e2e.truth import Move, Request, Truth

TOLD_AFTER_S = 2.0
"""Seconds of real time. What others have begun so shortly before cannot be held against anybody."""


class Limits(NamedTuple):
    """How many VMs may be on the move at once: off one node, and in all."""

    node: int
    total: int
    stuck_after_s: float = math.inf
    """Seconds of the cluster. What moves for longer is stuck, and counts on its node only."""


def exceeded(truth: Truth, limits: Limits) -> list[str]:
    """Each migration of ours that began while no other might have, those of others counted."""
    return [
        f"{move.vm} left {move.source} at {move.created_s:.1f} s as one of {count} {where}, allowed: {limit}"
        for move in truth.own_moves
        if move.attempt == 1
        for count, where, limit in _crowd(move, truth, limits)
        if count > limit
    ]


def _crowd(move: Move, truth: Truth, limits: Limits) -> Iterator[tuple[int, str, int]]:
    known_s = move.created_s - TOLD_AFTER_S * truth.speed
    others = [
        other
        for other in truth.migrations
        if other is not move
        and other.unfinished_at(move.created_s)
        and (other.ours or other.created_s < known_s)
    ]
    yield 1 + sum(other.source == move.source for other in others), "from that node", limits.node
    stuck_s = move.created_s - limits.stuck_after_s + TOLD_AFTER_S * truth.speed
    going = [other for other in others if other.created_s > stuck_s]
    yield 1 + len(going), "in the cluster", limits.total


def evicted_twice(requests: Sequence[Request]) -> list[str]:
    """Pods that our programs have asked to evict more than once, dry runs and requests turned away aside."""
    counts = Counter(
        f"{request.namespace}/{request.name}"
        for request in requests
        if request.evicts and not request.turned_away and any(request.by(account) for account in ACCOUNTS)
    )
    return [pod for pod, count in counts.items() if count > 1]
