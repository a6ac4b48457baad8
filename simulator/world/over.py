"""When nodes were over the limit."""

from collections.abc import Set

Interval = tuple[float, float]
"""(start_s, end_s), start included, end not."""


class OverIntervals:
    """Periods of each node, and of "any node". Times given must not go back."""

    def __init__(self) -> None:
        self._closed: dict[str, list[Interval]] = {}
        self._open: dict[str, float] = {}
        self._any_closed: list[Interval] = []
        self._any_since_s: float | None = None

    def note(self, time_s: float, over: Set[str]) -> None:
        """From this time on exactly these nodes are over."""
        if self._open.keys() == over and bool(over) == (self._any_since_s is not None):
            return
        for node in sorted(self._open.keys() - over):
            self.close(node, time_s)
        for node in sorted(over - self._open.keys()):
            self._open[node] = time_s
        if over and self._any_since_s is None:
            self._any_since_s = time_s
        if not over and self._any_since_s is not None:
            self._any_closed.append((self._any_since_s, time_s))
            self._any_since_s = None

    def close(self, node: str, time_s: float) -> None:
        """This node is over no more, or has gone."""
        start_s = self._open.pop(node, None)
        if start_s is not None:
            self._closed.setdefault(node, []).append((start_s, time_s))

    def by_node(self, now_s: float) -> dict[str, list[Interval]]:
        """Intervals that go on end now."""
        result = {node: list(intervals) for node, intervals in self._closed.items()}
        for node, start_s in self._open.items():
            result.setdefault(node, []).append((start_s, now_s))
        return result

    def of_any(self, now_s: float) -> list[Interval]:
        now = [] if self._any_since_s is None else [(self._any_since_s, now_s)]
        return self._any_closed + now
