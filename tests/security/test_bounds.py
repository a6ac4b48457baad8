"""Nothing that arrives takes all memory, whatever its size: each case is a process of its own, which is measured."""

import gzip
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from controller import health
from controller.cluster.resources import RESOURCES
from controller.policy import document
from controller.utilization import prometheus
from informers import reflector, transport
from informers.decoding import Decoder
from informers.errors import Garbled
from tests.controller.io.http_server import HttpServer, Reply, Request

TIMEOUT_S = 100
MIB = 1 << 20
ANSWER = b'{"status":"success","data":{"resultType":"vector","result":['


class Taken(NamedTuple):
    """What a client has said of what it was given, and how much memory it took meanwhile."""

    said: str
    grown_mib: float


def taken(what: str, where: str) -> Taken:
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "tests.security.client", what, where],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return Taken(**json.loads(done.stdout))


def packed(begin: bytes, again: bytes, size: int) -> bytes:
    """So much text, of which little is left once it is packed."""
    some = gzip.compress(again * (MIB // len(again)))
    return gzip.compress(begin) + some * (size // MIB)  # a file may have several parts


def answering(body: bytes, *, is_packed: bool = True) -> HttpServer:
    coding = "Content-Encoding: gzip\r\n" if is_packed else ""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{coding}\r\n"
    return HttpServer(lambda _: [head.encode(), body])


def without_end(_: Request) -> Reply:
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    yield from itertools.repeat(b"x" * MIB)


def test_an_answer_of_prometheus_that_unpacks_to_a_gigabyte_is_refused() -> None:
    with answering(packed(ANSWER, b'{"metric":{},"value":[1,"1"]},', 1024 * MIB)) as server:
        got = taken("query", server.url)
    assert got.said.startswith("MetricsError: query up: the answer is larger than")
    assert got.grown_mib < 150


@pytest.mark.parametrize(
    "again", [b"{},", b'{"metric":{}},', b'{"metric":{},"value":[1,"1"]},', b'{"metric":{"a":""}},']
)
def test_an_answer_of_prometheus_that_grows_when_it_is_decoded_is_refused(again: bytes) -> None:
    """Thirty megabytes of the shortest series would become more than a gigabyte of objects."""
    body = ANSWER + again * (30 * MIB // len(again))
    with answering(body[:-1] + b"]}}", is_packed=False) as server:
        got = taken("query", server.url)
    assert got.said == "MetricsError: query up: it gives more than 250000 series"
    assert got.grown_mib < 150


def test_an_answer_of_prometheus_without_end_is_refused() -> None:
    with HttpServer(without_end) as server:
        got = taken("query", server.url)
    assert "the answer is larger than" in got.said
    assert got.grown_mib < 150


def test_as_many_series_as_a_large_cluster_has_are_taken() -> None:
    series = (
        b'{"metric":{"namespace":"a-namespace","name":"a-virtual-machine-%05d","node":"worker-0001.example.com",'
        b'"__name__":"vm_rebalancer:vmi_cpu_demand_cores:avg2m"},"value":[1700000000.123,"0.12345"]}'
    )
    body = ANSWER + b",".join(series % number for number in range(50_000)) + b"]}}"
    with answering(body, is_packed=False) as server:
        assert taken("query", server.url).said == ""


def test_a_list_that_unpacks_to_a_gigabyte_is_refused() -> None:
    begin = b'{"metadata":{"resourceVersion":"1"},"items":['
    with answering(packed(begin, b'{"metadata":{"name":"a"}},', 1024 * MIB)) as server:
        got = taken("page", server.url)
    assert got.said.startswith("Garbled: 200: the answer is larger than")
    assert got.grown_mib < 300


def test_a_list_without_end_is_refused() -> None:
    with HttpServer(without_end) as server:
        got = taken("page", server.url)
    assert got.said.startswith("Garbled: 200: the answer is larger than")
    assert got.grown_mib < 300


def test_a_line_of_a_watch_without_end_is_refused() -> None:
    with HttpServer(without_end) as server:
        got = taken("watch", server.url)
    assert got.said.startswith("Garbled: a line of the watch is longer than")
    assert got.grown_mib < 100


def laughs() -> Iterator[str]:
    """A billion of them, in a policy of twenty lines."""
    yield "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\nl0: &l0 [ha, ha, ha]\n"
    for level in range(1, 13):
        yield f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]\n"


@pytest.mark.parametrize("is_config_map", [False, True])
def test_a_policy_that_unfolds_to_a_billion_values_is_refused(tmp_path: Path, is_config_map: bool) -> None:
    text = "".join(laughs())
    if is_config_map:
        text = f"kind: ConfigMap\ndata:\n  policy.yaml: {json.dumps(text)}\n"
    (tmp_path / "policy.yaml").write_text(text)
    got = taken("policy", str(tmp_path / "policy.yaml"))
    assert "more than 5000 values, aliases expanded" in got.said
    assert got.grown_mib < 50


DEEP = b'{"metadata":{"name":"deep"},"more":' + b"[" * 50_000 + b"]" * 50_000 + b"}"


def test_an_object_nested_without_end_is_an_error_in_one_line() -> None:
    decoder = Decoder(RESOURCES["vmis"].kind, lambda _: None, lambda _: None)
    with pytest.raises(Garbled, match="a list: maximum recursion depth exceeded"):
        decoder.page(b'{"metadata":{"resourceVersion":"1"},"items":[' + DEEP + b"]}")
    with pytest.raises(Garbled, match="a line of a watch: maximum recursion depth exceeded"):
        decoder.line(b'{"type":"ADDED","object":' + DEEP + b"}")


def test_the_bounds_are_those_of_the_document() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8").split())
    for said in (
        f"an answer of Prometheus {prometheus.MAX_ANSWER_BYTES // MIB} MiB and {prometheus.MAX_SERIES:,} series",
        f"a page of a list {reflector.MAX_PAGE_BYTES // MIB} MiB",
        f"a line of a watch {transport.MAX_LINE_BYTES // MIB} MiB",
        f"other answers {transport.MAX_ANSWER_BYTES // MIB} MiB",
        f"an error {transport.MAX_ERROR_BYTES // 1024} KiB",
        f"a policy {document.MAX_CHARACTERS // 1024} Ki characters and {document.MAX_VALUES:,} values",
        f"a request to our port {health.MAX_REQUEST_BYTES // 1024} KiB within {health.CLIENT_WITHIN_S:.0f} s",
    ):
        assert said in text
