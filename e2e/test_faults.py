"""The fault matrix: each row's trouble, its visibility, and that balancing goes on after it."""

from functools import partial
from time import monotonic

import pytest

from e2e.faults.matrix import ROWS
from e2e.faults.row import Row
from e2e.faults.scene import BEGINS_WITHIN_S, GOES_ON_WITHIN_S, SHOWS_WITHIN_S, Scene, scene_of
from e2e.lab import Lab
from e2e.ports import Ports


def _marks(row: Row) -> pytest.MarkDecorator:
    return pytest.mark.one_of_its_kind if row.one_of_its_kind else pytest.mark.full


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id, marks=_marks(row)) for row in ROWS])
def test_is_seen_and_survived(lab: Lab, ports: Ports, row: Row) -> None:
    """Whoever is harmed, the lab says so at its end."""
    with scene_of(lab, row, ports.free()) as scene:
        scene.start(row)
        lab.until(lambda: row.when(scene), BEGINS_WITHIN_S, "it is time for trouble")
        scene.remember()
        lab.restarts = row.restarts

        row.begins(scene)
        _last(scene, row)
        row.ends(scene)

        scene.until_it_goes_on()
        if row.recovers is not None:
            recovers = row.recovers
            lab.until(lambda: recovers(scene), GOES_ON_WITHIN_S, "all is well again")


def _last(scene: Scene, row: Row) -> None:
    """Until all has been seen that there is to see, and for the row's time."""
    begins = monotonic()
    for sign in row.shows:
        scene.lab.until(partial(sign, scene), SHOWS_WITHIN_S, str(sign))
    if row.goes_on_meanwhile:
        scene.until_one_moves(scene.begins_s, "balancing goes on meanwhile")
    scene.lab.let_pass(max(0.0, row.lasts_s - (monotonic() - begins)))


def test_each_kind_has_one_row_that_stands_for_it() -> None:
    kinds = {row.kind for row in ROWS}
    assert sorted(row.kind for row in ROWS if row.one_of_its_kind) == sorted(kinds)
    assert len({row.id for row in ROWS}) == len(ROWS)
