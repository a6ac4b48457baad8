"""What an eviction of a VM would lead to, and who must not be evicted at all."""

import pytest

from controller.cluster.metadata import OwnerReference
from controller.cluster.objects import (
    ANNOTATION_EVICTION_IN_PROGRESS,
    ANNOTATION_EVICTION_SOURCE,
    ANNOTATION_PREFER_NO_EVICTION,
    LABEL_KUBEVIRT,
    LABEL_MIGRATION_UID,
    Pod,
    Vmi,
)
from controller.cluster.queries import (
    Obstacle,
    effective_eviction_strategy,
    eviction_source,
    in_evacuation,
    is_hotplug,
    is_migration_target,
    opted_out,
    why_not_migratable,
    why_not_movable,
)
from tests.builders import START, kubevirt, launcher, vmi

ALL_STRATEGIES = [None, "None", "LiveMigrate", "LiveMigrateIfPossible", "External", "SomethingNew"]


@pytest.mark.parametrize(
    ("strategy", "live_migratable", "obstacle"),
    [
        (None, True, Obstacle.NO_EVICTION_STRATEGY),
        (None, False, Obstacle.NO_EVICTION_STRATEGY),
        ("None", True, Obstacle.NO_EVICTION_STRATEGY),
        ("None", False, Obstacle.NO_EVICTION_STRATEGY),
        ("LiveMigrate", True, None),
        ("LiveMigrate", False, Obstacle.NOT_LIVE_MIGRATABLE),
        ("LiveMigrateIfPossible", True, None),
        ("LiveMigrateIfPossible", False, Obstacle.NOT_LIVE_MIGRATABLE),
        ("External", True, Obstacle.EXTERNAL_EVICTION),
        ("External", False, Obstacle.EXTERNAL_EVICTION),
        ("SomethingNew", True, Obstacle.UNKNOWN_EVICTION_STRATEGY),
        ("livemigrate", True, Obstacle.UNKNOWN_EVICTION_STRATEGY),
    ],
)
def test_only_what_the_webhook_answers_with_a_migration_is_migratable(
    strategy: str | None, live_migratable: bool, obstacle: Obstacle | None
) -> None:
    """The same whether the strategy is the VMI's own or the cluster's."""
    own = vmi(eviction_strategy=strategy, live_migratable=live_migratable)
    inherited = vmi(eviction_strategy=None, live_migratable=live_migratable)
    for reason in (
        why_not_migratable(own, kubevirt()),
        why_not_migratable(own, None),
        why_not_migratable(inherited, kubevirt(eviction_strategy=strategy)),
    ):
        assert (reason and reason.code) == obstacle


@pytest.mark.parametrize("cluster", ALL_STRATEGIES)
@pytest.mark.parametrize("own", ALL_STRATEGIES)
def test_a_vmis_own_strategy_wins_over_the_clusters(own: str | None, cluster: str | None) -> None:
    """Also the strategy "None", which is not the same as having none."""
    strategy = effective_eviction_strategy(vmi(eviction_strategy=own), kubevirt(eviction_strategy=cluster))
    assert strategy == (own if own is not None else cluster)


def test_without_a_known_kubevirt_only_the_own_strategy_counts() -> None:
    assert effective_eviction_strategy(vmi(eviction_strategy=None), None) is None


def test_the_reason_quotes_the_condition() -> None:
    pinned = vmi(
        live_migratable=False,
        live_migratable_reason="DisksNotLiveMigratable",
        live_migratable_message="PVC root is not shared",
    )
    reason = why_not_migratable(pinned, kubevirt())
    assert reason is not None
    assert str(reason) == "it is not live-migratable (DisksNotLiveMigratable: PVC root is not shared)"


def test_the_reason_warns_of_a_shutdown_where_an_eviction_would_be_one() -> None:
    for victim in (
        vmi(eviction_strategy=None),
        vmi(eviction_strategy="LiveMigrateIfPossible", live_migratable=False),
    ):
        reason = why_not_migratable(victim, kubevirt())
        assert reason is not None
        assert "an eviction would shut it down" in reason.text


