"""No secret is shown anywhere, whatever fails: each is a canary, and everything is made to fail."""

import base64
import gc
import io
import json
import logging
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controller import cli
from controller.telemetry.export import exporting
from informers.clock import SystemClock
from informers.credentials import CredentialsError
from informers.errors import Unreachable
from informers.transport import Transport
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.controller.running_programs import AsProcess, asked, black_hole, process
from tests.controller.test_tracing_export import SPAN
from tests.security import canaries
from tests.security.echo import MANNERS, echoing
from tests.simulator.apiserver.harness import until

PAGES = ("/healthz", "/readyz", "/metrics", "/debug", "/debug/", "/debug/config", "/debug/decisions", "/")
_TOLD = re.compile(r"(informer \w+|lease ns/name): 403 Forbidden: ")
"""It has been refused, and says how."""
ALL_MANNERS = (*MANNERS, "a redirect")
COLLECTOR = {
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{canaries.COLLECTOR}",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
}


def users(directory: Path) -> dict[str, dict[str, Any]]:
    """Every way to say who one is, each with secrets."""
    key = base64.b64encode(canaries.CLIENT_KEY.encode()).decode()
    return {
        "token": {"token": canaries.TOKEN},
        "password": {"username": canaries.USER, "password": canaries.PASSWORD},
        "plugin": canaries.plugin(directory, status={"token": canaries.TOKEN}),
        "plugin that fails": canaries.plugin(directory, status={"token": canaries.TOKEN}, exit_code=1),
        "plugin without a token": canaries.plugin(directory, status={"toke": canaries.TOKEN}),
        "plugin with a broken certificate": canaries.plugin(
            directory, status={"clientCertificateData": canaries.TOKEN, "clientKeyData": canaries.CLIENT_KEY}
        ),
        "certificate": {"client-certificate-data": key, "client-key-data": key},
        "key as a name": {"client-certificate": "/dev/null", "client-key": canaries.CLIENT_KEY},
        "oidc": {
            "auth-provider": {
                "name": "oidc",
                "config": {"client-secret": canaries.PASSWORD, "refresh-token": canaries.TOKEN},
            }
        },
        "token of two lines": {"token": f"{canaries.TOKEN}\n{canaries.TOKEN}"},
    }


USERS = (
    "token",
    "password",
    "plugin",
    "plugin that fails",
    "plugin without a token",
    "plugin with a broken certificate",
    "certificate",
    "key as a name",
    "oidc",
    "token of two lines",
)


def everything_shown(program: AsProcess) -> str:
    pages = [asked(program.number, f"{page}?token={canaries.TOKEN}")[1] for page in PAGES]
    return "\n".join([program.log, *pages])


# The programs, at their most talkative


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_descheduler_shows_none_when_the_api_server_repeats_them(tmp_path: Path, log_format: str) -> None:
    user = {"token": canaries.TOKEN}
    with echoing() as api, echoing() as collector:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, user)
        policy = canaries.policy(tmp_path, "http://127.0.0.1:1")
        flags = ("--log-level=debug", f"--log-format={log_format}", "--lease=ns/name")
        with process(
            tmp_path / "log",
            "descheduler",
            f"--kubeconfig={kubeconfig}",
            f"--policy-file={policy}",
            *flags,
            **COLLECTOR,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        ) as program:
            program.wait_until_up()
            api.wait_until_all_are_shown(program)
            until(lambda: _TOLD.search(program.log) is not None)
            shown = everything_shown(program)
        assert canaries.leaks(shown) == []
        assert api.elsewhere == [], "a redirect was followed"


def test_the_soft_tainter_shows_none_when_prometheus_repeats_them(tmp_path: Path) -> None:
    with HttpServer(empty_lists) as api, echoing() as prometheus, echoing() as collector:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, {"token": canaries.TOKEN})
        policy = canaries.policy(tmp_path, prometheus.url)
        with process(
            tmp_path / "log",
            "soft-tainter",
            f"--kubeconfig={kubeconfig}",
            f"--policy-file={policy}",
            "--leader-elect=false",
            "--log-level=debug",
            **COLLECTOR,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        ) as program:
            program.wait_until_up()
            prometheus.wait_until_all_are_shown(program)
            until(lambda: program.log.count("no metrics: query ") > len(MANNERS) / 2)
            shown = everything_shown(program)
        assert canaries.leaks(shown) == []
        assert prometheus.elsewhere == [], "a redirect was followed"


def empty_lists(request: Request) -> Reply:
    if "watch=1" in request.target:
        return reply(400, {"kind": "Status", "code": 400, "message": "no watches here"})
    return reply(200, {"metadata": {"resourceVersion": "1"}, "items": []})


