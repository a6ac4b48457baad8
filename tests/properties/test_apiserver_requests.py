"""Whatever is asked, and in whatever body, the API answers; and what it stores, the cluster can live with."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json

from informers.testing import ManualClock
from simulator.apiserver.api import Api, Reply, Request
from simulator.apiserver.live import LiveCluster
from simulator.apiserver.refusals import Refusal
from simulator.apiserver.routing import parse_call
from simulator.apiserver.subresources import Throttled
from simulator.apiserver.watches import Watch
from simulator.scenario.loading import parse_scenario
from tests.simulator.apiserver.builders import (
    CONFIG_MAPS,
    CORE_EVENTS,
    EVENTS,
    JSON_PATCH,
    KUBEVIRT,
    LEASES,
    MERGE,
    NODES,
    PODS,
    SCENARIO,
    STRATEGIC,
    SUBRESOURCES,
    VMIMS,
    VMIS,
)
from tests.simulator.apiserver.harness import START

COLLECTIONS = (CONFIG_MAPS, CORE_EVENTS, EVENTS, LEASES, NODES, PODS, VMIMS, VMIS, "/api/v1/namespaces")
PATHS = st.sampled_from(
    [
        *COLLECTIONS,
        *(f"{path}/{name}" for path in COLLECTIONS for name in ("node-00", "web-000", "x")),
        *(f"{NODES}/node-01/status", f"{VMIMS}/x/status", KUBEVIRT, f"{PODS}/x/eviction"),
        *(f"{SUBRESOURCES}/web-000/evacuatecancel", "/openapi/v3", "/apis", "/", "/api/v1/unknown"),
    ]
)
KEYS = st.sampled_from(
    [
        *(
            "metadata",
            "spec",
            "status",
            "data",
            "name",
            "namespace",
            "labels",
            "annotations",
            "taints",
            "key",
        ),
        *(
            "effect",
            "unschedulable",
            "vmiName",
            "holderIdentity",
            "renewTime",
            "finalizers",
            "resourceVersion",
        ),
        *(
            "conditions",
            "type",
            "regarding",
            "involvedObject",
            "deleteOptions",
            "dryRun",
            "$patch",
            "op",
            "path",
        ),
        *("value", "from", "$retainKeys", "generateName", "uid", "preconditions", "eventTime"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(
        ["", "x", "web-000", "All", "add", "replace", "remove", "test", "/spec/taints/0", "/metadata"]
    )
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "continue",
            "labelSelector",
            "fieldSelector",
            "resourceVersion",
            "watch",
            "dryRun",
            "sendInitialEvents",
        ]
    ),
    st.sampled_from(
        ["", "1", "0", "true", "All", "a=b", "metadata.name=x", "a in (b)", "spec.x!=y", "e30", "!"]
    ),
    max_size=3,
)
TYPES = st.sampled_from(["application/json", MERGE, STRATEGIC, JSON_PATCH, "application/yaml", "text/plain"])
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]), PATHS, QUERIES, TYPES, VALUES
)


@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, max_size=25))
def test_every_request_gets_an_answer(requests: list[tuple[str, str, dict[str, str], str, Any]]) -> None:
    clock = ManualClock(START)
    live = LiveCluster(parse_scenario(SCENARIO), 1, 1.0, clock, "vm-rebalancer")
    api = Api(live, 1)
    for number, (method, path, query, content_type, body) in enumerate(requests):
        request = Request(query, content_type=content_type, body=json.encode(body))
        try:
            answer = api.handle(parse_call(method, path, query), request, "somebody")
        except (Refusal, Throttled):
            pass
        else:
            assert isinstance(answer, Reply | Watch)
        clock.set_monotonic(5.0 * (number + 1))
    clock.set_monotonic(600.0)
    live.catch_up()
    for resource in (NODES, PODS, VMIS, VMIMS, CONFIG_MAPS, EVENTS):
        for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
            listed = api.handle(parse_call("GET", resource, {}), Request({}, accept=accept), "somebody")
            assert isinstance(listed, Reply)
            assert listed.status == 200
