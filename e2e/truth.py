"""What the simulated cluster tells those who must not believe any client: its truth, and its audit log."""

from datetime import datetime
from pathlib import Path

import msgspec

_BUSY = "Too many requests"


class Move(msgspec.Struct, frozen=True):
    """One VirtualMachineInstanceMigration. Times are seconds of the cluster since its start."""

    vm: str
    source: str
    target: str | None
    created_s: float
    started_s: float | None
    ended_s: float | None
    outcome: str
    """Empty while it is on its way."""
    asked_by: str
    attempt: int

    @property
    def ours(self) -> bool:
        return self.asked_by == "rebalancer"

    def unfinished_at(self, time_s: float) -> bool:
        return self.created_s <= time_s and (self.ended_s is None or self.ended_s > time_s)


class Shutdown(msgspec.Struct, frozen=True):
    """A VM that went down because its launcher was evicted."""

    time_s: float
    vm: str
    node: str
    cause: str


class NodeTruth(msgspec.Struct, frozen=True):
    cores: float
    demand_cores: float

    @property
    def demand(self) -> float:
        """Above 1 if the node cannot give it."""
        return self.demand_cores / self.cores


class Truth(msgspec.Struct, frozen=True):
    now_s: float
    time: datetime
    speed: float
    migrations: list[Move]
    shutdowns: list[Shutdown]
    nodes: dict[str, NodeTruth]
    vms: dict[str, str | None]
    """VM (namespace/name) -> node."""

    @property
    def own_moves(self) -> list[Move]:
        return [move for move in self.migrations if move.ours]

    @property
    def on_the_move(self) -> list[Move]:
        return [move for move in self.migrations if not move.outcome]

    @property
    def being_copied(self) -> list[Move]:
        return [move for move in self.on_the_move if move.started_s is not None]

    @property
    def crowded(self) -> list[str]:
        """Nodes whose demand exceeds 80 % of their cores."""
        return [name for name, node in self.nodes.items() if node.demand > 0.8]

    @property
    def is_balanced(self) -> bool:
        """No node is crowded, and nothing moves any more."""
        return not self.crowded and not self.on_the_move


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the audit log."""

    time: datetime
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    status: int
    api_group: str = ""
    path: str = ""
    message: str = ""
    """Of a refusal."""

    @property
    def writes(self) -> bool:
        """Dry runs too: who may not write may not ask for one either."""
        return self.verb not in ("get", "list", "watch")

    @property
    def renews(self) -> bool:
        """Whether it is about a Lease: standing by, a replica writes nothing else."""
        return self.resource == "leases"

    @property
    def evicts(self) -> bool:
        return self.subresource == "eviction" and not self.dry_run

    @property
    def turned_away(self) -> bool:
        """By the flow control, before anybody looked at it."""
        return self.status == 429 and self.message.startswith(_BUSY)

    def by(self, account: str) -> bool:
        return self.user.endswith(f":{account}")

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}".rstrip("/")
        how = " (dry run)" if self.dry_run else ""
        return f"{self.time:%H:%M:%S.%f} {self.user} {self.verb} {what} {self.name}: {self.status}{how}"


def read_audit(path: Path) -> list[Request]:
    """All requests so far, in the order of their answers."""
    decode = msgspec.json.Decoder(Request).decode
    return [decode(line) for line in path.read_bytes().splitlines()]