def test_a_proxy_with_a_password_is_named_without_it(tmp_path: Path) -> None:
    """Ours and that of the environment, for the API server and for Prometheus, both out of order."""
    with HttpServer(lambda _: reply(407, b"give me a password")) as proxy:
        address = f"http://{canaries.USER}:{canaries.PROXY_PASSWORD}@127.0.0.1:{proxy.port}"
        cluster = {"proxy-url": address}
        kubeconfig = canaries.kubeconfig(
            tmp_path / "kubeconfig", "https://127.0.0.2:1", {"token": canaries.TOKEN}, cluster
        )
        policy = canaries.policy(tmp_path, "https://127.0.0.2:2")
        proxies = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": ""}
        with process(
            tmp_path / "log",
            "soft-tainter",
            f"--kubeconfig={kubeconfig}",
            f"--policy-file={policy}",
            "--leader-elect=false",
            "--log-level=debug",
            **proxies,
        ) as program:
            program.wait_until_up()
            until(lambda: "407" in program.log)
            shown = everything_shown(program)
        plan = CliRunner().invoke(
            cli.main,
            ["plan", "--kubeconfig", str(kubeconfig), "--policy-file", str(policy)],
            env=proxies,
        )
    assert canaries.leaks(shown + plan.output) == []


def test_a_broken_proxy_address_is_not_repeated(tmp_path: Path) -> None:
    address = f"http://{canaries.USER}:{canaries.PROXY_PASSWORD}@127.0.0.1:port/"
    policy = canaries.policy(tmp_path, "https://127.0.0.2:2")
    with HttpServer(empty_lists) as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, {"token": canaries.TOKEN})
        with process(
            tmp_path / "log",
            "soft-tainter",
            f"--kubeconfig={kubeconfig}",
            f"--policy-file={policy}",
            "--leader-elect=false",
            "--log-level=debug",
            HTTPS_PROXY=address,
            NO_PROXY="127.0.0.1",
        ) as program:
            program.wait_until_up()
            until(lambda: "no metrics" in program.log)
            shown = everything_shown(program)
    assert canaries.leaks(shown) == []


# Credentials of all kinds


@pytest.mark.parametrize("name", USERS)
def test_no_way_to_say_who_one_is_gets_into_a_message(tmp_path: Path, name: str, loud: io.StringIO) -> None:
    user = users(tmp_path)[name]
    with echoing(["403"]) as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, user)
        policy = canaries.policy(tmp_path, api.url)
        result = CliRunner().invoke(
            cli.main, ["plan", "--kubeconfig", str(kubeconfig), "--policy-file", str(policy)]
        )
    assert result.exit_code == 1
    assert canaries.leaks(result.output + loud.getvalue() + _trace(result.exception)) == []


@pytest.mark.parametrize("name", ["plugin that fails", "plugin without a token"])
def test_who_has_a_plugin_that_fails_does_not_go_on_as_nobody(tmp_path: Path, name: str) -> None:
    """Anonymous requests would be refused later on, and nobody would know why."""
    kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", users(tmp_path)[name])
    with pytest.raises(CredentialsError, match=r"exec: (process returned 1|missing token)") as caught:
        Transport.from_kubeconfig(str(kubeconfig))
    assert canaries.leaks(_trace(caught.value)) == []


def test_a_plugin_that_fails_later_on_is_told_without_its_words(tmp_path: Path, loud: io.StringIO) -> None:
    """Nothing is sent then, and what others log is as before."""
    expired = {"token": canaries.TOKEN, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    user = canaries.plugin(tmp_path, status=expired)
    with HttpServer(empty_lists) as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, user)
        client = Transport.from_kubeconfig(str(kubeconfig))
        Path(user["exec"]["args"][1]).write_text(f"import sys; sys.exit({canaries.PLUGIN_STDERR!r})")
        with pytest.raises(Unreachable, match=r"no credentials from .*: exec: process returned 1$") as caught:
            client.request("GET", "/api/v1/nodes", deadline=timedelta(seconds=20))
        client.close()
        assert api.requests == []
    assert canaries.leaks(_trace(caught.value) + loud.getvalue()) == []
    logging.error("of somebody else")
    assert "of somebody else" in loud.getvalue()


_NO_CONTEXT = {"current-context": "c", "contexts": [], "clusters": []}


@pytest.mark.parametrize(
    "text",
    [
        f"users: [{{name: u, user: {{token: {canaries.TOKEN}",
        f"{canaries.TOKEN}",
        f"- {canaries.TOKEN}",
        json.dumps({**_NO_CONTEXT, "users": [{"name": "u", "user": {"token": canaries.TOKEN}}]}),
        json.dumps({**_NO_CONTEXT, "users": [canaries.TOKEN]}),
        json.dumps({"users": {"token": canaries.TOKEN}, "current-context": "c"}),
    ],
)
def test_a_broken_kubeconfig_is_not_quoted(tmp_path: Path, text: str, loud: io.StringIO) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(CredentialsError) as caught:
        Transport.from_kubeconfig(str(tmp_path / "kubeconfig"))
    assert canaries.leaks(_trace(caught.value) + loud.getvalue()) == []


# The plan


