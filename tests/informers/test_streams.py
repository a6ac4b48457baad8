"""The lines of a watch, as they arrive: cut anywhere, late, silent, broken off or refused."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from threading import Event

import pytest

from informers import transport
from informers.errors import Garbled, NoAnswer, TooManyRequests
from informers.transport import Transport, split_lines
from tests.informers.api_server import DEADLINE_S, Call, Connect, error_when_ended, serving, status_body

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

SOON = timedelta(seconds=0.3)
LONG = timedelta(seconds=DEADLINE_S)


def lines_of(client: Transport, read_timeout: timedelta = LONG) -> list[bytes]:
    with client.stream("/api/v1/nodes", query={"watch": "1"}, read_timeout=read_timeout) as stream:
        return list(stream)


def streaming(*chunks: bytes) -> Callable[[Call], None]:
    def answer(call: Call) -> None:
        call.begin_stream()
        for chunk in chunks:
            call.chunk(chunk)
        call.end_stream()

    return answer


def test_lines_are_put_together_from_chunks_even_within_a_character(connect: Connect) -> None:
    text = '{"a": "ä€😀"}\n\n{"b": 2}\n'.encode()
    with serving(streaming(*(text[i : i + 1] for i in range(len(text))))) as server:
        assert lines_of(connect(server)) == ['{"a": "ä€😀"}'.encode(), b'{"b": 2}']


def test_a_last_line_without_an_end_is_a_line(connect: Connect) -> None:
    with serving(streaming(b"one\ntw", b"o")) as server:
        assert lines_of(connect(server)) == [b"one", b"two"]


def test_a_line_may_be_larger_than_any_buffer(connect: Connect) -> None:
    line = b"x" * 5_000_000
    with serving(streaming(line[:1_000_001], line[1_000_001:] + b"\nnext\n")) as server:
        assert lines_of(connect(server)) == [line, b"next"]


def test_a_line_that_never_ends_is_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 1000)
    with pytest.raises(Garbled, match="longer than 1000 bytes"):
        list(split_lines(itertools.repeat(b"x")))


def test_a_stream_that_breaks_off_is_no_good_end(connect: Connect) -> None:
    def answer(call: Call) -> None:
        call.begin_stream()
        call.chunk(b"one\ntw")
        call.drop()

    with serving(answer) as server, connect(server).stream("/", query={}, read_timeout=LONG) as stream:
        assert next(stream) == b"one"
        with pytest.raises(NoAnswer):
            next(stream)


def half_open(call: Call) -> None:
    call.begin_stream()
    call.chunk(b"one\n")
    call.stall()


def test_a_silent_stream_is_given_up(connect: Connect) -> None:
    with serving(half_open) as server, connect(server).stream("/", query={}, read_timeout=LONG) as stream:
        assert next(stream) == b"one"
        stream.set_read_timeout(SOON)
        with pytest.raises(NoAnswer, match=r"nothing arrived for 0.3 s"):
            next(stream)


def test_a_stream_that_is_not_silent_has_no_deadline(connect: Connect) -> None:
    def answer(call: Call) -> None:
        call.begin_stream()
        for _ in range(6):
            call.chunk(b"x\n")
            call.closing.wait(0.2)
        call.end_stream()

    with serving(answer) as server:
        assert lines_of(connect(server), read_timeout=timedelta(seconds=1)) == [b"x"] * 6


def test_another_thread_can_end_a_stream(connect: Connect) -> None:
    with serving(half_open) as server:
        client = connect(server)

        def read(cancel: Event) -> None:
            with client.stream("/", query={}, read_timeout=timedelta(hours=1), cancel=cancel) as stream:
                list(stream)

        assert isinstance(error_when_ended(read, server, Event.set), NoAnswer)


def test_a_refused_stream_says_why(connect: Connect) -> None:
    refusal = status_body(429, "TooManyRequests")
    with serving(lambda call: call.answer_json(429, refusal)) as server, pytest.raises(TooManyRequests):
        connect(server).stream("/", query={}, read_timeout=LONG)
