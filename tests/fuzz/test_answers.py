"""Whatever comes over the wire: it is read, or refused in the one way; nothing is lost, made up or let through."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.cluster.objects import KubeVirt, Node, PlacedPod, Pod, Vmi, Vmim
from controller.cluster.view import VMI_INDEXES
from controller.evictions.answers import NOT_THE_VMS_FAULT, Verdict, interpret
from controller.policy.parse import default_policy
from controller.taints.desired import merged, our_keys
from controller.utilization.reading import Answer, Sample, expressions, read_snapshot
from informers.decoding import Decoder, Undecodable
from informers.errors import ApiError, Garbled, from_response
from informers.transport import split_lines
from informers.watchstate import Event
from tests.properties.effort import PATIENCE_S, effort

pytestmark = pytest.mark.timeout(PATIENCE_S)

DUMP = json.loads((Path(__file__).parents[1] / "data" / "cluster-dump.json").read_text())
KINDS: dict[str, type[Any]] = {
    "Node": Node,
    "Pod": Pod,
    "VirtualMachineInstance": Vmi,
    "VirtualMachineInstanceMigration": Vmim,
    "KubeVirt": KubeVirt,
}
EXAMPLES = {kind: [o for o in DUMP["items"] if o["kind"] == kind][:3] for kind in KINDS}
TIMES = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-01-05T00:00:00+14:00"]
SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e300,
        2**70,
        "",
        "x",
        "1e999",
        "-5",
        "Infinity",
        "nan",
        "\ud7ff\u0000",
        "🙂" * 50,
        *TIMES,
    ]
)
ODD = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


CHANGES = ("ADDED", "MODIFIED", "DELETED")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(p for key, item in inner for p in places(item, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, kind: str) -> Any:
    """A real object in which something is odd, or nothing is."""
    obj = json.loads(json.dumps(draw(st.sampled_from(EXAMPLES[kind]))))
    for path in draw(st.lists(st.sampled_from(places(obj)), max_size=2, unique_by=lambda path: path[:1])):
        place = obj
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = draw(ODD)
    return obj


PAGES = st.sampled_from([kind for kind, found in EXAMPLES.items() if found]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(damaged(kind), max_size=4))
)


ODD_NAME = {"metadata": {"name": "\ud7ff\x00" + "x" * 3000}, "status": {"addresses": [None]}}


@effort(400)
@example(("Node", [ODD_NAME]))
@given(PAGES)
def test_every_item_of_a_page_is_read_or_reported(page: tuple[str, list[Any]]) -> None:
    kind, items = page
    reported: list[Undecodable] = []
    decoder = Decoder(KINDS[kind], lambda _: None, reported.append)
    body = json.dumps({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": items}).encode()
    found = decoder.page(body)
    assert len(found.items) + len(reported) == len(items)
    assert all(str(error).isprintable() and len(str(error)) < 700 for error in reported)
    for obj in found.items:
        usable(obj)


@effort(300)
@given(
    PAGES, st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "added"]), st.booleans()
)
def test_every_line_of_a_watch_is_read_or_reported(
    page: tuple[str, list[Any]], event: str, placed: bool
) -> None:
    kind, items = page
    reported: list[Undecodable] = []
    decoder = Decoder(PlacedPod if placed and kind == "Pod" else KINDS[kind], lambda _: None, reported.append)
    for item in items:
        reported.clear()
        line = json.dumps({"type": event, "object": item}).encode()
        try:
            found = decoder.line(line)
        except Garbled as error:
            assert str(error).isprintable()  # noqa: PT017 - either outcome is right
            assert event not in CHANGES, "it would break off the watch, each time anew"
            continue
        if event in CHANGES:
            assert isinstance(found, Event)
            assert found.type == event
            assert len(reported) == (found.object is None), "the store is empty: it has nothing in its place"
            usable(found.object)


@effort(300)
@given(
    st.binary(max_size=200) | st.integers(1, 100_000).map(lambda n: b'{"type":"ADDED","object":' + b"[" * n)
)
@example(b'{"metadata":{"resourceVersion":"1"}}')
@example(b"\xff\xfe{}")
def test_no_bytes_raise_anything_but_garbled(body: bytes) -> None:
    decoder = Decoder(Node, lambda _: None, lambda _: None)
    for read in (decoder.page, decoder.line):
        try:
            read(body)
        except Garbled as error:
            assert str(error).isprintable()  # noqa: PT017


@effort(200)
@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 40), max_size=20))
def test_lines_do_not_depend_on_how_bytes_are_cut(lines: list[bytes], cuts: Sequence[int]) -> None:
    whole = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    chunks, rest = [], whole
    for cut in cuts:
        chunks.append(rest[:cut])
        rest = rest[cut:]
    assert list(split_lines([*chunks, rest])) == list(split_lines([whole]))


def usable(obj: Any) -> None:
    """What decisions do with it raises nothing, and no number is one that cannot be calculated with."""
    if isinstance(obj, Node):
        for amount in (obj.allocatable.cpu_cores, obj.allocatable.memory_bytes):
            assert math.isfinite(amount), obj.allocatable
        assert our_keys(merged(obj.taints, ())) == frozenset()
    elif isinstance(obj, Pod):
        for amount in (obj.requests.cpu_cores, obj.requests.memory_bytes):
            assert math.isfinite(amount), obj.requests
    elif isinstance(obj, Vmi):
        for index in VMI_INDEXES.values():
            list(index(obj))
    elif isinstance(obj, KubeVirt):
        assert obj.parallel_migrations_per_cluster is not None


@effort(500)
@given(
    st.integers(0, 999),
    st.binary(max_size=100)
    | ODD.map(lambda value: json.dumps({"kind": "Status", "details": value, "message": value}).encode())
    | st.fixed_dictionaries(
        {"kind": st.just("Status")},
        optional={
            "message": SCALARS,
            "reason": SCALARS,
            "code": SCALARS,
            "details": st.fixed_dictionaries({"retryAfterSeconds": SCALARS, "causes": ODD}),
        },
    ).map(lambda s: json.dumps(s).encode()),
    st.sampled_from(
        ["", "1", "-1", "0", "nan", "1e9", "9" * 9, "9" * 40, "٣", " 5", "Mon, 05 Jan 2026 00:00:00 GMT"]
    ),
)
def test_any_refusal_is_an_error_of_ours_and_only_a_2xx_grants(status: int, body: bytes, wait: str) -> None:
    error = from_response(status, body, {"Retry-After": wait})
    assert isinstance(error, ApiError)
    assert str(error).isprintable()
    assert error.retry_after is None or error.retry_after.total_seconds() > 0
    answer = interpret(status, error.message, error.retry_after)
    assert (answer.verdict is Verdict.GRANTED) == (200 <= status < 300)
    assert answer.verdict is not Verdict.TRIGGERED or status == 429
    assert status < 500 or answer.verdict in NOT_THE_VMS_FAULT | {Verdict.REFUSED}


METRICS = default_policy().metrics
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NODES = [msgspec.convert(obj, Node) for obj in EXAMPLES["Node"]]
VALUES = st.floats() | st.sampled_from(
    [0.0, 0.5, 1.0, 1.05, 1.0500001, -0.05, NOW.timestamp(), 1e11, -1e300, 5e-324]
)
LABELS = st.dictionaries(
    st.sampled_from(["instance", "namespace", "name", "node", "job"]),
    st.sampled_from(
        [node.name for node in NODES] + ["", ":", "[::1]:9100", "10.0.0.1:9100", "x" * 300, "\x00"]
    ),
    max_size=4,
)
ANSWERS = st.fixed_dictionaries(
    {
        expression: st.lists(st.builds(Sample, LABELS, VALUES), max_size=4).map(Answer)
        for expression in expressions(METRICS, with_vms=True)
    }
)


@effort(300)
@given(ANSWERS)
def test_any_samples_become_values_that_can_be_calculated_with(answers: dict[str, Answer]) -> None:
    snapshot = read_snapshot(answers, NODES, METRICS, sequence=1, now=NOW)
    for by_node in snapshot.values.values():
        assert all(0.0 <= value.value <= 1.0 and value.at <= NOW for value in by_node.values())
    for load in snapshot.loads.values():
        assert all(math.isfinite(x) and x >= 0 for x in (load.cpu_cores, load.memory_bytes, load.pressure))
    for vm in snapshot.vms.values():
        assert all(math.isfinite(x) and x >= 0 for x in (vm.cpu_cores, vm.memory_bytes, vm.dirty_bytes_per_s))
    names = {node.name for node in NODES}
    assert set(snapshot.loads) | {n for by_node in snapshot.values.values() for n in by_node} <= names
