"""Where kube-scheduler would put the target of a migration, and why not elsewhere."""

from typing import Any

import msgspec
import pytest

from controller.cluster.objects import Affinity, Node, PlacedPod, Pod, Resources, Taint, Toleration
from controller.cluster.placement import (
    ANYWHERE,
    Misfit,
    NodeRoom,
    affinity_domains,
    is_pinned,
    place,
    room_of,
    scheduler_score,
    why_not_allowed,
    why_not_fit,
)
from tests.builders import GIB, launcher, node, placed_pod

EMPTY = NodeRoom()


def node_affinity(*terms: dict[str, Any]) -> Affinity:
    required = {"nodeSelectorTerms": list(terms)}
    return msgspec.convert({"nodeAffinity": {REQUIRED: required}}, Affinity)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def anti_affinity(labels: dict[str, str], key: str = "kubernetes.io/hostname", **more: Any) -> Affinity:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}
    return msgspec.convert({"podAntiAffinity": {REQUIRED: [term]}}, Affinity)


def pod_affinity(*labels: dict[str, str], key: str = "zone") -> Affinity:
    terms = [{"labelSelector": {"matchLabels": wanted}, "topologyKey": key} for wanted in labels]
    return msgspec.convert({"podAffinity": {REQUIRED: terms}}, Affinity)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HARD = Taint("dedicated", "db", "NoSchedule")
EVICTING = Taint("broken", "", "NoExecute")
SOFT = Taint("busy", "", "PreferNoSchedule")


def there(**more: Any) -> Node:
    return node("node-2", **more)


def wanting(*terms: dict[str, Any]) -> Pod:
    return launcher(affinity=node_affinity(*terms))


def tolerating(key: str = "", operator: str | None = "Equal", value: str = "", effect: str = "") -> Pod:
    return launcher(tolerations=[Toleration(key, operator, value, effect)])


@pytest.mark.parametrize(
    ("pod", "target", "room", "misfit"),
    [
        (launcher(), there(), EMPTY, None),
        (launcher(node="node-2"), there(), EMPTY, Misfit.SOURCE_NODE),
        (launcher(), there(unschedulable=True), EMPTY, Misfit.CORDONED),
        (tolerating(operator="Exists"), there(unschedulable=True), EMPTY, Misfit.CORDONED),
        (launcher(), there(ready=False), EMPTY, Misfit.NOT_READY),
        # Node selector
        (launcher(node_selector={"disk": "ssd"}), there(), EMPTY, Misfit.NODE_SELECTOR),
        (launcher(node_selector={"disk": "ssd"}), there(labels={"disk": "hdd"}), EMPTY, Misfit.NODE_SELECTOR),
        (launcher(node_selector={"disk": "ssd"}), there(labels={"disk": "ssd"}), EMPTY, None),
        # Required node affinity: one of the terms, all of its requirements
        (wanting(expression("disk", "In", "ssd")), there(), EMPTY, Misfit.NODE_AFFINITY),
        (wanting(expression("disk", "NotIn", "ssd")), there(), EMPTY, None),
        (wanting(expression("disk", "DoesNotExist")), there(), EMPTY, None),
        (wanting(expression("disk", "Exists")), there(labels={"disk": ""}), EMPTY, None),
        (wanting(expression("age", "Gt", "3")), there(labels={"age": "4"}), EMPTY, None),
        (wanting(expression("age", "Lt", "3")), there(labels={"age": "4"}), EMPTY,
         Misfit.NODE_AFFINITY),
        (wanting(field("In", "node-2")), there(), EMPTY, None),
        (wanting(field("NotIn", "node-2")), there(), EMPTY, Misfit.NODE_AFFINITY),
        (wanting(field("In", "node-3"), expression("disk", "In", "ssd")),
         there(labels={"disk": "ssd"}), EMPTY, None),
        (wanting(field("In", "node-3") | expression("disk", "In", "ssd")),
         there(labels={"disk": "ssd"}), EMPTY, Misfit.NODE_AFFINITY),
        (wanting({}), there(), EMPTY, Misfit.NODE_AFFINITY),
        (wanting(), there(), EMPTY, Misfit.NODE_AFFINITY),
        # Taints
        (launcher(), there(taints=[SOFT]), EMPTY, None),
        (launcher(), there(taints=[SOFT, HARD]), EMPTY, Misfit.TAINT),
        (launcher(), there(taints=[EVICTING]), EMPTY, Misfit.TAINT),
        (tolerating("dedicated", "Equal", "db"), there(taints=[HARD]), EMPTY, None),
        (tolerating("dedicated", None, "db"), there(taints=[HARD]), EMPTY, None),
        (tolerating("dedicated", "Equal", "web"), there(taints=[HARD]), EMPTY, Misfit.TAINT),
        (tolerating("dedicated", "Exists"), there(taints=[HARD]), EMPTY, None),
        (tolerating("other", "Exists"), there(taints=[HARD]), EMPTY, Misfit.TAINT),
        (tolerating(operator="Exists"), there(taints=[HARD, EVICTING]), EMPTY, None),
        (tolerating(operator="Exists", effect="NoSchedule"), there(taints=[EVICTING]), EMPTY,
         Misfit.TAINT),
        # Room: what is there already, and what is arriving
        (launcher(cpu_cores=2), there(cpu_cores=8), NodeRoom(Resources(6.0, 0), 1), None),
        (launcher(cpu_cores=2), there(cpu_cores=8), NodeRoom(Resources(6.1, 0), 1), Misfit.INSUFFICIENT_CPU),
        (launcher(memory_bytes=8 * GIB), there(memory_bytes=9 * GIB), NodeRoom(Resources(0, GIB), 1), None),
        (launcher(memory_bytes=8 * GIB), there(memory_bytes=9 * GIB), NodeRoom(Resources(0, GIB + 1), 1),
         Misfit.INSUFFICIENT_MEMORY),
        (launcher(), there(max_pods=10), NodeRoom(pods=9), None),
        (launcher(), there(max_pods=10), NodeRoom(pods=10), Misfit.TOO_MANY_PODS),
        # Who requests nothing fits even where requests exceed what there is.
        (launcher(cpu_cores=0, memory_bytes=0), there(cpu_cores=8), NodeRoom(Resources(9.0, 0), 1), None),
    ],
)  # fmt: skip
def test_fits_as_the_scheduler_filters(pod: Pod, target: Node, room: NodeRoom, misfit: Misfit | None) -> None:
    reason = why_not_fit(pod, target, room)
    assert (reason and reason.code) == misfit


