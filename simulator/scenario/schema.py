"""What a scenario may say: what happens in it, and its YAML document as a whole, as frozen structs.

The cluster and its load stand in `cluster_schema`; units are as there.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from simulator.kubevirt.options import KubeVirtOptions
from simulator.metrics.trouble import Trouble
from simulator.scenario.cluster_schema import (
    Above0,
    AtLeast0,
    Count,
    Fraction,
    Immovable,
    Loads,
    Name,
    NodeGroup,
    Range,
    Rate,
    SomeNodes,
    Strict,
    VmGroup,
    Vms,
    When,
)


class Churn(Strict, frozen=True, kw_only=True, tag_field="kind", tag="churn"):
    """VMs of one group come and go at random times (Poisson)."""

    group: str
    starts_per_minute: Rate = 0
    stops_per_minute: Rate = 0
    start_minute: AtLeast0 = 0
    end_minute: Above0 | None = None


class StartVms(Strict, frozen=True, kw_only=True, tag_field="kind", tag="start-vms"):
    """New VMs of a group; the scheduler places them."""

    group: str
    count: Count = 1
    at_minute: AtLeast0


class StopVms(Strict, frozen=True, kw_only=True, tag_field="kind", tag="stop-vms"):
    """Their owners stop some VMs."""

    vms: Vms
    at_minute: AtLeast0


class Migrate(When, frozen=True, kw_only=True, tag_field="kind", tag="migrate"):
    """At each beginning, somebody else migrates VMs (a VMIM without an eviction)."""

    vms: Vms = Vms(count=1)


class JoinNodes(Strict, frozen=True, kw_only=True, tag_field="kind", tag="join-nodes"):
    """New nodes of a group, named onwards."""

    group: str
    count: Count = 1
    at_minute: AtLeast0


class Abort(When, frozen=True, kw_only=True, tag_field="kind", tag="abort"):
    """At each beginning, somebody ends one migration that is under way, any of them."""

    way: Literal["delete-migration", "evacuate-cancel"] = "delete-migration"
    """Delete the VMIM, or only take the mark off the VMI."""


class Backup(When, frozen=True, kw_only=True, tag_field="kind", tag="backup"):
    """Backups of some VMs run: meanwhile their migrations of low priority wait."""

    vms: Vms


class WebhookDown(When, frozen=True, kw_only=True, tag_field="kind", tag="webhook-down"):
    """KubeVirt's eviction webhook cannot be reached."""


class Cordon(When, frozen=True, kw_only=True, tag_field="kind", tag="cordon"):
    """Nodes take no new pods."""

    nodes: SomeNodes


class Drain(Strict, frozen=True, kw_only=True, tag_field="kind", tag="drain"):
    """An upgrade: drain a node, reboot it when it is empty, uncordon it, then the next."""

    nodes: SomeNodes
    at_minute: AtLeast0
    reboot_minutes: AtLeast0 = 5
    pause_minutes: AtLeast0 = 1


class LoseNodes(When, frozen=True, kw_only=True, tag_field="kind", tag="lose-nodes"):
    """Machines die with their VMs; they come back, empty, at the end of the time."""

    nodes: SomeNodes


class RemoveNodes(Strict, frozen=True, kw_only=True, tag_field="kind", tag="remove-nodes"):
    """Machines and their Node objects go for good. VMs still there are dead and come up elsewhere."""

    nodes: SomeNodes
    at_minute: AtLeast0


class NotReady(When, frozen=True, kw_only=True, tag_field="kind", tag="not-ready"):
    """The condition Ready of nodes turns false. VMs run on, but are given up after five minutes of it."""

    nodes: SomeNodes


class StalledWatches(When, frozen=True, kw_only=True, tag_field="kind", tag="stalled-watches"):
    """Watches bring nothing, as over a half-open connection; then all that was missed, or a list."""

    resources: tuple[Literal["nodes", "launchers", "placed", "vmis", "vmims", "kubevirts"], ...] = ()
    """None given: all."""
    listed_anew: bool = False


class Restart(When, frozen=True, kw_only=True, tag_field="kind", tag="restart"):
    """At each beginning, one of the rebalancer's programs is killed, and started anew."""

    program: Literal["descheduler", "soft-tainter"] = "descheduler"
    away_seconds: AtLeast0 = 20


class ChangePolicy(Strict, frozen=True, kw_only=True, tag_field="kind", tag="policy"):
    """Another policy takes effect."""

    at_minute: AtLeast0
    policy: dict[str, Any] = field(default_factory=dict)
    """Parts that differ from the default."""


Happening = (
    Churn
    | StartVms
    | StopVms
    | Migrate
    | Abort
    | Backup
    | WebhookDown
    | JoinNodes
    | Cordon
    | Drain
    | LoseNodes
    | RemoveNodes
    | NotReady
    | StalledWatches
    | Restart
    | ChangePolicy
)


class Api(Strict, frozen=True, kw_only=True):
    """The way between the rebalancer and the API server."""

    answer_seconds: Range = 0
    """From an eviction request to its answer; what is asked for is done half-way."""
    lost_request_probability: Fraction = 0
    """Share of evictions, reads and patches that never arrive."""
    lost_answer_probability: Fraction = 0
    """Share of evictions and patches that are carried out, but the answer is lost."""


class Scenario(Strict, frozen=True, kw_only=True):
    """One scenario. Either ``nodes`` and ``vms`` describe the cluster, or ``cluster`` names a dump of a real
    one."""

    name: str = ""
    """Default: the file's name."""
    extends: str = ""
    """A scenario by name, or a YAML file beside this one: what it says holds here too, but for ``name``,
    ``description``, ``expectation`` and ``expect``. Mappings are merged key by key, everything else is
    replaced."""
    description: str
    """What happens in it."""
    expectation: str = ""
    """What a good rebalancer does in it."""
    minutes: Annotated[float, Meta(gt=0, le=100_000)] = 60
    trouble_start_minute: AtLeast0 = 0
    """When the trouble begins; ``minutes_to_balance`` counts from here."""
    cluster: str = ""
    """File of ``kubectl get nodes,pods,vmis,vmims,kubevirts -A -o json``."""
    nodes: dict[Name, NodeGroup] = field(default_factory=dict)
    vms: dict[Name, VmGroup] = field(default_factory=dict)
    immovable: tuple[Immovable, ...] = ()
    load: Loads = Loads()
    happenings: tuple[Happening, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    """Trouble with the metrics."""
    kubevirt: KubeVirtOptions = KubeVirtOptions()
    api: Api = Api()
    policy: dict[str, Any] = field(default_factory=dict)
    """Parts of a policy that differ from the default."""
    expect: dict[str, str | float] = field(default_factory=dict)
    """Score -> bound (``"<= 20"``, ``"== 0"``, or a number) that a run with the default policy has to
    keep."""
