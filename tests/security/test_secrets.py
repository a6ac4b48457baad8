"""No secret is shown anywhere, whatever fails: each is a canary, and everything is made to fail."""

import base64
import io
import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controller import cli
from informers.credentials import CredentialsError
from informers.errors import Unreachable
from informers.transport import Transport
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.controller.running_programs import asked, black_hole
from tests.security import canaries
from tests.security.echo import ALL_MANNERS, MANNERS, echoing
from tests.security.talkative import ALONE, everything_shown, planned, talking
from tests.simulator.apiserver.harness import until

_TOLD = re.compile(r"(informer \w+|lease ns/name): 403 Forbidden: ")
"""It has been refused, and says how."""
COLLECTOR = {
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{canaries.COLLECTOR}",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
}


_KEY = base64.b64encode(canaries.CLIENT_KEY.encode()).decode()
_TOKEN = {"token": canaries.TOKEN}
_BROKEN = {"clientCertificateData": canaries.TOKEN, "clientKeyData": canaries.CLIENT_KEY}
_OIDC = {"client-secret": canaries.PASSWORD, "refresh-token": canaries.TOKEN}
USERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "token": lambda _: _TOKEN,
    "password": lambda _: {"username": canaries.USER, "password": canaries.PASSWORD},
    "plugin": lambda folder: canaries.plugin(folder, status=_TOKEN),
    "plugin that fails": lambda folder: canaries.plugin(folder, status=_TOKEN, exit_code=1),
    "plugin without a token": lambda folder: canaries.plugin(folder, status={"toke": canaries.TOKEN}),
    "plugin with a broken certificate": lambda folder: canaries.plugin(folder, status=_BROKEN),
    "certificate": lambda _: {"client-certificate-data": _KEY, "client-key-data": _KEY},
    "key as a name": lambda _: {"client-certificate": "/dev/null", "client-key": canaries.CLIENT_KEY},
    "oidc": lambda _: {"auth-provider": {"name": "oidc", "config": _OIDC}},
    "token of two lines": lambda _: {"token": f"{canaries.TOKEN}\n{canaries.TOKEN}"},
}
"""Every way to say who one is, each with secrets; a plugin is put into the folder."""


# The programs, at their most talkative


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_descheduler_shows_none_when_the_api_server_repeats_them(tmp_path: Path, log_format: str) -> None:
    with echoing() as api, echoing() as collector:
        to = {**COLLECTOR, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        flags = (f"--log-format={log_format}", "--lease=ns/name")
        with talking(tmp_path, "descheduler", api.url, "http://127.0.0.1:1", *flags, **to) as program:
            api.wait_until_all_are_shown(program)
            until(lambda: _TOLD.search(program.log) is not None)
            shown = everything_shown(program)
        assert canaries.leaks(shown) == []
        assert api.elsewhere == [], "a redirect was followed"


def test_the_soft_tainter_shows_none_when_prometheus_repeats_them(tmp_path: Path) -> None:
    with HttpServer(empty_lists) as api, echoing() as prometheus, echoing() as collector:
        to = {**COLLECTOR, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with talking(tmp_path, "soft-tainter", api.url, prometheus.url, ALONE, **to) as program:
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
        proxies = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": ""}
        with talking(
            tmp_path,
            "soft-tainter",
            "https://127.0.0.2:1",
            "https://127.0.0.2:2",
            ALONE,
            cluster={"proxy-url": address},
            **proxies,
        ) as program:
            until(lambda: "407" in program.log)
            shown = everything_shown(program)
        plan = planned(tmp_path / "kubeconfig", tmp_path / "policy.yaml", **proxies)
    assert canaries.leaks(shown + plan.output) == []


def test_a_broken_proxy_address_is_not_repeated(tmp_path: Path) -> None:
    address = f"http://{canaries.USER}:{canaries.PROXY_PASSWORD}@127.0.0.1:port/"
    proxies = {"HTTPS_PROXY": address, "NO_PROXY": "127.0.0.1"}
    with (
        HttpServer(empty_lists) as api,
        talking(tmp_path, "soft-tainter", api.url, "https://127.0.0.2:2", ALONE, **proxies) as program,
    ):
        until(lambda: "no metrics" in program.log)
        shown = everything_shown(program)
    assert canaries.leaks(shown) == []


# Credentials of all kinds


@pytest.mark.parametrize("name", USERS)
def test_no_way_to_say_who_one_is_gets_into_a_message(tmp_path: Path, name: str, loud: io.StringIO) -> None:
    user = USERS[name](tmp_path)
    with echoing(["403"]) as api:
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, user)
        policy = canaries.policy(tmp_path, api.url)
        result = planned(kubeconfig, policy)
    assert result.exit_code == 1
    assert canaries.leaks(result.output + loud.getvalue() + _trace(result.exception)) == []


@pytest.mark.parametrize("name", ["plugin that fails", "plugin without a token"])
def test_who_has_a_plugin_that_fails_does_not_go_on_as_nobody(tmp_path: Path, name: str) -> None:
    """Anonymous requests would be refused later on, and nobody would know why."""
    kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", USERS[name](tmp_path))
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
        kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", api.url, USERS[user](tmp_path))
        policy = canaries.policy(tmp_path, api.url)
        result = planned(kubeconfig, policy)
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
        result = planned(kubeconfig, policy, "-o", output)
        assert prometheus.answered[manner] >= 1
    assert canaries.leaks(result.output + loud.getvalue() + _trace(result.exception)) == []


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
    with black_hole() as api, talking(tmp_path, "descheduler", api, api, ALONE) as program:
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