def test_sums_of_requests_do_not_make_a_full_node_overfull() -> None:
    """0.1 and 0.2 are not exactly 0.3; the scheduler counts in millicores, where they are."""
    room = room_of(placed_pod(f"pod-{n}", cpu_cores=0.1) for n in range(72))
    assert why_not_fit(launcher(cpu_cores=0.8), node("node-2", cpu_cores=8), room) is None


def test_reasons_say_how_much_is_left() -> None:
    reason = why_not_fit(launcher(cpu_cores=3), node("node-2", cpu_cores=8), NodeRoom(Resources(6.5, 0), 4))
    assert reason is not None
    assert reason.text == "3 cores are requested, 1.5 left"


def test_finished_pods_take_no_room() -> None:
    pods: list[Pod | PlacedPod] = [
        placed_pod("a", cpu_cores=1, memory_bytes=GIB),
        placed_pod("b", cpu_cores=2, memory_bytes=GIB, phase="Succeeded"),
        launcher("vm-1", cpu_cores=4, memory_bytes=2 * GIB, phase="Pending"),
        launcher("vm-2", cpu_cores=8, memory_bytes=4 * GIB, phase="Failed"),
    ]
    assert room_of(pods) == NodeRoom(Resources(5, 3 * GIB), 2)


def test_a_pod_on_its_way_takes_room() -> None:
    assert NodeRoom(Resources(1, 2), 3).plus(Resources(4, 5)) == NodeRoom(Resources(5, 7), 4)


# --- pod affinity and anti-affinity ---

A, B, C = (node(n, labels={"zone": z}) for n, z in (("a", "east"), ("b", "east"), ("c", "west")))


def fitting(pod: Pod, *neighbours: tuple[Pod, Node]) -> list[str]:
    """Names of the nodes the pod may go to."""
    domains = affinity_domains(pod, neighbours)
    return [n.name for n in (A, B, C) if why_not_fit(pod, n, EMPTY, domains) is None]


WEB = {"app": "web"}


def test_anti_affinity_keeps_a_pod_away_from_its_likes() -> None:
    pod = launcher("vm-1", node="a", labels=WEB, affinity=anti_affinity(WEB))
    like, other = launcher("vm-2", node="b", labels=WEB), launcher("vm-3", node="c", labels={"app": "db"})
    assert fitting(pod, (pod, A), (like, B), (other, C)) == ["c"]


def test_anti_affinity_reaches_as_far_as_its_topology_key() -> None:
    pod = launcher("vm-1", node="c", labels=WEB, affinity=anti_affinity(WEB, "zone"))
    assert fitting(pod, (launcher("vm-2", node="b", labels=WEB), B)) == []


