"""What an eviction request looks like on the wire, and what becomes of each answer."""

import gzip
import json
from datetime import timedelta

import pytest

from controller.evictions.answers import Verdict
from controller.evictions.api import EvictionRequests
from controller.evictions.entry import VmKey
from controller.lease import NotLeaderError
from informers.errors import ApiError, Conflict, Garbled, NoAnswer, Throttled, Unreachable, from_response
from tests.builders import launcher
from tests.controller.io.builders import always, never, transport_to
from tests.controller.io.fake_api import FakeTransport, recorded, status_error
from tests.controller.io.http_server import HttpServer, reply

RECORDED = {
    "eviction-triggered": Verdict.TRIGGERED,
    "eviction-dryrun-triggered": Verdict.TRIGGERED,
    "eviction-again-at-once": Verdict.IN_PROGRESS,
    "eviction-of-target": Verdict.IN_PROGRESS,
    "eviction-dryrun-granted": Verdict.GRANTED,
    "eviction-dryrun-not-migratable": Verdict.NOT_MIGRATABLE,
    "eviction-forbidden": Verdict.FORBIDDEN,
    "eviction-notfound": Verdict.POD_GONE,
}
PDB_STATUS = {
    "kind": "Status",
    "status": "Failure",
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "reason": "TooManyRequests",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 1"}], "retryAfterSeconds": 10},
    "code": 429,
}


def evict(*answers: bytes | ApiError, dry_run: bool = False):
    return EvictionRequests(FakeTransport(*answers), always).evict(launcher(), dry_run=dry_run)


@pytest.mark.parametrize(("name", "verdict"), RECORDED.items())
def test_every_recorded_answer_has_its_verdict_over_a_real_connection(name, verdict, tmp_path):
    answer = recorded(name)["response"]
    with HttpServer(lambda request: reply(answer["status"], answer["body"])) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), always)
        assert api.evict(launcher(), dry_run=False).verdict is verdict


@pytest.mark.parametrize("name", RECORDED)
def test_asks_as_the_recorded_requests_do_and_for_exactly_this_pod(name, tmp_path):
    sent = recorded(name)["request"]
    pod = launcher(name=sent["body"]["metadata"]["name"], uid="uid-1")
    dry_run = "dryRun" in sent["body"].get("deleteOptions", {})
    with HttpServer(lambda request: reply(201, {})) as server:
        EvictionRequests(transport_to(server.url, tmp_path), always).evict(pod, dry_run=dry_run)
    (request,) = server.requests
    assert (request.method, request.path) == (sent["method"], sent["path"])
    assert request.headers["content-type"] == "application/json"
    body = json.loads(request.body)
    assert body["deleteOptions"].pop("preconditions") == {"uid": "uid-1"}
    expected = sent["body"] | {"deleteOptions": sent["body"].get("deleteOptions", {})}
    assert body == expected


def test_a_dry_run_says_so():
    transport = FakeTransport(b"{}", b"{}")
    api = EvictionRequests(transport, always)
    api.evict(launcher(), dry_run=True)
    api.evict(launcher(), dry_run=False)
    assert [sent.body["deleteOptions"].get("dryRun") for sent in transport.sent] == [["All"], None]


@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_sent_without_the_lease(dry_run):
    transport = FakeTransport()
    with pytest.raises(NotLeaderError, match=r"eviction of pod vms/virt-launcher-vm-1 not sent"):
        EvictionRequests(transport, never).evict(launcher(), dry_run=dry_run)
    assert transport.sent == []


def test_the_lease_is_asked_for_before_each_request():
    """A dry run may have taken longer than the lease lasts."""
    answers = iter([timedelta(seconds=5), timedelta(0)])
    api = EvictionRequests(FakeTransport(b"{}"), lambda: next(answers))
    api.evict(launcher(), dry_run=True)
    with pytest.raises(NotLeaderError):
        api.evict(launcher(), dry_run=False)


def test_a_request_is_given_up_before_another_leader_may_write():
    """An answer that it still waited for could be that to a second writer's question."""
    transport = FakeTransport(b"{}", b"{}")
    left = iter([timedelta(seconds=3), timedelta.max])
    api = EvictionRequests(transport, lambda: next(left), deadline=timedelta(seconds=15))
    api.evict(launcher(), dry_run=True)
    api.evict(launcher(), dry_run=False)
    assert [sent.deadline for sent in transport.sent] == [timedelta(seconds=3), timedelta(seconds=15)]


def test_a_request_that_never_left_cannot_have_been_carried_out():
    answer = evict(Unreachable("cannot connect to 10.0.0.1:443: Connection refused"))
    assert answer.verdict is Verdict.UNREACHABLE
    assert answer.message == "cannot connect to 10.0.0.1:443: Connection refused"


def test_a_closed_port_is_no_lost_answer(tmp_path):
    with HttpServer(lambda request: reply(201, {})) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), always)
    assert api.evict(launcher(), dry_run=False).verdict is Verdict.UNREACHABLE


def test_an_answer_that_never_comes_is_waited_for_no_longer_than_the_deadline(tmp_path):
    with HttpServer(lambda request: server.hang()) as server:
        transport = transport_to(server.url, tmp_path)
        api = EvictionRequests(transport, always, deadline=timedelta(seconds=0.2))
        assert api.evict(launcher(), dry_run=False).verdict is Verdict.NO_ANSWER


