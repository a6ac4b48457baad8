"""The soft-tainter against an adversary who edits nodes at any moment, also between its look and its patch.

The real program and its real patches; the API server applies them as the simulated one does. Whatever happens, a write
of the soft-tainter's leaves all that is not its own as it was, and once the adversary rests, its taints are right.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.cluster.objects import Node, decode
from controller.softtainter import SoftTainter
from controller.taints.patch import TaintPatcher
from informers.errors import NoAnswer, from_response
from informers.informer import Informer
from informers.testing import ManualClock, step
from simulator.apiserver.patches import MismatchError, json_patch
from tests.builders import START
from tests.controller.decision_builders import HOT, POLICY
from tests.controller.fakes import FakeMetrics, RecordingObserver
from tests.controller.io.builders import always

Document = dict[str, Any]
Edit = Callable[[Document], None]

PREFIX = "nodeutilization.vm-rebalancer.io/"
EFFECT = "PreferNoSchedule"
NODES = {"node-1": 0.9, "node-2": 0.3, "node-3": 0.1}
"""Over-utilised, appropriate, under-utilised."""
CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "250"}


def is_ours(taint: Mapping[str, str]) -> bool:
    return taint["key"].startswith(PREFIX) and taint["effect"] == EFFECT


def apart(document: Document) -> tuple[list[Document], Document]:
    """What is not ours: the taints of others, in their order, and the rest of the node but for its version."""
    rest = json.loads(json.dumps(document))
    taints = rest["spec"].pop("taints", None) or []
    del rest["metadata"]["resourceVersion"]
    return [t for t in taints if not is_ours(t)], rest


def ours(document: Document) -> set[tuple[str, str]]:
    """Key without prefix, and value."""
    taints = document["spec"].get("taints") or []
    return {(t["key"].removeprefix(PREFIX), t.get("value", "")) for t in taints if is_ours(t)}


class Nodes:
    """An API server that knows nodes only. ``before_next`` are edits of a node that come in right before its patch."""

    def __init__(self) -> None:
        self._version = 0
        self.documents: dict[str, Document] = {}
        self.events: deque[Node] = deque()
        self.before_next: list[Edit] = []
        self.trouble: list[str] = []
        self.writes = 0
        self.violations: list[str] = []
        """An exception would only make the program try again."""
        for name in NODES:
            status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": CAPACITY}
            self._store(name, {"metadata": {"name": name, "uid": name}, "spec": {}, "status": status})

    def _store(self, name: str, document: Document) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.documents[name] = document
        self.events.append(decode(json.dumps(document), Node))

    def edit(self, name: str, edit: Edit) -> None:
        document = json.loads(json.dumps(self.documents[name]))
        edit(document)
        if document != self.documents[name]:
            self._store(name, document)

    def request(self, method: str, path: str, *, body: bytes, content_type: str, **_: object) -> bytes:
        assert (method, content_type) == ("PATCH", "application/json-patch+json")
        name = path.rpartition("/")[2]
        while self.before_next:
            self.edit(name, self.before_next.pop())
        trouble = self.trouble.pop() if self.trouble else ""
        if trouble == "refused":
            raise from_response(503, b"", {})
        if trouble == "lost":
            raise NoAnswer("the connection broke")
        self._patch(name, json.loads(body))
        if trouble == "answer lost":
            raise NoAnswer("the connection broke")
        return b"{}"

    def _patch(self, name: str, operations: Any) -> None:
        before = self.documents[name]
        try:
            after = json_patch(before, operations)
        except MismatchError as error:
            raise from_response(
                422, json.dumps({"kind": "Status", "message": str(error)}).encode(), {}
            ) from None
        taints = after["spec"].get("taints") or []
        if len({(t["key"], t["effect"]) for t in taints}) != len(taints):
            self.violations.append(f"the API server would refuse {taints}")
        if apart(after) != apart(before):
            self.violations.append(f"{before} became {after}")
        self.writes += 1
        self._store(name, after)


keys = st.one_of(
    st.sampled_from([f"{PREFIX}overutilized", f"{PREFIX}appropriate", f"{PREFIX}overutilized-level-1"]),
    st.sampled_from(
        ["dedicated", "gpu", f"x.{PREFIX}overutilized", "nodeutilization.vm-rebalancer.io.evil/a"]
    ),
)
taints = st.fixed_dictionaries(
    {"key": keys, "effect": st.sampled_from([EFFECT, EFFECT, "NoSchedule", "NoExecute"])},
    optional={"value": st.sampled_from(["a", "b"]), "timeAdded": st.just("2026-01-01T00:00:00Z")},
)
lists = st.lists(taints, max_size=5, unique_by=lambda t: (t["key"], t["effect"]))


def replaced(by: list[Document]) -> Edit:
    return lambda node: node["spec"].update(taints=[dict(t) for t in by])


def reordered(shift: int) -> Edit:
    def edit(node: Document) -> None:
        there = node["spec"].get("taints") or []
        node["spec"]["taints"] = [*there[shift % (len(there) or 1) :], *there[: shift % (len(there) or 1)]]

    return edit


def added(taint: Document, at: int) -> Edit:
    def edit(node: Document) -> None:
        there = node["spec"].get("taints") or []
        others = [t for t in there if (t["key"], t["effect"]) != (taint["key"], taint["effect"])]
        node["spec"]["taints"] = [*others[:at], dict(taint), *others[at:]]

    return edit


def removed(at: int) -> Edit:
    def edit(node: Document) -> None:
        there = node["spec"].get("taints") or []
        node["spec"]["taints"] = [t for i, t in enumerate(there) if i != at % (len(there) or 1)]

    return edit


def revalued(at: int, value: str) -> Edit:
    def edit(node: Document) -> None:
        if there := node["spec"].get("taints") or []:
            there[at % len(there)]["value"] = value

    return edit


def without_list(node: Document) -> None:
    node["spec"].pop("taints", None)


def labelled(value: str) -> Edit:
    return lambda node: node["metadata"].setdefault("labels", {}).update(tier=value)


def cordoned(on: bool) -> Edit:
    return lambda node: node["spec"].update(unschedulable=on)


places = st.integers(0, 4)
edits = st.one_of(
    lists.map(replaced),
    places.map(reordered),
    st.builds(added, taints, places),
    places.map(removed),
    st.builds(revalued, places, st.sampled_from(["a", "b"])),
    st.just(without_list),
    st.sampled_from(["gold", "silver"]).map(labelled),
    st.booleans().map(cordoned),
)
names = st.sampled_from(list(NODES))


class Adversary(RuleBasedStateMachine):
    """Watch events arrive late or in a bunch, answers get lost, and somebody edits the nodes all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Nodes()
        self.clock = ManualClock(START)
        self.nodes: Informer[Node] = Informer("nodes")
        metrics = FakeMetrics(self.clock, values=dict(NODES))
        metrics.loads = {"node-1": HOT}
        patcher = TaintPatcher(self.server, always)  # type: ignore[arg-type]
        self.observer = RecordingObserver()
        self.tainter = SoftTainter(self.nodes, metrics, patcher, self.observer, lambda: POLICY, self.clock)

    @initialize(there=st.lists(st.tuples(names, lists), max_size=3))
    def start(self, there: list[tuple[str, list[Document]]]) -> None:
        for name, present in there:
            self.server.edit(name, replaced(present))
        self.server.events.clear()
        self.nodes.replace([decode(json.dumps(d), Node) for d in self.server.documents.values()])
        self.tainter.start()
        self.tainter.workers.work_ready()

    @rule(name=names, edit=edits)
    def edit(self, name: str, edit: Edit) -> None:
        self.server.edit(name, edit)

    @rule(edit=edits)
    def edit_right_before_the_next_patch(self, edit: Edit) -> None:
        self.server.before_next.append(edit)

    @rule(what=st.sampled_from(["refused", "lost", "answer lost"]))
    def trouble_at_the_next_patch(self, what: str) -> None:
        self.server.trouble.append(what)

    @rule(count=st.integers(1, 5))
    def events_arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.server.events))):
            self.nodes.apply("MODIFIED", self.server.events.popleft())
        self.tainter.workers.work_ready()

    @rule(seconds=st.sampled_from([0.2, 1.0, 5.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        end_s = self.clock.monotonic() + seconds
        while (due_s := self.tainter.workers.next_due()) is not None and due_s <= end_s:
            step(self.clock, self.tainter.workers)
        self.clock.set_monotonic(end_s)

    @invariant()
    def what_is_not_ours_is_as_it_was(self) -> None:
        assert self.server.violations == []

    def teardown(self) -> None:
        """The adversary rests."""
        self.server.before_next.clear()
        self.server.trouble.clear()
        for _ in range(4):
            self.events_arrive(len(self.server.events))
            self.time_passes(31.0)
        cordoned = {n for n, d in self.server.documents.items() if d["spec"].get("unschedulable")}
        expected = {
            "node-1": {("overutilized", ""), ("appropriate", "")},
            "node-2": {("appropriate", "")} if "node-3" not in cordoned else set(),
            "node-3": set(),
        }
        assert self.server.violations == []
        for name, document in self.server.documents.items():
            assert ours(document) == (set() if name in cordoned else expected[name]), name
        writes = self.server.writes
        self.time_passes(31.0)
        assert self.server.writes == writes, "it comes to rest, too"


Adversary.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestOthersSurviveEveryRace = Adversary.TestCase
