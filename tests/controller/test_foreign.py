"""Marks of another descheduler are told from our own, from drains, and from what old ones leave behind."""

from dataclasses import replace

import msgspec
import pytest

from controller.cluster.objects import Vmi
from controller.evictions.entry import Phase, VmKey
from controller.evictions.views import Alarm, LedgerView, Refusal
from controller.telemetry.foreign import foreign_marks
from informers.store import Change
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


def seen(
    change: Change[Vmi], ledger: LedgerView = READ, *, rebuilt: bool = True, leads: bool = True
) -> list[VmKey]:
    return list(foreign_marks(lambda: ledger, lambda: rebuilt, lambda: leads)(change))


def test_a_mark_in_a_deschedulers_name_that_the_ledger_does_not_know_is_foreign() -> None:
    assert seen(Change(PLAIN, MARKED)) == [VmKey(PLAIN.namespace, PLAIN.name)]


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.UNKNOWN, Phase.RUNNING])
def test_our_own_is_reserved_before_it_is_asked_for(phase: Phase) -> None:
    ours = replace(view(entry("vm-1", phase=phase)), version=1)
    assert seen(Change(PLAIN, MARKED), ours) == []


def test_our_own_that_was_given_up_for_lost_may_still_come() -> None:
    lost = replace(READ, refusals={PLAIN.uid: Refusal("its last eviction was Lost", START - HOUR)})
    assert seen(Change(PLAIN, MARKED), lost) == []


def test_a_migration_that_somebody_else_asked_for_makes_no_mark_ours() -> None:
    foreign = replace(view(replace(entry("vm-1"), ours=False)), version=1)
    assert seen(Change(PLAIN, MARKED), foreign) != []


@pytest.mark.parametrize(
    "change",
    [
        Change(None, MARKED),
        Change(MARKED, None),
        Change(PLAIN, as_seen(PLAIN, marked=True)),
        Change(as_seen(PLAIN, source=True), MARKED),
        Change(MARKED, as_seen(PLAIN, source=True)),
        Change(vmi("vm-1", uid="another"), MARKED),
    ],
    ids=["first sight", "gone", "a drain", "a drain after a cancel", "cancelled", "of the same name"],
)
def test_what_need_not_be_a_deschedulers_is_none(change: Change[Vmi]) -> None:
    assert seen(change) == []


def test_one_that_stands_by_or_has_not_read_the_cluster_knows_nothing_of_ours() -> None:
    assert seen(Change(PLAIN, MARKED), leads=False) == []
    assert seen(Change(PLAIN, MARKED), rebuilt=False) == []


def test_an_alarm_that_was_kept_is_no_look_at_the_cluster() -> None:
    """It changes the ledger before that has been read: a predecessor's mark would be another descheduler's."""
    cluster = ControlledCluster(hot=())
    marks = foreign_marks(
        lambda: cluster.descheduler.ledger, lambda: cluster.descheduler.rebuilt, lambda: True
    )
    cluster.descheduler.start(Alarm("a VM went down", POLICY.digest))
    assert cluster.descheduler.ledger.version > 0
    assert list(marks(Change(PLAIN, MARKED))) == []
    cluster.work()
    assert list(marks(Change(PLAIN, MARKED))) != []
