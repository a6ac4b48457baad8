"""Marks that another descheduler has left: VMs evicted in a descheduler's name, but not by us. Pure."""

from controller.cluster.objects import Vmi
from controller.cluster.queries import eviction_source
from controller.evictions.entry import VmKey
from controller.evictions.rebuild import OUR_SOURCE
from controller.evictions.views import LedgerView


def marked_by_another(old: Vmi | None, new: Vmi | None, view: LedgerView) -> VmKey | None:
    """The VM, if this change of it shows that somebody else has asked for its eviction as a descheduler does.

    Only the appearance of the source together with a mark counts. The source stays when an eviction is cancelled, so
    that a later drain of that VM looks like a descheduler's; and how a VMI came to be marked before it was first seen
    nobody knows. Ours are reserved in the ledger before they are asked for; one that was given up for lost is
    remembered there as a refusal, and its mark may still come. ``view``: of a ledger that knows what was on the move.
    """
    if old is None or new is None or old.uid != new.uid:
        return None
    if eviction_source(new) != OUR_SOURCE or not new.evacuation_node_name:
        return None
    if eviction_source(old) == OUR_SOURCE or new.uid in view.refusals:
        return None
    known = any(e.vmi_uid == new.uid and e.ours for e in view.entries)
    return None if known else VmKey(new.namespace, new.name)