def test_an_answer_that_breaks_off_leaves_everything_open(tmp_path):
    with HttpServer(lambda request: [b"HTTP/1.1 429 Too Many Requ"]) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), always)
        assert api.evict(launcher(), dry_run=False).verdict is Verdict.NO_ANSWER


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff\xfe", gzip.compress(b"granted", mtime=0)])
def test_a_2xx_is_a_grant_whatever_it_says(body, tmp_path):
    """The VM goes down, and that must never be taken for anything else."""
    with HttpServer(lambda request: reply(200, body)) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), always)
        assert api.evict(launcher(), dry_run=False).verdict is Verdict.GRANTED


def test_the_head_of_an_answer_that_grants_says_it_all():
    assert evict(NoAnswer("the connection broke", status=201)).verdict is Verdict.GRANTED
    assert evict(Garbled("the answer is too large", status=200)).verdict is Verdict.GRANTED


def test_the_head_of_any_other_answer_without_the_rest_does_not():
    assert evict(NoAnswer("the connection broke", status=429)).verdict is Verdict.NO_ANSWER
    assert evict(Garbled("the answer is too large")).verdict is Verdict.NO_ANSWER


@pytest.mark.parametrize("body", [b"", b"<html>slow down</html>"])
def test_a_429_whose_text_is_lost_may_have_been_any_of_them(body):
    assert evict(from_response(429, body, {})).verdict is Verdict.NO_ANSWER


def test_a_server_that_asks_for_patience_says_nothing_about_the_pod():
    busy = from_response(429, b"Too many requests, please try again later.", {"Retry-After": "7"})
    assert isinstance(busy, Throttled)
    answer = evict(busy)
    assert answer.verdict is Verdict.THROTTLED
    assert answer.retry_after == timedelta(seconds=7)


def test_a_disruption_budget_is_no_throttling_though_it_names_a_time():
    answer = evict(from_response(429, json.dumps(PDB_STATUS).encode(), {"Retry-After": "10"}))
    assert answer.verdict is Verdict.DISRUPTION_BUDGET
    assert answer.retry_after == timedelta(seconds=10)


def test_a_webhook_out_of_reach_is_told_from_other_trouble():
    down = status_error(500, "InternalError", 'Internal error occurred: failed calling webhook "x": EOF')
    assert evict(down).verdict is Verdict.WEBHOOK_DOWN
    changed = status_error(500, "InternalError", "etcdserver: leader changed")
    assert evict(changed).verdict is Verdict.NO_ANSWER
    assert evict(status_error(504, "Timeout", "the request timed out")).verdict is Verdict.NO_ANSWER


def test_another_pod_under_the_same_name_is_left_alone():
    conflict = status_error(409, "Conflict", "the UID in the precondition does not match")
    assert isinstance(conflict, Conflict)
    assert evict(conflict).verdict is Verdict.POD_REPLACED


VMI = {
    "metadata": {"name": "vm-1", "namespace": "vms", "uid": "vmi-vm-1", "unknown": 1},
    "status": {"nodeName": "node-1", "phase": "Running", "evacuationNodeName": "node-1", "conditions": None},
}


def test_reads_a_vmi_from_the_api_itself(tmp_path):
    with HttpServer(lambda request: reply(200, VMI)) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), never)
        vmi = api.read_vmi(VmKey("vms", "vm-1"))
    assert vmi is not None
    assert (vmi.uid, vmi.node_name, vmi.evacuation_node_name) == ("vmi-vm-1", "node-1", "node-1")
    (request,) = server.requests
    assert request.target == "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances/vm-1"


def test_a_vmi_that_is_gone_is_none():
    gone = status_error(404, "NotFound", 'virtualmachineinstances.kubevirt.io "vm-1" not found')
    assert EvictionRequests(FakeTransport(gone), always).read_vmi(VmKey("vms", "vm-1")) is None


@pytest.mark.parametrize("body", [b"404 page not found", b"<html>no such page</html>"])
def test_a_404_that_is_not_about_the_vmi_is_an_error(body):
    """The CRD is being installed anew, or a proxy answers: what is called lost would be a running migration."""
    api = EvictionRequests(FakeTransport(from_response(404, body, {})), always)
    with pytest.raises(ApiError):
        api.read_vmi(VmKey("vms", "vm-1"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"metadata": {"name": 3}}', b"\xff", b'{"x":' + b"[" * 100_000]
)
def test_a_vmi_that_cannot_be_read_is_an_error_that_names_it(body):
    api = EvictionRequests(FakeTransport(body), always)
    with pytest.raises(Garbled, match="VMI vms/vm-1"):
        api.read_vmi(VmKey("vms", "vm-1"))


def test_a_grant_whose_body_breaks_off_is_a_grant(tmp_path) -> None:
    """The VM goes down all the same: that must raise the alarm, not wait for a sign."""
    cut = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with HttpServer(lambda request: [cut]) as server:
        api = EvictionRequests(transport_to(server.url, tmp_path), always)
        assert api.evict(launcher(), dry_run=False).verdict is Verdict.GRANTED