@pytest.mark.parametrize(
    ("victim", "pod", "obstacle"),
    [
        (vmi(deleted=START), launcher(), Obstacle.BEING_DELETED),
        (vmi(), launcher(deleted=START), Obstacle.BEING_DELETED),
        (vmi(phase="Scheduling"), launcher(), Obstacle.NOT_RUNNING),
        (vmi(phase="Succeeded"), None, Obstacle.NOT_RUNNING),
        (vmi(phase=""), None, Obstacle.NOT_RUNNING),
        (vmi(evacuation_node_name="node-1"), launcher(), Obstacle.IN_EVACUATION),
        # virt-controller's annotation is a sign of the mark, should the watch of pods be ahead.
        (vmi(), launcher(annotations={ANNOTATION_EVICTION_IN_PROGRESS: "kubevirt"}), Obstacle.IN_EVACUATION),
        (vmi(), None, Obstacle.NO_LAUNCHER),
        (vmi(), launcher(phase="Pending"), Obstacle.LAUNCHER_NOT_RUNNING),
        (vmi(), launcher(phase="Failed"), Obstacle.LAUNCHER_NOT_RUNNING),
        (vmi(), launcher(phase="Succeeded"), Obstacle.LAUNCHER_NOT_RUNNING),
        (vmi(node="node-2"), launcher(node="node-1"), Obstacle.NOT_ON_NODE_OF_VMI),
        (vmi(), launcher(labels={LABEL_KUBEVIRT: "hotplug-disk"}), Obstacle.HOTPLUG_POD),
        (vmi(annotations={ANNOTATION_PREFER_NO_EVICTION: "false"}), launcher(), Obstacle.OPTED_OUT),
        (vmi(), launcher(annotations={ANNOTATION_PREFER_NO_EVICTION: ""}), Obstacle.OPTED_OUT),
        (vmi(eviction_strategy=None), launcher(), Obstacle.NO_EVICTION_STRATEGY),
        (vmi(live_migratable=False), launcher(), Obstacle.NOT_LIVE_MIGRATABLE),
        (vmi(), launcher(), None),
        (vmi(node="node-2"), launcher(node="node-2", labels={LABEL_MIGRATION_UID: "vmim-1"}), None),
    ],
)
def test_only_a_running_undisturbed_vm_is_movable(
    victim: Vmi, pod: Pod | None, obstacle: Obstacle | None
) -> None:
    reason = why_not_movable(victim, pod, kubevirt(), migrating=False)
    assert (reason and reason.code) == obstacle


def test_a_vm_in_migration_is_not_movable_whoever_asked_for_the_migration() -> None:
    reason = why_not_movable(vmi(), launcher(), kubevirt(), migrating=True)
    assert reason is not None
    assert reason.code == Obstacle.IN_MIGRATION


@pytest.mark.parametrize("value", ["", "true", "false", "no"])
def test_opting_out_is_a_matter_of_presence(value: str) -> None:
    annotation = {ANNOTATION_PREFER_NO_EVICTION: value}
    by_vmi = opted_out(vmi(annotations=annotation), None)
    by_pod = opted_out(vmi(), launcher(annotations=annotation))
    assert by_vmi is not None
    assert by_pod is not None
    assert "its VMI" in by_vmi.text
    assert "its pod" in by_pod.text


@pytest.mark.parametrize(
    "annotation",
    ["descheduler.alpha.kubernetes.io/evict", "descheduler.alpha.kubernetes.io/request-evict-only"],
)
def test_other_annotations_of_the_descheduler_are_no_opt_out(annotation: str) -> None:
    """KubeVirt itself puts ``request-evict-only`` on every ready launcher."""
    assert opted_out(vmi(), launcher(annotations={annotation: ""})) is None


def test_a_hotplug_pod_is_known_by_label_or_by_its_owner() -> None:
    assert is_hotplug(launcher(labels={LABEL_KUBEVIRT: "hotplug-disk"}))
    assert is_hotplug(launcher(owner_references=[OwnerReference("Pod", "virt-launcher-vm-1", "pod-vm-1")]))
    assert not is_hotplug(
        launcher(owner_references=[OwnerReference("VirtualMachineInstance", "vm-1", "vmi-vm-1")])
    )


def test_a_migration_target_is_one_only_while_the_vmi_is_elsewhere() -> None:
    """The pod keeps the label of its migration for life."""
    target = launcher(node="node-2", labels={LABEL_MIGRATION_UID: "vmim-1"})
    assert is_migration_target(target, vmi(node="node-1"))
    assert not is_migration_target(target, vmi(node="node-2"))
    assert not is_migration_target(launcher(node="node-2"), vmi(node="node-1"))


def test_a_mark_or_the_annotation_of_the_launcher_tell_an_evacuation() -> None:
    assert not in_evacuation(vmi(), launcher())
    assert in_evacuation(vmi(evacuation_node_name="node-1"))
    assert in_evacuation(vmi(), launcher(annotations={ANNOTATION_EVICTION_IN_PROGRESS: ""}))


def test_the_source_of_an_eviction_is_told_as_far_as_known() -> None:
    assert eviction_source(vmi()) == ""
    assert eviction_source(vmi(annotations={ANNOTATION_EVICTION_SOURCE: "descheduler"})) == "descheduler"