@pytest.mark.parametrize("manner", ALL_MANNERS)
@pytest.mark.parametrize("user", ["token", "password"])
def test_the_plan_shows_none_when_the_api_server_repeats_them(
    tmp_path: Path, manner: str, user: str, loud: io.StringIO
) -> None:
    with echoing([manner]) as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, users(tmp_path)[user])
        policy = canaries.policy(tmp_path, api.url)
        result = CliRunner().invoke(
            cli.main, ["plan", "--kubeconfig", str(kubeconfig), "--policy-file", str(policy)]
        )
        assert api.answered[manner] >= 1
    assert result.exit_code == 1
    assert canaries.leaks(result.output + loud.getvalue() + _trace(result.exception)) == []


@pytest.mark.parametrize("manner", ALL_MANNERS)
@pytest.mark.parametrize("output", ["wide", "json"])
def test_the_plan_shows_none_when_prometheus_repeats_them(
    tmp_path: Path, manner: str, output: str, loud: io.StringIO
) -> None:
    with HttpServer(empty_lists) as api, echoing([manner]) as prometheus:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, {"token": canaries.TOKEN})
        policy = canaries.policy(tmp_path, prometheus.url)
        result = CliRunner().invoke(
            cli.main,
            ["plan", "--kubeconfig", str(kubeconfig), "--policy-file", str(policy), "-o", output],
        )
        assert prometheus.answered[manner] >= 1
    assert canaries.leaks(result.output + loud.getvalue() + _trace(result.exception)) == []


# Traces


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("manner", ALL_MANNERS)
def test_the_export_of_traces_shows_none_when_the_collector_repeats_them(
    manner: str, loud: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with echoing([manner]) as collector:
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        for name, value in {**COLLECTOR, **to}.items():
            monkeypatch.setenv(name, value)
        export = exporting(os.environ, "service", "replica-1", SystemClock(), lambda _: None)
        assert export is not None
        export.start()
        export.send(SPAN)
        export.stop(timedelta(seconds=20))
        assert collector.answered[manner] >= 1
        assert collector.elsewhere == [], "a redirect was followed"
    assert canaries.leaks(loud.getvalue()) == []
    gc.collect()  # the library leaves connections open that have been spoilt


# The policy: whoever mistakes it for a place where secrets go


@pytest.mark.parametrize(
    "metrics",
    [
        {"url": f"https://somebody:{canaries.PASSWORD}@prometheus"},
        {"url": f"https://somebody:pass/{canaries.PASSWORD}@prometheus"},
        {"url": f"https://somebody:pass word/{canaries.PASSWORD}@prometheus"},
        {"url": f"somebody:{canaries.PASSWORD}@prometheus:9090"},
        {"url": f"https://prometheus/?token={canaries.TOKEN}"},
        {"url": f"ftp://prometheus/?token={canaries.TOKEN}"},
        {"token": canaries.PROMETHEUS_TOKEN},
        {"bearerToken": f"Bearer {canaries.PROMETHEUS_TOKEN}"},
        {"tokenFile": canaries.PROMETHEUS_TOKEN},
        {"tokenFile": f"Bearer {canaries.PROMETHEUS_TOKEN}"},
        {"tokenFile": [canaries.PROMETHEUS_TOKEN]},
        {"headersFile": f"X-Scope-Secret: {canaries.HEADER}"},
        {"headers": {"Authorization": f"Bearer {canaries.PROMETHEUS_TOKEN}"}},
        {"actualUtilizationProfile": f"Bearer {canaries.PROMETHEUS_TOKEN}"},
    ],
    ids=str,
)
def test_a_secret_in_the_policy_is_refused_and_not_repeated(
    tmp_path: Path, metrics: Mapping[str, Any]
) -> None:
    document = {"apiVersion": "vm-rebalancer.io/v1alpha1", "kind": "RebalancePolicy", "metrics": metrics}
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(document))
    result = CliRunner().invoke(cli.main, ["check-policy", str(path)])
    assert result.exit_code == 1
    assert "metrics." in result.output
    assert canaries.leaks(result.output) == []


# A request of somebody else's


def test_what_a_client_of_the_endpoint_sends_is_not_logged(tmp_path: Path) -> None:
    """A scraper may send a token along, whether we ask for one or not."""
    with black_hole() as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api, {"token": canaries.TOKEN})
        policy = canaries.policy(tmp_path, api)
        with process(
            tmp_path / "log",
            "descheduler",
            f"--kubeconfig={kubeconfig}",
            f"--policy-file={policy}",
            "--leader-elect=false",
            "--log-level=debug",
        ) as program:
            program.wait_until_up()
            for path in ("/nowhere", "/metrics"):
                asked(program.number, f"{path}?token={canaries.TOKEN}")
            shown = everything_shown(program)
    assert canaries.leaks(shown) == []


@pytest.fixture
def loud() -> Iterator[io.StringIO]:
    """Whatever is logged by anybody, at any level, as our programs' handler writes it."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    before = logging.root.level
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.DEBUG)
    yield text
    logging.root.setLevel(before)
    logging.root.removeHandler(handler)


def _trace(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error is not None else ""
