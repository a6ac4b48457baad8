"""Nobody can write our log for us: what others say stays within the line that repeats it."""

from pathlib import Path

import pytest

from informers.errors import from_response, from_status
from tests.controller.io.http_server import HttpServer, Reply, Request, reply
from tests.security.talkative import ALONE, talking
from tests.simulator.apiserver.harness import until

FORGED = "CRITICAL vm-rebalancer: all is lost"
NODE = {
    "metadata": {"name": "node-0", "uid": "u", "resourceVersion": "1"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def api(request: Request) -> Reply:
    if "watch=1" in request.target:
        return reply(400, {"kind": "Status", "code": 400, "message": f"no watches\n{FORGED}\x1b[2J"})
    return reply(200, {"metadata": {"resourceVersion": "1"}, "items": [NODE]})


def prometheus(_: Request) -> Reply:
    """A node of that name, as whoever may write metrics can make one up."""
    sample = {"metric": {"instance": f"x\n{FORGED}\x1b[2J"}, "value": [1, "1"]}
    return reply(200, {"status": "success", "data": {"resultType": "vector", "result": [sample]}})


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_label_of_a_metric_forges_no_line(tmp_path: Path, log_format: str) -> None:
    with HttpServer(api) as server, HttpServer(prometheus) as metrics:
        flags = (ALONE, f"--log-format={log_format}")
        with talking(tmp_path, "soft-tainter", server.url, metrics.url, *flags) as program:
            until(lambda: "no node is called" in program.log and "no watches" in program.log)
            lines = program.log.splitlines()
    assert FORGED in "".join(lines), "it is repeated, so that somebody can see what is wrong"
    assert [line for line in lines if line.startswith("CRITICAL") or not line.isprintable()] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"not now\r\n{FORGED}\x1b[2J", f"not now {FORGED} [2J"),
        ("Authorization: Bearer eyJhbGciOi.J9 and more", "Authorization: Bearer *** and more"),
        ('{"authorization":"Basic bWU6c2VjcmV0"}', '{"authorization":"Basic ***"}'),
        ("the bearer token has expired; basic authentication is off", None),
    ],
)
def test_what_an_api_server_says_is_one_line_without_credentials(said: str, shown: str | None) -> None:
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": said}
    for error in (from_status(status), from_response(403, said.encode(), {})):
        assert error.message == (shown or said)


def test_what_an_api_server_says_is_bounded() -> None:
    assert len(str(from_status({"code": 500, "message": "x" * 10_000_000}))) < 5_000
