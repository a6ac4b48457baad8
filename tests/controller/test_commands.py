"""Flags, environment variables and logs of ``vm-rebalancer descheduler`` and ``soft-tainter``."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from controller import cleanup, cli, runtime
from controller.commands import descheduler, soft_tainter
from controller.lease import LeaseTiming
from controller.platform import Options, StartError

PROGRAMS = ("descheduler", "soft-tainter")
A_POLICY = ("--policy-configmap", "ns/policy")
GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "--kubeconfig": ("kube", {"kubeconfig": "kube"}),
    "--context": ("here", {"context": "here"}),
    "--policy-configmap": ("a/b", {"policy_config_map": "a/b", "policy_file": None}),
    "--policy-file": ("policy.yaml", {"policy_config_map": None, "policy_file": "policy.yaml"}),
    "--leader-elect": ("false", {"leader_elect": False}),
    "--lease": ("a/lease", {"lease": "a/lease"}),
    "--lease-duration": ("1m", {"lease_timing": LeaseTiming(lease_duration=timedelta(minutes=1))}),
    "--renew-deadline": ("11s", {"lease_timing": LeaseTiming(renew_deadline=timedelta(seconds=11))}),
    "--retry-period": ("1500ms", {"lease_timing": LeaseTiming(retry_period=timedelta(seconds=1.5))}),
    "--listen": ("[::1]:9", {"listen": ("::1", 9)}),
    "--workers": ("7", {"workers": 7}),
    "--log-format": ("json", {}),
    "--log-level": ("debug", {}),
}
"""Flag -> a value, and what it makes of the options."""


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A program takes the process's logging for itself."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that programs were run with, in place of running them."""
    options: list[Options] = []
    for module, name in ((runtime, "run_descheduler"), (runtime, "run_soft_tainter"), (cleanup, "clean_up")):
        monkeypatch.setattr(module, name, lambda given, name=name: options.append(given) or 0)
    return options


def run(*args: str, **environment: str) -> Result:
    return CliRunner().invoke(cli.main, args, env=environment, prog_name="vm-rebalancer")


def with_policy(flag: str) -> tuple[str, ...]:
    return () if flag.startswith("--policy") else A_POLICY


def variable(flag: str) -> str:
    return "VM_REBALANCER_" + flag.removeprefix("--").replace("-", "_").upper()


def shown(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.__slots__ if name != "identity"}


@pytest.mark.parametrize("command", [descheduler, soft_tainter])
def test_every_flag_is_tried_here(command: click.Command) -> None:
    flags = {option for parameter in command.params for option in parameter.opts}
    assert flags - {"--cleanup"} == set(GIVEN)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("flag", GIVEN)
def test_a_flag_does_the_same_by_its_environment_variable(
    asked: list[Options], program: str, flag: str
) -> None:
    value, expected = GIVEN[flag]
    by_flag = run(program, *with_policy(flag), flag, value)
    by_variable = run(program, *with_policy(flag), **{variable(flag): value})
    assert [by_flag.exit_code, by_variable.exit_code] == [0, 0], by_flag.output + by_variable.output
    first, second = (shown(options) for options in asked)
    assert first == second
    assert first["program"] == program
    assert {name: first[name] for name in expected} == expected


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("by", ["flag", "variable"])
def test_log_format_and_level_take_effect_either_way(asked: list[Options], program: str, by: str) -> None:
    flags = ("--log-format", "json", "--log-level", "error") if by == "flag" else ()
    variables = (
        {} if by == "flag" else {"VM_REBALANCER_LOG_FORMAT": "json", "VM_REBALANCER_LOG_LEVEL": "error"}
    )
    assert run(program, *A_POLICY, *flags, **variables).exit_code == 0
    (handler,) = logging.getLogger().handlers
    assert logging.getLogger().level == logging.ERROR
    assert json.loads(handler.format(record("x")))["message"] == "x"


