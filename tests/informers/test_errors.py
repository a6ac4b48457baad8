"""Every answer of an API server has one type, however it arrives."""

from datetime import timedelta

import pytest

from informers import errors
from informers.errors import ApiError, from_response, from_status
from tests.informers.builders import recorded_answer


@pytest.mark.parametrize(
    ("transcript", "expected"),
    [
        ("unauthorized", errors.Unauthorized),
        ("list-continue-expired", errors.BadRequest),
        ("eviction-triggered", errors.TooManyRequests),
        ("eviction-dryrun-not-migratable", errors.TooManyRequests),
        ("eviction-forbidden", errors.Forbidden),
        ("eviction-notfound", errors.NotFound),
        ("lease-conflict", errors.Conflict),
        ("lease-exists", errors.AlreadyExists),
        ("mergepatch-conflict", errors.Conflict),
        ("jsonpatch-test-fails", errors.Invalid),
        ("taint-duplicate", errors.Invalid),
    ],
)
def test_recorded_answers_have_their_type(transcript: str, expected: type[ApiError]) -> None:
    assert type(from_response(*recorded_answer(transcript))) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, ApiError),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (500, errors.ServerError),
        (502, errors.ServerError),
        (504, errors.ServerError),
        (302, ApiError),
    ],
)
def test_an_answer_without_a_status_body_goes_by_its_code(status: int, expected: type[ApiError]) -> None:
    """Proxies and load balancers answer in HTML, or not at all."""
    assert type(from_response(status, b"<html>no</html>", {})) is expected


def test_410_is_the_same_as_a_status_and_as_an_event() -> None:
    body = b'{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}'
    event = {"kind": "Status", "message": "too old", "reason": "Expired", "code": 410}
    assert type(from_response(410, body, {})) is errors.Gone
    assert type(from_status(event)) is errors.Gone
    assert str(from_status(event)) == "410 Expired: too old"


def test_the_reason_alone_tells_that_a_version_is_gone() -> None:
    assert type(from_status({"reason": "Gone"})) is errors.Gone


def test_a_version_ahead_of_the_server_is_told_from_other_timeouts() -> None:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    ahead = {"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": [cause]}}
    assert type(from_status(ahead)) is errors.ResourceVersionTooLarge
    assert type(from_status({"kind": "Status", "code": 504, "reason": "Timeout"})) is errors.ServerError


def test_retry_after_is_read_from_the_header_and_from_the_body() -> None:
    body = b'{"kind":"Status","code":503,"details":{"retryAfterSeconds":7}}'
    assert from_response(503, body, {}).retry_after == timedelta(seconds=7)
    assert from_response(503, body, {"retry-AFTER": "2"}).retry_after == timedelta(seconds=2)


@pytest.mark.parametrize(
    "value", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "0", "1.5", "", "soon", "\u00b2", "9" * 5000]
)
def test_a_retry_after_that_is_no_number_of_seconds_counts_as_absent(value: str) -> None:
    assert from_response(503, b"", {"Retry-After": value}).retry_after is None


def test_throttling_is_told_from_a_verdict_on_the_request() -> None:
    """Both are 429; only one of them says anything about the pod that was to be evicted."""
    busy = from_response(429, b"Too many requests, please try again later.", {"Retry-After": "1"})
    assert type(busy) is errors.Throttled
    assert busy.retry_after == timedelta(seconds=1)
    budget = {
        "kind": "Status",
        "code": 429,
        "reason": "TooManyRequests",
        "details": {"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10},
    }
    assert type(from_status(budget)) is errors.TooManyRequests
    webhook = {"kind": "Status", "code": 429, "message": 'admission webhook "a" denied the request: no'}
    assert type(from_status(webhook)) is errors.TooManyRequests


def test_a_page_of_html_is_cut_short_and_put_on_one_line() -> None:
    error = from_response(502, b"<html>\n  <h1>Bad gateway</h1>\n" + b"x" * 100_000, {})
    assert error.message.startswith("<html> <h1>Bad gateway</h1> xxx")
    assert len(error.message) <= errors.SHORT
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"kind":"Status","message":null,"reason":7,"details":[],"code":"x"}',
        b'{"kind":"Status","details":{"causes":null,"retryAfterSeconds":"soon"}}',
        b'{"kind":"Status","details":{"causes":[null, 3, {"message": 4}]}}',
        b'{"kind":"Status","details":{"causes":7,"retryAfterSeconds":-3}}',
        b"[" * 100_000,
    ],
)
def test_no_body_is_too_strange_to_give_an_error(body: bytes) -> None:
    error = from_response(500, body, {})
    assert type(error) is errors.ServerError
    assert str(error)


def test_causes_are_kept() -> None:
    error = from_response(*recorded_answer("taint-duplicate"))
    assert error.causes[0].reason == "FieldValueDuplicate"
    assert error.causes[0].field == "metadata.taints[1]"
