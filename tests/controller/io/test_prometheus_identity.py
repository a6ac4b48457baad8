"""Who we are to Prometheus, whom we trust, and that no secret gets into a message."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from controller.utilization.reading import MetricsError
from tests.controller.io.builders import Asking, metrics_at
from tests.controller.io.http_server import HttpServer, Reply, Request, reply

UP = {"status": "success", "data": {"resultType": "vector", "result": []}}


def accepting(token: str) -> Callable[[Request], Reply]:
    """A server that knows this token only, and says to others what they sent."""

    def answer(request: Request) -> Reply:
        sent = request.headers.get("authorization", "")
        return reply(200, UP) if sent == f"Bearer {token}" else reply(403, f"not for {sent}".encode())

    return answer


def trouble(source: Asking) -> str:
    with pytest.raises(MetricsError) as raised:
        source.instant("up")
    return str(raised.value)


def trouble_with(folder: Path, **files: Any) -> str:
    """Nothing is sent, whatever the trouble with our own files is."""
    with HttpServer(lambda request: reply(200, UP)) as server:
        message = trouble(Asking(lambda: metrics_at(server.url, **files)))
    assert server.requests == []
    return message.removeprefix("query up: ").replace(str(folder), "")


def test_sends_the_token_of_the_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("first-token\n")
    with HttpServer(accepting("first-token")) as server:
        Asking(lambda: metrics_at(server.url, token_file=path)).instant("up")


def test_a_token_that_was_replaced_is_used_from_then_on(tmp_path):
    path = tmp_path / "token"
    path.write_text("first-token")
    with HttpServer(lambda request: reply(200, UP)) as server:
        source = Asking(lambda: metrics_at(server.url, token_file=path))
        source.instant("up")
        path.write_text("second-token")
        source.instant("up")
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer first-token",
        "Bearer second-token",
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_replaced_while_it_is_refused_is_tried_at_once(status, tmp_path):
    path = tmp_path / "token"
    path.write_text("first-token")

    def rotate(request: Request) -> Reply:
        path.write_text("second-token")
        return reply(200, UP) if "second" in request.headers["authorization"] else reply(status, b"expired")

    with HttpServer(rotate) as server:
        Asking(lambda: metrics_at(server.url, token_file=path)).instant("up")
    assert len(server.requests) == 2


def test_a_token_that_is_refused_is_not_sent_again_and_again(tmp_path):
    path = tmp_path / "token"
    path.write_text("wrong-token")
    with HttpServer(accepting("right-token")) as server:
        message = trouble(Asking(lambda: metrics_at(server.url, token_file=path)))
        assert len(server.requests) == 1
    assert message == "query up: 403 Whatever: not for ***"


def test_tokens_that_change_all_the_time_do_not_make_it_ask_for_ever(tmp_path):
    path = tmp_path / "token"
    path.write_text("token-0")

    def rotate(request: Request) -> Reply:
        path.write_text(f"token-{len(server.requests)}")
        return reply(401, b"no")

    with HttpServer(rotate) as server:
        trouble(Asking(lambda: metrics_at(server.url, token_file=path)))
        assert len(server.requests) == 2


def test_without_a_token_file_no_token_is_sent_whatever_is_in_the_home_directory(tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    with HttpServer(lambda request: reply(200, UP)) as server:
        Asking(lambda: metrics_at(server.url)).instant("up")
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"one\ntwo", b"\xff\xfe", b"a\x00b"])
def test_a_file_that_holds_no_token_is_not_sent(content, tmp_path):
    """A line end inside of it would end the header, and begin another."""
    path = tmp_path / "token"
    path.write_bytes(content)
    assert trouble_with(tmp_path, token_file=path) == (
        "metrics.tokenFile /token does not hold a token and nothing else"
    )


def test_a_token_file_that_is_not_there_is_named(tmp_path):
    assert trouble_with(tmp_path, token_file=tmp_path / "token") == (
        "metrics.tokenFile /token: No such file or directory"
    )


def test_a_file_without_end_is_not_read_to_its_end():
    assert "larger than 65536 bytes" in trouble_with(Path("/none"), token_file=Path("/dev/zero"))


def test_extra_headers_are_sent_and_read_again(tmp_path):
    path = tmp_path / "headers"
    path.write_text("# who we are\nX-Scope-OrgID: team-a\n\nTHANOS-TENANT:  b:c \n")
    with HttpServer(lambda request: reply(200, UP)) as server:
        source = Asking(lambda: metrics_at(server.url, headers_file=path))
        source.instant("up")
        path.write_text("X-Scope-OrgID: team-b\n")
        source.instant("up")
    first, second = server.requests
    assert (first.headers["x-scope-orgid"], first.headers["thanos-tenant"]) == ("team-a", "b:c")
    assert second.headers["x-scope-orgid"] == "team-b"
    assert "thanos-tenant" not in second.headers


def test_a_password_may_stand_in_for_a_token(tmp_path):
    path = tmp_path / "headers"
    path.write_text("Authorization: Basic c29tZWJvZHk6aHVudGVyMg==\n")
    with HttpServer(lambda request: reply(200, UP)) as server:
        Asking(lambda: metrics_at(server.url, headers_file=path)).instant("up")
    assert server.requests[0].headers["authorization"] == "Basic c29tZWJvZHk6aHVudGVyMg=="


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("X-Tenant hunter2", "line 1: allowed is Name: value, in ASCII"),
        ("A: b\nX Tenant: hunter2", "line 2: allowed is Name: value, in ASCII"),
        ("X-Tenant: hünter2", "line 1: allowed is Name: value, in ASCII"),
        ("X-Tenant: hunter2\x00", "line 1: allowed is Name: value, in ASCII"),
        ("Host: hunter2", "line 1: Host is not for you to set"),
        ("content-length: 2", "line 1: content-length is not for you to set"),
        ("X-Tenant: hunter2\nx-tenant: b", "line 2: x-tenant again"),
    ],
)
def test_a_line_that_is_no_header_is_named_and_not_shown(content, words, tmp_path):
    path = tmp_path / "headers"
    path.write_text(content)
    message = trouble_with(tmp_path, headers_file=path)
    assert message == f"metrics.headersFile /headers, {words}"


def test_two_identities_are_one_too_many(tmp_path):
    (tmp_path / "headers").write_text("authorization: Basic c29tZWJvZHk6aHVudGVyMg==")
    (tmp_path / "token").write_text("abcdef")
    message = trouble_with(tmp_path, headers_file=tmp_path / "headers", token_file=tmp_path / "token")
    assert message == "metrics.headersFile /headers sets Authorization, beside a tokenFile"


def test_no_secret_is_shown_or_logged_even_if_the_server_repeats_it(tmp_path, caplog):
    (tmp_path / "token").write_text("hunter2-token")
    (tmp_path / "headers").write_text("X-Key: hunter2-key")

    def repeat(request: Request) -> Reply:
        said = f"{request.headers['authorization']} {request.headers['x-key']} " * 20
        return reply(500, {"status": "error", "errorType": "internal", "error": said})

    with HttpServer(repeat) as server, caplog.at_level(logging.DEBUG):
        files = {"token_file": tmp_path / "token", "headers_file": tmp_path / "headers"}
        message = trouble(Asking(lambda: metrics_at(server.url, **files)))
    assert "hunter2" not in message
    assert "hunter2" not in caplog.text
    assert "500 Whatever: internal: *** *** ***" in message


def tls_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_a_server_is_checked_against_the_ca_file_which_is_read_again(tmp_path):
    first, second = trustme.CA(), trustme.CA()
    path = tmp_path / "ca.crt"
    first.cert_pem.write_to_path(str(path))
    with HttpServer(lambda request: reply(200, UP), tls_of(second)) as server:
        source = Asking(lambda: metrics_at(server.url, ca_file=path, allow_http=False))
        assert "certificate verify failed" in trouble(source)
        assert server.requests == [], "no token before the server has proved who it is"
        second.cert_pem.write_to_path(str(path))
        source.instant("up")
        first.cert_pem.write_to_path(str(path))
        assert "certificate verify failed" in trouble(source)


def test_without_a_ca_file_the_systems_authorities_are_trusted(tmp_path, monkeypatch):
    authority = trustme.CA()
    path = tmp_path / "system.crt"
    authority.cert_pem.write_to_path(str(path))
    with HttpServer(lambda request: reply(200, UP), tls_of(authority)) as server:
        source = Asking(lambda: metrics_at(server.url))
        assert "certificate verify failed" in trouble(source)
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        source.instant("up")


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_ca_file_that_cannot_be_used_is_an_error(content, tmp_path):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with HttpServer(lambda request: reply(200, UP), tls_of(trustme.CA())) as server:
        message = trouble(Asking(lambda: metrics_at(server.url, ca_file=path)))
    assert message.startswith(f"query up: metrics.caFile {path}: ")
