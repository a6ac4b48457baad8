"""Our programs at their most talkative, with canaries for secrets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from controller import cli
from tests.controller.running_programs import AsProcess, asked, process
from tests.security import canaries

ALONE = "--leader-elect=false"
PAGES = ("/healthz", "/readyz", "/metrics", "/debug", "/debug/", "/debug/config", "/debug/decisions", "/")


@contextmanager
def talking(
    folder: Path,
    program: str,
    api: str,
    prometheus: str,
    *flags: str,
    cluster: Mapping[str, Any] | None = None,
    **environment: str,
) -> Iterator[AsProcess]:
    """It is up. ``cluster``: what the kubeconfig says of it besides its address."""
    kubeconfig = canaries.kubeconfig(folder / "kubeconfig", api, {"token": canaries.TOKEN}, cluster)
    policy = canaries.policy(folder, prometheus)
    files = (f"--kubeconfig={kubeconfig}", f"--policy-file={policy}")
    with process(folder / "log", program, *files, "--log-level=debug", *flags, **environment) as running:
        running.wait_until_up()
        yield running


def everything_shown(program: AsProcess) -> str:
    pages = [asked(program.number, f"{page}?token={canaries.TOKEN}")[1] for page in PAGES]
    return "\n".join([program.log, *pages])


def planned(kubeconfig: Path, policy: Path, *flags: str, **environment: str) -> Result:
    """What ``vm-rebalancer plan`` says."""
    files = ("--kubeconfig", str(kubeconfig), "--policy-file", str(policy))
    return CliRunner().invoke(cli.main, ["plan", *files, *flags], env=environment)
