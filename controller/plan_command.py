"""``vm-rebalancer plan``: what the descheduler sees and would do, without doing it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from controller.commands import CONTEXT

if TYPE_CHECKING:
    from controller.plan.look import Look, Looker
    from controller.policy.model import Policy
    from controller.report import Decisions, PlanReport, VmStory
    from informers.transport import Transport

OUTPUTS = ("table", "wide", "json", "yaml")
ASK_AGAIN_S = 10.0
"""A running descheduler; it says nothing new more often than it refreshes or moves something."""


@click.command("plan", context_settings=CONTEXT)
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Else: in the cluster, or as kubectl does."
)
@click.option("--context", help="Of the kubeconfig.")
@click.option("--policy-configmap", metavar="NAMESPACE/NAME", help="The policy, under the key policy.yaml.")
@click.option("--policy-file", type=click.Path(dir_okay=False), help="The policy: a document or a ConfigMap.")
@click.option(
    "--metrics-url",
    metavar="URL",
    help="Ask there instead of metrics.url, without token; for a forwarded port.",
)
@click.option("--scenario", metavar="NAME", help="Look at a simulated cluster instead of a live one.")
@click.option("--minute", type=click.FloatRange(0, 100_000, min_open=True), help="Of the scenario.")
@click.option("--seed", type=click.IntRange(0), help="Of the scenario.  [default: 1]")
@click.option(
    "--from-controller",
    metavar="URL",
    help="Show what the descheduler at this address has decided, instead of looking; for a forwarded port.",
)
@click.option("--explain", metavar="vm/[NAMESPACE/]NAME", help="The whole story of one VM.")
@click.option("-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True)
@click.option(
    "--watch",
    is_flag=True,
    help="Look again every metrics.refreshInterval (ask again every 10 s), until interrupted.",
)
def plan(**given: Any) -> None:
    """Show what the descheduler sees and would do next, and why not; changes nothing.

    Needs list on nodes, pods, VMIs, VMIMs and KubeVirts, and the permission to query the metrics; with
    --from-controller nothing but the address. Exit code 1: the cluster cannot be looked at, the policy is invalid, or
    the descheduler cannot be asked or does not decide.
    """
    from controller.plan.sources import LookError

    asked = _Asked(**given)
    asked.check()
    try:
        if asked.from_controller is not None:
            _ask(asked, asked.from_controller)
        elif asked.watch:
            _watch(asked)
        else:
            _show(asked, _looked(asked, _looker(asked).look()))
    except LookError as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, as click has parsed it."""

    kubeconfig: str | None
    context: str | None
    policy_configmap: str | None
    policy_file: str | None
    metrics_url: str | None
    scenario: str | None
    minute: float | None
    seed: int | None
    from_controller: str | None
    explain: str | None
    output: str
    watch: bool

    def check(self) -> None:
        """Raises click.UsageError."""
        if self.from_controller is not None:
            self._refuse(
                "with --from-controller",
                {
                    "--kubeconfig": self.kubeconfig,
                    "--context": self.context,
                    "--policy-configmap": self.policy_configmap,
                    "--policy-file": self.policy_file,
                    "--metrics-url": self.metrics_url,
                    "--scenario": self.scenario,
                    "--minute": self.minute,
                    "--seed": self.seed,
                    "--explain": self.explain,
                },
            )
            return
        if self.scenario is None:
            if self.minute is not None or self.seed is not None:
                raise click.UsageError("--minute and --seed are for a --scenario")
            if bool(self.policy_configmap) == bool(self.policy_file):
                raise click.UsageError("exactly one of --policy-configmap and --policy-file is needed")
            return
        self._refuse(
            "with --scenario",
            {
                "--kubeconfig": self.kubeconfig,
                "--context": self.context,
                "--policy-configmap": self.policy_configmap,
                "--metrics-url": self.metrics_url,
                "--watch": self.watch or None,
            },
        )
        if self.minute is None:
            raise click.UsageError("--scenario needs --minute")

    @staticmethod
    def _refuse(where: str, flags: Mapping[str, object]) -> None:
        if wrong := [flag for flag, value in flags.items() if value is not None]:
            raise click.UsageError(f"{', '.join(wrong)}: not {where}")