def test_anti_affinity_of_a_pod_that_is_there_already_counts_too() -> None:
    pod = launcher("vm-1", node="a", labels=WEB)
    there = launcher("vm-2", node="b", labels={"app": "db"}, affinity=anti_affinity(WEB))
    assert fitting(pod, (there, B)) == ["c"]


def test_nodes_without_the_topology_key_are_in_no_domain() -> None:
    pod = launcher("vm-1", node="a", labels=WEB, affinity=anti_affinity(WEB, "rack"))
    assert fitting(pod, (launcher("vm-2", node="b", labels=WEB), B)) == ["b", "c"]


def test_finished_pods_keep_nobody_away() -> None:
    pod = launcher("vm-1", node="a", labels=WEB, affinity=anti_affinity(WEB))
    assert fitting(pod, (launcher("vm-2", node="b", labels=WEB, phase="Succeeded"), B)) == ["b", "c"]


def test_kubevirts_own_anti_affinity_excludes_the_source_node_only() -> None:
    """A launcher that was a target once carries a term against its own VMI's pods for life."""
    own = anti_affinity({"kubevirt.io/created-by": "vmi-vm-1"})
    pod = launcher("vm-1", node="a", affinity=own)
    assert fitting(pod, (pod, A)) == ["b", "c"]


def test_the_source_pod_counts_for_its_whole_domain() -> None:
    """It is there until the migration ends, so kube-scheduler would find no place in its zone for the target."""
    pod = launcher("vm-1", node="a", labels=WEB, affinity=anti_affinity(WEB, "zone"))
    assert fitting(pod, (pod, A)) == ["c"]


@pytest.mark.parametrize(
    ("scope", "nodes"),
    [
        ({}, ["b", "c"]),
        ({"namespaces": ["vms"]}, ["b", "c"]),
        ({"namespaces": ["others"]}, ["c"]),
        ({"namespaces": ["vms", "others"]}, ["c"]),
        ({"namespaceSelector": {}}, ["c"]),
        # Namespace objects are not watched: a selector counts as selecting all of them.
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, ["c"]),
        ({"namespaceSelector": None, "namespaces": None}, ["b", "c"]),
    ],
)
def test_anti_affinity_means_the_own_namespace_unless_told_otherwise(
    scope: dict[str, Any], nodes: list[str]
) -> None:
    pod = launcher("vm-1", node="a", affinity=anti_affinity(WEB, **scope))
    assert fitting(pod, (launcher("vm-2", node="b", namespace="others", labels=WEB), B)) == nodes


def test_a_term_without_a_label_selector_selects_no_pod() -> None:
    pod = launcher("vm-1", node="a", affinity=anti_affinity({}, labelSelector=None))
    assert fitting(pod, (launcher("vm-2", node="b"), B)) == ["b", "c"]


def test_affinity_wants_a_pod_in_the_same_domain() -> None:
    pod = launcher("vm-1", node="a", affinity=pod_affinity({"app": "db"}))
    assert fitting(pod, (pod, A), (launcher("vm-2", node="a", labels={"app": "db"}), A)) == ["b"]
    assert fitting(pod, (pod, A)) == []


def test_affinity_wants_one_pod_that_meets_all_terms() -> None:
    pod = launcher("vm-1", node="a", affinity=pod_affinity({"app": "db"}, {"tier": "back"}))
    one = launcher("vm-2", node="b", labels={"app": "db"})
    two = launcher("vm-3", node="b", labels={"tier": "back"})
    both = launcher("vm-4", node="b", labels={"app": "db", "tier": "back"})
    assert fitting(pod, (one, B), (two, B)) == []
    assert fitting(pod, (one, B), (both, B)) == ["b"]


def test_a_pod_with_affinity_to_its_own_group_stays_in_the_domain_of_its_source() -> None:
    """The source is one of the group, and there; so by host name the VM cannot leave at all."""
    by_zone = launcher("vm-1", node="a", labels=WEB, affinity=pod_affinity(WEB))
    by_host = launcher("vm-1", node="a", labels=WEB, affinity=pod_affinity(WEB, key="kubernetes.io/hostname"))
    assert fitting(by_zone, (by_zone, A)) == ["b"]
    assert fitting(by_host, (by_host, A)) == []


def test_the_first_of_a_group_may_go_anywhere() -> None:
    pod = launcher("vm-1", node="a", labels=WEB, affinity=pod_affinity(WEB))
    assert fitting(pod) == ["b", "c"]


