"""Questions about a VMI and its launcher pod. Answers follow from the objects alone.

What an eviction leads to is KubeVirt's decision; the rules here are those of its eviction webhook.
"""

from enum import StrEnum
from typing import NamedTuple

from controller.cluster.objects import (
    ANNOTATION_EVICTION_IN_PROGRESS,
    ANNOTATION_EVICTION_SOURCE,
    ANNOTATION_PREFER_NO_EVICTION,
    LABEL_KUBEVIRT,
    KubeVirt,
    Pod,
    Vmi,
)


class Reason(NamedTuple):
    """Why not: ``code`` is short and stable, for counting; ``text`` is for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


class EvictionStrategy(StrEnum):
    """Values of ``evictionStrategy`` known to KubeVirt."""

    NONE = "None"
    LIVE_MIGRATE = "LiveMigrate"
    LIVE_MIGRATE_IF_POSSIBLE = "LiveMigrateIfPossible"
    EXTERNAL = "External"


class Obstacle(StrEnum):
    """Codes of the reasons why a VM cannot be moved by an eviction now."""

    BEING_DELETED = "BeingDeleted"
    NOT_RUNNING = "NotRunning"
    NO_LAUNCHER = "NoLauncher"
    LAUNCHER_NOT_RUNNING = "LauncherNotRunning"
    NOT_ON_NODE_OF_VMI = "NotOnNodeOfVmi"
    HOTPLUG_POD = "HotplugPod"
    IN_EVACUATION = "InEvacuation"
    IN_MIGRATION = "InMigration"
    OPTED_OUT = "OptedOut"
    NO_EVICTION_STRATEGY = "NoEvictionStrategy"
    EXTERNAL_EVICTION = "ExternalEviction"
    UNKNOWN_EVICTION_STRATEGY = "UnknownEvictionStrategy"
    NOT_LIVE_MIGRATABLE = "NotLiveMigratable"


def effective_eviction_strategy(vmi: Vmi, kubevirt: KubeVirt | None) -> str | None:
    """The VMI's own strategy, else the cluster's; ``None`` if neither is set (``"None"`` may be set, too)."""
    if vmi.eviction_strategy is not None:
        return vmi.eviction_strategy
    return kubevirt.eviction_strategy if kubevirt is not None else None


def why_not_migratable(vmi: Vmi, kubevirt: KubeVirt | None) -> Reason | None:
    """Why an eviction of its launcher would not make KubeVirt live-migrate the VMI; ``None``: it would.

    Source: the table of KubeVirt's pod-eviction webhook. Whatever is not known to lead to a migration does
    not.
    """
    strategy = effective_eviction_strategy(vmi, kubevirt)
    match strategy:
        case None | EvictionStrategy.NONE:
            text = "an eviction would shut it down: it has no eviction strategy"
            return Reason(Obstacle.NO_EVICTION_STRATEGY, text)
        case EvictionStrategy.EXTERNAL:
            text = "its eviction strategy is External: KubeVirt would not migrate it"
            return Reason(Obstacle.EXTERNAL_EVICTION, text)
        case EvictionStrategy.LIVE_MIGRATE | EvictionStrategy.LIVE_MIGRATE_IF_POSSIBLE:
            return (
                None
                if vmi.live_migratable
                else Reason(Obstacle.NOT_LIVE_MIGRATABLE, _cannot_migrate(vmi, strategy))
            )
    return Reason(Obstacle.UNKNOWN_EVICTION_STRATEGY, f"its eviction strategy {strategy!r} is not known")


def why_not_movable(
    vmi: Vmi, launcher: Pod | None, kubevirt: KubeVirt | None, *, migrating: bool
) -> Reason | None:
    """Why evicting ``launcher`` now would not start a live migration of the VMI, or must not be tried.

    ``migrating``: an unfinished VMIM of this VMI exists. ``None``: nothing speaks against it; whether and
    when to do so is a matter of policy.
    """
    if vmi.metadata.being_deleted or (launcher is not None and launcher.metadata.being_deleted):
        return Reason(Obstacle.BEING_DELETED, "it is being deleted")
    if vmi.phase != "Running":
        return Reason(Obstacle.NOT_RUNNING, f"its phase is {vmi.phase or 'not set'}, not Running")
    if in_evacuation(vmi, launcher):
        return Reason(
            Obstacle.IN_EVACUATION,
            f"an eviction from {vmi.evacuation_node_name or vmi.node_name} is under way",
        )
    if migrating:
        return Reason(Obstacle.IN_MIGRATION, "a migration is under way")
    if launcher is None:
        return Reason(Obstacle.NO_LAUNCHER, f"it has no launcher pod on {vmi.node_name or 'any node'}")
    return _why_not_evictable(vmi, launcher) or why_not_migratable(vmi, kubevirt)


def opted_out(vmi: Vmi, launcher: Pod | None) -> Reason | None:
    """Whether the VMI or its launcher asks not to be evicted: the annotation's presence counts, not its value."""
    for what, carrier in (("its VMI", vmi), ("its pod", launcher)):
        if carrier is not None and ANNOTATION_PREFER_NO_EVICTION in carrier.metadata.annotations:
            return Reason(Obstacle.OPTED_OUT, f"{what} is annotated with {ANNOTATION_PREFER_NO_EVICTION}")
    return None


