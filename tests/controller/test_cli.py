"""The command line: exit codes 0, 1 and 2, one line per error, no traceback, and plugins that cannot do harm."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distribution
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from controller import cli
from controller.policy.parse import default_policy, parse_policy
from controller.policy.problems import PolicyErrors, Problem

POLICY = "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\n"
ROOT = Path(__file__).parents[2]


def run(*args: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli.main, args, input=stdin, prog_name="vm-rebalancer")


def plug_in(monkeypatch: pytest.MonkeyPatch, *plugins: EntryPoint) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda *, group: [p for p in plugins if p.group == group])


def plugin(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "vm_rebalancer.commands")


def failing_command(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@click.command(short_help="Joins from outside.")
def guest() -> None:
    click.echo("guest at work")


NOT_A_COMMAND = 5


def test_prints_the_effective_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    result = run("check-policy", str(file))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith(f"# digest: {default_policy().digest}\napiVersion: ")
    assert parse_policy(result.stdout) == default_policy()


def test_reads_standard_input() -> None:
    result = run("check-policy", "-", stdin=POLICY)
    assert result.exit_code == 0
    assert parse_policy(result.stdout) == default_policy()


def test_a_byte_order_mark_is_no_part_of_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + POLICY.encode())
    assert run("check-policy", str(file)).exit_code == 0


def test_an_invalid_policy_has_a_line_per_error_and_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + "mode: Auto\nevictions:\n  order: Best\n  setle: 3m\n")
    result = run("check-policy", str(file))
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[:2] == [
        f'{file}:3: mode: found "Auto"; allowed: Predictive, Automatic; did you mean Automatic?',
        f'{file}:5: evictions.order: found "Best"; allowed: BestFit, LowestPriority; did you mean BestFit?',
    ]
    assert lines[2].startswith(
        f"{file}:6: evictions.setle: found an unknown field; allowed: multiEvictions, "
    )
    assert lines[2].endswith("; did you mean settle?")
    assert len(lines) == 3


@pytest.mark.parametrize("text", ["", "{", "- a", "x" * 300_000])
def test_what_is_no_policy_at_all_has_one_line(text: str) -> None:
    result = run("check-policy", "-", stdin=text)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for file, why in [(tmp_path / "absent", "No such file"), (tmp_path, "directory"), (binary, "not UTF-8")]:
        result = run("check-policy", str(file))
        assert result.exit_code == 2
        assert result.stdout == ""
        assert why in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "args", [("check-policy",), ("check-policy", "a", "b"), ("nonsense",), ("--nonsense",)]
)
def test_wrong_usage_has_exit_code_2(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"vm-rebalancer": "1.2.3"}.__getitem__)
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, "vm-rebalancer, version 1.2.3\n")


def test_a_plugged_in_command_runs_and_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, plugin("guest", f"{__name__}:guest"))
    assert run("guest").stdout == "guest at work\n"
    listing = run("--help").stdout
    assert "check-policy" in listing
    assert "Joins from outside." in listing


def test_a_plugin_is_not_imported_for_another_command(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, plugin("guest", "a_module_that_would_fail:guest"))
    result = run("check-policy", "-", stdin=POLICY)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module:command", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{__name__}:no_such_name", "no_such_name"),
        (f"{__name__}:NOT_A_COMMAND", "is no click command"),
    ],
)
def test_a_broken_plugin_gives_one_clear_line(monkeypatch: pytest.MonkeyPatch, value: str, why: str) -> None:
    plug_in(monkeypatch, plugin("broken", value))
    result = run("broken", "argument", "--option")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: the command broken ({value}) cannot be loaded: ")
    assert why in line
    assert "cannot be loaded" in run("--help").stdout


def test_an_own_command_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, plugin("check-policy", f"{__name__}:guest"))
    assert run("check-policy", "-", stdin=POLICY).stdout.startswith("# digest: ")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "r.html"),
            "Error: r.html: No such file or directory",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "Error: Connection refused"),
        (PolicyErrors("p", [Problem("mode", "1", "2", line=3)]), "p:3: mode: found 1; allowed: 2"),
        (click.ClickException("no such scenario"), "Error: no such scenario"),
    ],
)
def test_a_known_error_of_any_command_is_one_line(error: Exception, line: str) -> None:
    group = cli.CommandGroup("group", commands=[click.Command("fail", callback=failing_command(error))])
    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == 1
    assert result.stderr == f"{line}\n"


def test_a_fault_of_the_program_is_not_dressed_up_as_the_users() -> None:
    group = cli.CommandGroup(
        "group", commands=[click.Command("fail", callback=failing_command(ValueError("bug")))]
    )
    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, ValueError)


def test_ends_quietly_when_nobody_reads() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        process = subprocess.run(
            [sys.executable, "-c", "from controller.cli import main; main()", "check-policy", "-"],
            input=POLICY.encode(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
        )
    assert process.stderr == b""
    assert process.returncode == 1


def test_an_endless_input_is_not_read_to_its_end() -> None:
    result = run("check-policy", "/dev/zero")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_a_plugin_that_needs_more_than_is_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The programs' image leaves out what only the simulator needs."""
    value = "a_module_that_is_an_extra:command [simulator]"
    plug_in(monkeypatch, plugin("simulate", value)._for(distribution("vm-rebalancer")))
    result = run("simulate", "hotspot", "--minutes", "3")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: the command simulate ({value}) cannot be loaded: a_module_that_is_an_extra is not installed; it comes "
        "with: pip install 'vm-rebalancer[simulator]'\n"
    )


def test_the_programs_need_none_of_the_simulators_packages() -> None:
    """Else the image that lacks them would not start."""
    code = (
        "import controller.cleanup, controller.cli, controller.plan.look, controller.runtime, sys;"
        "print({'cryptography', 'jinja2', 'numpy', 'plotly', 'simulator'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "set()\n"
