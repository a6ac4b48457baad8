"""Free ports of this machine, for processes that must be told theirs."""

import os
import socket
from collections.abc import Iterator

_FIRST, _LAST = 10_000, 32_000
"""Below what Linux gives to outgoing connections: a port that is free now will not be taken by one of those."""
_EACH = 200
"""Workers that run side by side begin so far from each other."""


class Ports:
    """Gives each port out once. Several processes may do so at the same time: each begins somewhere else."""

    def __init__(self) -> None:
        self._candidates = self._all()

    def free(self) -> int:
        return next(port for port in self._candidates if _is_free(port))

    def _all(self) -> Iterator[int]:
        count = _LAST - _FIRST
        start = os.getpid() * _EACH
        return (_FIRST + (start + number) % count for number in range(count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
