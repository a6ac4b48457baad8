"""Reflectors of the test server, and waiting for what they do."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event

from informers.clock import Clock, SystemClock
from informers.informer import Informer
from informers.reflector import Reflector, Resource
from informers.transport import Transport
from tests.informers.api_server import DEADLINE_S
from tests.informers.served import ITEMS, Item, Served

STOP = timedelta(seconds=DEADLINE_S)


class Following:
    """A reflector at work, what it follows into, and what it reports."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[Item],
        clock: Clock,
        seed: int,
        index: Callable[[Item], list[int]],
    ) -> None:
        self.informer: Informer[Item] = Informer("items", {"size": index})
        self.reported: list[Exception] = []
        self.reflector = Reflector(
            resource,
            transport,
            self.informer,
            clock,
            random.Random(seed),
            lambda name, error: self.reported.append(error),
        )

    def objects(self) -> dict[str, Item]:
        return {obj.metadata.name: obj for obj in self.informer.lister.list()}

    def catches_up_with(self, served: Served) -> None:
        eventually(lambda: self.informer.has_synced and self.objects() == served.objects())

    def has_seen(self, *errors: type[Exception]) -> None:
        eventually(lambda: all(kind.__name__ in self.reflector.statistics().errors for kind in errors))


@contextmanager
def following(
    transport: Transport,
    *,
    resource: Resource[Item] = ITEMS,
    clock: Clock | None = None,
    seed: int = 1,
    index: Callable[[Item], list[int]] = lambda obj: [obj.size],
) -> Iterator[Following]:
    follower = Following(transport, resource, clock or SystemClock(), seed, index)
    follower.reflector.start()
    try:
        yield follower
    finally:
        assert follower.reflector.stop(STOP)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it does; fail after the deadline."""
    never, clock = Event(), SystemClock()
    until_s = clock.monotonic() + DEADLINE_S
    while not holds():
        assert clock.monotonic() < until_s, "waited in vain"
        never.wait(0.005)
