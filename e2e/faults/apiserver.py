"""Who we are, whom we trust, and an API server that goes and comes: rows of the fault matrix."""

from collections.abc import Iterator

from e2e.cluster import ACCOUNTS
from e2e.faults.deeds import all_of, control, watches
from e2e.faults.row import Deed, Row
from e2e.faults.scene import Scene
from e2e.faults.signs import grows, restarted, says


def tokens(do: str, **how: object) -> Deed:
    """Of all our accounts."""

    def begin(scene: Scene) -> None:
        for account in ACCOUNTS:
            scene.lab.cluster.control("tokens", account=account, do=do, **how)

    return begin


def restart_often(scene: Scene) -> None:
    for _ in range(3):
        scene.lab.cluster.control("restart", seconds=0.5)
        scene.lab.let_pass(2)


def _clocks() -> Iterator[Row]:
    for where, offset_s in {"ahead": 600, "behind": -600}.items():
        yield Row(
            name=f"clock 10 minutes {where}",
            kind="API server",
            begins=control("clock", offset_s=offset_s),
            ends=control("clock", offset_s=0),
            shows=(),
            goes_on_meanwhile=True,
            policy=lambda _: {"evictions": {"migrationTimeout": "30m"}},
        )


ROWS = (
    Row(
        name="token rotated, the old one is refused at once",
        kind="credentials",
        begins=all_of(tokens("rotate"), watches("break")),
        shows=(grows("informer_errors_total"),),
        goes_on_meanwhile=True,
    ),
    Row(
        name="token rotated, the old one still holds",
        kind="credentials",
        begins=tokens("rotate", keep_old=True),
        shows=(),
        goes_on_meanwhile=True,
    ),
    Row(
        name="token expired",
        kind="credentials",
        begins=all_of(tokens("expire"), watches("break")),
        ends=tokens("rotate"),
        shows=(says("401", ""), restarted()),
        restarts=True,
        one_of_its_kind=True,
    ),
    Row(
        name="certificate authority replaced",
        kind="credentials",
        begins=control("restart", seconds=1, new_authority=True),
        shows=(grows("informer_errors_total"),),
        goes_on_meanwhile=True,
    ),
    Row(
        name="rolled back to older resourceVersions",
        kind="API server",
        begins=control("restart", seconds=1, roll_back=60),
        shows=(grows("informer_errors_total"),),
        one_of_its_kind=True,
    ),
    Row(
        name="restarted again and again",
        kind="API server",
        begins=restart_often,
        shows=(grows("informer_errors_total"),),
        restarts=True,
    ),
    *_clocks(),
)