def is_hotplug(pod: Pod) -> bool:
    """Whether it is the pod of hotplugged disks: owned by a launcher, and never to be evicted."""
    if pod.metadata.labels.get(LABEL_KUBEVIRT) == "hotplug-disk":
        return True
    return any(owner.kind == "Pod" for owner in pod.metadata.owner_references)


def is_migration_target(pod: Pod, vmi: Vmi) -> bool:
    """Whether the VMI is to migrate, or was to, into this pod and does not run on its node.

    The label of its VMIM alone does not tell: the pod keeps it when the migration is over and the VMI lives
    in it.
    """
    return pod.migration_uid != "" and pod.node_name != vmi.node_name


def in_evacuation(vmi: Vmi, launcher: Pod | None = None) -> bool:
    """Whether an eviction waits for the VMI to leave: it is marked, or its launcher annotated."""
    if vmi.evacuation_node_name:
        return True
    return launcher is not None and ANNOTATION_EVICTION_IN_PROGRESS in launcher.metadata.annotations


def eviction_source(vmi: Vmi) -> str:
    """Who asked for the last eviction, as far as it said so; ``""`` if nobody did.

    KubeVirt takes it off on success only: after a cancelled evacuation it says nothing of later ones.
    """
    return vmi.metadata.annotations.get(ANNOTATION_EVICTION_SOURCE, "")


def _why_not_evictable(vmi: Vmi, launcher: Pod) -> Reason | None:
    """What speaks against evicting this very pod for this VMI."""
    if is_hotplug(launcher):
        return Reason(Obstacle.HOTPLUG_POD, f"pod {launcher.metadata.name} belongs to hotplugged disks")
    if launcher.phase != "Running":
        text = f"phase of pod {launcher.metadata.name} is {launcher.phase or 'not set'}, not Running"
        return Reason(Obstacle.LAUNCHER_NOT_RUNNING, text)
    if launcher.node_name != vmi.node_name:
        where = launcher.node_name or "no node"
        text = f"pod {launcher.metadata.name} is on {where}, the VMI on {vmi.node_name or 'no node'}"
        return Reason(Obstacle.NOT_ON_NODE_OF_VMI, text)
    return opted_out(vmi, launcher)


def _cannot_migrate(vmi: Vmi, strategy: str) -> str:
    details = ": ".join(filter(None, (vmi.live_migratable_reason, vmi.live_migratable_message)))
    text = f"it is not live-migratable ({details})" if details else "it is not live-migratable"
    if strategy == EvictionStrategy.LIVE_MIGRATE_IF_POSSIBLE:
        return f"an eviction would shut it down: {text}"
    return text
