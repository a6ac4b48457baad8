"""The judge: what it lets pass, and what it does not."""

from datetime import UTC, datetime

from e2e.claims import Limits, evicted_twice, exceeded
from e2e.truth import Move, Request, Truth

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(node=1, total=2)


def move(vm: str, source: str, created_s: float, ended_s: float | None, asked_by: str = "rebalancer") -> Move:
    return Move(vm, source, "target", created_s, created_s, ended_s, "Succeeded", asked_by, 1)


def truth(*moves: Move) -> Truth:
    return Truth(100.0, NOW, 6.0, list(moves), [], {}, {})


def eviction(pod: str, account: str, message: str = "Eviction triggered evacuation of VMI") -> Request:
    user = f"system:serviceaccount:vm-rebalancer:{account}"
    return Request(NOW, user, "create", "pods", "eviction", "vms", pod, False, 429, message=message)


def test_one_after_the_other_is_within_the_limits() -> None:
    assert (
        exceeded(truth(move("a", "n", 0, 10), move("b", "n", 10, None), move("c", "m", 5, 9)), LIMITS) == []
    )


def test_two_at_once_from_one_node_are_too_many() -> None:
    assert len(exceeded(truth(move("a", "n", 0, 10), move("b", "n", 9, None)), LIMITS)) == 1


def test_what_others_move_counts_from_when_it_could_be_known() -> None:
    theirs = [move("a", "m", 0, 50, "other"), move("b", "m", 1, 50, "other")]
    assert exceeded(truth(*theirs, move("c", "n", 2, None)), LIMITS) == []
    assert len(exceeded(truth(*theirs, move("c", "n", 40, None)), LIMITS)) == 1


def test_what_is_stuck_counts_on_its_node_only() -> None:
    limits = LIMITS._replace(stuck_after_s=60)
    hang = [move("a", "m", 0, None), move("b", "n", 0, None)]
    assert len(exceeded(truth(*hang, move("c", "k", 40, 50)), limits)) == 1
    assert exceeded(truth(*hang, move("c", "k", 70, None)), limits) == []
    assert len(exceeded(truth(*hang, move("c", "n", 70, None)), limits)) == 1


def test_a_pod_is_evicted_once_by_all_of_us_together() -> None:
    by_others = [Request(NOW, "kubernetes-admin", "create", "pods", "eviction", "vms", "p", False, 429)] * 2
    assert evicted_twice([*by_others, eviction("p", "descheduler-0")]) == []
    assert evicted_twice([eviction("p", "descheduler-0"), eviction("p", "descheduler-1")]) == ["vms/p"]


def test_who_was_turned_away_may_ask_again() -> None:
    away = eviction("p", "descheduler-0", "Too many requests, please try again later.")
    assert evicted_twice([away, away, eviction("p", "descheduler-0")]) == []
    assert evicted_twice([away, *[eviction("p", "descheduler-0")] * 2]) == ["vms/p"]
