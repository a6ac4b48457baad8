"""Who we say we are: every way in which a kubeconfig or a pod provides it, and what happens when it changes."""

import json
import logging
import ssl
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import trustme

from informers.credentials import Credentials, CredentialsError
from informers.errors import Unauthorized, Unreachable
from informers.transport import Transport
from tests.informers.api_server import DEADLINE_S, ApiServer, Call, serving, status_body, write_kubeconfig
from tests.informers.proxy import Proxy, proxying

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

LONG = timedelta(seconds=DEADLINE_S)
ca = trustme.CA()


def ask(client: Transport) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(client.request("GET", "/api/v1/nodes", deadline=LONG))
    return answer


def headers_back(call: Call) -> None:
    call.answer_json(200, call.headers)


def only_for(accepted: Callable[[], str]) -> Callable[[Call], None]:
    """Answers 401 to all other values of the Authorization header."""

    def answer(call: Call) -> None:
        if call.headers.get("Authorization") == accepted():
            headers_back(call)
        else:
            call.answer_json(401, status_body(401, "Unauthorized"))

    return answer


def tls(*, client_ca: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def ca_file(tmp_path: Path) -> str:
    path = tmp_path / "ca.crt"
    ca.cert_pem.write_to_path(path)
    return str(path)


@contextmanager
def client_of(
    tmp_path: Path, server: ApiServer, user: Mapping[str, Any], cluster: Mapping[str, Any] = {}
) -> Iterator[Transport]:
    client = Transport.from_kubeconfig(
        write_kubeconfig(tmp_path / "kubeconfig", server.url, user=user, cluster=cluster)
    )
    yield client
    client.close()


def plugin(tmp_path: Path, token_file: Path, *, expires: datetime | None = None) -> dict[str, Any]:
    """A user whose token comes from a program that prints what is in a file."""
    status = {"token": "TOKEN"} | ({"expirationTimestamp": expires.isoformat()} if expires else {})
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    program = tmp_path / "plugin.py"
    program.write_text(
        f"print({json.dumps(credential)!r}.replace('TOKEN', open({str(token_file)!r}).read().strip()))"
    )
    return {
        "exec": {
            "apiVersion": credential["apiVersion"],
            "command": sys.executable,
            "args": ["-I", str(program)],
            "interactiveMode": "Never",
        }
    }


# In a pod


@pytest.fixture
def pod_token(tmp_path: Path, ca_file: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    token = tmp_path / "token"
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", ca_file)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    return token


def test_a_pod_uses_its_service_account_and_asks_for_nothing_compressed(
    pod_token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod_token.write_text("pod-token\n")
    with serving(headers_back, tls=tls()) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        client = Transport.in_cluster()
        received = ask(client)
        client.close()
    assert received["Authorization"] == "bearer pod-token"
    assert received["Accept-Encoding"] == "identity"


def test_a_rotated_token_is_read_again_when_the_old_one_is_refused(
    pod_token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod_token.write_text("old")
    with serving(only_for(lambda: f"bearer {pod_token.read_text()}"), tls=tls()) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        client = Transport.in_cluster()
        ask(client)
        pod_token.write_text("new")
        assert ask(client)["Authorization"] == "bearer new"
        with client.stream("/api/v1/nodes", query={}, read_timeout=LONG) as stream:
            assert b"bearer new" in next(stream)
        client.close()
        assert len(server.calls) == 4


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match=r"service account: .*not set"):
        Transport.in_cluster()


# 401


def test_a_token_file_of_a_kubeconfig_is_read_again_too(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    with (
        serving(only_for(lambda: f"Bearer {token.read_text().strip()}")) as server,
        client_of(tmp_path, server, {"tokenFile": str(token)}) as client,
    ):
        ask(client)
        token.write_text("new\n")
        assert ask(client)["Authorization"] == "Bearer new"


def test_a_plugin_is_asked_again_when_its_token_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with (
        serving(only_for(lambda: f"Bearer {token.read_text()}")) as server,
        client_of(tmp_path, server, plugin(tmp_path, token)) as client,
    ):
        ask(client)
        token.write_text("new")
        assert ask(client)["Authorization"] == "Bearer new"


def test_a_plugin_is_asked_again_before_its_token_expires(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    in_a_minute = datetime.now(UTC) + timedelta(minutes=1)
    with (
        serving(headers_back) as server,
        client_of(tmp_path, server, plugin(tmp_path, token, expires=in_a_minute)) as client,
    ):
        token.write_text("second")
        assert ask(client)["Authorization"] == "Bearer second"


def test_the_second_401_is_the_answer(tmp_path: Path) -> None:
    with (
        serving(only_for(lambda: "nobody")) as server,
        client_of(tmp_path, server, {"token": "wrong"}) as client,
    ):
        with pytest.raises(Unauthorized):
            client.request("POST", "/", body=b"{}", deadline=LONG)
        assert [call.body for call in server.calls] == [b"{}", b"{}"]


def test_a_401_is_the_answer_if_credentials_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        serving(only_for(lambda: "nobody")) as server,
        client_of(tmp_path, server, {"token": "secret-token"}) as client,
    ):
        (tmp_path / "kubeconfig").write_text("users: [{token: secret-token")
        with pytest.raises(Unauthorized):
            ask(client)
        assert len(server.calls) == 1
    assert "credentials are not renewed: kubeconfig" in caplog.text
    assert "secret-token" not in caplog.text


def test_many_refused_threads_read_credentials_once(tmp_path: Path) -> None:
    """A plugin may open a browser, or ask a token service that limits its callers."""
    token, asked = tmp_path / "token", tmp_path / "asked"
    token.write_text("old")
    user = plugin(tmp_path, token)
    program = Path(user["exec"]["args"][1])
    program.write_text(f"open({str(asked)!r}, 'a').write('x')\n{program.read_text()}")
    refused = Barrier(6)

    def answer(call: Call) -> None:
        if call.headers["Authorization"] == "Bearer new":
            headers_back(call)
        else:
            refused.wait(DEADLINE_S)
            call.answer_json(401, status_body(401, "Unauthorized"))

    with serving(answer) as server, client_of(tmp_path, server, user) as client:
        token.write_text("new")
        threads = [Thread(target=ask, args=(client,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(server.calls) == 12
    assert asked.read_text() == "xx"


# Other ways


def test_name_and_password_are_sent_as_basic_authentication(tmp_path: Path) -> None:
    user = {"username": "me", "password": "secret"}
    with serving(headers_back) as server, client_of(tmp_path, server, user) as client:
        assert ask(client)["Authorization"] == "Basic bWU6c2VjcmV0"


def test_a_client_certificate_is_shown(tmp_path: Path, ca_file: str) -> None:
    mine = ca.issue_cert("me@example.com")
    key, certificate = tmp_path / "me.key", tmp_path / "me.crt"
    mine.private_key_pem.write_to_path(key)
    mine.cert_chain_pems[0].write_to_path(certificate)
    user = {"client-key": str(key), "client-certificate": str(certificate)}
    with (
        serving(headers_back, tls=tls(client_ca=ca)) as server,
        client_of(tmp_path, server, user, {"certificate-authority": ca_file}) as client,
    ):
        assert "Authorization" not in ask(client)


def test_a_server_of_another_authority_is_sent_nothing(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.crt"
    trustme.CA().cert_pem.write_to_path(stranger)
    with (
        serving(headers_back, tls=tls()) as server,
        client_of(tmp_path, server, {"token": "t"}, {"certificate-authority": str(stranger)}) as client,
    ):
        with pytest.raises(Unreachable, match="certificate verify failed"):
            ask(client)
        assert server.calls == []


def test_tls_is_taken_through_a_proxy_that_sees_nothing_of_it(tmp_path: Path, ca_file: str) -> None:
    with proxying(Proxy.tunnel) as proxy, serving(headers_back, tls=tls()) as server:
        cluster = {"certificate-authority": ca_file, "proxy-url": proxy.url}
        with client_of(tmp_path, server, {"token": "t"}, cluster) as client:
            assert ask(client)["Authorization"] == "Bearer t"
        assert proxy.asked == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.0"]


def test_a_proxy_that_refuses_means_that_nothing_was_sent(tmp_path: Path, ca_file: str) -> None:
    with proxying(Proxy.refuse) as proxy, serving(headers_back, tls=tls()) as server:
        cluster = {"certificate-authority": ca_file, "proxy-url": proxy.url}
        with (
            client_of(tmp_path, server, {"token": "t"}, cluster) as client,
            pytest.raises(Unreachable, match="403 Forbidden"),
        ):
            ask(client)
        assert server.calls == []


# Bad input


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No configuration found"),
        ("users: [{token: secret-token", "ParserError"),
        ('{"contexts": [], "clusters": [], "users": []}', "current-context"),
    ],
)
def test_an_unusable_kubeconfig_is_named_in_one_line(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CredentialsError, match=said) as caught:
        Transport.from_kubeconfig(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert "\n" not in str(caught.value)
    assert "secret-token" not in "".join(traceback.format_exception(caught.value))


def test_an_error_does_not_quote_the_user_entry_it_is_about(tmp_path: Path) -> None:
    """The kubernetes package's own message does, with all tokens in it."""
    user = {"auth-provider": {"name": "oidc", "config": {"refresh-token": "secret-token"}}}
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", user=user)
    with pytest.raises(CredentialsError, match="id-token") as caught:
        Transport.from_kubeconfig(path)
    assert "secret-token" not in "".join(traceback.format_exception(caught.value))


def test_what_other_threads_log_while_credentials_are_read_is_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A plugin may run for long; nobody else's trouble must get lost, nor be taken for the plugin's."""

    def load(_: object) -> None:
        other = Thread(target=lambda: logging.error("of somebody else"))
        other.start()
        other.join()

    Credentials("here", load)
    assert "of somebody else" in caplog.text


def test_a_token_that_no_header_can_carry_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        serving(headers_back) as server,
        client_of(tmp_path, server, {"token": "secret\ntoken"}) as client,
    ):
        with pytest.raises(Unreachable, match="characters") as caught:
            ask(client)
        assert server.calls == []
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "secret" not in shown


def test_its_repr_names_the_server_and_nothing_secret(tmp_path: Path) -> None:
    with serving(headers_back) as server, client_of(tmp_path, server, {"token": "secret-token"}) as client:
        source = f"kubeconfig {tmp_path / 'kubeconfig'}"
        assert repr(client) == f"Transport(Credentials({server.url}, from {source}))"
        assert "secret-token" not in repr(client._credentials.current)
