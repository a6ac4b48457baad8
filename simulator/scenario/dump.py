"""A cluster from ``kubectl get nodes,pods,vmis,vmims,kubevirts -A -o json``.

Taken over: nodes that can run VMs (allocatable, labels, taints, cordon, Ready); running VMs (vCPUs, guest
memory, node, priority, eviction strategy, LiveMigratable, opt-out, age); what other pods request, which is
taken for their use too; KubeVirt's limits and eviction strategy. Ages count back from the newest creation
time in the dump. A VM's group is its namespace.

Left out, because it is not in there or the simulator has no such thing: loads, dirty rates and NICs (see
``Assumed``); taints of a soft-tainter and of Kubernetes itself; node selectors that leave a choice (one that
leaves a single node pins the VM); affinities, except launchers that keep away from their likes, host by host;
VMs that do not run; migrations under way (their VM is where its VMI says).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from simulator.kubevirt.manifests import (
    ANTI_AFFINITY_GROUP,
    APP,
    CREATED_BY,
    HOSTNAME,
    LAUNCHER,
    PREFER_NO_EVICTION,
    SCHEDULABLE,
)
from simulator.scenario.checking import Problem, ScenarioErrors
from simulator.scenario.cluster import Cluster
from simulator.specs import NodeSpec, VmSpec

Json = Mapping[str, Any]
T = TypeVar("T")

_COMMAND = "kubectl get nodes,pods,vmis,vmims,kubevirts -A -o json"
_NOT_OF_NODES = ("nodeutilization.", "node.kubernetes.io/")
_UNITS = {
    **{unit: 1024.0**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{unit: 1000.0**power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    "m": 1e-3,
}


class Assumed(NamedTuple):
    """What a dump does not tell: demand per vCPU, share of memory touched, bytes per second."""

    demand: float = 0.1
    touched: float = 0.65
    dirty_bytes_per_s: float = 50e6
    nic_bytes_per_s: float = 1.25e9


class Dump(NamedTuple):
    cluster: Cluster
    kubevirt: dict[str, Any]
    """Fields of ``KubeVirtOptions`` that the cluster's KubeVirt object sets."""


class _Unusable(ValueError):  # noqa: N818  says what cannot be used
    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(field)
        self.field, self.found, self.allowed = field, found, allowed


def read_dump(file: str, assumed: Assumed) -> Dump:
    """Raises ``ScenarioErrors`` if the file cannot be read or is no such dump."""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ScenarioErrors(file, [Problem("cluster", str(error.strerror), "a readable file")]) from None
    return parse_dump(data, assumed, source=file)


def parse_dump(data: bytes, assumed: Assumed, *, source: str = "cluster") -> Dump:
    """The same from the file's content. Every object that cannot be used is named in the error."""
    of_kind = _by_kind(data, source)
    problems: list[Problem] = []
    pods = _Pods(of_kind["Pod"], problems)
    vmis = [vmi for vmi in of_kind["VirtualMachineInstance"] if _at(vmi, "status", "phase") == "Running"]
    used = {str(_at(vmi, "status", "nodeName")) for vmi in vmis}
    usable = [n for n in of_kind["Node"] if _labels(n).get(SCHEDULABLE) == "true" or _name(n) in used]
    nodes = _collect(problems, usable, lambda node: _node(node, pods, assumed))
    if not usable:
        found = f"no node that can run VMs among {len(of_kind['Node'])}"
        problems.append(Problem("Node", found, f"nodes labelled {SCHEDULABLE}=true, from {_COMMAND}"))
    reader = _VmReader(usable, pods, _now(of_kind), assumed)
    vms = _collect(problems, vmis, reader.vm)
    kubevirts = _collect(problems, of_kind["KubeVirt"][:1], _kubevirt)
    if problems:
        raise ScenarioErrors(source, problems)
    cordoned = tuple(_name(node) for node in usable if _at(node, "spec", "unschedulable"))
    not_ready = tuple(_name(node) for node in usable if not _condition(node, "Ready"))
    return Dump(Cluster(tuple(nodes), tuple(vms), cordoned, not_ready), kubevirts[0] if kubevirts else {})


def _by_kind(data: bytes, source: str) -> Mapping[str, list[Json]]:
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ScenarioErrors(
            source, [Problem("cluster", f"no JSON: {error}", f"the output of {_COMMAND}")]
        ) from None
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        kind = document.get("kind") if isinstance(document, dict) else type(document).__name__
        found = f"no list of objects, but {kind or 'a mapping'}"
        raise ScenarioErrors(source, [Problem("cluster", found, f"the output of {_COMMAND}")])
    of_kind: defaultdict[str, list[Json]] = defaultdict(list)
    for item in items:
        if isinstance(item, dict):
            of_kind[str(item.get("kind"))].append(item)
    if not of_kind["Node"]:
        raise ScenarioErrors(source, [Problem("Node", "none", f"at least one node, from {_COMMAND}")])
    return of_kind


