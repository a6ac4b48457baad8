"""Why a VM may not be evicted, wherever it would go: one test for each reason, and that without it it may."""

from typing import Any

import pytest

from controller.cluster.objects import ANNOTATION_PREFER_NO_EVICTION, OwnerReference
from controller.evictions.select import select, why_not
from controller.evictions.views import Refusal
from tests.builders import START, kubevirt, launcher, vmi
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    SECOND,
    candidate,
    evictions,
    finished,
    ground,
    policy,
    view,
)

NOW = START + HOUR
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"


def code(about: dict[str, Any], **policy_fields: Any) -> str | None:
    where = ground(policy=policy(evictions=evictions(**policy_fields)))
    reason = why_not(candidate(**about), where)
    return str(reason.code) if reason is not None else None


def test_nothing_speaks_against_an_ordinary_vm() -> None:
    assert code({}) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exclude": ("vms",)}, "NamespaceExcluded"),
        ({"exclude": ("v*",)}, "NamespaceExcluded"),
        ({"include": ("prod-*",)}, "NamespaceExcluded"),
        ({"include": ("vms",), "exclude": ("other",)}, None),
        ({"label_selector": "tier=gold"}, "LabelSelector"),
        ({"label_selector": "tier=silver"}, None),
        ({"priority_threshold": 100}, "Priority"),
        ({"priority_threshold": 101}, None),
        ({"min_vm_age": HOUR + SECOND}, "TooYoung"),
        ({"min_vm_age": HOUR}, None),
    ],
)
def test_the_policy_says_which_vms_may_be_moved(fields: dict[str, Any], expected: str | None) -> None:
    about = {"vmi": vmi(labels={"tier": "silver"}), "pod": launcher(priority=100)}
    assert code(about, **fields) == expected


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"settling": True}, "Settling"),
        ({"migrating": True}, "InMigration"),
        ({"vmi": vmi(deleted=START)}, "BeingDeleted"),
        ({"pod": launcher(deleted=START)}, "BeingDeleted"),
        ({"vmi": vmi(phase="Scheduling")}, "NotRunning"),
        ({"vmi": vmi(evacuation_node_name="node-1")}, "InEvacuation"),
        ({"pod": launcher(annotations={IN_PROGRESS: ""})}, "InEvacuation"),
        ({"pod": launcher(labels={"kubevirt.io": "hotplug-disk"})}, "HotplugPod"),
        ({"pod": launcher(owner_references=[OwnerReference("Pod", "virt-launcher-x", "u")])}, "HotplugPod"),
        ({"pod": launcher(phase="Pending")}, "LauncherNotRunning"),
        ({"pod": launcher(node="node-9")}, "NotOnNodeOfVmi"),
        ({"vmi": vmi(annotations={ANNOTATION_PREFER_NO_EVICTION: "false"})}, "OptedOut"),
        ({"pod": launcher(annotations={ANNOTATION_PREFER_NO_EVICTION: ""})}, "OptedOut"),
        ({"vmi": vmi(eviction_strategy=None)}, "NoEvictionStrategy"),
        ({"vmi": vmi(eviction_strategy="None")}, "NoEvictionStrategy"),
        ({"vmi": vmi(live_migratable=False)}, "NotLiveMigratable"),
        (
            {"vmi": vmi(live_migratable=False, eviction_strategy="LiveMigrateIfPossible")},
            "NotLiveMigratable",
        ),
        ({"vmi": vmi(eviction_strategy="LiveMigrateIfPossible")}, None),
        ({"vmi": vmi(eviction_strategy="External")}, "ExternalEviction"),
        ({"vmi": vmi(eviction_strategy="Teleport")}, "UnknownEvictionStrategy"),
    ],
)
def test_the_vm_itself_may_stand_in_the_way(about: dict[str, Any], expected: str | None) -> None:
    assert code(about) == expected


def test_the_clusters_strategy_is_for_vms_without_one() -> None:
    plain = candidate(vmi=vmi(eviction_strategy=None))
    assert why_not(plain, ground(kubevirt=kubevirt(eviction_strategy="LiveMigrate"))) is None


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"vmi": vmi(eviction_strategy=None)}, None),
        ({"vmi": vmi(live_migratable=False)}, None),
        ({"vmi": vmi(eviction_strategy="External")}, "ExternalEviction"),
        ({"vmi": vmi(eviction_strategy="Teleport")}, "UnknownEvictionStrategy"),
        ({"vmi": vmi(evacuation_node_name="node-1")}, "InEvacuation"),
        ({"migrating": True}, "InMigration"),
        ({"vmi": vmi(eviction_strategy=None, annotations={ANNOTATION_PREFER_NO_EVICTION: ""})}, "OptedOut"),
    ],
)
def test_allow_shutdown_lifts_only_what_guards_against_shutdowns(
    about: dict[str, Any], expected: str | None
) -> None:
    assert code(about, allow_shutdown=True) == expected


def test_allow_shutdown_lifts_no_rule_of_memory() -> None:
    moved = view(finished={"vmi-vm-1": (finished(at=NOW - MINUTE),)})
    where = ground(ledger=moved, policy=policy(evictions=evictions(allow_shutdown=True)))
    reason = why_not(candidate(vmi=vmi(eviction_strategy=None)), where)
    assert reason is not None
    assert reason.code == "CoolDown"


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (view(finished={"vmi-vm-1": (finished(at=NOW - 14 * MINUTE),)}), "CoolDown"),
        (view(finished={"vmi-vm-1": (finished(at=NOW - 15 * MINUTE),)}), None),
        (view(finished={"vmi-other": (finished(at=NOW),)}), None),
        (
            view(finished={"vmi-vm-1": tuple(finished(f"m{n}", at=NOW, succeeded=False) for n in range(3))}),
            "Breaker",
        ),
        (view(refusals={"vmi-vm-1": Refusal("it said no", NOW + SECOND)}), "Refused"),
        (view(refusals={"vmi-vm-1": Refusal("it said no", NOW)}), None),
    ],
)
def test_a_vm_is_left_alone_for_what_it_has_been_through(ledger: Any, expected: str | None) -> None:
    reason = why_not(candidate(), ground(ledger=ledger))
    assert (reason.code if reason is not None else None) == expected


def test_every_vm_passed_over_has_its_reason() -> None:
    chosen = candidate(vmi=vmi("vm-1"), pod=launcher("vm-1"))
    opted_out = candidate(
        vmi=vmi("vm-2", annotations={ANNOTATION_PREFER_NO_EVICTION: ""}), pod=launcher("vm-2")
    )
    second = candidate(vmi=vmi("vm-3"), pod=launcher("vm-3"))
    selection = select(ground(chosen, opted_out, second))
    assert selection.choice is not None
    assert selection.choice.candidate is chosen
    assert {str(p.vm): p.reason.code for p in selection.passed_over} == {
        "vms/vm-2": "OptedOut",
        "vms/vm-3": "NotFirst",
    }
