"""What a patch of a node's taints looks like on the wire, and what becomes of each answer."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.objects import Taint
from controller.lease import NotLeaderError
from controller.taints.patch import TaintPatcher
from informers.errors import ApiError, Invalid, NoAnswer, from_response
from simulator.apiserver.patches import json_patch
from tests.builders import node
from tests.controller.io.builders import always, never, transport_to
from tests.controller.io.fake_api import FakeTransport, recorded_error, status_error
from tests.controller.io.http_server import HttpServer, reply

OURS = Taint("nodeutilization.vm-rebalancer.io/overutilized", "", "PreferNoSchedule")
OURS_TOO = Taint("nodeutilization.vm-rebalancer.io/appropriate", "", "PreferNoSchedule")
FOREIGN = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
GUARD = {"op": "test", "path": "/metadata/resourceVersion", "value": "77"}


def as_json(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def patch(present: list[Taint], wanted: list[Taint]) -> Any:
    transport = FakeTransport(b"{}")
    assert TaintPatcher(transport, always).replace_taints(node(taints=present, resource_version="77"), wanted)
    return transport.sent[0].body


def test_patches_the_node_as_json_patch(tmp_path):
    with HttpServer(lambda request: reply(200, {})) as server:
        patcher = TaintPatcher(transport_to(server.url, tmp_path), always)
        assert patcher.replace_taints(node(resource_version="77"), [OURS])
    (request,) = server.requests
    assert (request.method, request.target) == ("PATCH", "/api/v1/nodes/node-1")
    assert request.headers["content-type"] == "application/json-patch+json"
    assert json.loads(request.body) == [
        GUARD,
        {"op": "add", "path": "/spec/taints", "value": [as_json(OURS)]},
    ]


def test_adds_to_a_list_that_is_there_without_writing_what_is_in_it():
    assert patch([FOREIGN], [FOREIGN, OURS]) == [
        GUARD,
        {"op": "add", "path": "/spec/taints/-", "value": as_json(OURS)},
    ]


def test_takes_off_from_the_end_so_that_positions_hold():
    assert patch([OURS, FOREIGN, OURS_TOO], [FOREIGN]) == [
        GUARD,
        {"op": "remove", "path": "/spec/taints/2"},
        {"op": "remove", "path": "/spec/taints/0"},
    ]


def test_sends_nothing_where_nothing_changes():
    transport = FakeTransport()
    patcher = TaintPatcher(transport, always)
    assert patcher.replace_taints(node(taints=[FOREIGN, OURS]), [FOREIGN, OURS])
    assert patcher.replace_taints(node(), [])
    assert transport.sent == []


def test_nothing_is_sent_without_the_lease():
    transport = FakeTransport()
    with pytest.raises(NotLeaderError, match="taints of node node-1 not written"):
        TaintPatcher(transport, never).replace_taints(node(), [OURS])
    assert transport.sent == []


def test_a_patch_is_given_up_before_another_leader_may_write():
    transport = FakeTransport(b"{}")
    TaintPatcher(transport, lambda: timedelta(seconds=3)).replace_taints(node(), [OURS])
    assert [sent.deadline for sent in transport.sent] == [timedelta(seconds=3)]


@pytest.mark.parametrize("name", ["jsonpatch-test-fails", "mergepatch-conflict"])
def test_a_node_that_has_changed_is_told_apart(name):
    patcher = TaintPatcher(FakeTransport(recorded_error(name)), always)
    assert not patcher.replace_taints(node(), [OURS])


def test_a_patch_that_is_invalid_is_no_conflict():
    """It would be tried again and again."""
    patcher = TaintPatcher(FakeTransport(recorded_error("taint-duplicate")), always)
    with pytest.raises(Invalid, match="Duplicate value"):
        patcher.replace_taints(node(), [OURS])


def test_a_refusal_by_the_admission_policy_is_no_conflict():
    """It answers 422 as a failed test does, but with a cause."""
    status = {
        "kind": "Status",
        "status": "Failure",
        "message": "nodes \"node-1\" is forbidden: ValidatingAdmissionPolicy 'soft-taints' denied request",
        "reason": "Invalid",
        "details": {"name": "node-1", "kind": "nodes", "causes": [{"message": "denied request"}]},
        "code": 422,
    }
    patcher = TaintPatcher(FakeTransport(from_response(422, json.dumps(status).encode(), {})), always)
    with pytest.raises(Invalid, match="ValidatingAdmissionPolicy"):
        patcher.replace_taints(node(), [OURS])


@pytest.mark.parametrize(
    "error", [status_error(403, "Forbidden", "no"), status_error(404, "", "a proxy's"), NoAnswer("broke")]
)
def test_other_trouble_is_raised(error):
    with pytest.raises(ApiError):
        TaintPatcher(FakeTransport(error), always).replace_taints(node(), [OURS])


def test_a_node_that_has_gone_needs_no_taints():
    gone = FakeTransport(status_error(404, "NotFound", 'nodes "a" not found'))
    assert not TaintPatcher(gone, always).replace_taints(node(), [OURS])


taints = st.builds(
    Taint, st.sampled_from("abcdef"), st.just(""), st.sampled_from(["NoExecute", "PreferNoSchedule"])
)
lists = st.lists(taints, max_size=6, unique_by=lambda taint: (taint.key, taint.effect))


@given(lists, lists)
def test_a_patch_makes_of_any_list_any_other_and_keeps_what_it_does_not_know(present, wanted):
    stored = [as_json(taint) | {"timeAdded": "2026-01-01T00:00:00Z"} for taint in present]
    transport = FakeTransport(b"{}")
    TaintPatcher(transport, always).replace_taints(node(taints=present), wanted)
    there = {"metadata": {"resourceVersion": "1"}, "spec": {"taints": stored} if stored else {}}
    patched = json_patch(there, transport.sent[0].body) if transport.sent else there
    result = patched["spec"].get("taints", [])
    by_identity = {(t["key"], t["effect"]): t for t in result}
    assert by_identity.keys() == {(t.key, t.effect) for t in wanted}
    assert len(result) == len(by_identity)
    for taint in present:
        if taint in wanted:
            assert by_identity[taint.key, taint.effect]["timeAdded"]
