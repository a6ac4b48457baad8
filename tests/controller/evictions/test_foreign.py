"""Marks of another descheduler are told from our own, from drains, and from what old ones leave behind."""

from dataclasses import replace

import msgspec
import pytest

from controller.cluster.objects import Vmi
from controller.evictions.entry import Phase, VmKey
from controller.evictions.foreign import marked_by_another
from controller.evictions.views import Alarm, Refusal
from tests.builders import START, vmi
from tests.controller.controlled_cluster import ControlledCluster
from tests.controller.decision_builders import HOUR, POLICY, entry, view

SOURCE = {"kubevirt.io/eviction-source": "descheduler"}


def as_seen(base: Vmi, *, source: bool = False, marked: bool = False) -> Vmi:
    """The VMI with a descheduler's note, and with a mark."""
    metadata = msgspec.structs.replace(base.metadata, annotations=SOURCE if source else {})
    return msgspec.structs.replace(
        base, metadata=metadata, evacuation_node_name=base.node_name if marked else ""
    )


PLAIN = vmi("vm-1")
MARKED = as_seen(PLAIN, source=True, marked=True)
READ = replace(view(), version=1)


def test_a_mark_in_a_deschedulers_name_that_the_ledger_does_not_know_is_foreign() -> None:
    assert marked_by_another(PLAIN, MARKED, READ) == VmKey(PLAIN.namespace, PLAIN.name)


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.UNKNOWN, Phase.RUNNING])
def test_our_own_is_reserved_before_it_is_asked_for(phase: Phase) -> None:
    ours = replace(view(entry("vm-1", phase=phase)), version=1)
    assert marked_by_another(PLAIN, MARKED, ours) is None


def test_our_own_that_was_given_up_for_lost_may_still_come() -> None:
    lost = replace(READ, refusals={PLAIN.uid: Refusal("its last eviction was Lost", START - HOUR)})
    assert marked_by_another(PLAIN, MARKED, lost) is None


def test_a_migration_that_somebody_else_asked_for_makes_no_mark_ours() -> None:
    foreign = replace(view(replace(entry("vm-1"), ours=False)), version=1)
    assert marked_by_another(PLAIN, MARKED, foreign) is not None


@pytest.mark.parametrize(
    "change",
    [
        (None, MARKED),
        (MARKED, None),
        (PLAIN, as_seen(PLAIN, marked=True)),
        (as_seen(PLAIN, source=True), MARKED),
        (MARKED, as_seen(PLAIN, source=True)),
        (vmi("vm-1", uid="another"), MARKED),
    ],
    ids=["first sight", "gone", "a drain", "a drain after a cancel", "cancelled", "of the same name"],
)
def test_what_need_not_be_a_deschedulers_is_none(change: tuple[Vmi | None, Vmi | None]) -> None:
    assert marked_by_another(*change, READ) is None


def test_is_told_in_its_turn_and_only_once_the_cluster_has_been_read() -> None:
    """A kept alarm changes the ledger before that: a predecessor's mark would be another descheduler's.

    Nothing is said inside the informer's handler: its lock is held, and a log may block.
    """
    cluster = ControlledCluster(hot=())
    cluster.add_vm("vm-1")
    cluster.add_vm("vm-2")
    cluster.descheduler.start(Alarm("a VM went down", POLICY.digest))
    assert cluster.descheduler.ledger.version > 0
    cluster.mark("vm-1")
    cluster.work()
    assert cluster.observer.foreign == []
    cluster.mark("vm-2")
    assert cluster.observer.foreign == []
    cluster.work()
    assert cluster.observer.foreign == [VmKey("vms", "vm-2")]


def test_our_own_evictions_leave_no_foreign_marks() -> None:
    cluster = ControlledCluster()
    cluster.add_vm("vm-1")
    cluster.start()
    cluster.migrate("vm-1")
    cluster.work()
    assert cluster.observer.phases_of("vm-1")[-1] is Phase.SETTLING
    assert cluster.observer.foreign == []
