"""What spans repeat of somebody else's words: bounded, and without secrets."""

from dataclasses import replace

import pytest

from controller.cluster.objects import MigrationState
from controller.evictions.answers import EvictionAnswer, Verdict
from controller.evictions.entry import Phase
from controller.telemetry.attempts import failure, retries
from controller.telemetry.evictions import Answered, Decision, Eviction, opening, refused
from controller.telemetry.spans import Span
from tests.builders import START, vmim
from tests.controller.decision_builders import entry
from tests.controller.seen import at_rest

SAID = "denied: Authorization: Bearer s3cr3t " + "x" * 1_000_000


def texts(spans: list[Span]) -> list[str]:
    return [repr((span.error, span.attributes, span.events)) for span in spans]


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_the_api_answered(dry_run: bool) -> None:
    answered = Answered(EvictionAnswer(Verdict.REFUSED, SAID), dry_run, START)
    eviction = Eviction(entry(), "", decision=Decision(at_rest()), answers=(answered,))
    shown = texts([*opening(eviction), *refused(eviction, START)])
    assert any("denied: Authorization: Bearer ***" in text for text in shown)
    assert not any("s3cr3t" in text for text in shown)
    assert max(map(len, shown)) < 10_000


def test_why_an_attempt_failed() -> None:
    failed = vmim(name="a", uid="a", phase="Failed", migration_state=MigrationState(failure_reason=SAID))
    again = vmim(name="b", uid="b", phase="Running")
    shown = texts(refused(Eviction(replace(entry(), phase=Phase.GONE), "", attempts={"a": failed}), START))
    for text in (failure(failed), repr(retries([failed, again])), *shown):
        assert "s3cr3t" not in text
        assert len(text) < 10_000
    assert failure(failed).startswith("denied: Authorization: Bearer ***")