def _looker(asked: _Asked) -> "Looker":
    from controller.plan.look import Looker
    from controller.plan.sources import live_cluster, scenario_source

    if asked.scenario is not None:
        assert asked.minute is not None  # noqa: S101 - checked
        seed = 1 if asked.seed is None else asked.seed
        return Looker(*scenario_source()(asked.scenario, asked.minute, seed, asked.policy_file))
    transport, policy = _connected(asked)
    return Looker(live_cluster(transport, _name(asked)), policy)


def _connected(asked: _Asked) -> "tuple[Transport, Policy]":
    from controller.plan.sources import asking, connected, policy_of_config_map, policy_of_file

    config_map = _namespace_and_name(asked.policy_configmap) if asked.policy_configmap else None
    policy = policy_of_file(asked.policy_file) if asked.policy_file else None
    transport = connected(asked.kubeconfig, asked.context)
    if config_map is not None:
        policy = policy_of_config_map(transport, *config_map)
    assert policy is not None, "checked: one of the two is given"  # noqa: S101
    return transport, asking(policy, asked.metrics_url) if asked.metrics_url else policy


def _name(asked: _Asked) -> str:
    return f"context {asked.context}" if asked.context else "cluster"


def _namespace_and_name(text: str) -> tuple[str, str]:
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise click.UsageError(f"--policy-configmap: found {text!r}; allowed: NAMESPACE/NAME")
    return namespace, name


def _watch(asked: _Asked) -> None:
    """Until interrupted. The policy stays the one that was read at the start."""
    from controller.plan.look import Looker
    from controller.plan.sources import live_cluster, watched

    transport, policy = _connected(asked)
    pause = Event()
    with watched(transport, live_cluster(transport, _name(asked))) as cluster:
        looker = Looker(cluster, policy)
        try:
            while True:
                _show(asked, _looked(asked, looker.look()))
                pause.wait(policy.metrics.refresh_interval.total_seconds())
        except KeyboardInterrupt:
            return


def _ask(asked: _Asked, url: str) -> None:
    """Once, or until interrupted; what goes wrong at first ends it, later it may pass."""
    from controller.plan.remote import decisions_of
    from controller.plan.sources import LookError

    _show(asked, decisions_of(url))
    pause = Event()
    try:
        while asked.watch and not pause.wait(ASK_AGAIN_S):
            try:
                _show(asked, decisions_of(url))
            except LookError as error:
                click.echo(f"Error: {error}", err=True)
    except KeyboardInterrupt:
        return


def _looked(asked: _Asked, look: "Look") -> "PlanReport | VmStory":
    from controller.plan.explain import story
    from controller.plan.make import plan_report

    return story(look, asked.explain) if asked.explain is not None else plan_report(look)


def _show(asked: _Asked, shown: "PlanReport | Decisions | VmStory") -> None:
    import msgspec

    match asked.output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))
        case "yaml":
            import yaml

            document = yaml.safe_dump(msgspec.to_builtins(shown), sort_keys=False, allow_unicode=True)
            click.echo(f"---\n{document}" if asked.watch else document, nl=False)
        case _:
            _print(shown, wide=asked.output == "wide", again=asked.watch)


def _print(shown: "PlanReport | Decisions | VmStory", *, wide: bool, again: bool) -> None:
    """With colours on a terminal, plain elsewhere; looking again, a terminal is cleared first."""
    from rich.console import Console

    from controller.plan.text import as_coloured_text, as_plain_text, text_of

    parts = text_of(shown, wide=wide)
    if not sys.stdout.isatty():
        click.echo(as_plain_text(parts))
        return
    console = Console(file=sys.stdout, highlight=False)
    if again:
        console.clear()
    sys.stdout.write(as_coloured_text(parts, console) + "\n")
