"""Instant queries over real connections: what is asked, and what becomes of each answer."""

import gzip
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.utilization import prometheus
from controller.utilization.reading import Answer, MetricsError, Sample
from tests.controller.io.builders import Asking, metrics_at
from tests.controller.io.fake_api import recorded
from tests.controller.io.http_server import HttpServer, Reply, Request, reply

UP = {"status": "success", "data": {"resultType": "vector", "result": []}}


def vector(*values: tuple[dict[str, str], str], **more: Any) -> dict[str, Any]:
    result = [{"metric": labels, "value": [1796132853.331, value]} for labels, value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


def ask(answer: Callable[[Request], Reply], expression: str = "up", **fields: Any) -> Answer:
    with HttpServer(answer) as server:
        return Asking(lambda: metrics_at(server.url, **fields)).instant(expression)


def trouble(answer: Callable[[Request], Reply], expression: str = "up", **fields: Any) -> str:
    with pytest.raises(MetricsError) as raised:
        ask(answer, expression, **fields)
    return str(raised.value)


def trouble_of(status: int, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> str:
    return trouble(lambda request: reply(status, body, headers))


def test_the_recorded_vector():
    answer = ask(lambda request: reply(200, recorded("prom-vector")["body"]))
    labels = {"__name__": "up", "instance": "127.0.0.1:28160", "job": "emulator"}
    assert answer == Answer([Sample(labels, 1.0)])


def test_the_recorded_empty_vector_is_an_answer():
    assert ask(lambda request: reply(200, recorded("prom-empty")["body"])) == Answer([])


def test_a_recorded_nan_stays_one():
    """Whoever reads it drops it with a reason; it must never become a number."""
    (sample,) = ask(lambda request: reply(200, recorded("prom-nan")["body"])).samples
    assert math.isnan(sample.value)


def test_infinite_values_stay_infinite():
    samples = ask(lambda request: reply(200, vector(({}, "+Inf"), ({}, "-Inf"), ({}, "1e-3")))).samples
    assert [sample.value for sample in samples] == [math.inf, -math.inf, 0.001]


def test_series_that_come_twice_are_kept():
    samples = ask(
        lambda request: reply(200, vector(({"instance": "a"}, "1"), ({"instance": "a"}, "2")))
    ).samples
    assert [sample.value for sample in samples] == [1.0, 2.0]


def test_the_recorded_scalar_is_refused():
    message = trouble(lambda request: reply(200, recorded("prom-scalar")["body"]), "1")
    assert message == "query 1: it gives a scalar, where an instant vector is needed"


@pytest.mark.parametrize("kind", ["matrix", "string"])
def test_what_is_no_vector_is_refused(kind):
    body = {"status": "success", "data": {"resultType": kind, "result": [1796132853, "x"]}}
    assert f"it gives a {kind}" in trouble_of(200, body)


def test_histograms_are_refused():
    body = vector()
    body["data"]["result"] = [{"metric": {}, "histogram": [1796132853, {"count": "1", "sum": "2"}]}]
    assert "it gives histograms, where plain values are needed" in trouble_of(200, body)


def test_a_value_that_is_no_number_is_refused():
    assert "the value many is no number" in trouble_of(200, vector(({}, "many")))


def test_the_recorded_error_is_shown_in_prometheus_own_words():
    answer = recorded("prom-bad")
    message = trouble(lambda request: reply(answer["status"], answer["body"]), answer["query"])
    assert message == (
        'query sum(: 400 Whatever: bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis'
    )


def test_warnings_of_a_partial_answer_come_with_it():
    body = vector(
        ({}, "1"), warnings=["store 10.0.0.1 is unavailable", "x" * 5000], infos=["not of interest"]
    )
    answer = ask(lambda request: reply(200, body))
    assert answer.warnings[0] == "store 10.0.0.1 is unavailable"
    assert len(answer.warnings[1]) == 201
    assert len(answer.warnings) == 2


def test_a_hundred_warnings_are_no_reason_to_keep_a_hundred():
    body = vector(warnings=[f"store {number}" for number in range(100)])
    assert len(ask(lambda request: reply(200, body)).warnings) == 10


def test_asks_with_the_deadline_so_that_the_server_ends_in_time_too():
    with HttpServer(lambda request: reply(200, UP)) as server:
        Asking(lambda: metrics_at(server.url + "/prefix/", timeout_s=7.5)).instant('a{b="ü"}')
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", "/prefix/api/v1/query")
    assert request.form == {"query": 'a{b="ü"}', "timeout": "7500ms"}


def test_a_long_query_goes_as_a_form():
    """Proxies cut off long URLs."""
    expression = " or ".join(f"series_{number}" for number in range(500))
    with HttpServer(lambda request: reply(200, UP)) as server:
        Asking(lambda: metrics_at(server.url)).instant(expression)
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/api/v1/query")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.form["query"] == expression


def test_a_message_names_the_query_but_not_at_any_length():
    message = trouble(
        lambda request: reply(500, b"no"), "sum by (instance) (\n   rate(x[5m]))" + " or y" * 1000
    )
    assert message.startswith("query sum by (instance) ( rate(x[5m])) or y or y")
    assert len(message) < 150


@pytest.mark.parametrize("status", [429, 500, 503])
def test_asks_once_whatever_the_answer(status):
    """The package would ask three times more, with pauses, while everybody waits."""
    with HttpServer(lambda request: reply(status, b"busy")) as server:
        with pytest.raises(MetricsError, match=rf"query up: {status} Whatever: busy"):
            Asking(lambda: metrics_at(server.url)).instant("up")
        assert len(server.requests) == 1


def test_a_page_for_people_is_shown_without_its_markup():
    page = b"<html><head><style>p {color: red}</style></head><body><h1>502 Bad\nGateway</h1>&nbsp;nginx</body></html>"
    assert trouble_of(502, page) == "query up: 502 Whatever: 502 Bad Gateway &nbsp;nginx"


def test_a_page_for_people_with_status_200_is_no_answer():
    """Such as a log-in page."""
    assert trouble_of(200, b"<html><title>Log in</title></html>") == (
        "query up: the answer is not Prometheus': Log in"
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"status": "success", "data": {}}', b"[" * 100_000],
)
def test_anything_else_is_no_answer_either(body):
    assert trouble_of(200, body).startswith("query up: the answer is not Prometheus'")


@pytest.mark.parametrize(
    "body", [{"status": "error", "errorType": "timeout", "error": "took too long"}, {"status": "success"}]
)
def test_an_error_with_status_200_is_one(body):
    assert trouble_of(200, body) in ("query up: timeout: took too long", "query up: nothing")


def test_what_is_shown_is_short_and_printable():
    message = trouble_of(500, b"\x1b[31mred\x00 \xff" + b"x" * 100_000)
    assert message.isprintable()
    assert len(message) < 300


def test_an_error_page_without_end_is_not_read_to_its_end():
    head = b"HTTP/1.1 500 Oops\r\n\r\n"

    def endless(request: Request) -> Reply:
        yield head
        while True:
            yield b"no " * 1000

    assert trouble(endless).startswith("query up: 500 Oops: no no no")


def test_an_answer_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_ANSWER_BYTES", 100_000)
    body = json.dumps(vector(*[({"instance": f"node-{number}"}, "1") for number in range(2000)])).encode()
    assert "the answer is larger than 100000 bytes" in trouble_of(200, body)


def test_an_answer_that_is_small_only_while_packed_is_refused(monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_ANSWER_BYTES", 1_000_000)
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 100_000
    assert "the answer is larger than 1000000 bytes" in trouble_of(200, bomb, {"Content-Encoding": "gzip"})


def test_a_packed_answer_is_unpacked():
    body = gzip.compress(json.dumps(vector(({}, "1"))).encode())
    (sample,) = ask(lambda request: reply(200, body, {"Content-Encoding": "gzip"})).samples
    assert sample.value == 1.0


def test_an_answer_that_cannot_be_unpacked_is_an_error():
    assert trouble_of(200, b"no gzip", {"Content-Encoding": "gzip"}).startswith("query up: ")


def test_a_server_that_hangs_is_waited_for_no_longer_than_the_timeout():
    with HttpServer(lambda request: server.hang()) as server, pytest.raises(MetricsError) as raised:
        Asking(lambda: metrics_at(server.url, timeout_s=0.2)).instant("up")
    assert str(raised.value) == "query up: no answer within 0.2 s"


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nX-Long: y",
        b"HTTP/1.1 200 OK\r\n\r\n ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x",
        b"HTTP/1.1 500 No\r\n\r\nsorry",
    ],
)
def test_a_server_that_dribbles_is_not_waited_for_any_longer(content):
    """Each byte comes in time, and so each read by itself would go on."""
    with HttpServer(lambda request: server.dribble(content)) as server, pytest.raises(MetricsError) as raised:
        Asking(lambda: metrics_at(server.url, timeout_s=0.3)).instant("up")
    assert str(raised.value) == "query up: no answer within 0.3 s"


