"""What makes trouble visible to whoever runs the programs: metrics, readiness, logs, the kubelet's restarts."""

import re
from collections.abc import Callable, Iterator

from e2e.faults.scene import Scene
from e2e.programs import Program
from e2e.waiting import NOT_YET


class Sign:
    """Truthy on a scene once it is seen; any replica of ``program`` (empty: of any) will do."""

    def __init__(
        self, what: str, seen_on: Callable[[Scene, Program], object], program: str = "descheduler"
    ) -> None:
        self.what = what
        self._seen_on = seen_on
        self._program = program

    def __call__(self, scene: Scene) -> bool:
        return any(self.seen_on(scene, one) for one in self._looked_at(scene))

    def _looked_at(self, scene: Scene) -> Iterator[Program]:
        yield from (one for one in scene.lab.programs if one.account.startswith(self._program))

    def seen_on(self, scene: Scene, one: Program) -> bool:
        try:
            return bool(self._seen_on(scene, one))
        except NOT_YET:
            return False

    def __str__(self) -> str:
        return f"{self._program or 'a program'}: {self.what}"


def grows(name: str, program: str = "descheduler", **labels: str) -> Sign:
    """A counter has grown since the trouble began."""
    return Sign(
        f"{_series(name, labels)} grows",
        lambda scene, one: scene.value(one, name, labels) > scene.value_before(one, name, labels),
        program,
    )


def slow_requests(**labels: str) -> Sign:
    """Answers have come that took longer than a second."""
    name, second = "api_request_duration_seconds", {**labels, "le": "1.0"}

    def seen(scene: Scene, one: Program) -> bool:
        now = scene.value(one, f"{name}_count", labels) - scene.value(one, f"{name}_bucket", second)
        before = scene.value_before(one, f"{name}_count", labels) - scene.value_before(
            one, f"{name}_bucket", second
        )
        return now > before

    return Sign(f"{_series(name, labels)} beyond a second", seen, "")


def shows_value(
    name: str, claim: Callable[[float], object], program: str = "descheduler", **labels: str
) -> Sign:
    """A gauge has a value that says it."""
    return Sign(_series(name, labels), lambda scene, one: claim(scene.value(one, name, labels)), program)


def says(pattern: str, program: str = "descheduler") -> Sign:
    """A line of the log since the trouble began."""
    return Sign(f"says {pattern!r}", lambda scene, one: re.search(pattern, scene.said(one)), program)


def restarted() -> Sign:
    """Its container has ended and was started again."""
    return Sign("was started again", lambda scene, one: scene.restarted(one))


def node_is_out(which: str) -> Sign:
    """The source or the target of the move is no node that could send or take VMs any more."""

    def seen(scene: Scene, one: Program) -> bool:
        classes = one.page().get("vm_rebalancer_node_class", [])
        name = scene.node(which)
        return bool(classes) and not any(
            value >= 0 for value, labels in classes if labels.get("node") == name
        )

    return Sign(f"the {which} has no class any more", seen)


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ", ".join(f"{label}={value}" for label, value in labels.items())
    return f"{name}{{{inside}}}"
