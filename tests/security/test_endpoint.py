"""The programs listen where they are told to, and nowhere else."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.controller.running_programs import free_port, process
from tests.security import canaries
from tests.simulator.apiserver.harness import until

_LISTENING = "0A"


def listens_at(pid: int) -> set[str]:
    """``HOST:PORT``, hexadecimal as Linux shows it, of the TCP sockets where the process listens."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            own.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    ]
    return {row[1] for row in rows if row[3] == _LISTENING and row[9] in own}


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "0100007F"),
        ("127.0.0.2", "0200007F"),
        ("", "00000000"),
        ("[::1]", "0" * 24 + "01000000"),
    ],
)
@pytest.mark.parametrize("program", ["descheduler", "soft-tainter"])
def test_listens_at_the_address_it_is_given_and_at_no_other(
    tmp_path: Path, program: str, host: str, shown: str
) -> None:
    port = free_port()
    kubeconfig = canaries.kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", {"token": "t"})
    with process(
        tmp_path / "log",
        program,
        f"--kubeconfig={kubeconfig}",
        f"--policy-file={canaries.policy(tmp_path, 'http://127.0.0.1:1')}",
        "--leader-elect=false",
        VM_REBALANCER_LISTEN=f"{host}:{port}",
    ) as running:
        until(lambda: bool(listens_at(running.process.pid)) or running.process.poll() is not None)
        assert listens_at(running.process.pid) == {f"{shown}:{port:04X}"}, running.log