def test_an_answer_that_breaks_off_is_an_error():
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + json.dumps(vector()).encode()
    assert trouble(lambda request: [cut]).startswith("query up: ")
    assert trouble(lambda request: []).startswith("query up: ")


def test_a_server_that_is_not_there_is_named():
    with HttpServer(lambda request: []) as server:
        metrics = metrics_at(server.url)
    with pytest.raises(
        MetricsError, match=rf"cannot connect to 127\.0\.0\.1:{server.port}: Connection refused"
    ):
        Asking(lambda: metrics).instant("up")


def test_http_is_used_only_if_the_policy_allows_it():
    with HttpServer(lambda request: reply(200, UP)) as server:
        source = Asking(lambda: metrics_at(server.url, allow_http=False))
        with pytest.raises(MetricsError, match=r"is not https, and metrics\.allowHttp is false"):
            source.instant("up")
    assert server.requests == []


def test_a_redirect_is_shown_and_not_followed(tmp_path):
    """It would take the token to where we were not told to take it."""
    (tmp_path / "token").write_text("abcdef")
    with (
        HttpServer(lambda request: reply(200, UP)) as other,
        HttpServer(
            lambda request: reply(
                302, b"", {"Location": f"http://user:pw@127.0.0.1:{other.port}/login?state=s"}
            )
        ) as server,
        pytest.raises(MetricsError) as raised,
    ):
        Asking(lambda: metrics_at(server.url, token_file=tmp_path / "token")).instant("up")
    assert other.requests == []
    assert str(raised.value) == ("query up: 302 Whatever, to http://127.0.0.1/login, which is not followed")


