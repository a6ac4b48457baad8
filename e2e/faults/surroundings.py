"""Policy, lease, disk, and those who ask the programs: rows of the fault matrix."""

import resource
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

import yaml

from e2e import chart
from e2e.cluster import RefusedError
from e2e.faults.deeds import end_faults, fault
from e2e.faults.row import Deed, Row
from e2e.faults.scene import Scene
from e2e.faults.signs import Sign, grows, restarted, says, shows_value, slow_requests
from e2e.lab import config_map
from e2e.programs import Program

_CONFIG_MAP = f"/api/v1/namespaces/{chart.NAMESPACE}/configmaps/{chart.CONFIG_MAP}"
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{chart.NAMESPACE}/leases/{chart.RELEASE}-descheduler"
_HELD_S = 10
INVALID = (
    shows_value("policy_valid", lambda valid: valid == 0),
    shows_value("policy_valid", lambda valid: valid == 0, "soft-tainter"),
)
VISITORS = 60


def put_policy(text: str) -> Deed:
    return lambda scene: scene.lab.cluster.ask("PUT", _CONFIG_MAP, config_map(text))


def delete_policy(scene: Scene) -> None:
    scene.lab.cluster.ask("DELETE", _CONFIG_MAP)


def empty_policy(scene: Scene) -> None:
    scene.lab.cluster.ask("PUT", _CONFIG_MAP, {**config_map(""), "data": {}})


def break_policy(scene: Scene) -> None:
    put_policy(yaml.safe_dump({**scene.policy, "mode": "Automagic"}))(scene)


def fix_policy(scene: Scene) -> None:
    scene.lab.set_policy(dict(scene.policy))


def is_valid(scene: Scene) -> bool:
    return all(one.metric("policy_valid") == 1 for one in scene.lab.programs)


def delete_lease(scene: Scene) -> None:
    scene.lab.cluster.ask("DELETE", _LEASE)


def hold_lease(scene: Scene) -> None:
    """Somebody else does, and says for how long."""
    scene.lab.until(lambda: _seizes_lease(scene), 10, "the lease is taken")


def _seizes_lease(scene: Scene) -> bool:
    lease = scene.lab.cluster.ask("GET", _LEASE)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease["spec"] |= {
        "holderIdentity": "somebody-else",
        "leaseDurationSeconds": _HELD_S,
        "acquireTime": now,
        "renewTime": now,
    }
    try:
        scene.lab.cluster.ask("PUT", _LEASE, lease)
    except RefusedError as error:
        if error.status != 409:
            raise
        return False  # it has been renewed meanwhile
    return True


def fill_disk(scene: Scene) -> None:
    """Their logs cannot grow any more."""
    scene.notes["full"] = {}
    for one in scene.lab.programs:
        scene.notes["full"][one.account] = size = one.process.log.stat().st_size
        _, hard = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def evicts_unlogged() -> Sign:
    """Each eviction is logged, were there any place."""
    evicts = grows("evictions_total")

    def seen(scene: Scene, one: Program) -> bool:
        return (
            evicts.seen_on(scene, one) and one.process.log.stat().st_size == scene.notes["full"][one.account]
        )

    return Sign("evicts, and its log does not grow", seen)


def free_disk(scene: Scene) -> None:
    for one in scene.lab.programs:
        _, hard = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def besiege(scene: Scene) -> None:
    """Visitors who never finish their requests take every place there is."""
    visitors = []
    for one in scene.lab.programs:
        for number in range(VISITORS):
            visitor = socket.create_connection(("127.0.0.1", one.port), timeout=5)
            visitor.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: " if number % 2 else b"")
            visitors.append(visitor)
    scene.notes["visitors"] = visitors


def send_them_away(scene: Scene) -> None:
    for visitor in scene.notes["visitors"]:
        visitor.close()


def refuse_traces(scene: Scene) -> None:
    scene.collected.refuses = True


def take_traces_in_silence(scene: Scene) -> None:
    scene.collected.hang()


def take_traces(scene: Scene) -> None:
    scene.collected.refuses = False
    scene.collected.go_on()


def _policies() -> Iterator[Row]:
    for name, begins in {
        "deleted": delete_policy,
        "emptied": empty_policy,
        "broken and fixed": break_policy,
    }.items():
        yield Row(
            name=name,
            kind="policy",
            begins=begins,
            ends=fix_policy,
            shows=INVALID,
            recovers=is_valid,
            goes_on_meanwhile=True,
            one_of_its_kind=name == "broken and fixed",
        )


def _collectors() -> Iterator[Row]:
    for name, begins in {"refuses": refuse_traces, "never answers": take_traces_in_silence}.items():
        yield Row(
            name=f"collector of traces {name}",
            kind="surroundings",
            begins=begins,
            ends=take_traces,
            shows=(says("traces cannot be sent"),),
            recovers=says("traces can be sent again"),
            goes_on_meanwhile=True,
            traced=True,
        )


ROWS = (
    *_policies(),
    Row(
        name="deleted",
        kind="lease",
        begins=delete_lease,
        shows=(restarted(),),
        restarts=True,
        one_of_its_kind=True,
    ),
    Row(
        name="held by somebody else",
        kind="lease",
        begins=hold_lease,
        shows=(
            restarted(),
            Sign("nobody leads", lambda scene, _: not any(one.leads() for one in scene.lab.replicas())),
        ),
        restarts=True,
        lasts_s=8,
    ),
    Row(
        name="disk full, logs cannot be written",
        kind="surroundings",
        begins=fill_disk,
        ends=free_disk,
        shows=(evicts_unlogged(),),
        goes_on_meanwhile=True,
    ),
    Row(
        name="visitors who never finish their requests",
        kind="surroundings",
        begins=besiege,
        ends=send_them_away,
        shows=(Sign("answers others", lambda _, one: one.is_healthy() and one.is_ready(), ""),),
        goes_on_meanwhile=True,
        one_of_its_kind=True,
    ),
    Row(
        name="Events are refused",
        kind="surroundings",
        begins=fault("error", status=500, verbs=["create", "patch"], resources=["events"]),
        ends=end_faults,
        shows=(grows("events_dropped_total"),),
        goes_on_meanwhile=True,
    ),
    Row(
        name="Events are answered after 2 s",
        kind="surroundings",
        begins=fault("latency", delay_s=2, resources=["events"]),
        ends=end_faults,
        shows=(slow_requests(resource="events"),),
        goes_on_meanwhile=True,
    ),
    *_collectors(),
)
