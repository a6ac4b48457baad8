"""Marks that another descheduler has left: VMs evicted in a descheduler's name, but not by us. Pure."""

from collections.abc import Callable, Iterator

from controller.cluster.objects import Vmi
from controller.cluster.queries import eviction_source
from controller.evictions.entry import VmKey
from controller.evictions.rebuild import OUR_SOURCE
from controller.evictions.views import LedgerView
from informers.store import Change


def foreign_mark(change: Change[Vmi], view: LedgerView) -> bool:
    """Whether this change shows that somebody else has asked for an eviction as a descheduler does.

    Only the appearance of the source together with a mark counts. The source stays when an eviction is cancelled, so
    that a later drain of that VM looks like a descheduler's; and how a VMI came to be marked before it was first seen
    nobody knows. Ours are reserved in the ledger before they are asked for; one that was given up for lost is
    remembered there as a refusal, and its mark may still come.
    """
    old, new = change.old, change.new
    if old is None or new is None or old.uid != new.uid:
        return False
    if eviction_source(new) != OUR_SOURCE or not new.evacuation_node_name:
        return False
    if eviction_source(old) == OUR_SOURCE:
        return False
    known = any(e.vmi_uid == new.uid and e.ours for e in view.entries)
    return not known and new.uid not in view.refusals


def foreign_marks(
    ledger: Callable[[], LedgerView], rebuilt: Callable[[], bool], leads: Callable[[], bool]
) -> Callable[[Change[Vmi]], Iterator[VmKey]]:
    """For the handler of an informer: the VMs that others have marked, as long as we would know of our own.

    That is while we lead, and once the ledger has been read off the cluster (``rebuilt``); one that stands by knows
    nothing of what the leader does.
    """

    def vms(change: Change[Vmi]) -> Iterator[VmKey]:
        if change.new is None or eviction_source(change.new) != OUR_SOURCE:
            return
        if leads() and rebuilt() and foreign_mark(change, ledger()):
            yield VmKey(change.new.namespace, change.new.name)

    return vms
