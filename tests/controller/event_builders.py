"""What Events are made of, and a sink that keeps them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import Node, Vmi, Vmim
from controller.cluster.view import ClusterView
from controller.evictions.entry import VmKey
from controller.policy.model import Policy
from controller.telemetry.events import Event, EventObserver, EventType, Subject, vmi_subject
from informers.testing import ManualClock
from tests.builders import START, node, vmi
from tests.controller.decision_builders import POLICY

ON_VM_1 = vmi_subject(VmKey("vms", "vm-1"), "vmi-vm-1")
ON_NODE_1 = Subject("v1", "Node", "", "node-1", "node-node-1")


def event(
    message: str = "so it is",
    *,
    subject: Subject = ON_VM_1,
    kind: EventType = EventType.NORMAL,
    reason: str = "Rebalanced",
    notice: bool = False,
) -> Event:
    return Event(subject, kind, reason, message, notice)


@dataclass
class Sink:
    """Keeps what it takes; ``takes`` may be changed at any time."""

    takes: bool = True
    events: list[Event] = field(default_factory=list)

    def say(self, event: Event) -> bool:
        if self.takes:
            self.events.append(event)
        return self.takes

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]


class Observed:
    """An observer under a policy that may be changed, over caches with these objects, and what it has said."""

    def __init__(
        self,
        *,
        nodes: tuple[Node, ...] = (node("node-1"), node("node-2")),
        vmis: tuple[Vmi, ...] = (vmi("vm-1"), vmi("vm-2")),
        vmims: tuple[Vmim, ...] = (),
    ) -> None:
        self.policy: Policy | None = POLICY
        self.clock = ManualClock(START)
        self.sink = Sink()
        caches = ClusterCaches()
        caches.nodes.replace(list(nodes))
        caches.vmis.replace(list(vmis))
        caches.vmims.replace(list(vmims))
        current: Callable[[], Policy | None] = lambda: self.policy  # noqa: E731
        self.observer = EventObserver(self.sink, ClusterView.over(caches), current, self.clock)

    @property
    def only(self) -> Event:
        (said,) = self.sink.events
        return said