def test_a_flag_counts_more_than_its_environment_variable(asked: list[Options]) -> None:
    run("descheduler", *A_POLICY, "--workers", "2", VM_REBALANCER_WORKERS="3")
    assert asked[0].workers == 2


def test_an_empty_environment_variable_is_none(asked: list[Options]) -> None:
    """As a chart renders what is not set."""
    result = run("descheduler", *A_POLICY, **{variable(flag): "" for flag in GIVEN})
    assert result.exit_code == 0, result.output
    run("descheduler", *A_POLICY)
    assert shown(asked[0]) == shown(asked[1])


@pytest.mark.parametrize("environment", [{}, {"VM_REBALANCER_CLEANUP": "true"}])
def test_cleaning_up_needs_no_policy(asked: list[Options], environment: dict[str, str]) -> None:
    flags = () if environment else ("--cleanup",)
    assert run("soft-tainter", "--lease", "ns/l", *flags, **environment).exit_code == 0
    assert asked[0].lease == "ns/l"


def test_two_replicas_never_have_the_same_identity(asked: list[Options]) -> None:
    run("descheduler", *A_POLICY)
    run("descheduler", *A_POLICY)
    assert asked[0].identity != asked[1].identity


WRONG = [
    ((), "exactly one of --policy-configmap and --policy-file"),
    ((*A_POLICY, "--policy-file", "x"), "exactly one of --policy-configmap and --policy-file"),
    ((*A_POLICY, "--leader-elect", "perhaps"), "'perhaps'"),
    ((*A_POLICY, "--lease-duration", "15"), "found '15'; allowed: a duration such as 15s"),
    ((*A_POLICY, "--lease-duration", "10s"), "lease duration must exceed the renew deadline"),
    ((*A_POLICY, "--retry-period", "0s"), "retry period must be positive"),
    ((*A_POLICY, "--renew-deadline", "2s"), "renew deadline must exceed 1.2 retry periods"),
    ((*A_POLICY, "--listen", "8080"), "found '8080'; allowed: HOST:PORT, :PORT"),
    ((*A_POLICY, "--listen", ":65536"), "allowed: HOST:PORT"),
    ((*A_POLICY, "--listen", ":-1"), "allowed: HOST:PORT"),
    ((*A_POLICY, "--listen", ":²"), "allowed: HOST:PORT"),
    ((*A_POLICY, "--listen", ":" + "9" * 5000), "allowed: HOST:PORT"),
    ((*A_POLICY, "--listen", "x" * 64 + ":80"), "allowed: HOST:PORT"),
    ((*A_POLICY, "--workers", "0"), "0 is not in the range"),
    ((*A_POLICY, "--log-level", "loud"), "'loud'"),
    ((*A_POLICY, "--log-format", "xml"), "'xml'"),
    ((*A_POLICY, "--nonsense"), "--nonsense"),
    ((*A_POLICY, "extra"), "extra"),
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("flags", "message"), WRONG)
def test_a_wrong_flag_is_one_line_and_exit_code_2(
    asked: list[Options], program: str, flags: tuple[str, ...], message: str
) -> None:
    result = run(program, *flags)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert message in line
    assert result.stderr.splitlines()[-1] == line
    assert asked == []


def test_a_wrong_environment_variable_is_one_line_that_names_its_flag(asked: list[Options]) -> None:
    result = run("descheduler", *A_POLICY, VM_REBALANCER_WORKERS="many")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: Invalid value for '--workers': 'many'")


