"""The command line: ``vm-rebalancer COMMAND``.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage. A known error ends with a line on stderr, never with a
traceback. Further commands join by the entry point group ``vm_rebalancer.commands``; one is imported when it
is run or listed, so that a broken one harms no other.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import click

from controller.commands import descheduler, soft_tainter
from controller.plan_command import plan
from controller.plugins import PluginError, loaded, one_line
from controller.policy.document import MAX_CHARACTERS
from controller.policy.parse import parse_policy
from controller.policy.problems import PolicyErrors
from controller.policy.render import policy_yaml

PLUGIN_GROUP = "vm_rebalancer.commands"


class CommandGroup(click.Group):
    """Own commands and plugged-in ones; the one place that turns known errors into a line and an exit code.

    A command reports other errors of its users' making as ``click.ClickException``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(plugin.name for plugin in _plugins())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next((_load(plugin) for plugin in _plugins() if plugin.name == cmd_name), None)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except PolicyErrors as error:
            raise _RefusedError(str(error)) from error
        except BrokenPipeError:
            raise  # click ends quietly when nobody reads any more
        except OSError as error:
            raise click.ClickException(one_line(error)) from error


class _RefusedError(click.ClickException):
    """Its lines name their place themselves, so they stand without a prefix."""

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        click.echo(self.message, err=True)


@click.group(cls=CommandGroup)
@click.version_option(package_name="vm-rebalancer", prog_name="vm-rebalancer")
def main() -> None:
    """Keeps KubeVirt virtual machines spread by what nodes really feel."""


@main.command("check-policy")
@click.argument("file", type=click.Path(allow_dash=True))
def check_policy(file: str) -> None:
    """Print the effective policy of FILE (-: standard input), or everything that is wrong with it.

    FILE is a RebalancePolicy document or a ConfigMap manifest that holds one under the key policy.yaml. Exit
    code 1: the policy is invalid; 2: the file cannot be read.
    """
    try:
        with click.open_file(file, encoding="utf-8-sig") as stream:
            text = stream.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise click.BadParameter(one_line(error), param_hint="'FILE'") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{file}: not UTF-8 text", param_hint="'FILE'") from error
    policy = parse_policy(text, source="<stdin>" if file == "-" else file)
    click.echo(policy_yaml(policy), nl=False)


main.add_command(descheduler)
main.add_command(soft_tainter)
main.add_command(plan)


def _plugins() -> Iterable[EntryPoint]:
    return entry_points(group=PLUGIN_GROUP)


def _load(plugin: EntryPoint) -> click.Command:
    """The command, or one of the same name that says why it cannot be had."""
    try:
        command = loaded(plugin)
    except PluginError as error:
        return _broken(plugin, str(error))
    if not isinstance(command, click.Command):
        return _broken(plugin, f"{plugin.value} is no click command")
    return command


def _broken(plugin: EntryPoint, why: str) -> click.Command:
    def fail() -> None:
        raise click.ClickException(f"the command {plugin.name} ({plugin.value}) cannot be loaded: {why}")

    return click.Command(
        plugin.name,
        callback=fail,
        short_help=f"(cannot be loaded: {why})",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
