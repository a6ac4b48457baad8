"""What the programs say: lines that are said once an hour, with the things they speak of."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from controller.commands import JsonLines
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase, VmKey
from controller.evictions.plan import Plan
from controller.evictions.select import Choice
from controller.evictions.views import Alarm
from controller.utilization.classify import NodeClass
from controller.utilization.reading import Dropped
from informers.errors import NoAnswer, Unreachable
from tests.builders import node
from tests.controller.decision_builders import (
    HOUR,
    MINUTE,
    QUERY,
    classification,
    entry,
    snapshot,
    verdict,
    vm,
)
from tests.controller.seen import Seen, at_rest, say_everything

AGAIN = HOUR + timedelta(seconds=1)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def test_an_alarm_is_handed_on_and_said_aloud(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.alarmed(Alarm("a VM went down", "digest-1"), entry())
    assert seen.alarms == [Alarm("a VM went down", "digest-1")]
    assert [(r.levelname, "a VM went down" in r.message) for r in lines.records] == [("CRITICAL", True)]


NEWS = {
    "no metrics": lambda emitter: emitter.metrics_failed("503"),
    "a handler failed": lambda emitter: emitter.failed("key", ValueError("odd"), MINUTE),
    "a sample was dropped": lambda emitter: emitter.refreshed(
        replace(snapshot(), dropped=(Dropped(QUERY, "node-9", "NaN"),))
    ),
    "warnings": lambda emitter: emitter.refreshed(replace(snapshot(), warnings=("partial",))),
    "classes": lambda emitter: emitter.classified(classification(verdict())),
    "nothing decided": lambda emitter: emitter.classified(classification(verdict(), skipped="no metrics")),
    "at rest": lambda emitter: emitter.planned(at_rest()),
    "an informer failed": lambda emitter: emitter.informer_failed("nodes", Unreachable("refused")),
    "a foreign mark": lambda emitter: emitter.foreign_mark(VmKey("vms", "vm-1")),
    "taints": lambda emitter: emitter.tainting(node(), frozenset({"a"})),
}


@pytest.mark.parametrize("news", NEWS)
def test_news_are_said_once_and_again_after_an_hour(
    seen: Seen, lines: pytest.LogCaptureFixture, news: str
) -> None:
    for _ in range(3):
        NEWS[news](seen.emitter)
        seen.clock.advance(timedelta(minutes=19))
    assert len(lines.records) == 1
    seen.clock.advance(AGAIN - 3 * timedelta(minutes=19))
    NEWS[news](seen.emitter)
    assert len(lines.records) == 2


def test_an_outage_that_comes_back_is_news_again(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.metrics_failed("503")
    seen.emitter.refreshed(snapshot())
    seen.emitter.metrics_failed("503")
    assert len(lines.records) == 2


def test_a_change_is_said_at_once(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    seen.emitter.classified(classification(verdict()))
    seen.emitter.classified(classification(verdict(node_class=NodeClass.UNDER)))
    seen.emitter.planned(at_rest(code="NodeLimit"))
    seen.emitter.planned(at_rest(code="TotalLimit"))
    assert len(lines.records) == 4
    assert "over-utilised nodes: none" in lines.text


def test_a_failure_of_a_handler_is_shown_with_its_traceback(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        seen.emitter.failed("key", ValueError("odd"), MINUTE)
    assert lines.text.count("ValueError: odd") == 1


def test_trouble_of_the_api_is_a_warning_without_a_traceback(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    """It happens, passes, and where in our code it was met tells nobody anything."""
    seen.emitter.failed("key", Unreachable("connection refused"), MINUTE)
    (record,) = lines.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "connection refused" in record.getMessage()


def test_each_kind_of_error_of_an_informer_is_said_once_an_hour_however_they_alternate(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    """Each attempt fails, now like this, now like that, and what it says may differ each time."""
    for attempt in range(5):
        for error in (Unreachable(f"refused on port {attempt}"), NoAnswer(f"silence of {attempt} s")):
            seen.emitter.informer_failed("nodes", error)
    seen.emitter.informer_failed("vmis", Unreachable("connection refused"))
    assert len(lines.records) == 3


def test_what_others_say_is_bounded_and_without_secrets(seen: Seen, lines: pytest.LogCaptureFixture) -> None:
    said = "Bearer s3cr3t " + "x" * 10_000
    seen.emitter.informer_failed("nodes", ValueError(said))
    seen.emitter.answered(entry(), EvictionAnswer(Verdict.REFUSED, said), dry_run=False)
    seen.emitter.refreshed(
        replace(snapshot(), dropped=(Dropped(QUERY, said, f"no node is called {said!r}"),))
    )
    assert len(lines.records) == 3
    assert max(len(record.getMessage()) for record in lines.records) < 1000
    assert "s3cr3t" not in lines.text


def test_samples_that_are_not_used_are_said_in_one_line_for_each_query_and_reason(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    """However many VMs there are, and whatever their values are this time."""
    vms = [Dropped("vms", f"ns/vm-{n}", "several series for one VM") for n in range(30_000)]
    for refresh in range(3):
        values = [f"value {n + refresh} is not within [0, 1]" for n in (2, 5, 8)]
        odd = [Dropped(QUERY, f"node-{n}", value) for n, value in enumerate(values)]
        names = [Dropped(QUERY, f"x{n}-{refresh}", f"no node is called 'x{n}-{refresh}'") for n in range(2)]
        nothing = [Dropped(QUERY, "node-7", f"value is {value}") for value in ("nan", "inf")]
        seen.emitter.refreshed(replace(snapshot(), dropped=(*vms, *odd, *names, *nothing)))
    seen.emitter.refreshed(replace(snapshot(), dropped=(Dropped("vms", "ns/vm-9", "value is nan"),)))
    assert [record.getMessage() for record in lines.records] == [
        "30000 samples of vms not used, such as that for ns/vm-0: several series for one VM",
        f"3 samples of {QUERY} not used, such as that for node-0: value 2 is not within [0, 1]",
        f"2 samples of {QUERY} not used, such as that for x0-0: no node is called 'x0-0'",
        f"2 samples of {QUERY} not used, such as that for node-7: value is nan",
        "1 sample of vms not used, such as that for ns/vm-9: value is nan",
    ]


def test_a_choice_that_noise_changes_back_and_forth_is_said_once_an_hour(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    plans = [chosen("vm-1"), chosen("vm-2"), at_rest()]
    for plan in plans * 3:
        seen.emitter.planned(plan)
        seen.clock.advance(MINUTE)
    assert len(lines.records) == 3
    seen.clock.advance(AGAIN)
    seen.emitter.planned(plans[0])
    assert len(lines.records) == 4


def chosen(name: str) -> Plan:
    return replace(at_rest(), rest=None, choice=Choice(vm(name), "node-2", 0.1, 8.0, "uses 4.0 cores"))


@pytest.mark.parametrize(
    ("before", "after", "level"),
    [
        (None, Phase.REQUESTED, logging.DEBUG),
        (Phase.REQUESTED, Phase.PENDING, logging.DEBUG),
        (Phase.PENDING, Phase.PREPARING, logging.DEBUG),
        (Phase.PREPARING, Phase.RUNNING, logging.INFO),
        (Phase.RUNNING, Phase.PENDING, logging.INFO),
        (Phase.RETRYING, Phase.SCHEDULING, logging.INFO),
        (Phase.SETTLING, Phase.DONE, logging.INFO),
        (Phase.REQUESTED, Phase.UNKNOWN, logging.WARNING),
        (Phase.RUNNING, Phase.STUCK, logging.WARNING),
        (Phase.UNKNOWN, Phase.LOST, logging.WARNING),
    ],
)
def test_the_steps_of_a_migration_are_as_loud_as_they_matter(
    seen: Seen, lines: pytest.LogCaptureFixture, before: Phase | None, after: Phase, level: int
) -> None:
    seen.emitter.transition(entry(phase=before) if before else None, entry(phase=after))
    assert [record.levelno for record in lines.records] == [level]


# --- the things that lines speak of ---


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = json.loads(JsonLines().format(record))
    return found


def test_the_json_format_has_what_a_line_speaks_of_beside_its_words(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    seen.emitter.transition(None, entry(phase=Phase.RUNNING))
    line = fields(lines.records[0])
    assert (line["vm"], line["node"], line["phase"]) == (str(entry().vm), entry().source, "Running")
    assert "Running" in str(line["message"])


def test_every_line_can_be_written_as_json_and_no_field_takes_the_place_of_another(
    seen: Seen, lines: pytest.LogCaptureFixture
) -> None:
    say_everything(seen.emitter)
    assert len(lines.records) > 10
    for record in lines.records:
        line = fields(record)
        assert line["message"] == record.getMessage()
        assert line["level"] == record.levelname.lower()


def test_a_line_of_somebody_else_needs_no_fields() -> None:
    record = logging.LogRecord("urllib3", logging.INFO, "", 0, "hello", (), None)
    assert fields(record)["message"] == "hello"