def test_the_help_names_every_environment_variable() -> None:
    words = " ".join(run("soft-tainter", "--help").stdout.split())
    assert [flag for flag in (*GIVEN, "--cleanup") if f"env var: {variable(flag)}" not in words] == []


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--kubeconfig", "/nowhere/config", *A_POLICY), "kubeconfig /nowhere/config: "),
        (("--policy-configmap", "policy"), "--policy-configmap: found 'policy'; allowed: NAMESPACE/NAME"),
        (("--policy-configmap", "a/b/c"), "--policy-configmap: found 'a/b/c'; allowed: NAMESPACE/NAME"),
        ((*A_POLICY, "--lease", "/l"), "--lease: found '/l'; allowed: NAMESPACE/NAME"),
        (("--policy-file", "p"), "where the Lease is must be said: --lease NAMESPACE/NAME"),
        ((*A_POLICY, "--context", "nobodys"), "nobodys"),
    ],
)
def test_what_keeps_a_program_from_starting_is_one_line_and_exit_code_1(
    tmp_path: Path, program: str, flags: tuple[str, ...], message: str
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    environment = {"VM_REBALANCER_KUBECONFIG": str(tmp_path / "config")}
    result = run(program, *flags, **environment)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("a bug")])
def test_a_fault_of_the_program_is_not_dressed_up_as_its_users(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: Options) -> int:
        raise error

    monkeypatch.setattr(runtime, "run_descheduler", fail)
    assert run("descheduler", *A_POLICY).exception is error


def test_the_exit_code_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "run_descheduler", lambda _: 1)
    assert run("descheduler", *A_POLICY).exit_code == 1


def test_why_it_cannot_start_comes_from_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Options) -> int:
        raise StartError("because")

    monkeypatch.setattr(cleanup, "clean_up", refuse)
    result = run("soft-tainter", "--cleanup")
    assert (result.exit_code, result.stderr) == (1, "Error: because\n")


# --- logs ---


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("vm-rebalancer", logging.WARNING, "", 0, message, args, exc_info)


def caught() -> Exception:
    try:
        raise ValueError("odd\nin two lines")  # noqa: TRY301
    except ValueError as error:
        return error


@pytest.fixture
def written(asked: list[Options], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Logs as JSON after that; returns what was written since, line by line, decoded."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    descheduler.main([*A_POLICY, "--log-format", "json", "--log-level", "info"], standalone_mode=False)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_one_json_object_with_time_level_and_message(written: Any) -> None:
    logging.getLogger("vm-rebalancer").warning("node %s:\n\t%s", "näme", '"quoted"')
    (line,) = written()
    assert line.keys() == {"time", "level", "logger", "message"}
    assert (line["level"], line["logger"]) == ("warning", "vm-rebalancer")
    assert line["message"] == 'node näme:\n\t"quoted"'


def test_the_time_is_utc_to_the_millisecond(written: Any) -> None:
    at = record("x")
    at.created, at.msecs = 1_764_590_400.9996, 999.0
    logging.getLogger("vm-rebalancer").handle(at)
    assert [line["time"] for line in written()] == ["2025-12-01T12:00:00.999Z"]


def test_an_exception_is_inside_of_its_line(written: Any) -> None:
    logging.getLogger("vm-rebalancer").error("failed", exc_info=caught())
    (line,) = written()
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: odd\nin two lines")


def test_what_is_no_utf_8_is_a_line_nevertheless(written: Any) -> None:
    """File names may be like that."""
    (ours,) = [handler for handler in logging.getLogger().handlers if type(handler) is logging.StreamHandler]
    ours.handle(record("file %s", b"\xff".decode(errors="surrogateescape")))
    assert len(written()) == 1


def test_warnings_and_the_end_of_a_thread_are_lines_too(written: Any) -> None:
    """Python would write them to stderr as they are."""

    def fail() -> None:
        raise LookupError("nobody caught it")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    thread = threading.Thread(target=fail, name="odd")
    thread.start()
    thread.join()
    first, second = written()
    assert "DeprecationWarning: old" in first["message"]
    assert second["message"] == "thread odd has ended by an exception"
    assert "LookupError: nobody caught it" in second["exception"]


def test_text_is_a_line_with_the_same_content(asked: list[Options]) -> None:
    run("descheduler", *A_POLICY)
    (handler,) = logging.getLogger().handlers
    assert handler.format(record("hello %s", "you")).endswith(" WARNING vm-rebalancer: hello you")
