"""Trouble between the recorded series and whoever reads them.

Each kind is a struct of plain parameters (tag ``kind`` in a scenario). ``MetricTroubles`` applies those that
hold at the moment, in the order given, so they compose: first two nodes missing, then all under host names.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct

from simulator.metrics.recorded import Sample

LOOKBACK_S = 300.0
"""Prometheus answers with a series' last sample for five minutes, then no more."""

Probability = Annotated[float, Meta(ge=0, le=1)]


class MetricsOutage(Exception):  # noqa: N818  what is out is the metrics, nothing here is in error
    """No answer at all; the message says what the reader would see."""


class _Trouble(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """When, and for which samples.

    It holds from ``start_minute`` until ``end_minute`` (default: the end of the run); with ``every_minutes``,
    only for the first ``for_minutes`` of each such period, counted from the start. ``series`` and ``nodes``
    are globs over names of recorded series and of nodes (label ``instance``, else ``node``); none: all. Each
    sample that these leave is hit with ``probability``, drawn anew at every query.
    """

    start_minute: Annotated[float, Meta(ge=0)] = 0.0
    end_minute: Annotated[float, Meta(gt=0)] | None = None
    every_minutes: Annotated[float, Meta(gt=0)] | None = None
    for_minutes: Annotated[float, Meta(gt=0)] | None = None
    series: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    probability: Probability = 1.0

    def __post_init__(self) -> None:
        if self.end_minute is not None and self.end_minute <= self.start_minute:
            raise ValueError(
                f"end_minute is {self.end_minute}, it must be after start_minute {self.start_minute}"
            )
        if (self.every_minutes is None) != (self.for_minutes is None):
            raise ValueError("every_minutes and for_minutes need each other")

    def holds(self, series: str, now_s: float) -> bool:
        """Now, for this recorded series."""
        return self._holds_at(now_s / 60.0) and _any_match(self.series, series)

    def _holds_at(self, minute: float) -> bool:
        if minute < self.start_minute or (self.end_minute is not None and minute >= self.end_minute):
            return False
        if self.every_minutes is not None and self.for_minutes is not None:
            return (minute - self.start_minute) % self.every_minutes < self.for_minutes
        return True

    def hits(self, sample: Sample, rng: random.Random) -> bool:
        if not _any_match(self.nodes, _node(sample)):
            return False
        return self.probability >= 1.0 or rng.random() < self.probability


class Missing(_Trouble, frozen=True, kw_only=True, tag="missing"):
    """The samples are not there: an exporter is down, or PSI is off."""


class NotANumber(_Trouble, frozen=True, kw_only=True, tag="nan"):
    """The values are NaN, as after a division of nothing by nothing."""


class Infinite(_Trouble, frozen=True, kw_only=True, tag="infinite"):
    """The values are +Inf, as after a division by nothing."""


class OutOfRange(_Trouble, frozen=True, kw_only=True, tag="out-of-range"):
    """The values are this: percents instead of fractions, or a broken counter."""

    value: float = 87.0


class Stale(_Trouble, frozen=True, kw_only=True, tag="stale"):
    """Recording has stopped for some nodes: samples stay what they were at the first query, and grow old.

    When they are five minutes old they are gone, as Prometheus looks back no further. ``probability`` is
    drawn for each sample at the first query: the node of one that is hit has stopped.
    """


class Duplicate(_Trouble, frozen=True, kw_only=True, tag="duplicate"):
    """The samples come twice, the second time from another ``job`` and that much higher or lower."""

    factor: Annotated[float, Meta(ge=0)] = 1.1


class Relabel(_Trouble, frozen=True, kw_only=True, tag="relabel"):
    """``instance`` is the node's InternalIP and port (where it has one), its name and port, or a longer name."""

    to: Literal["ip:port", "host:port", "fqdn"] = "ip:port"
    port: Annotated[int, Meta(ge=1, le=65535)] = 9100
    domain: str = "example.com"


class Partial(_Trouble, frozen=True, kw_only=True, tag="partial"):
    """Thanos lacks a store: what is hit is missing, and the answer carries a warning."""

    warning: str = "partial response: fetch series: rpc error: code = Unavailable"


class Outage(_Trouble, frozen=True, kw_only=True, tag="outage"):
    """No answer. ``probability`` is that of each query."""

    message: str = "connection refused"


class Late(_Trouble, frozen=True, kw_only=True, tag="late"):
    """Answers take this long on their way. ``probability`` is that of each query."""

    delay_seconds: Annotated[float, Meta(gt=0)] = 45.0


Trouble = Missing | NotANumber | Infinite | OutOfRange | Stale | Duplicate | Relabel | Partial | Outage | Late


class MetricTroubles:
    """Applies troubles to answers. Owns the random numbers and what stale series last said."""

    def __init__(
        self,
        troubles: Sequence[Trouble],
        rng: random.Random,
        internal_ips: Mapping[str, str] | None = None,
    ) -> None:
        """``internal_ips``: node -> InternalIP, read at each answer, for ``Relabel`` to ``ip:port``."""
        self._troubles = tuple(troubles)
        self._rng = rng
        self._internal_ips = internal_ips if internal_ips is not None else {}
        self._drawn: dict[int, tuple[float, bool]] = {}
        self._frozen: dict[tuple[int, str], list[Sample]] = {}

    def apply(self, series: str, samples: list[Sample], now_s: float) -> tuple[list[Sample], list[str]]:
        """What the reader gets instead, and the answer's warnings. Raises ``MetricsOutage`` for no answer.

        Neither the list nor its label dicts are changed. Samples keep their order, but stale ones come first.
        """
        warnings: list[str] = []
        for number, trouble in enumerate(self._troubles):
            if not trouble.holds(series, now_s):
                self._frozen.pop((number, series), None)
                continue
            if isinstance(trouble, Outage):
                if self._strikes(number, trouble, now_s):
                    raise MetricsOutage(trouble.message)
            elif isinstance(trouble, Stale):
                samples = self._stale(number, trouble, series, samples, now_s)
            elif not isinstance(trouble, Late):
                if isinstance(trouble, Partial):
                    warnings.append(trouble.warning)
                samples = list(self._changed(trouble, samples))
        return samples, warnings

    def delay_s(self, series: str, now_s: float) -> float:
        """How long the answer to a query sent now takes, in seconds: delays that hold add up."""
        return sum(
            trouble.delay_seconds
            for number, trouble in enumerate(self._troubles)
            if isinstance(trouble, Late)
            and trouble.holds(series, now_s)
            and self._strikes(number, trouble, now_s)
        )

    def _strikes(self, number: int, trouble: Outage | Late, now_s: float) -> bool:
        """Drawn once an instant: a Prometheus that is slow or away is so for all queries of a refresh."""
        drawn_s, strikes = self._drawn.get(number, (-1.0, False))
        if drawn_s != now_s:
            strikes = trouble.probability >= 1.0 or self._rng.random() < trouble.probability
            self._drawn[number] = (now_s, strikes)
        return strikes

    def _changed(self, trouble: Trouble, samples: list[Sample]) -> Iterator[Sample]:
        for sample in samples:
            if not trouble.hits(sample, self._rng):
                yield sample
                continue
            labels, value, time_s = sample
            match trouble:
                case NotANumber():
                    yield labels, math.nan, time_s
                case Infinite():
                    yield labels, math.inf, time_s
                case OutOfRange():
                    yield labels, trouble.value, time_s
                case Duplicate():
                    yield sample
                    yield {**labels, "job": "second"}, value * trouble.factor, time_s
                case Relabel():
                    yield self._relabelled(trouble, labels), value, time_s
                case _:  # missing, one way or the other
                    pass

    def _relabelled(self, trouble: Relabel, labels: dict[str, str]) -> dict[str, str]:
        node = labels.get("instance")
        if node is None:
            return labels
        if trouble.to == "fqdn":
            return {**labels, "instance": f"{node}.{trouble.domain}"}
        if trouble.to == "host:port":
            return {**labels, "instance": f"{node}:{trouble.port}"}
        address = self._internal_ips.get(node)
        return labels if address is None else {**labels, "instance": f"{address}:{trouble.port}"}

    def _stale(
        self, number: int, trouble: Stale, series: str, samples: list[Sample], now_s: float
    ) -> list[Sample]:
        key = (number, series)
        if key not in self._frozen:
            hit = {_node(sample) for sample in samples if trouble.hits(sample, self._rng)}
            self._frozen[key] = [sample for sample in samples if _node(sample) in hit]
        frozen = self._frozen[key]
        stopped = {_node(sample) for sample in frozen}
        old = [sample for sample in frozen if now_s - sample[2] <= LOOKBACK_S]
        return old + [sample for sample in samples if _node(sample) not in stopped]


def _node(sample: Sample) -> str:
    labels = sample[0]
    return labels.get("instance", labels.get("node", ""))


def _any_match(globs: tuple[str, ...], text: str) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
