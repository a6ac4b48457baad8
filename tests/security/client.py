"""``python -m tests.security.client WHAT URL-OR-FILE``: takes in what it is given, and says at what cost."""

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from controller.policy.parse import parse_policy
from controller.policy.watch import PolicyWatch
from informers.reflector import MAX_PAGE_BYTES, PAGE_WITHIN
from informers.transport import Transport
from tests.controller.io.builders import Asking, metrics_at
from tests.security import canaries


def query(url: str) -> None:
    Asking(lambda: metrics_at(url, timeout_s=60)).instant("up")


def connected(url: str) -> Transport:
    folder = Path(tempfile.mkdtemp())
    path = canaries.kubeconfig(folder / "kubeconfig", url, {"token": canaries.TOKEN})
    return Transport.from_kubeconfig(str(path))


def page(url: str) -> None:
    connected(url).request("GET", "/api/v1/pods", deadline=PAGE_WITHIN, max_bytes=MAX_PAGE_BYTES)


def watch(url: str) -> None:
    with connected(url).stream("/", query={}, read_timeout=timedelta(seconds=20)) as lines:
        for _ in lines:
            pass


def policy(path: str) -> None:
    watched = PolicyWatch.of_file(path)
    watched.reload()
    parse_policy(Path(path).read_text(encoding="utf-8"))


WHAT: dict[str, Callable[[str], None]] = {"query": query, "page": page, "watch": watch, "policy": policy}


def main() -> None:
    what, where = sys.argv[1:]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        WHAT[what](where)
        said = ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        said = f"{type(error).__name__}: {error}"
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sys.stdout.write(json.dumps({"said": said, "grown_mib": grown_mib}))


if __name__ == "__main__":
    main()
