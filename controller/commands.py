"""``vm-rebalancer descheduler`` and ``vm-rebalancer soft-tainter``. Every flag may also come from the environment."""

import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import click

from controller.policy.durations import parse_duration

log = logging.getLogger("vm-rebalancer")

Command = Callable[..., None]

PREFIX = "VM_REBALANCER"
_PORT = re.compile("[0-9]{1,5}")


class Duration(click.ParamType[timedelta]):
    """``15s``, ``1m30s``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ValueError:
            self.fail(f"found {value!r}; allowed: a duration such as 15s or 1m30s", param, ctx)


class Address(click.ParamType[tuple[str, int]]):
    """``HOST:PORT``; an empty host means all addresses."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, separator, port = value.rpartition(":")
        if not separator or not _PORT.fullmatch(port) or int(port) > 65535 or not _is_host(host):
            self.fail(f"found {value!r}; allowed: HOST:PORT, :PORT", param, ctx)
        return host.strip("[]"), int(port)


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def program_options(command: Command) -> Command:
    """The flags that both programs have."""
    option = partial(click.option, show_envvar=True)
    options = (
        option(
            "--kubeconfig", type=click.Path(dir_okay=False), help="Else: in the cluster, or as kubectl does."
        ),
        option("--context", help="Of the kubeconfig."),
        option("--policy-configmap", metavar="NAMESPACE/NAME", help="The policy, under the key policy.yaml."),
        option(
            "--policy-file", type=click.Path(dir_okay=False), help="The policy; read again when it changes."
        ),
        option(
            "--leader-elect", type=bool, default=True, show_default=True, help="Decide only with the lease."
        ),
        option("--lease", metavar="NAMESPACE/NAME", help="Default: beside the policy's ConfigMap."),
        option("--lease-duration", type=Duration(), default="15s", show_default=True),
        option("--renew-deadline", type=Duration(), default="10s", show_default=True),
        option("--retry-period", type=Duration(), default="2s", show_default=True),
        option(
            "--listen", type=Address(), default="0.0.0.0:8080", show_default=True, help="Probes and metrics."
        ),
        option(
            "--workers",
            type=click.IntRange(2, 64),
            default=4,
            show_default=True,
            help="Threads, and so requests at once. One may be waiting for Prometheus.",
        ),
        option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
        option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
        ),
    )
    for add in reversed(options):
        command = add(command)
    return command


CONTEXT = {"auto_envvar_prefix": PREFIX}


@click.command("descheduler", context_settings=CONTEXT)
@program_options
def descheduler(**given: Any) -> None:
    """Evict VMs from over-utilised nodes, one observed live migration at a time."""
    from controller.runtime import run_descheduler

    _run(run_descheduler, "descheduler", given)


@click.command("soft-tainter", context_settings=CONTEXT)
@program_options
@click.option(
    "--cleanup",
    is_flag=True,
    show_envvar=True,
    help="Take all taints of ours off, once; exit code 1 if some are left.",
)
def soft_tainter(cleanup: bool, **given: Any) -> None:
    """Put PreferNoSchedule taints on over-utilised nodes, and take them off again."""
    from controller.cleanup import clean_up
    from controller.runtime import run_soft_tainter

    _run(clean_up if cleanup else run_soft_tainter, "soft-tainter", given, needs_policy=not cleanup)


def _run(
    program: Callable[[Any], int], name: str, given: dict[str, Any], *, needs_policy: bool = True
) -> None:
    from controller.lease import LeaseTiming
    from controller.platform import Options, StartError

    _log_to_stderr(given.pop("log_format"), given.pop("log_level"))
    times = [given.pop(key) for key in ("lease_duration", "renew_deadline", "retry_period")]
    config_map = given.pop("policy_configmap")
    if needs_policy and bool(config_map) == bool(given["policy_file"]):
        raise click.UsageError("exactly one of --policy-configmap and --policy-file is needed")
    try:
        timing = LeaseTiming(*times)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        code = program(Options(program=name, policy_config_map=config_map, lease_timing=timing, **given))
    except StartError as error:
        raise click.ClickException(str(error)) from error
    # Threads that are still in a request must not keep the process: all of them are daemons.
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        raise SystemExit(code)


class JsonLines(logging.Formatter):
    """One JSON object a line. What a record carries as ``fields`` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in getattr(record, "fields", {}).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # escapes all but ASCII: file names may hold what is no UTF-8


class TextLines(logging.Formatter):
    """A message stays on its line, whatever it repeats of others: it passes for no other, and steers no terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _log_to_stderr(log_format: str, level: str) -> None:
    import time

    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(TextLines("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    if handler.formatter is not None:
        handler.formatter.converter = time.gmtime
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _log_end_of_thread


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None:
        name = ended.thread.name if ended.thread is not None else "?"
        log.critical("thread %s has ended by an exception", name, exc_info=ended.exc_value)


__all__ = ["descheduler", "soft_tainter"]
