"""The last few snapshots: what a decision about "for how long" looks at."""

from controller.utilization.reading import Snapshot


class History:
    """Snapshots, newest last.

    Owner: the program whose handler refreshes the metrics; only it appends. The tuple that ``snapshots`` returns is
    never changed, so any thread may keep it. Invariant: sequence numbers rise.
    """

    def __init__(self) -> None:
        self._snapshots: tuple[Snapshot, ...] = ()
        self._sequence = 0

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def append(self, snapshot: Snapshot, keep: int) -> None:
        """Add the newest snapshot and forget all but the last ``keep``.

        One with nothing but the samples of the last takes its place: asking more often than the rules are evaluated
        must not push older samples out.
        """
        before = self._snapshots
        if before and snapshot.sequence <= before[-1].sequence:
            return  # an answer that was overtaken by a later one
        if before and (snapshot.values, snapshot.loads) == (before[-1].values, before[-1].loads):
            before = before[:-1]
        self._snapshots = (*before, snapshot)[-keep:]

    def clear(self) -> None:
        """Forget everything: after a change of what is asked, old values say nothing about new thresholds."""
        self._snapshots = ()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self._snapshots

    @property
    def latest(self) -> Snapshot | None:
        return self._snapshots[-1] if self._snapshots else None
