"""The health port, over real connections."""

import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from controller import health
from controller.health import MAX_CLIENTS, Check, HealthServer, Page
from informers.clock import SystemClock
from informers.testing import ManualClock
from tests.builders import START

SOON = timedelta(seconds=5)


def fine() -> str:
    return ""


def no_policy() -> str:
    return "no valid policy was seen yet"


def broken() -> str:
    raise LookupError("secret detail")


@contextmanager
def serving(
    live: dict[str, Check] | None = None,
    ready: dict[str, Check] | None = None,
    *,
    host: str = "127.0.0.1",
    clock=None,
    registry: CollectorRegistry | None = None,
    pages: dict[str, Page] | None = None,
) -> Iterator[int]:
    server = HealthServer(
        host,
        0,
        live=live or {},
        ready=ready or {},
        registry=registry or CollectorRegistry(),
        clock=clock or SystemClock(),
        pages=pages or {},
    )
    port = server.start()
    try:
        yield port
    finally:
        assert server.stop(SOON)


def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1", **headers: str):
    connection = http.client.HTTPConnection(host, port, timeout=5)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_is_ready_when_no_check_has_a_reason():
    with serving(ready={"caches": fine, "policy": fine}) as port:
        response, body = ask(port, "/readyz")
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "ok": True,
        "checks": [
            {"name": "caches", "ok": True, "reason": ""},
            {"name": "policy", "ok": True, "reason": ""},
        ],
    }


def test_is_not_ready_while_any_check_has_a_reason_and_says_which():
    with serving(live={"threads": fine}, ready={"caches": fine, "policy": no_policy}) as port:
        response, body = ask(port, "/readyz?verbose")
        assert response.status == 503
        assert json.loads(body)["ok"] is False
        assert json.loads(body)["checks"][1] == {
            "name": "policy",
            "ok": False,
            "reason": "no valid policy was seen yet",
        }
        assert ask(port, "/healthz")[0].status == 200


def test_a_check_that_fails_to_run_is_a_failed_check(caplog):
    with serving(live={"odd": broken}) as port, caplog.at_level(logging.ERROR):
        response, body = ask(port, "/healthz")
    assert response.status == 503
    assert json.loads(body)["checks"][0]["reason"] == "the check itself failed: LookupError"
    assert "check odd failed" in caplog.text


def test_serves_metrics_in_the_format_that_is_asked_for():
    registry = CollectorRegistry()
    Counter("vm_rebalancer_things", "Things.", registry=registry).inc(3)
    with serving(registry=registry) as port:
        response, body = ask(port, "/metrics")
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"vm_rebalancer_things_total 3.0\n" in body
        response, body = ask(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")


def test_serves_the_pages_that_a_program_adds():
    def page(accept: str) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", accept.encode()

    with serving(pages={"/debug/odd": page}) as port:
        response, body = ask(port, "/debug/odd?x=1", Accept="anything")
        assert (response.status, body) == (503, b"anything")
        assert ask(port, "/debug/odd", "HEAD")[1] == b""
        assert ask(port, "/debug")[0].status == 404
        assert ask(port, "/healthz")[0].status == 200


def test_metrics_that_cannot_be_collected_fail_alone(caplog):
    class Odd:
        def collect(self):
            raise LookupError("odd")

        def describe(self):
            return []

    registry = CollectorRegistry()
    registry.register(Odd())
    with serving(registry=registry) as port:
        assert ask(port, "/metrics")[0].status == 500
        assert ask(port, "/healthz")[0].status == 200


def test_answers_a_head_request_without_a_body():
    with serving() as port:
        response, body = ask(port, "/healthz", "HEAD")
        assert (response.status, body) == (200, b"")
        assert ask(port, "/nothing", "HEAD")[1] == b""


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/healthz", 501)])
def test_says_no_to_everything_else(method, path, status):
    with serving() as port:
        assert ask(port, path, method)[0].status == status


def test_repeats_and_logs_nothing_of_a_request(caplog, capfd):
    with serving() as port, caplog.at_level(logging.DEBUG):
        for path in ("/healthz?token=hunter2", "/hunter2", "/hunter2 hunter2"):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer hunter2\r\n\r\n".encode())
                received = b"".join(iter(lambda: client.recv(65536), b""))
            assert received
            assert b"hunter2" not in received
        _, body = ask(port, "/healthz", "HUNTER2")
        assert b"HUNTER2" not in body
    assert "hunter2" not in caplog.text.lower()
    assert "hunter2" not in "".join(capfd.readouterr()).lower()


def test_shows_no_version_of_what_it_runs_on():
    with serving() as port:
        assert ask(port, "/healthz")[0].headers["Server"] == "vm-rebalancer"


def received_from(client: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: client.recv(65536), b""))
    except ConnectionError:
        return b""


def send_until_cut_off(client: socket.socket, portion: bytes) -> None:
    pause = threading.Event()
    with suppress(OSError):
        while not pause.wait(0.001):
            client.sendall(portion)


def test_a_client_that_sends_too_much_is_cut_off():
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        send_until_cut_off(client, b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)


def test_a_client_that_dribbles_is_cut_off():
    """Each byte comes in time; it is the whole that takes too long."""

    class Racing(ManualClock):
        """Every look at it takes a second."""

        def monotonic(self) -> float:
            self.advance(timedelta(seconds=1))
            return super().monotonic()

    with (
        serving(clock=Racing(START)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as client,
    ):
        send_until_cut_off(client, b"G")


def test_a_client_that_says_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(health, "CLIENT_WITHIN_S", 0.05)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        assert received_from(client) == b""


def test_a_client_that_reads_too_slowly_is_cut_off(monkeypatch):
    monkeypatch.setattr(health, "CLIENT_WITHIN_S", 0.05)
    long, received, slowly = "x" * 40_000_000, 0, threading.Event()
    with (
        serving(live={"long": lambda: long}) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        with suppress(ConnectionError):
            while part := client.recv(65536):
                received += len(part)
                slowly.wait(0.001)
    assert received < len(long)


def test_many_silent_clients_do_not_keep_a_probe_out():
    with serving() as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * MAX_CLIENTS)]
        assert ask(port, "/healthz")[0].status == 200
        for client in silent:
            client.close()


def test_stops_in_time_whatever_clients_do():
    with serving() as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        ask(port, "/healthz")
    for client in silent:
        client.close()
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/healthz")


def test_leaves_no_thread_behind():
    before = set(threading.enumerate())
    with serving() as port, socket.create_connection(("127.0.0.1", port)):
        ask(port, "/healthz")
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]


def test_an_address_that_is_taken_is_named():
    with serving() as port:
        second = HealthServer(
            "127.0.0.1", port, live={}, ready={}, registry=CollectorRegistry(), clock=SystemClock()
        )
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            second.start()
        assert second.stop(SOON)


def test_listens_on_both_kinds_of_addresses():
    with serving(host="::") as port:
        assert ask(port, "/healthz")[0].status == 200
        assert ask(port, "/healthz", host="::1")[0].status == 200
