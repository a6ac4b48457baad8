"""What goes over the wire, and what becomes of an answer that is late, broken, too large or none."""

import gzip
import itertools
import json
import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from informers import connection
from informers.errors import (
    ApiError,
    Garbled,
    Gone,
    NoAnswer,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
    from_response,
)
from informers.transport import Answered, Transport
from tests.informers.api_server import (
    DEADLINE_S,
    Call,
    Connect,
    error_when_ended,
    serving,
    status_body,
    write_kubeconfig,
)
from tests.informers.builders import recorded_answer

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

SOON = timedelta(seconds=0.3)
LONG = timedelta(seconds=DEADLINE_S)


def ask(client: Transport, path: str = "/api/v1/nodes", deadline: timedelta = LONG) -> bytes:
    return client.request("GET", path, deadline=deadline)


def echo(call: Call) -> None:
    call.answer_json(
        200,
        {"method": call.method, "target": call.target, "headers": call.headers, "body": call.body.decode()},
    )


def test_sends_what_it_is_told_and_says_who_it_is(connect: Connect) -> None:
    with serving(echo) as server:
        answer = connect(server).request(
            "PATCH",
            "/api/v1/nodes/a",
            query={"fieldManager": "me", "selector": "a=b,c!=d"},
            body="[ä]".encode(),
            content_type="application/json-patch+json",
            deadline=LONG,
        )
    received = json.loads(answer)
    assert received["method"] == "PATCH"
    assert received["target"] == "/api/v1/nodes/a?fieldManager=me&selector=a%3Db%2Cc%21%3Dd"
    assert received["body"] == "[ä]"
    assert received["headers"]["Authorization"] == "Bearer secret-token"
    assert received["headers"]["Content-Type"] == "application/json-patch+json"
    assert received["headers"]["Accept"] == "application/json"
    assert received["headers"]["User-Agent"].startswith("vm-rebalancer/")


def test_a_server_behind_a_path_is_found_there(tmp_path: Path) -> None:
    """As behind Rancher: one host, a path for each cluster."""
    with serving(echo) as server:
        client = Transport.from_kubeconfig(
            write_kubeconfig(tmp_path / "kubeconfig", f"{server.url}/k8s/c-1/")
        )
        assert json.loads(ask(client))["target"] == "/k8s/c-1/api/v1/nodes"
        client.close()