def _collect(problems: list[Problem], items: list[Json], convert: Callable[[Json], T]) -> list[T]:
    results = []
    for item in items:
        try:
            results.append(convert(item))
        except _Unusable as fault:
            problems.append(Problem(f"{_title(item)} {fault.field}", repr(fault.found), fault.allowed))
        except (AttributeError, TypeError, ValueError) as error:
            problems.append(
                Problem(_title(item), f"not shaped like one: {error}", f"the output of {_COMMAND}")
            )
    return results


class _Pods:
    """The dump's pods: launchers by their VMI, the requests of all others by node."""

    def __init__(self, pods: list[Json], problems: list[Problem]) -> None:
        self._launchers: dict[tuple[str, str], Json] = {}
        self.other_cpu_cores: defaultdict[str, float] = defaultdict(float)
        self.other_memory_bytes: defaultdict[str, float] = defaultdict(float)
        running = [pod for pod in pods if _at(pod, "status", "phase") not in ("Succeeded", "Failed")]
        _collect(problems, [pod for pod in running if _at(pod, "spec", "nodeName")], self._add)

    def _add(self, pod: Json) -> None:
        node = str(_at(pod, "spec", "nodeName"))
        if _labels(pod).get(APP) == LAUNCHER:
            self._launchers[str(_labels(pod).get(CREATED_BY)), node] = pod
        else:
            self.other_cpu_cores[node] += _requests(pod, "cpu")
            self.other_memory_bytes[node] += _requests(pod, "memory")

    def launcher(self, vmi: Json) -> Json:
        """The VMI's pod on its node; an empty mapping if it is not in the dump."""
        return self._launchers.get(
            (str(_at(vmi, "metadata", "uid")), str(_at(vmi, "status", "nodeName"))), {}
        )


def _requests(pod: Json, resource: str) -> float:
    def of(kind: str) -> list[float]:
        containers = _at(pod, "spec", kind) or []
        field = f"{kind}.resources.requests.{resource}"
        return [_quantity(field, _at(item, "resources", "requests", resource) or "0") for item in containers]

    overhead = _quantity(f"overhead.{resource}", _at(pod, "spec", "overhead", resource) or "0")
    return max(sum(of("containers")), max(of("initContainers"), default=0.0)) + overhead


def _node(node: Json, pods: _Pods, assumed: Assumed) -> NodeSpec:
    name = _name(node)
    cores, memory = (
        _quantity(f"status.allocatable.{resource}", _at(node, "status", "allocatable", resource))
        for resource in ("cpu", "memory")
    )
    if not (cores > 0 and memory > 0):
        raise _Unusable("status.allocatable", _at(node, "status", "allocatable"), "cpu and memory above 0")
    return NodeSpec(
        name=name,
        cores=cores,
        memory_bytes=memory,
        nic_bytes_per_s=assumed.nic_bytes_per_s,
        labels={SCHEDULABLE: "false", **_labels(node)},
        taints=tuple(
            {key: str(value) for key, value in taint.items() if key in ("key", "value", "effect")}
            for taint in _at(node, "spec", "taints") or []
            if not str(taint.get("key", "")).startswith(_NOT_OF_NODES)
        ),
        other_cpu_cores=pods.other_cpu_cores[name],
        other_memory_bytes=pods.other_memory_bytes[name],
        other_requests_cpu_cores=pods.other_cpu_cores[name],
        other_requests_memory_bytes=pods.other_memory_bytes[name],
    )


