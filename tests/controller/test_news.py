"""What is said once an hour."""

from datetime import timedelta

import pytest

from controller.telemetry import news
from controller.telemetry.news import News
from informers.testing import ManualClock
from tests.builders import START


def test_the_same_is_news_again_after_an_hour_and_something_else_at_once() -> None:
    clock = ManualClock(START)
    said = News(clock)
    heard = [said.is_news("node-1", what) for what in ("busy", "busy", "idle", "busy")]
    assert heard == [True, False, True, True]
    assert said.is_news("node-2", "busy")
    clock.advance(timedelta(minutes=59))
    assert not said.is_news("node-1", "busy")
    clock.advance(timedelta(minutes=2))
    assert said.is_news("node-1", "busy")


def test_what_could_not_be_said_is_news_still() -> None:
    said = News(ManualClock(START))
    assert said.is_news("node-1")
    said.unsay("node-1")
    said.unsay("node-2")
    assert said.is_news("node-1")


def test_remembers_so_many_subjects_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "MOST_SUBJECTS", 10)
    said = News(ManualClock(START))
    assert all(said.is_news(f"node-{number}") for number in range(100))
    assert [said.is_news(f"node-{number}") for number in (0, 99)] == [True, False]
