"""``soft-tainter --cleanup``: takes all soft taints of ours off, once.

It takes the running tainter's Lease first, else the taints would come back, and leaves it held for two minutes when it
ends: long enough for the tainter to be removed.
"""

import logging
import random
from datetime import timedelta
from threading import Event, Thread

from controller.cluster.objects import Node
from controller.cluster.resources import RESOURCES
from controller.lease import LeaderElection, NotLeaderError
from controller.platform import Options, connect, lease_name
from controller.taints.desired import merged, our_keys
from controller.taints.patch import TaintPatcher
from informers.clock import SystemClock
from informers.errors import ApiError
from informers.informer import Informer
from informers.reflector import Reflector

log = logging.getLogger("vm-rebalancer")

ROUNDS = 5
LIST_WITHIN = timedelta(seconds=30)
OTHERS_WAIT = timedelta(minutes=2)
LEASE_WITHIN_S = 120.0
KEPT_WITHIN_S = 10.0


def clean_up(options: Options) -> int:
    """0 if no taint of ours is left, 1 otherwise. Raises StartError."""
    clock, rng, stop = SystemClock(), random.Random(options.identity), Event()  # noqa: S311 - jitter
    transport = connect(options)
    election = LeaderElection(
        transport, *lease_name(options), options.identity, clock, rng, options.lease_timing, seize=True
    )
    Thread(target=election.run, args=(stop,), name="lease", daemon=True).start()
    nodes: Informer[Node] = Informer("nodes")
    reflector = Reflector(
        RESOURCES["nodes"],
        transport,
        nodes,
        clock,
        rng,
        lambda name, error: log.warning("%s: %s", name, error),
    )
    reflector.start()
    waited = Event()
    for _ in range(int(LEASE_WITHIN_S / 0.5)):
        if election.writes_allowed():
            break
        waited.wait(0.5)
    else:
        log.error("the lease was not to be had within %.0f s: %s", LEASE_WITHIN_S, election.problem)
        return 1
    patcher = TaintPatcher(transport, election.time_to_write)
    left = _take_off(patcher, nodes, reflector)
    if left is None:
        log.error("the nodes were not to be listed, so nobody knows whether taints of ours are left")
        return 1
    election.keep_others_out(OTHERS_WAIT)
    for _ in range(int(KEPT_WITHIN_S / 0.25)):
        if left or election.kept_out_s() >= OTHERS_WAIT.total_seconds():
            break
        waited.wait(0.25)
    else:
        log.warning("the lease may run out sooner than in %s: the tainter must be gone by then", OTHERS_WAIT)
    for name in left:
        log.error("node %s still carries soft taints of ours", name)
    return 1 if left else 0


def _take_off(patcher: TaintPatcher, nodes: Informer[Node], reflector: Reflector[Node]) -> list[str] | None:
    """The nodes that still carry some after a few rounds, each from a fresh list; ``None`` without any list."""
    left: list[str] | None = None
    for _ in range(ROUNDS):
        try:
            reflector.resync(LIST_WITHIN)
        except ApiError as error:
            log.warning("%s", error)
            continue
        tainted = [node for node in nodes.lister.list() if our_keys(node.taints)]
        left = [node.name for node in tainted if not _patched(patcher, node)]
        if not tainted:
            return []
    return left


def _patched(patcher: TaintPatcher, node: Node) -> bool:
    try:
        return patcher.replace_taints(node, merged(node.taints, ()))
    except (ApiError, NotLeaderError) as error:
        log.warning("node %s: %s", node.name, error)
        return False
