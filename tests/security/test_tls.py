"""A server that cannot prove who it is gets nothing of us, by default and however it fails to."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from controller.utilization.reading import MetricsError
from informers.errors import Unreachable
from informers.transport import Transport
from tests.controller.io.builders import Asking, metrics_at
from tests.controller.io.http_server import HttpServer, reply
from tests.security import canaries

OURS = trustme.CA()
SOON = timedelta(seconds=20)


def _certificate(authority: trustme.CA, host: str, *, expired: bool = False) -> trustme.LeafCert:
    until = datetime.now(UTC) - timedelta(days=1) if expired else None
    return authority.issue_cert(host, not_after=until)


WRONG: dict[str, Callable[[], trustme.LeafCert]] = {
    "another authority": lambda: _certificate(trustme.CA(), "127.0.0.1"),
    "another host": lambda: _certificate(OURS, "prometheus.example"),
    "another address": lambda: _certificate(OURS, "127.0.0.2"),
    "expired": lambda: _certificate(OURS, "127.0.0.1", expired=True),
}


@contextmanager
def showing(certificate: trustme.LeafCert) -> Iterator[HttpServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    nothing = {"status": "success", "data": {"resultType": "vector", "result": []}}
    with HttpServer(lambda _: reply(200, nothing), tls=context) as server:
        yield server


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    OURS.cert_pem.write_to_path(path)
    return path


def ask_api(server: HttpServer, folder: Path, ca_file: Path | None) -> bytes:
    cluster = {"certificate-authority": str(ca_file)} if ca_file is not None else {}
    path = canaries.kubeconfig(folder / "kubeconfig", server.url, {"token": canaries.TOKEN}, cluster)
    client = Transport.from_kubeconfig(str(path))
    try:
        return client.request("GET", "/api/v1/nodes", deadline=SOON)
    finally:
        client.close()


def ask_prometheus(server: HttpServer, folder: Path, ca_file: Path | None) -> None:
    (folder / "token").write_text(canaries.PROMETHEUS_TOKEN)
    metrics = metrics_at(server.url, token_file=folder / "token", ca_file=ca_file or "", allow_http=False)
    source = Asking(lambda: metrics)
    try:
        source.instant("up")
    finally:
        source.close()


@pytest.mark.parametrize("wrong", WRONG)
def test_the_api_server_must_be_who_it_should_be(tmp_path: Path, ca_file: Path, wrong: str) -> None:
    with showing(WRONG[wrong]()) as server:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            ask_api(server, tmp_path, ca_file)
        assert server.requests == []


@pytest.mark.parametrize("wrong", WRONG)
def test_prometheus_must_be_who_it_should_be(tmp_path: Path, ca_file: Path, wrong: str) -> None:
    with showing(WRONG[wrong]()) as server:
        with pytest.raises(MetricsError, match="certificate verify failed"):
            ask_prometheus(server, tmp_path, ca_file)
        assert server.requests == []


def test_without_a_ca_file_nobody_is_trusted_but_whom_the_system_trusts(tmp_path: Path) -> None:
    with showing(_certificate(OURS, "127.0.0.1")) as server:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            ask_api(server, tmp_path, None)
        with pytest.raises(MetricsError, match="certificate verify failed"):
            ask_prometheus(server, tmp_path, None)
        assert server.requests == []


def test_who_proves_it_is_asked(tmp_path: Path, ca_file: Path) -> None:
    """So that the other tests cannot pass for another reason."""
    with showing(_certificate(OURS, "127.0.0.1")) as server:
        ask_api(server, tmp_path, ca_file)
        ask_prometheus(server, tmp_path, ca_file)
        assert [request.headers["authorization"] for request in server.requests] == [
            f"Bearer {canaries.TOKEN}",
            f"Bearer {canaries.PROMETHEUS_TOKEN}",
        ]


@pytest.mark.parametrize("protocol", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_protocols_are_not_spoken(tmp_path: Path, ca_file: Path, protocol: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = protocol
    _certificate(OURS, "127.0.0.1").configure_cert(context)
    with HttpServer(lambda _: reply(200, {}), tls=context) as server:
        with pytest.raises(Unreachable):
            ask_api(server, tmp_path, ca_file)
        with pytest.raises(MetricsError):
            ask_prometheus(server, tmp_path, ca_file)
        assert server.requests == []
