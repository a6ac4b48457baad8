"""Starts one of the programs, and kills it with SIGKILL right before or right after one of its steps, once.

    python crash_launcher.py DIRECTORY POINT PROGRAM ARGUMENTS…

A step is a request to the API server, or a change of the ledger; its name comes from the code and from the request,
and begins with the program's. ``POINT`` is such a name after ``before`` or ``after``, or empty. The steps that are
passed are written to ``DIRECTORY/steps``, each once for each process. The first process that comes to ``POINT``
leaves ``DIRECTORY/crashed`` behind and dies; then all processes live on.

Imports nothing of the suite, so that it can be run as a file.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from pathlib import Path
from threading import Lock
from typing import Any

from controller.cli import main
from controller.evictions.entry import Entry
from controller.evictions.ledger import Ledger
from informers.transport import Transport

_LOOKS = frozenset({"view"})
"""Of the ledger's methods, those that change nothing."""


class Steps:
    """Of one process; from any thread."""

    def __init__(self, directory: Path, point: str, program: str) -> None:
        self._steps = directory / "steps"
        self._marker = directory / "crashed"
        self._point = point
        self._program = program
        self._lock = Lock()
        self._passed: set[str] = set()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """After it, too, if it raises: the API server's answer to an eviction is an error."""
        step = f"{self._program} {name}"
        self._pass(step)
        self._crash_if(f"before {step}")
        try:
            yield
        finally:
            self._crash_if(f"after {step}")

    def _pass(self, step: str) -> None:
        with self._lock:
            if step in self._passed:
                return
            self._passed.add(step)
        with self._steps.open("a", encoding="utf-8") as file:
            file.write(f"{step}\n")

    def _crash_if(self, here: str) -> None:
        if here != self._point:
            return
        try:
            self._marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # nothing happens any more between the signal and the end


def _watch_requests(steps: Steps) -> None:
    request, stream = Transport.request, Transport.stream

    @wraps(request)
    def watched_request(transport: Transport, method: str, path: str, **options: Any) -> bytes:
        with steps.step(_name_of_request(method, path, options)):
            return request(transport, method, path, **options)

    @wraps(stream)
    def watched_stream(transport: Transport, path: str, **options: Any) -> Any:
        with steps.step(_name_of_request("WATCH", path, options)):
            return stream(transport, path, **options)

    for verb, watched in (("request", watched_request), ("stream", watched_stream)):
        setattr(Transport, verb, watched)


def _name_of_request(method: str, path: str, options: Mapping[str, Any]) -> str:
    """Without the names of objects: ``POST pods/eviction dry run``, ``GET nodes``, ``GET leases of one``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join([*parts[:1], *parts[2:]])
    one = " of one" if len(parts) == 2 else ""
    return f"{method} {resource}{one}{' dry run' if b'dryRun' in (options.get('body') or b'') else ''}"


def _watch_ledger(steps: Steps) -> None:
    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def step(ledger: Ledger, *given: Any, **options: Any) -> Any:
            with steps.step(_name_of_change(method.__name__, given)):
                return method(ledger, *given, **options)

        return step

    for name, member in list(vars(Ledger).items()):
        if isfunction(member) and not name.startswith("_") and name not in _LOOKS:
            setattr(Ledger, name, watched(member))


def _name_of_change(verb: str, given: tuple[Any, ...]) -> str:
    """With the phases of the entries that it is about; where they are the same, with none."""
    phases = [str(one.phase) for one in given if isinstance(one, Entry)]
    return " ".join([verb, *(phases if len(set(phases)) == len(phases) else ())])


if __name__ == "__main__":
    directory, point, program = sys.argv[1:4]
    sys.argv = ["vm-rebalancer", *sys.argv[3:]]
    steps = Steps(Path(directory), point, program)
    _watch_requests(steps)
    _watch_ledger(steps)
    main()
