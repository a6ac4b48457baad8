"""What a real API server sent, replayed byte for byte through transport, decoding, watchstate and store."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controller.cluster.objects import Node, Pod, Vmi, Vmim
from controller.cluster.resources import RESOURCES
from informers.clock import SystemClock
from informers.errors import Gone
from informers.informer import Informer
from informers.reflector import Reflector
from informers.transport import split_lines
from tests.informers.api_server import Call, Connect, serving
from tests.informers.builders import DATA, recorded_answer
from tests.informers.following import STOP, eventually

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "quick")

WATCHES = [
    ("watch-nodes", "nodes", Node),
    ("watch-pods", "launchers", Pod),
    ("watch-vmis", "vmis", Vmi),
    ("watch-vmims", "vmims", Vmim),
]


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("name", [name for name, _, _ in WATCHES] + ["watch-too-old"])
def test_the_lines_are_the_same_wherever_the_bytes_are_cut(name: str) -> None:
    data = recorded(name)
    expected = [line for line in data.split(b"\n") if line]
    for cut in range(len(data) + 1):
        assert [*split_lines([data[:cut], data[cut:]])] == expected, f"cut at byte {cut}"


def cut_everywhere(data: bytes) -> Callable[[Call], None]:
    """Every byte in a chunk of its own; and then silence."""

    def answer(call: Call) -> None:
        call.begin_stream()
        call.write(b"".join(b"1\r\n%c\r\n" % byte for byte in data))
        call.stall()

    return answer


def follow(
    name: str, answer: Callable[[Call], None], connect: Connect, done: Callable[[Reflector[Any]], bool]
) -> tuple[Informer[Any], list[Exception]]:
    informer: Informer[Any] = Informer(name)
    errors: list[Exception] = []
    with serving(answer) as server:
        reflector = Reflector(
            RESOURCES[name],
            connect(server),
            informer,
            SystemClock(),
            random.Random(1),
            lambda _, error: errors.append(error),
        )
        reflector.start()
        try:
            eventually(lambda: done(reflector))
        finally:
            assert reflector.stop(STOP)
    return informer, errors


@pytest.mark.parametrize(("name", "resource", "kind"), WATCHES)
def test_a_streaming_list_cut_at_every_byte_fills_the_store(
    name: str, resource: str, kind: type[Any], connect: Connect
) -> None:
    data = recorded(name)
    events = [json.loads(line) for line in data.splitlines()]
    informer, errors = follow(
        resource, cut_everywhere(data), connect, lambda it: it.statistics().events == len(events)
    )
    assert errors == []
    expected = [msgspec.convert(event["object"], kind) for event in events if event["type"] == "ADDED"]
    assert informer.lister.list() == expected


def test_recorded_pages_written_byte_by_byte_fill_the_store(connect: Connect) -> None:
    """The first page is as recorded; a second, last one follows it."""
    _, body, _ = recorded_answer("list-page")
    page = json.loads(body)
    last = {"metadata": {"resourceVersion": page["metadata"]["resourceVersion"]}, "items": None}
    watches: list[dict[str, str]] = []

    def answer(call: Call) -> None:
        if "sendInitialEvents" in call.query:
            call.answer(422)
        elif "watch" in call.query:
            watches.append(call.query)
            call.stall()
        elif "continue" in call.query:
            assert call.query["continue"] == page["metadata"]["continue"]
            call.answer_json(200, last)
        else:
            call.begin(200, {"Content-Length": str(len(body))})
            for byte in body:
                call.write(bytes([byte]))

    informer, errors = follow("launchers", answer, connect, lambda it: bool(watches))
    assert errors == []
    assert informer.lister.list() == [msgspec.convert(obj, Pod) for obj in page["items"]]
    assert watches[0]["resourceVersion"] == page["metadata"]["resourceVersion"]


def test_the_recorded_410_inside_a_200_leads_to_a_new_list(connect: Connect) -> None:
    answers = iter([recorded("watch-too-old"), recorded("watch-nodes")])

    def answer(call: Call) -> None:
        cut_everywhere(next(answers))(call)

    informer, errors = follow("nodes", answer, connect, lambda it: it.statistics().lists == 1)
    assert [type(error) for error in errors] == [Gone]
    assert len(informer.lister) == 10
