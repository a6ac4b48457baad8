"""What a collector of traces is sent as a header, or by its address, is shown nowhere, however it is mistyped."""

import gc
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from controller.telemetry.export import ConfigurationError, exporting
from e2e.collectors import by_grpc, by_http
from informers.clock import SystemClock
from tests.controller.running_programs import black_hole
from tests.controller.test_tracing_export import SPAN
from tests.security import canaries
from tests.security.echo import ALL_MANNERS, echoing
from tests.security.talkative import ALONE, talking
from tests.simulator.apiserver.harness import until

SECRET = canaries.COLLECTOR
NO_PAIR = "OTEL_EXPORTER_OTLP_HEADERS holds something that is not name=value"
MALFORMED = (f"authorization: Bearer {SECRET}", f"ok=1,Bearer {SECRET}", f"a b={SECRET}", f'x="{SECRET}"')
UNSENDABLE = (f"x-key={SECRET}%0A{SECRET}", f"X Key={SECRET}", f"x%20key={SECRET}", f"x-key=%C3%A4{SECRET}")
PROTOCOLS = ("grpc", "http/protobuf")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All that anybody logs, the libraries too, as in a process that has just started."""
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "propagate", True)
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.fixture
def send(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Send a span, in an environment with these variables; returns when it was sent or dropped."""

    def send_it(protocol: str, endpoint: str, **variables: str) -> None:
        environment = {"ENDPOINT": endpoint, "PROTOCOL": protocol, "TIMEOUT": "1", **variables}
        for name, value in environment.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
        export = exporting(os.environ, "service", "replica-1", SystemClock(), lambda _: None)
        assert export is not None
        export.start()
        export.send(SPAN)
        export.stop(timedelta(seconds=20))

    return send_it


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("headers", MALFORMED)
def test_a_malformed_header_is_not_repeated(
    send: Callable[..., None], log: pytest.LogCaptureFixture, protocol: str, headers: str
) -> None:
    with (by_grpc if protocol == "grpc" else by_http)() as collector:
        send(protocol, collector.endpoint, HEADERS=headers)
    assert canaries.leaks(log.text) == []
    assert [r.getMessage() for r in log.records if r.name == "vm-rebalancer"] == [NO_PAIR]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("headers", UNSENDABLE)
def test_a_header_that_cannot_be_sent_is_not_repeated(
    send: Callable[..., None], log: pytest.LogCaptureFixture, protocol: str, headers: str
) -> None:
    with (by_grpc if protocol == "grpc" else by_http)() as collector:
        send(protocol, collector.endpoint, HEADERS=headers)
    assert canaries.leaks(log.text) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("manner", ALL_MANNERS)
def test_a_header_is_not_repeated_when_the_collector_repeats_it(
    send: Callable[..., None], log: pytest.LogCaptureFixture, manner: str
) -> None:
    with echoing([manner]) as collector:
        send("http/protobuf", collector.url, HEADERS=f"authorization=Bearer%20{SECRET}")
        assert collector.answered[manner] >= 1
        assert collector.elsewhere == [], "a redirect was followed"
    assert canaries.leaks(log.text) == []
    gc.collect()  # the library leaves connections open that have been spoilt


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_address_with_a_password_is_not_repeated(
    send: Callable[..., None], log: pytest.LogCaptureFixture, protocol: str
) -> None:
    send(protocol, f"http://somebody:{SECRET}@127.0.0.1:1")
    assert canaries.leaks(log.text) == []
    assert "traces cannot be sent: " in log.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", SECRET),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", f"Bearer {SECRET}"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", f"authorization=Bearer%20{SECRET}"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_without_secrets(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={SECRET}")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        exporting(os.environ, "service", "replica-1", SystemClock(), lambda _: None)
    assert canaries.leaks(str(caught.value)) == []


def test_a_program_starts_and_tells_which_variable_is_wrong(tmp_path: Path) -> None:
    with black_hole() as api:
        to = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": api,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization: Bearer {SECRET}",
        }
        with talking(tmp_path, "descheduler", api, api, ALONE, **to) as program:
            until(lambda: NO_PAIR in program.log)
            shown = program.log
    assert canaries.leaks(shown) == []
