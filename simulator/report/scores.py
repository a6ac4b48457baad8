"""Scores of a run, judged from the world's truth.

"Ours" are the migrations that the judged program asked for, KubeVirt's retries of them included: every
record but ``asked_by="other"``. What other people move is not held against it; but a move by others starts a
cool-down too, and going back to a node that others took the VM off counts as going back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from simulator.record import CooldownInfo, MigrationRecord, RunRecord

T = TypeVar("T")

RETURN_WITHIN_S = 3600.0
"""Back on a node that it left at most this long ago: the move before was for nothing."""
OVERLOADS_WITHIN_S = 600.0
"""A target that becomes over-utilised at most this long after the arrival was a wrong target."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """What one run is judged by; field names and their order are those of ``simulate -o json``.

    Rounded to what is worth printing: minutes to 1/1000, the standard deviation to 1/100000.
    """

    scenario: str
    seed: int
    policy_digest: str
    vms_shut_down: int
    migrations: int
    migrations_failed: int
    repeated_migrations: int
    """Asked for while the VM's cool-down after its last move was running."""
    undone_migrations: int
    """Went back to a node left within the hour, or to one that became over-utilised within 10 minutes."""
    max_outbound_per_node: int
    max_in_flight: int
    overutilized_node_minutes: float
    """Demand above 80 % of a node's cores, in node-minutes."""
    pressure_node_minutes: float
    """CPU pressure (PSI), integrated over time and summed over nodes."""
    starved_cpu_minutes: float
    """Core-minutes wanted and not given."""
    utilization_stddev: float
    """Mean over time of the standard deviation over nodes of used / cores."""
    minutes_to_balance: float | None
    """From the start of the trouble until no node is over 80 % for the rest of the run; ``None``: never."""


def scores(record: RunRecord) -> Scores:
    """Judge one finished run."""
    ours = [m for m in record.migrations if m.asked_by != "other"]
    outbound = _group(ours, lambda m: m.source).values()
    return Scores(
        scenario=record.scenario,
        seed=record.seed,
        policy_digest=record.policy_digest,
        vms_shut_down=len(record.shutdowns),
        migrations=len(ours),
        migrations_failed=sum(m.outcome == "Failed" for m in ours),
        repeated_migrations=len(repeated(record)),
        undone_migrations=len(undone(record)),
        max_outbound_per_node=max((_most_at_once(group) for group in outbound), default=0),
        max_in_flight=_most_at_once(ours),
        overutilized_node_minutes=round(record.overutilized_node_seconds / 60.0, 3),
        pressure_node_minutes=round(record.pressure_node_seconds / 60.0, 3),
        starved_cpu_minutes=round(record.starved_core_seconds / 60.0, 3),
        utilization_stddev=round(record.utilization_stddev, 5),
        minutes_to_balance=minutes_to_balance(record),
    )


def repeated(record: RunRecord) -> frozenset[int]:
    """Indices into ``record.migrations``: ours that were asked for inside their VM's cool-down.

    Only a move that succeeded starts a cool-down, and KubeVirt's own retry is no new request.
    """
    found = set()
    for indices in _moves_of_vms(record).values():
        moves = [record.migrations[i] for i in indices]
        for i, move in zip(indices, moves, strict=True):
            earlier = [m for m in moves if m.outcome == "Succeeded" and _end(m) <= move.created_s]
            first_try_of_ours = move.asked_by != "other" and move.attempt == 1
            if first_try_of_ours and move.created_s < _rests_until(earlier, move.created_s, record.cooldown):
                found.add(i)
    return frozenset(found)


def undone(record: RunRecord) -> frozenset[int]:
    """Indices into ``record.migrations``: ours that arrived, but not for good.

    Either the VM was back on a node that it had left at most an hour before, or the target became
    over-utilised within 10 minutes of the arrival.
    """
    found = set()
    for indices in _moves_of_vms(record).values():
        moves = [(i, record.migrations[i]) for i in indices if record.migrations[i].outcome == "Succeeded"]
        for i, move in moves:
            if move.asked_by == "other":
                continue
            arrival = _end(move)
            returned = any(
                earlier.source == move.target and 0.0 < arrival - _end(earlier) <= RETURN_WITHIN_S
                for _, earlier in moves
            )
            overloads = any(
                0.0 <= start_s - arrival <= OVERLOADS_WITHIN_S
                for start_s, _ in record.over_intervals.get(move.target or "", ())
            )
            if returned or overloads:
                found.add(i)
    return frozenset(found)


def minutes_to_balance(record: RunRecord) -> float | None:
    """Minutes from the start of the trouble until the last node stops being over-utilised.

    0 if none is from then on, ``None`` if one still is when the run ends.
    """
    last_s = max((end for spans in record.over_intervals.values() for _, end in spans), default=0.0)
    if last_s >= record.end_s:
        return None
    return round(max(0.0, last_s - record.trouble_start_s) / 60.0, 3)


def to_json(runs: Mapping[str, Sequence[Scores]]) -> str:
    """Scores by label as JSON text, indented.

    One label: its scores. Several (``--against``): an object with the labels as keys. A label with several
    seeds has a list of scores in place of the scores.
    """
    by_label = {label: list(seeds) if len(seeds) > 1 else seeds[0] for label, seeds in runs.items()}
    answer = by_label if len(by_label) > 1 else next(iter(by_label.values()))
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def by_label(runs: Iterable[RunRecord]) -> dict[str, list[Scores]]:
    """Judge several runs: label -> scores, in the order of the runs."""
    answer: dict[str, list[Scores]] = defaultdict(list)
    for run in runs:
        answer[run.label].append(scores(run))
    return dict(answer)


def _rests_until(earlier: Sequence[MigrationRecord], now_s: float, rule: CooldownInfo) -> float:
    """The end of the cool-down after a VM's moves so far (policy ``cooldown``); -inf if there is none."""
    recent = [m for m in earlier if _end(m) >= now_s - rule.window_s]
    if not recent:
        return float("-inf")
    last = max(recent, key=_end)
    # Bounded exponent: a float cannot hold 2**1024, and the cap is reached long before.
    doubled = min(rule.base_s * 2.0 ** min(len(recent) - 1, 64), rule.max_s)
    return _end(last) + max(doubled, _end(last) - last.created_s)


def _most_at_once(migrations: Iterable[MigrationRecord]) -> int:
    """The largest number of migrations on their way at one instant; one that ends makes room for the next."""
    changes: list[tuple[float, int]] = []
    for migration in migrations:
        changes += [(migration.created_s, 1), (_end(migration), -1)]
    now, most = 0, 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _end(migration: MigrationRecord) -> float:
    """When it ended; never, for one that is still on its way."""
    return float("inf") if migration.ended_s is None else migration.ended_s


def _moves_of_vms(record: RunRecord) -> dict[str, list[int]]:
    """By VMI: a VM that was restarted begins anew."""

    def vmi(index: int) -> str:
        return f"{record.migrations[index].vm} {record.migrations[index].vmi_uid}"

    return {
        key: sorted(indices, key=lambda i: record.migrations[i].created_s)
        for key, indices in _group(range(len(record.migrations)), vmi).items()
    }


def _group(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