class _VmReader:
    """Makes a spec of a running VMI and its launcher."""

    def __init__(self, nodes: list[Json], pods: _Pods, now: datetime, assumed: Assumed) -> None:
        self._labels_of_node = {_name(node): _labels(node) for node in nodes}
        self._pods = pods
        self._now = now
        self._assumed = assumed
        self._groups: dict[str, str] = {}

    def vm(self, vmi: Json) -> VmSpec:
        node, pod = _at(vmi, "status", "nodeName"), self._pods.launcher(vmi)
        if node not in self._labels_of_node:
            raise _Unusable("status.nodeName", node, "a node of the same dump")
        annotations = {**_annotations(vmi), **_annotations(pod)}
        return VmSpec(
            namespace=_namespace(vmi),
            name=_name(vmi),
            vcpus=_vcpus(vmi),
            guest_bytes=_guest_bytes(vmi),
            dirty_bytes_per_s=self._assumed.dirty_bytes_per_s,
            demand=self._assumed.demand,
            touched=self._assumed.touched,
            node=node,
            priority=int(_at(pod, "spec", "priority") or 0),
            eviction_strategy=_at(vmi, "spec", "evictionStrategy"),
            migratable=_condition(vmi, "LiveMigratable"),
            opted_out=PREFER_NO_EVICTION in annotations,
            pinned_to=node if self._only_node(vmi, pod) == node else None,
            anti_affinity_group=self._anti_affinity_group(pod),
            labels={key: value for key, value in _labels(vmi).items() if not key.startswith("kubevirt.io/")},
            age_s=max(0.0, (self._now - _created(vmi)).total_seconds()),
            group=_namespace(vmi),
        )

    def _only_node(self, vmi: Json, pod: Json) -> str | None:
        selector = {**(_at(vmi, "spec", "nodeSelector") or {}), **(_at(pod, "spec", "nodeSelector") or {})}
        if not selector or len(self._labels_of_node) == 1:
            return None
        left = [name for name, labels in self._labels_of_node.items() if selector.items() <= labels.items()]
        return left[0] if len(left) == 1 else None

    def _anti_affinity_group(self, pod: Json) -> str | None:
        """The group of launchers that keep away from each other by a label they all carry."""
        for rule in (
            _at(pod, "spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
            or []
        ):
            wanted = _at(rule, "labelSelector", "matchLabels") or {}
            simple = rule.get("topologyKey") == HOSTNAME and not _at(
                rule, "labelSelector", "matchExpressions"
            )
            if simple and wanted and CREATED_BY not in wanted and wanted.items() <= _labels(pod).items():
                if ANTI_AFFINITY_GROUP in wanted:
                    return str(wanted[ANTI_AFFINITY_GROUP])
                rule_id = f"{_namespace(pod)} {sorted(wanted.items())}"
                return self._groups.setdefault(rule_id, f"apart-{len(self._groups)}")
        return None


def _vcpus(vmi: Json) -> float:
    cpu = _at(vmi, "spec", "domain", "cpu") or {}
    counts = [cpu.get(part) for part in ("cores", "sockets", "threads")]
    if any(counts):
        cores, sockets, threads = (int(count or 1) for count in counts)
        return float(cores * sockets * threads)
    for kind in ("requests", "limits"):
        asked = _at(vmi, "spec", "domain", "resources", kind, "cpu")
        if asked is not None:
            return max(1.0, _quantity(f"spec.domain.resources.{kind}.cpu", asked))
    return 1.0  # KubeVirt's default


def _guest_bytes(vmi: Json) -> float:
    fields = (("memory", "guest"), ("resources", "requests", "memory"), ("resources", "limits", "memory"))
    for field in fields:
        asked = _at(vmi, "spec", "domain", *field)
        if asked is not None:
            return _quantity(f"spec.domain.{'.'.join(field)}", asked)
    raise _Unusable("spec.domain.memory.guest", None, "a quantity, here or as requested memory")


def _kubevirt(kubevirt: Json) -> dict[str, Any]:
    configuration = _at(kubevirt, "spec", "configuration") or {}
    migrations = configuration.get("migrations") or {}
    bandwidth = migrations.get("bandwidthPerMigration")
    found = {
        "cluster_eviction_strategy": configuration.get("evictionStrategy"),
        "parallel_migrations_per_cluster": migrations.get("parallelMigrationsPerCluster"),
        "parallel_outbound_migrations_per_node": migrations.get("parallelOutboundMigrationsPerNode"),
        "completion_timeout_per_gib_s": migrations.get("completionTimeoutPerGiB"),
        "progress_timeout_s": migrations.get("progressTimeout"),
        "bandwidth_per_migration_bytes_per_s": None
        if bandwidth is None
        else _quantity("spec.configuration.migrations.bandwidthPerMigration", bandwidth),
    }
    return {field: value for field, value in found.items() if value is not None}


def _quantity(field: str, value: object) -> float:
    """A Kubernetes quantity: ``800m``, ``33000Mi``, ``1e3``, ``2.5Gi``, 4."""
    text = str(value)
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    try:
        number = float(text[: len(text) - len(unit)]) * _UNITS.get(unit, 1.0)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise _Unusable(field, value, "a quantity such as 800m, 4, 33000Mi or 2.5Gi")
    return number


def _now(of_kind: Mapping[str, list[Json]]) -> datetime:
    return max(
        (_created(item) for items in of_kind.values() for item in items),
        default=datetime.min.replace(tzinfo=UTC),
    )


def _created(item: Json) -> datetime:
    try:
        return datetime.fromisoformat(str(_at(item, "metadata", "creationTimestamp"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)


def _condition(item: Json, kind: str) -> bool:
    conditions = _at(item, "status", "conditions")
    if not isinstance(conditions, list):
        return False
    return any(_at(found, "type") == kind and _at(found, "status") == "True" for found in conditions)


def _at(item: Json, *path: str) -> Any:
    """The value at a path; ``None`` where something on the way is missing or null."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _name(item: Json) -> str:
    return str(_at(item, "metadata", "name"))


def _namespace(item: Json) -> str:
    return str(_at(item, "metadata", "namespace") or "")


def _labels(item: Json) -> dict[str, str]:
    return _texts(_at(item, "metadata", "labels"))


def _annotations(item: Json) -> dict[str, str]:
    return _texts(_at(item, "metadata", "annotations"))


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _title(item: Json) -> str:
    namespace = _namespace(item)
    return f"{item.get('kind')} {namespace + '/' if namespace else ''}{_name(item)}"
