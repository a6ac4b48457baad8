"""Prometheus: rows of the fault matrix."""

from collections.abc import Iterator, Mapping
from typing import Any

from e2e.faults.deeds import control
from e2e.faults.proxy import Change, each_series, instead
from e2e.faults.row import Deed, Row
from e2e.faults.scene import Scene
from e2e.faults.signs import Sign, grows, shows_value

FAILS = (grows("refresh_failures_total"), grows("refresh_failures_total", "soft-tainter"))
INCOMPLETE = (shows_value("metrics_coverage_ratio", lambda ratio: ratio < 1),)
NOT_USED = (grows("samples_dropped_total"),)


def answers(change: Change) -> Deed:
    """What becomes of each answer from now on."""

    def begin(scene: Scene) -> None:
        scene.proxy.change = change

    return begin


def is_slow(scene: Scene) -> None:
    scene.proxy.delay_s = 8.0


def well(scene: Scene) -> None:
    scene.proxy.well()


def _by_address(series: dict[str, Any]) -> dict[str, Any]:
    """As node-exporter itself names its nodes: by an address and a port."""
    metric = dict(series["metric"])
    if "instance" in metric:
        metric["instance"] += ":9100"
    return {**series, "metric": metric}


def _by_node(series: dict[str, Any]) -> dict[str, Any]:
    metric = dict(series["metric"])
    if "instance" in metric:
        metric["node"] = metric.pop("instance")
    return {**series, "metric": metric}


def _valued(text: str) -> Change:
    return each_series(lambda series: {**series, "value": [series["value"][0], text]})


def _hundredfold(series: dict[str, Any]) -> dict[str, Any]:
    """Per cent instead of fractions."""
    time_s, text = series["value"]
    return {**series, "value": [time_s, repr(100 * float(text) + 100)]}


def _without(node: str) -> Change:
    return each_series(lambda series: None if series["metric"].get("instance") == node else series)


def _without_most(series: dict[str, Any]) -> dict[str, Any] | None:
    return None if series["metric"].get("instance", "node-0") > "node-01" else series


_ANSWERS: Mapping[str, tuple[Change, tuple[Sign, ...], bool]] = {
    "empty": (each_series(lambda _: None), INCOMPLETE, False),
    "partial, one node is missing": (_without("node-03"), INCOMPLETE, True),
    # where VMs would go is not known then: nothing moves
    "partial, the emptiest node is missing": (_without("node-05"), INCOMPLETE, False),
    "partial, most nodes are missing": (each_series(_without_most), INCOMPLETE, False),
    "a page of HTML": (instead(200, "text/html", "<html><body>Log in</body></html>"), FAILS, False),
    "a redirect to a log-in page": (instead(302, "text/html", ""), FAILS, False),
    "503": (instead(503, "text/plain", "no healthy upstream"), FAILS, False),
    "422, the query is refused": (
        instead(
            422, "application/json", '{"status":"error","errorType":"execution","error":"too many samples"}'
        ),
        FAILS,
        False,
    ),
    "half of the answer": (
        lambda reply: reply._replace(body=reply.body[: len(reply.body) // 2]),
        FAILS,
        False,
    ),
    "out of range": (each_series(_hundredfold), NOT_USED, False),
    "not a number": (_valued("NaN"), NOT_USED, False),
    "infinite": (_valued("+Inf"), NOT_USED, False),
    "nodes by name and port": (each_series(_by_address), (), True),
    "nodes under another label": (each_series(_by_node), NOT_USED, False),
}


def _troubled() -> Iterator[Row]:
    for name, (change, shows, goes_on) in _ANSWERS.items():
        yield Row(
            name=name,
            kind="Prometheus",
            begins=answers(change),
            ends=well,
            shows=shows,
            lasts_s=8,
            goes_on_meanwhile=goes_on,
            by_proxy=True,
            one_of_its_kind=name == "empty",
        )


def with_token(scene: Scene) -> Mapping[str, Any]:
    """Prometheus wants a token."""
    _write_token(scene, "first")
    scene.proxy.token = "first"  # noqa: S105
    return {"metrics": {"tokenFile": str(_token_file(scene))}}


def _token_file(scene: Scene) -> Any:
    return scene.lab.cluster.directory / "prometheus.token"


def _write_token(scene: Scene, token: str) -> None:
    _token_file(scene).write_text(token, encoding="ascii")


def rotate_token(scene: Scene) -> None:
    _write_token(scene, "second")
    scene.proxy.token = "second"  # noqa: S105


def expire_token(scene: Scene) -> None:
    scene.proxy.token = "second"  # noqa: S105


def stop(scene: Scene) -> None:
    scene.lab.prometheus.kill()


def start(scene: Scene) -> None:
    scene.lab.prometheus.start()
    scene.lab.until(scene.lab.prometheus.is_ready, 20, "Prometheus is ready")


ROWS = (
    *_troubled(),
    Row(name="down", kind="Prometheus", begins=stop, ends=start, shows=FAILS),
    Row(name="slow", kind="Prometheus", begins=is_slow, ends=well, shows=FAILS, by_proxy=True),
    Row(
        name="token rotated",
        kind="Prometheus",
        begins=rotate_token,
        shows=(),
        policy=with_token,
        by_proxy=True,
        goes_on_meanwhile=True,
    ),
    Row(
        name="token expired",
        kind="Prometheus",
        begins=expire_token,
        ends=rotate_token,
        shows=FAILS,
        policy=with_token,
        by_proxy=True,
    ),
    Row(
        name="has nothing to scrape",
        kind="Prometheus",
        begins=control("exporter", answer="down"),
        ends=control("exporter", answer="ok"),
        shows=INCOMPLETE,
        lasts_s=8,
    ),
    Row(
        name="one node does not report",
        kind="Prometheus",
        begins=control("exporter", missing_nodes=["node-03"]),
        ends=control("exporter", answer="ok"),
        shows=INCOMPLETE,
        goes_on_meanwhile=True,
    ),
)
