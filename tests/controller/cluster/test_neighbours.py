"""The indexes find every pod that matters to pod (anti-)affinity: looking at all pods changes nothing."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.caches import ClusterCaches
from controller.cluster.objects import Pod
from controller.cluster.placement import affinity_domains
from controller.cluster.pods import Affinity
from controller.cluster.view import ClusterView
from tests.builders import launcher, node

NODES = [node(f"n{i}", labels={"zone": f"z{i % 2}"}) for i in range(4)]
NAMESPACES = st.sampled_from(["vms", "others"])
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2)

EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "kubevirt.io/created-by"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": st.lists(st.sampled_from(["x", "y", "vmi-vm0", "vmi-vm1"]), min_size=1, max_size=2),
    }
)
SELECTORS = st.none() | st.fixed_dictionaries(
    {"matchLabels": st.none() | LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=1)}
)
TERMS = st.fixed_dictionaries(
    {
        "labelSelector": SELECTORS,
        "topologyKey": st.sampled_from(["kubernetes.io/hostname", "zone", "rack"]),
        "namespaces": st.none() | st.lists(NAMESPACES, max_size=2),
        "namespaceSelector": st.none() | st.just({}),
    }
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITIES = st.fixed_dictionaries(
    {
        "podAffinity": st.fixed_dictionaries({REQUIRED: st.lists(TERMS, max_size=1)}),
        "podAntiAffinity": st.fixed_dictionaries({REQUIRED: st.lists(TERMS, max_size=2)}),
    }
)


@st.composite
def launchers(draw: st.DrawFn) -> list[Pod]:
    def one(number: int) -> Pod:
        affinity: dict[str, Any] = draw(AFFINITIES)
        return launcher(
            f"vm{number}",
            namespace=draw(NAMESPACES),
            node=draw(st.sampled_from(["", "gone", *(n.name for n in NODES)])),
            phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"])),
            labels=draw(LABELS),
            affinity=msgspec.convert(affinity, Affinity),
        )

    return [one(number) for number in range(draw(st.integers(1, 6)))]


@given(launchers())
def test_neighbours_are_all_that_matter(pods: list[Pod]) -> None:
    caches = ClusterCaches()
    caches.nodes.replace(NODES)
    caches.launchers.replace(pods)
    view = ClusterView.over(caches)
    by_name = {n.name: n for n in NODES}
    everybody = [(pod, by_name[pod.node_name]) for pod in pods if pod.node_name in by_name]
    for pod in pods:
        found, expected = affinity_domains(pod, view.neighbours(pod)), affinity_domains(pod, everybody)
        assert found.demanded == expected.demanded
        assert {key: set(values) for key, values in found.closed.items()} == {
            key: set(values) for key, values in expected.closed.items()
        }