def test_another_url_in_the_policy_takes_effect_at_once():
    with (
        HttpServer(lambda request: reply(200, UP)) as first,
        HttpServer(lambda request: reply(200, UP)) as second,
    ):
        urls = iter([first.url, first.url, second.url])
        source = Asking(lambda: metrics_at(next(urls)))
        for _ in range(3):
            source.instant("up")
    assert (len(first.requests), len(second.requests)) == (2, 1)


def test_proxies_are_taken_from_the_environment(monkeypatch):
    with HttpServer(lambda request: reply(200, UP)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        Asking(lambda: metrics_at("http://prometheus.example:9090")).instant("up")
    assert proxy.requests[0].target.startswith("http://prometheus.example:9090/api/v1/query?")


def test_a_proxy_that_dribbles_is_not_waited_for_any_longer(monkeypatch):
    with HttpServer(lambda request: proxy.dribble(b"HTTP/1.1 200 OK\r\nx: y")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        source = Asking(lambda: metrics_at("https://prometheus.example:9090", timeout_s=0.3))
        with pytest.raises(MetricsError, match=r"no answer within 0.3 s"):
            source.instant("up")


def test_closing_ends_what_is_under_way_and_refuses_what_comes():
    asked = threading.Event()

    def answer(request: Request) -> Reply:
        asked.set()
        return server.hang()

    with HttpServer(answer) as server:
        source = Asking(lambda: metrics_at(server.url))
        errors: list[str] = []

        def query() -> None:
            try:
                source.instant("up")
            except MetricsError as error:
                errors.append(str(error))

        thread = threading.Thread(target=query)
        thread.start()
        assert asked.wait(10)
        source.close()
        thread.join(10)
        assert not thread.is_alive()
        query()
    assert errors == ["query up: given up while waiting for the answer", "query up: the program is ending"]