def test_without_terms_nothing_is_closed_or_demanded() -> None:
    assert affinity_domains(launcher(), [(launcher("vm-2"), A)]) == ANYWHERE


# --- pinned ---


def test_a_vm_whose_node_selector_leaves_one_node_is_pinned() -> None:
    pod = launcher(node="a", node_selector={"kubernetes.io/hostname": "a"})
    assert is_pinned(pod, [A, B, C])
    assert not is_pinned(launcher(node="a"), [A, B, C])
    assert why_not_allowed(pod, A) is None


# --- scores ---


@pytest.mark.parametrize(
    ("requested", "soft", "most", "score"),
    [
        # empty node of 10 cores and 10 GiB, pod of 1 core and 1 GiB: free 90 %, balanced 100 %
        ((0, 0), 0, 0, 300 + 90 + 100),
        ((4, 4), 0, 0, 300 + 50 + 100),
        # 50 % of the cores, 10 % of the memory: free (50 + 90) / 2, off balance by 40 % / 2
        ((4, 0), 0, 0, 300 + 70 + 80),
        ((4, 0), 1, 2, 150 + 70 + 80),
        ((4, 0), 2, 2, 0 + 70 + 80),
        ((4, 0), 1, 3, 3 * (100 - 33) + 70 + 80),
        # more requested than there is: nothing free
        ((12, 0), 0, 0, 300 + 45 + 55),
    ],
)
def test_scores_are_the_schedulers(requested: tuple[float, float], soft: int, most: int, score: int) -> None:
    target = node("a", cpu_cores=10, memory_bytes=10 * GIB)
    room = NodeRoom(Resources(requested[0], requested[1] * GIB), 1)
    assert scheduler_score(launcher(cpu_cores=1, memory_bytes=GIB), target, room, soft, most) == score


def test_the_emptiest_node_is_best() -> None:
    pod = launcher(node="x")
    rooms = [
        (A, NodeRoom(Resources(32, 128 * GIB), 9)),
        (B, EMPTY),
        (C, NodeRoom(Resources(16, 64 * GIB), 9)),
    ]
    placement = place(pod, rooms)
    assert [n.name for n in placement.best] == ["b"]
    assert [n.name for n, _ in placement.scores] == ["a", "b", "c"]


def test_equal_nodes_share_the_best_score() -> None:
    """kube-scheduler breaks ties at random, so all of them have to be reckoned with."""
    placement = place(
        launcher(node="x"), [(A, EMPTY), (B, EMPTY), (C, NodeRoom(Resources(32, 128 * GIB), 9))]
    )
    assert [n.name for n in placement.best] == ["a", "b"]


def test_a_soft_taint_outweighs_room() -> None:
    tainted = node("t", taints=[SOFT])
    placement = place(launcher(node="x"), [(tainted, EMPTY), (A, NodeRoom(Resources(32, 128 * GIB), 9))])
    assert [n.name for n in placement.best] == ["a"]


def test_a_soft_taint_on_every_node_makes_no_difference() -> None:
    one, other = (node(n, taints=[SOFT]) for n in ("a", "b"))
    placement = place(launcher(node="x"), [(one, EMPTY), (other, EMPTY)])
    assert len(placement.best) == 2


def test_soft_taints_on_nodes_that_do_not_fit_do_not_count() -> None:
    """The scheduler normalises over the nodes that passed the filters."""
    twice = node("t", taints=[SOFT, Taint("busier", "", "PreferNoSchedule")], unschedulable=True)
    once = node("u", taints=[SOFT])
    scores = {
        n.name: s for n, s in place(launcher(node="x"), [(twice, EMPTY), (once, EMPTY), (A, EMPTY)]).scores
    }
    assert scores["a"] - scores["u"] == 300


def test_a_tolerated_soft_taint_costs_nothing() -> None:
    pod = launcher(node="x", tolerations=[Toleration("busy", "Exists", effect="PreferNoSchedule")])
    assert len(place(pod, [(node("t", taints=[SOFT]), EMPTY), (A, EMPTY)]).best) == 2


def test_says_why_it_fits_nowhere_most_frequent_first() -> None:
    full = NodeRoom(Resources(64, 0), 9)
    placement = place(launcher(node="x"), [(node("d", ready=False), EMPTY), (A, full), (B, full)])
    assert placement.best == ()
    assert placement.misfits["a"].code == Misfit.INSUFFICIENT_CPU
    assert placement.why_none() == "2 x 0.8 cores are requested, 0 left; 1 x the node is not ready"
    assert place(launcher(), []).why_none() == "there is no other node"
