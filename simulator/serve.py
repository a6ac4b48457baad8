"""``vm-rebalancer serve``: a simulated cluster in real time, behind the real Kubernetes API and a metrics page."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from controller.policy.model import Policy
from controller.policy.render import digest_of, policy_yaml
from informers.clock import SystemClock
from simulator.apiserver.prometheus import configuration, faster_rules, lookback
from simulator.apiserver.rbac import read_manifests
from simulator.apiserver.serving import Running, Serving, serving
from simulator.engine.run import policy_for
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.loading import load_scenario
from simulator.scenario.schema import Scenario

RULES = Path(__file__).parents[1] / "charts/vm-rebalancer/files/recording-rules.yaml"
_SHORTEST = timedelta(seconds=1)
"""Policies know no shorter intervals."""

T = TypeVar("T")


@click.command()
@click.argument("scenario", default="hotspot")
@click.option(
    "--kubeconfig",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the admin's kubeconfig is written.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the API; default: any.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0, help="Default: any.")
@click.option(
    "--speed",
    type=click.FloatRange(1, 6),
    default=1.0,
    show_default=True,
    help="How many times faster than real time the cluster lives.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--minutes",
    type=click.FloatRange(0, 100_000, min_open=True),
    help="Plan loads and happenings for so long, of the cluster's time; it goes on afterwards.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change the scenario (repeatable)."
)
@click.option(
    "--cluster", type=click.Path(dir_okay=False), default="", help="Take nodes and VMs from a cluster dump."
)
@click.option(
    "--namespace",
    default="vm-rebalancer",
    show_default=True,
    help="The programs' namespace: it exists, and is the default.",
)
@click.option(
    "--account",
    "accounts",
    multiple=True,
    metavar="NAME=FILE",
    help="Write a kubeconfig for a service account, NAME or NAMESPACE/NAME (repeatable).",
)
@click.option(
    "--rbac",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Roles and bindings in YAML that hold for service accounts (repeatable); none: they may do anything.",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each request there as a JSON line.",
)
@click.option(
    "--prometheus-config",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write prometheus.yml, recording-rules.yaml and policy.yaml there, with times to suit the speed.",
)
@click.option(
    "--prometheus-url",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="Where that policy will find Prometheus.",
)
def serve(**given: Any) -> None:
    """Serve a simulated cluster in real time: the Kubernetes API by HTTPS, and a page of metrics.

    SCENARIO is the name of one that ships with the program, or a YAML file. Ends on SIGINT or SIGTERM.
    """
    asked = _Asked(**given)
    try:
        scenario = _scenario(asked)
        what = Serving(
            scenario=scenario,
            kubeconfig=asked.kubeconfig,
            seed=asked.seed,
            speed=asked.speed,
            port=asked.port,
            metrics_port=asked.metrics_port,
            namespace=asked.namespace,
            accounts=_accounts(asked.accounts),
            manifests=_manifests(asked.rbac),
            audit=asked.audit,
        )
        asyncio.run(_serve(what, asked))
    except ScenarioErrors as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, as click has parsed it."""

    scenario: str
    kubeconfig: Path
    port: int
    metrics_port: int
    speed: float
    seed: int
    minutes: float | None
    overrides: tuple[str, ...]
    cluster: str
    namespace: str
    accounts: tuple[str, ...]
    rbac: tuple[Path, ...]
    audit: Path | None
    prometheus_config: Path | None
    prometheus_url: str


async def _serve(what: Serving, asked: _Asked) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(what, SystemClock()) as running:
        _tell(what, running)
        if asked.prometheus_config is not None:
            write_prometheus_files(asked.prometheus_config, what, running.metrics_url, asked.prometheus_url)
            _tell_how_to_start(asked)
        click.echo("ready")
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((stopping, running.server.failed), return_when=asyncio.FIRST_COMPLETED)
        if running.server.failed.done():
            running.server.failed.result()  # raises


def write_prometheus_files(directory: Path, what: Serving, metrics_url: str, prometheus_url: str) -> None:
    """Configuration, rules and policy for one speed. Raises ``OSError``, ``PolicyErrors``."""
    directory.mkdir(parents=True, exist_ok=True)
    target = metrics_url.removeprefix("http://").partition("/")[0]
    rules = RULES.read_text(encoding="utf-8")
    policy = faster_policy(policy_for(what.scenario), what.speed, prometheus_url)
    for name, text in (
        ("prometheus.yml", configuration(target, what.speed)),
        ("recording-rules.yaml", faster_rules(rules, what.speed)),
        ("policy.yaml", policy_yaml(policy)),
    ):
        (directory / name).write_text(text, encoding="utf-8")


def faster_policy(policy: Policy, speed: float, prometheus_url: str) -> Policy:
    """The policy for a cluster that lives ``speed`` times faster, with metrics from a local Prometheus.

    All its times are as many times shorter, but for how long an answer may take: that is up to real programs (and
    not longer than a refresh interval).
    """
    faster = _divided(policy, speed)
    metrics = replace(
        faster.metrics,
        url=prometheus_url,
        token_file="",
        ca_file="",
        allow_http=prometheus_url.startswith("http://"),
        timeout=min(policy.metrics.timeout, faster.metrics.refresh_interval),
    )
    changed = replace(faster, metrics=metrics)
    return replace(changed, digest=digest_of(changed))


def _divided(value: T, speed: float) -> T:
    """A frozen dataclass with all durations divided, however deep they are."""
    changes: dict[str, Any] = {}
    for item in fields(value):  # type: ignore[arg-type]
        part = getattr(value, item.name)
        if isinstance(part, timedelta):
            changes[item.name] = max(part / speed, min(part, _SHORTEST))
        elif is_dataclass(part):
            changes[item.name] = _divided(part, speed)
    return replace(value, **changes)  # type: ignore[type-var]


def _scenario(asked: _Asked) -> Scenario:
    scenario = load_scenario(asked.scenario, asked.overrides, cluster=asked.cluster)
    return scenario if asked.minutes is None else msgspec.structs.replace(scenario, minutes=asked.minutes)


def _accounts(texts: Sequence[str]) -> Mapping[str, Path]:
    accounts = {}
    for text in texts:
        name, sign, file = text.partition("=")
        if not (name and sign and file) or name == "admin":
            raise click.BadParameter(f"{text!r}, allowed: NAME=FILE", param_hint="'--account'")
        accounts[name] = Path(file)
    return accounts


def _manifests(files: Sequence[Path]) -> list[Mapping[str, Any]]:
    try:
        return [obj for file in files for obj in read_manifests(file.read_text(encoding="utf-8"), str(file))]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--rbac'") from None


def _tell(what: Serving, running: Running) -> None:
    layout = running.live.simulation.world.layout()
    click.echo(
        f"scenario {what.scenario.name}: {len(layout.node_names)} nodes, {len(layout.vm_keys)} VMs, "
        f"{what.speed:g} x real time"
    )
    click.echo(f"API      {running.url}   KUBECONFIG={what.kubeconfig}")
    click.echo(f"metrics  {running.metrics_url}")


def _tell_how_to_start(asked: _Asked) -> None:
    directory = asked.prometheus_config
    click.echo(
        f"Prometheus: prometheus --config.file {directory}/prometheus.yml --storage.tsdb.path {directory}/data "
        f"--query.lookback-delta {lookback(asked.speed)}"
    )
