"""Whatever answers in Prometheus' place: samples as they were sent, or an error in one short line."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.utilization.prometheus import PrometheusSource
from controller.utilization.reading import Answer, MetricsError
from tests.controller.io.builders import metrics_at
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.properties.effort import PATIENCE_S, effort

pytestmark = pytest.mark.timeout(PATIENCE_S)

ODD = st.sampled_from(
    [None, True, 0, -1, 1e400, "", "x", "NaN", "+Inf", "1e999", "0x1", "1_0", " 1", [], {}, [1], "\u0661"]
)
VALUE = st.tuples(
    st.sampled_from([1767225600, 1767225600.5, -1, 1e300]), st.sampled_from(["0.5", "NaN", "-Inf", "1e-320"])
)
SERIES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"metric": st.just({"instance": "node-00"}) | ODD, "value": VALUE.map(list) | ODD}
)
BODIES = st.fixed_dictionaries(
    {
        "status": st.just("success") | ODD,
        "data": st.fixed_dictionaries(
            {"resultType": st.just("vector") | ODD, "result": st.lists(SERIES, max_size=3) | ODD}
        )
        | ODD,
    },
    optional={"warnings": st.lists(st.text(max_size=300), max_size=3) | ODD, "error": ODD, "errorType": ODD},
).map(lambda body: json.dumps(body).encode())


class Front:
    """A server that gives what it is told to, and a source that asks it."""

    def __init__(self) -> None:
        self.body, self.status, self.headers = b"", 200, dict[str, str]()
        self.server = HttpServer(self.answer)
        self.source = PrometheusSource()

    def answer(self, _: Request) -> Reply:
        return reply(self.status, self.body, self.headers)

    def ask(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> Answer | MetricsError:
        self.status, self.body, self.headers = status, body, headers or {}
        try:
            return self.source.instant("up", metrics_at(self.server.url))
        except MetricsError as error:
            return error


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    made = Front()
    with made.server:
        yield made
        made.source.close()


def sent(body: bytes) -> list[Any]:
    """The samples of a body that is a vector."""
    return [[s.get("metric"), float(s["value"][1])] for s in json.loads(body)["data"]["result"]]


@effort(200)
@given(st.sampled_from([200, 200, 200, 206, 400, 422, 503, 999]), BODIES | st.binary(max_size=60))
@example(200, b"[" * 100_000)
@example(200, b'{"status":"success","data":{"resultType":"vector","result":[]}}\x00')
def test_an_answer_is_whole_or_an_error(front: Front, status: int, body: bytes) -> None:
    found = front.ask(status, body)
    if isinstance(found, MetricsError):
        assert str(found).isprintable()
        assert len(str(found)) < 1_000
        return
    assert status // 100 == 2
    assert len(found.samples) == len(sent(body)), "none is lost, none is made up"
    for (labels, value, _), (said, was) in zip(found.samples, sent(body), strict=True):
        assert dict(labels) == (said or {})
        assert value == was or (math.isnan(value) and math.isnan(was))


@effort(60)
@given(
    st.dictionaries(
        st.sampled_from(["Content-Encoding", "Content-Type", "Location"]),
        st.text("abgzip/; \t=\x7f-", max_size=12),
    )
)
def test_odd_headers_are_no_more_than_an_error(front: Front, headers: dict[str, str]) -> None:
    body = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    for status in (200, 302):
        found = front.ask(status, body, headers)
        assert isinstance(found, MetricsError) or status == 200
