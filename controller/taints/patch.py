"""Writes soft taints to nodes of the real cluster: one of the few places that write to it.

One JSON patch (RFC 6902) per node, all of it or nothing: a ``test`` on the resourceVersion that was read, then only
what differs, by position. So other people's taints are never written, not even with what they were read to be: they
have a field that we do not decode (``timeAdded``).
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from controller.cluster.objects import Node, Taint
from controller.lease import NotLeaderError
from informers.errors import Conflict, Invalid, NotFound
from informers.transport import Transport

DEADLINE = timedelta(seconds=10)

Operation = dict[str, object]
"""Of a JSON patch."""


class TaintPatcher:
    """Implements :class:`controller.ports.NodePatcher`. ``time_to_write``: how long a request may take by the lease."""

    def __init__(
        self, transport: Transport, time_to_write: Callable[[], timedelta], deadline: timedelta = DEADLINE
    ) -> None:
        self._transport = transport
        self._time_to_write = time_to_write
        self._deadline = deadline

    def replace_taints(self, node: Node, taints: Sequence[Taint]) -> bool:
        """Make ``taints`` the node's; their order is kept among those there and among the new ones.

        False if the node has changed since it was read. Raises NotLeaderError, and sends nothing, without
        time to write; else ApiError, also if no answer came and the patch may have been applied.
        """
        if not (left := self._time_to_write()):
            raise NotLeaderError(f"taints of node {node.name} not written: the lease does not allow it")
        changes = _changes(node.taints, taints)
        if not changes:
            return True
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
        try:
            self._transport.request(
                "PATCH",
                f"/api/v1/nodes/{node.name}",
                body=msgspec.json.encode([guard, *changes]),
                content_type="application/json-patch+json",
                deadline=min(self._deadline, left),
            )
        except NotFound as error:
            if (
                error.reason != "NotFound"
            ):  # somebody else's 404, a proxy's say, does not mean that the node has gone
                raise
            return False
        except Conflict:
            return False
        except Invalid as error:
            # A patch that does not apply has no causes; validation and admission policies give theirs.
            if error.causes:
                raise
            return False
        return True


def _changes(present: Sequence[Taint], wanted: Sequence[Taint]) -> list[Operation]:
    """The operations that make ``present`` into ``wanted``."""
    new = [taint for taint in wanted if taint not in present]
    if not present:
        # An absent list cannot be appended to; ``add`` makes it.
        return [{"op": "add", "path": "/spec/taints", "value": new}] if new else []
    gone = [index for index, taint in enumerate(present) if taint not in wanted]
    # From the end: what lies before keeps its position.
    changes: list[Operation] = [{"op": "remove", "path": f"/spec/taints/{i}"} for i in reversed(gone)]
    return changes + [{"op": "add", "path": "/spec/taints/-", "value": taint} for taint in new]
