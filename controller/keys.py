"""The descheduler's queue keys, and which changes of objects they follow from. Handlers only compute keys."""

from dataclasses import dataclass

from controller.cluster.objects import Node, Vmi, Vmim
from controller.evictions.entry import VmKey
from informers.store import Change


@dataclass(frozen=True, slots=True)
class Refresh:
    """Ask for fresh metrics, and classify; comes again after each ``refreshInterval``, and with another policy."""


@dataclass(frozen=True, slots=True)
class Reclassify:
    """Classify anew: a node came, went or changed."""


@dataclass(frozen=True, slots=True)
class Consider:
    """See whether this node should send a VM."""

    node: str


@dataclass(frozen=True, slots=True)
class Follow:
    """See what became of this VM's migration, whoever asked for it."""

    vm: VmKey


@dataclass(frozen=True, slots=True)
class ForeignMark:
    """Another descheduler has marked this VM."""

    vm: VmKey


Key = Refresh | Reclassify | Consider | Follow | ForeignMark


def is_urgent(key: Key) -> bool:
    """Facts before decisions: however many nodes are to be considered, what became of the moves is seen at once."""
    return not isinstance(key, Consider)


def keys_of_node(change: Change[Node]) -> list[Key]:
    """Only what classification looks at counts: node statuses are written all the time."""
    old, new = change.old, change.new
    if old is not None and new is not None and _standing(old) == _standing(new):
        return []
    return [Reclassify()]


def _standing(node: Node) -> tuple[object, ...]:
    return (node.ready, node.unschedulable, node.labels, node.allocatable, node.metadata.uid)


def keys_of_vmi(change: Change[Vmi]) -> list[Key]:
    """A VMI matters here when it moves, is marked, or goes."""
    old, new = change.old, change.new
    if old is not None and new is not None and _whereabouts(old) == _whereabouts(new):
        return []
    vmi = new or old
    if vmi is None or (old is None and new is not None and not new.evacuation_node_name):
        return []
    return [Follow(VmKey(vmi.namespace, vmi.name))]


def _whereabouts(vmi: Vmi) -> tuple[object, ...]:
    return (vmi.uid, vmi.node_name, vmi.phase, vmi.evacuation_node_name, vmi.migration_state)


def keys_of_vmim(change: Change[Vmim]) -> list[Key]:
    migration = change.new or change.old
    return [Follow(VmKey(migration.metadata.namespace, migration.vmi_name))] if migration is not None else []
