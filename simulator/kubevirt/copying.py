"""Copying of guests over the network.

NICs are full duplex: what leaves a node shares its NIC, and what arrives there shares it too, but not with what leaves.
Each copying migration gets an equal share at both ends: bandwidth = min(source's NIC / migrations that leave it,
target's NIC / migrations that arrive there), at most KubeVirt's ``bandwidthPerMigration``. To transfer are the guest's
resident memory and the set-up; while bandwidth is moved, the guest dirties pages again, so that what remains falls by
bandwidth - dirty rate. Shares change when a migration begins or ends. When what remains fits into the allowed downtime
(0.3 s, QEMU's default) the guest is switched over.

KubeVirt aborts a migration that has not ended after completionTimeoutPerGiB for each GiB of guest memory, and one that
made no progress for progressTimeout. The first pass over the memory counts as progress even if the guest dirties
pages faster than they are sent (KubeVirt compares with the lowest remainder so far). Left out: compression, auto-
converge, post-copy, the single passes of the pre-copy loop, and other traffic on the NICs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simulator.agenda import Handle
from simulator.kubevirt.objectstore import Json
from simulator.kubevirt.plane import Plane
from simulator.kubevirt.quantities import parse_bytes
from simulator.specs import GIB, VmSpec

_DOWNTIME_S = 0.3
_BROKEN = (
    "Live migration failed: operation failed: job 'migration out' failed: unable to write to socket: "
    "Connection reset by peer"
)


@dataclass(slots=True, eq=False)
class Copy:
    """One guest on its way. ``remaining_bytes`` and ``sent_bytes`` are those at ``at_s``."""

    source: str
    target: str
    done: Callable[[str], None]
    """Called once, with the reason of the failure, or an empty string."""
    dirty_bytes_per_s: float
    cap_bytes_per_s: float
    deadline_s: float
    progress_timeout_s: float
    total_bytes: float
    remaining_bytes: float
    breaks_at_bytes: float
    """It breaks off when so much remains; 0: it does not."""
    stuck: bool
    at_s: float
    started_s: float
    sent_bytes: float = 0.0
    bandwidth_bytes_per_s: float = 0.0
    stalled_since_s: float | None = None
    next_step: Handle | None = None


class Copying:
    """All copying migrations, and what they cost their nodes."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._leaving: dict[str, list[Copy]] = {}
        self._arriving: dict[str, list[Copy]] = {}

    def start(self, spec: VmSpec, source: str, target: str, done: Callable[[str], None]) -> Copy:
        """Begin to copy a guest between two nodes of the cluster."""
        options, rng, now_s = self._plane.options, self._plane.rng, self._plane.agenda.now_s
        limits = self._plane.configuration().get("migrations") or {}
        total = self._plane.world.vm_touched_bytes(f"{spec.namespace}/{spec.name}") + options.setup_bytes
        breaks = rng.random() < options.failure_probability
        copy = Copy(
            source=source,
            target=target,
            done=done,
            dirty_bytes_per_s=spec.dirty_bytes_per_s,
            cap_bytes_per_s=_cap(limits),
            deadline_s=now_s + _timeout(limits, "completionTimeoutPerGiB") * max(spec.guest_bytes / GIB, 1.0),
            progress_timeout_s=_timeout(limits, "progressTimeout"),
            total_bytes=total,
            remaining_bytes=total,
            breaks_at_bytes=total * rng.uniform(0.05, 0.95) if breaks else 0.0,
            stuck=rng.random() < options.stuck_probability,
            at_s=now_s,
            started_s=now_s,
        )
        self._leaving.setdefault(source, []).append(copy)
        self._arriving.setdefault(target, []).append(copy)
        self._share(copy)
        return copy

    def stop(self, copy: Copy) -> None:
        """End a copy, whatever it has come to; ``done`` is not called any more."""
        if copy.next_step is not None:
            copy.next_step.cancel()
        if copy in self._leaving[copy.source]:
            self._leaving[copy.source].remove(copy)
            self._arriving[copy.target].remove(copy)
            self._share(copy)

    def _share(self, changed: Copy) -> None:
        """Share out anew what a copy that begins or ends has a part in."""
        for node in (changed.source, changed.target):
            if node in self._plane.nics:
                copies = len(self._leaving.get(node, ())) + len(self._arriving.get(node, ()))
                overhead_cores = copies * self._plane.options.cpu_overhead_cores
                self._plane.world.set_overhead_cores(node, overhead_cores)
        affected = [*self._leaving[changed.source]]
        affected += [copy for copy in self._arriving[changed.target] if copy.source != changed.source]
        for copy in affected:
            self._advance(copy)
            share = min(
                self._plane.nics.get(copy.source, 0.0) / len(self._leaving[copy.source]),
                self._plane.nics.get(copy.target, 0.0) / len(self._arriving[copy.target]),
            )
            copy.bandwidth_bytes_per_s = max(min(share, copy.cap_bytes_per_s), 1.0)
            self._plan(copy)

    def _advance(self, copy: Copy) -> None:
        now_s = self._plane.agenda.now_s
        elapsed_s = (now_s - copy.at_s) / self._plane.options.slow_factor
        copy.at_s = now_s
        copy.sent_bytes += copy.bandwidth_bytes_per_s * elapsed_s
        if copy.bandwidth_bytes_per_s:
            left = copy.remaining_bytes - _net_rate(copy) * elapsed_s
            copy.remaining_bytes = min(max(left, 0.0), copy.total_bytes)

    def _plan(self, copy: Copy) -> None:
        """Plan how this copy ends if nothing else changes."""
        if copy.next_step is not None:
            copy.next_step.cancel()
        if copy.stuck:
            return
        now_s = self._plane.agenda.now_s
        due_s, reason = self._end(copy, now_s)
        if copy.deadline_s < due_s:
            limit_s = copy.deadline_s - copy.started_s
            due_s = copy.deadline_s
            reason = f"Live migration is not completed after {limit_s:.0f} sec and has been aborted"

        def end() -> None:
            self._advance(copy)
            self.stop(copy)
            copy.done(reason)

        copy.next_step = self._plane.agenda.at(due_s, end)

    def _end(self, copy: Copy, now_s: float) -> tuple[float, str]:
        """When and how it ends but for the completion time-out."""
        slow = self._plane.options.slow_factor
        rate = _net_rate(copy)
        enough = copy.bandwidth_bytes_per_s * _DOWNTIME_S
        if copy.remaining_bytes > enough and rate <= 0.0:
            if copy.stalled_since_s is None:
                copy.stalled_since_s = now_s
            unsent = max(copy.total_bytes - copy.sent_bytes, 0.0)
            first_pass_s = now_s + unsent / copy.bandwidth_bytes_per_s * slow
            due_s = max(copy.stalled_since_s, first_pass_s) + copy.progress_timeout_s
            return due_s, f"Live migration stuck for {copy.progress_timeout_s:.0f} sec and has been aborted"
        copy.stalled_since_s = None
        reason = _BROKEN if copy.breaks_at_bytes else ""
        left = max(copy.remaining_bytes - max(copy.breaks_at_bytes, enough), 0.0)
        return now_s + (left / rate * slow if left else 0.0), reason


def _net_rate(copy: Copy) -> float:
    return copy.bandwidth_bytes_per_s - copy.dirty_bytes_per_s


def _timeout(limits: Json, name: str) -> float:
    """KubeVirt's default for both is 150 s."""
    return float(limits.get(name, 150))


def _cap(limits: Json) -> float:
    text = limits.get("bandwidthPerMigration")
    return float(parse_bytes(text)) if text else float("inf")
