"""What a look is taken of: a live cluster, listed once, or one that a plug-in brings (the simulator).

Only reads leave: lists of the API server, and instant queries.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

from controller.cluster.caches import ClusterCaches
from controller.cluster.resources import RESOURCES, config_map
from controller.plugins import PluginError, loaded
from controller.policy.document import MAX_CHARACTERS
from controller.policy.model import Mode, Policy
from controller.policy.parse import CONFIG_MAP_KEY, parse_policy
from controller.policy.problems import PolicyErrors, Problem, describe, nearest_name
from controller.ports import MetricsSource
from controller.utilization.prometheus import PrometheusSource
from informers.clock import Clock, SystemClock
from informers.decoding import Decoder, Resource
from informers.errors import ApiError, Forbidden, Gone, NotFound, Unreachable
from informers.reflector import MAX_PAGE_BYTES, PAGE_SIZE, PAGE_WITHIN, Reflector
from informers.store import T
from informers.transport import Transport

SOURCES_GROUP = "vm_rebalancer.sources"
SCENARIO = "scenario"
STOP_WITHIN = timedelta(seconds=2)


class LookError(Exception):
    """There is nothing to look at; one line says why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """``name`` says what it is; ``caches`` hold its objects; ``notes`` tells what could not be read."""

    name: str
    caches: ClusterCaches
    metrics: MetricsSource
    clock: Clock
    notes: Callable[[], tuple[str, ...]] = tuple


ScenarioSource = Callable[[str, float, int, str | None], tuple[Cluster, Policy]]
"""(scenario, minute, seed, file of a policy, or ``None`` for the scenario's own). Raises LookError, PolicyErrors."""


def live_cluster(transport: Transport, name: str) -> Cluster:
    """List everything once, each kind consistent in itself. Raises LookError."""
    caches, notes = ClusterCaches(), list[str]()
    for kind, informer in caches.informers().items():
        undecodable: list[str] = []
        informer.replace(_listed(transport, RESOURCES[kind], kind, undecodable.append))
        if undecodable:
            notes.append(f"{len(undecodable)} of the {kind} cannot be read, among them {undecodable[0]}")
    return Cluster(name, caches, PrometheusSource(), SystemClock(), lambda: tuple(notes))


@contextmanager
def watched(transport: Transport, cluster: Cluster) -> Iterator[Cluster]:
    """The same, kept up to date by watches meanwhile; its notes tell of errors since they were last asked for."""
    rng = random.Random()  # noqa: S311 - jitter
    errors: dict[str, str] = {}

    def failed(kind: str, error: Exception) -> None:
        errors[kind] = str(error)

    def notes() -> tuple[str, ...]:
        told = tuple(f"watching {kind}: {error}" for kind, error in errors.copy().items())
        errors.clear()
        return (*cluster.notes(), *told)

    reflectors = [
        Reflector(RESOURCES[kind], transport, informer, cluster.clock, rng, failed)
        for kind, informer in cluster.caches.informers().items()
    ]
    for reflector in reflectors:
        reflector.start()
    try:
        yield replace(cluster, notes=notes)
    finally:
        for reflector in reflectors:
            reflector.stop(timedelta(0))
        for reflector in reflectors:
            reflector.stop(STOP_WITHIN)


def connected(kubeconfig: str | None, context: str | None) -> Transport:
    """As the programs do: in the cluster, unless the command line says otherwise. Raises LookError."""
    try:
        return Transport.connect(kubeconfig, context)
    except ValueError as error:
        raise LookError(str(error)) from None


def policy_of_config_map(transport: Transport, namespace: str, name: str) -> Policy:
    """Raises LookError, PolicyErrors."""
    source = f"ConfigMap {namespace}/{name}"
    found = next(_listed(transport, config_map(namespace, name), source, lambda _: None), None)
    if found is None:
        raise LookError(f"{source}: there is none of that name")
    text = found.data.get(CONFIG_MAP_KEY)
    if text is None:
        allowed = f"a policy as text under the key {CONFIG_MAP_KEY}"
        nearest = nearest_name(CONFIG_MAP_KEY, found.data)
        raise PolicyErrors(source, [Problem(f'data."{CONFIG_MAP_KEY}"', describe(None), allowed, nearest)])
    return parse_policy(text, source=source)


def policy_of_file(path: str, default_mode: Mode = Mode.PREDICTIVE) -> Policy:
    """``default_mode``: where it states none. Raises LookError, PolicyErrors."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise LookError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise LookError(f"{path}: {error.strerror or error}") from None
    return parse_policy(text, source=path, default_mode=default_mode)


def asking(policy: Policy, url: str) -> Policy:
    """The policy with another address for the metrics, such as a forwarded port; nothing secret is sent there."""
    metrics = replace(policy.metrics, url=url, token_file="", ca_file="", headers_file="", allow_http=True)
    return replace(policy, metrics=metrics)


def scenario_source() -> ScenarioSource:
    """The plug-in that simulates. Raises LookError."""
    plugin = next(iter(entry_points(group=SOURCES_GROUP, name=SCENARIO)), None)
    if plugin is None:
        raise LookError("--scenario needs the simulator, which is not installed")
    try:
        source: ScenarioSource = loaded(plugin)
    except PluginError as error:
        raise LookError(f"--scenario: {plugin.value} cannot be loaded: {error}") from error
    return source


def _listed(
    transport: Transport, resource: Resource[T], what: str, report: Callable[[str], None]
) -> Iterator[T]:
    """All of them, or LookError; a list that took longer than the server remembers is begun once more."""
    try:
        try:
            objects = list(_pages(transport, resource, report))
        except Gone:
            objects = list(_pages(transport, resource, report))
    except Unreachable as error:
        raise LookError(f"the API server cannot be reached: {error}") from None
    except Forbidden as error:
        raise LookError(f"listing {what} is not allowed: {error}") from None
    except NotFound as error:
        missing = "; is KubeVirt installed?" if "kubevirt.io" in resource.path else ""
        raise LookError(f"cannot list {what}: {error}{missing}") from None
    except ApiError as error:
        raise LookError(f"cannot list {what}: {error}") from None
    return iter(objects)


def _pages(transport: Transport, resource: Resource[T], report: Callable[[str], None]) -> Iterator[T]:
    decoder: Decoder[T] = Decoder(resource.kind, lambda _: None, lambda error: report(error.message))
    query: dict[str, Any] = {**resource.query(), "limit": str(PAGE_SIZE)}
    while True:
        body = transport.request(
            "GET", resource.path, query=query, deadline=PAGE_WITHIN, max_bytes=MAX_PAGE_BYTES
        )
        page = decoder.page(body)
        yield from page.items
        if not page.continue_token:
            return
        query["continue"] = page.continue_token