def test_many_threads_get_their_own_answers(connect: Connect) -> None:
    wrong: list[str] = []

    def work(client: Transport, number: int) -> None:
        for turn in range(20):
            path = f"/{number}/{turn}"
            if json.loads(ask(client, path))["target"] != path:
                wrong.append(path)

    with serving(echo) as server:
        client = connect(server)
        threads = [Thread(target=work, args=(client, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(server.calls) == 160
    assert wrong == []


# Errors


@pytest.mark.parametrize(
    "transcript",
    [
        "eviction-triggered",
        "eviction-forbidden",
        "eviction-notfound",
        "lease-conflict",
        "jsonpatch-test-fails",
    ],
)
def test_recorded_refusals_become_their_types(transcript: str, connect: Connect) -> None:
    status, body, headers = recorded_answer(transcript)
    expected = from_response(status, body, headers)
    with (
        serving(lambda call: call.answer(status, body, headers)) as server,
        pytest.raises(ApiError) as caught,
    ):
        ask(connect(server))
    assert str(caught.value) == str(expected)
    assert type(caught.value) is type(expected)


def test_a_throttling_server_says_when_to_come_back(connect: Connect) -> None:
    body = json.dumps(status_body(429, "TooManyRequests")).encode()
    with (
        serving(lambda call: call.answer(429, body, {"Retry-After": "7"})) as server,
        pytest.raises(Throttled) as caught,
    ):
        ask(connect(server))
    assert caught.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_nothing_is_sent_twice(status: int, connect: Connect) -> None:
    """An eviction that is repeated behind our back is another eviction."""
    with serving(lambda call: call.answer(status, b"<html>busy</html>", {"Retry-After": "0"})) as server:
        with pytest.raises(ApiError, match="busy"):
            connect(server).request("POST", "/eviction", body=b"{}", deadline=LONG)
        assert len(server.calls) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_errors_and_no_other_host_gets_our_token(status: int, connect: Connect) -> None:
    with serving(echo) as other:
        with (
            serving(lambda call: call.answer(status, b"", {"Location": f"{other.url}/"})) as server,
            pytest.raises(ApiError) as caught,
        ):
            ask(connect(server))
        assert caught.value.status == status
        assert other.calls == []


def test_the_status_counts_even_if_its_explanation_breaks_off(connect: Connect) -> None:
    def answer(call: Call) -> None:
        call.begin(410, {"Content-Length": "1000"})
        call.write(b'{"kind":')
        call.drop()

    with serving(answer) as server, pytest.raises(Gone):
        ask(connect(server))


def test_an_explanation_without_end_is_cut(connect: Connect) -> None:
    def answer(call: Call) -> None:
        call.begin(500, {"Connection": "close"})
        while not call.closing.is_set():
            call.write(b"no! " * 4096)

    with serving(answer) as server, pytest.raises(ServerError) as caught:
        ask(connect(server))
    assert len(str(caught.value)) < 400


# No answer, or none in time


def trickle_of_headers(call: Call) -> None:
    call.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        call.write(b"X-%d: 1\r\n" % number)
        if call.closing.wait(0.05):
            return


def trickle_of_body(call: Call) -> None:
    call.begin(200, {"Content-Length": "100000"})
    while not call.closing.wait(0.05):
        call.write(b" ")


@pytest.mark.parametrize("answer", [Call.stall, trickle_of_headers, trickle_of_body])
def test_a_deadline_is_for_the_whole_however_the_server_drags_it_out(
    answer: Callable[[Call], None], connect: Connect
) -> None:
    with serving(answer) as server, pytest.raises(NoAnswer, match=r"no answer within 0.3 s"):
        ask(connect(server), deadline=SOON)


def broken_head(call: Call) -> None:
    call.drop()


def broken_body(call: Call) -> None:
    call.begin(200, {"Content-Length": "100"})
    call.write(b"half")
    call.drop()


def broken_chunks(call: Call) -> None:
    call.begin_stream()
    call.chunk(b"half")
    call.drop()


def no_chunks(call: Call) -> None:
    call.begin_stream()
    call.write(b"this is no chunk\r\n")
    call.drop()


def no_http(call: Call) -> None:
    call.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    call.drop()


@pytest.mark.parametrize("answer", [broken_head, broken_body, broken_chunks, no_chunks, no_http])
def test_a_broken_connection_is_no_answer_and_is_not_tried_again(
    answer: Callable[[Call], None], connect: Connect
) -> None:
    """Half an answer must never pass for a whole one, and nobody knows what the server did."""
    with serving(answer) as server:
        with pytest.raises(NoAnswer):
            ask(connect(server))
        assert len(server.calls) == 1


def test_each_request_is_told_of_once_with_what_became_of_it(connect: Connect) -> None:
    told: list[Answered] = []

    def answer(call: Call) -> None:
        if call.target.startswith("/hangs"):
            call.drop()
        else:
            call.answer_json(503 if call.target == "/busy" else 200, {})

    with serving(answer) as server:
        client = connect(server)
        client.tell(told.append)
        ask(client, "/fine")
        for path in ("/busy", "/hangs"):
            with pytest.raises(ApiError):
                ask(client, path)
        with client.stream("/watched", query={"watch": "1"}, read_timeout=LONG):
            assert [(a.path, a.watch, a.status) for a in told][-1] == ("/watched", True, 200)
    assert [(a.path, a.watch, a.status) for a in told][:-1] == [
        ("/fine", False, 200),
        ("/busy", False, 503),
        ("/hangs", False, 0),
    ]
    assert all(a.method == "GET" and a.took_s >= 0.0 for a in told)


def test_a_request_sent_again_with_fresh_credentials_is_told_of_once(connect: Connect) -> None:
    """That the old token was refused is no error of the request."""
    told: list[Answered] = []
    with serving(lambda call: call.answer_json(401, {})) as server:
        client = connect(server)
        client.tell(told.append)
        with pytest.raises(Unauthorized):
            ask(client)
    assert [a.status for a in told] == [401]


def test_a_refused_connection_means_that_nothing_was_sent(connect: Connect) -> None:
    with serving(echo) as server:
        client = connect(server)
    with pytest.raises(Unreachable, match="Connection refused"):
        ask(client)


def test_a_name_that_cannot_be_resolved_means_that_nothing_was_sent(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://api.invalid:6443")
    client = Transport.from_kubeconfig(path)
    with pytest.raises(Unreachable, match=r"api\.invalid:6443"):
        ask(client)


def test_an_answer_that_is_too_large_is_not_taken_in(connect: Connect) -> None:
    with (
        serving(lambda call: call.answer(200, b"x" * 5000)) as server,
        pytest.raises(Garbled, match="larger than 4096 bytes"),
    ):
        connect(server).request("GET", "/", deadline=LONG, max_bytes=4096)


def test_compressed_answers_are_unpacked_and_bounded_by_what_they_unpack_to(connect: Connect) -> None:
    body = gzip.compress(b"x" * 100_000)
    with serving(lambda call: call.answer(200, body, {"Content-Encoding": "gzip"})) as server:
        client = connect(server)
        assert ask(client) == b"x" * 100_000
        assert server.calls[0].headers["Accept-Encoding"] == "gzip"
        with pytest.raises(Garbled, match="larger"):
            client.request("GET", "/", deadline=LONG, max_bytes=10_000)


def test_what_cannot_be_unpacked_is_garbled(connect: Connect) -> None:
    with (
        serving(lambda call: call.answer(200, b"no gzip", {"Content-Encoding": "gzip"})) as server,
        pytest.raises(Garbled, match="decompressed"),
    ):
        ask(connect(server))


# Connections


def test_connections_are_used_again(connect: Connect) -> None:
    with serving(echo) as server:
        client = connect(server)
        ask(client)
        ask(client)
        assert len({call.client for call in server.calls}) == 1


def test_a_connection_that_was_idle_for_long_is_not_trusted(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer in between may have forgotten it, and would not say so before the deadline."""
    monkeypatch.setattr(connection, "MAX_IDLE_S", 0.0)
    with serving(echo) as server:
        client = connect(server)
        ask(client)
        ask(client)
        assert len({call.client for call in server.calls}) == 2


def test_connections_that_the_server_has_closed_are_dropped(connect: Connect) -> None:
    with serving(echo) as server:
        client = connect(server)
        ask(client)
        port = server.port
    with serving(echo, port=port) as server:
        ask(client)
        assert len(server.calls) == 1


@pytest.mark.parametrize("answer", [Call.stall, trickle_of_headers, trickle_of_body])
def test_another_thread_can_end_the_waiting(answer: Callable[[Call], None], connect: Connect) -> None:
    with serving(answer) as server:
        client = connect(server)
        caught = error_when_ended(
            lambda cancel: client.request("GET", "/", deadline=timedelta(hours=1), cancel=cancel),
            server,
            Event.set,
        )
    assert isinstance(caught, NoAnswer)


def test_closing_ends_what_is_under_way_and_refuses_the_rest(connect: Connect) -> None:
    with serving(Call.stall) as server:
        client = connect(server)
        caught = error_when_ended(
            lambda _: client.request("GET", "/", deadline=timedelta(hours=1)),
            server,
            lambda _: client.close(),
        )
        assert isinstance(caught, NoAnswer)
        with pytest.raises(Unreachable, match="closed"):
            ask(client)
        assert len(server.calls) == 1


# Secrets


@pytest.mark.parametrize(
    "answer",
    [Call.stall, broken_head, no_http, lambda call: call.answer(500, call.headers["User-Agent"].encode())],
)
def test_no_failure_shows_the_token(
    answer: Callable[[Call], None], connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(answer) as server:
        client = connect(server)
        with pytest.raises(ApiError) as caught:
            ask(client, deadline=SOON)
    shown = (
        "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(client) + caplog.text
    )
    assert "secret-token" not in shown
