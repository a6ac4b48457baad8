"""Do the programs take more and more of the machine? Prints the slopes of what they use, by linear fit.

python -m benchmarks.soak [--hours 24] [--directory DIR]

A simulated cluster with the bursts of the pilot installation, VMs that come and go and people who migrate others
lives six times faster than real behind the real API, with a real Prometheus; the descheduler and the soft-tainter run
as the chart starts them. Once an hour of the cluster's time (``--visits-every``, in minutes) a node joins and another
goes for good, tokens change, watches break, and the policy changes. 24 hours take four.

Needs prometheus and helm on the PATH or in .tools. With ``--directory`` the logs stay there.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import SPEED, RefusedError
from e2e.lab import Lab
from e2e.ports import Ports
from e2e.programs import Program
from e2e.soak import QUANTITIES, SCENARIO, Use, Visits, per_hour, use_of
from e2e.truth import Truth
from e2e.waiting import NOT_YET

SAMPLE_EVERY_S = 60.0
"""Of the cluster's time, as are those below."""
WARM_UP_S = 600.0
REPORT_EVERY_S = 3600.0
PATIENCE_S = 120.0
"""Of real time, for what is asked of the cluster."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24.0, help="Of the cluster's time.")
    parser.add_argument("--visits-every", type=float, default=60.0, help="Minutes of the cluster's time.")
    parser.add_argument("--directory", type=Path, help="Where logs are left; else nowhere.")
    asked = parser.parse_args()
    if asked.directory is not None:
        asked.directory.mkdir(parents=True, exist_ok=True)
        _soak(asked.directory, asked.hours, asked.visits_every)
        return
    with tempfile.TemporaryDirectory() as directory:
        _soak(Path(directory), asked.hours, asked.visits_every)


def _soak(directory: Path, hours: float, visits_every_minutes: float) -> None:
    lab = Lab(directory, Ports())
    try:
        lab.start(SCENARIO, f"minutes={hours * 60 + WARM_UP_S / 60:g}")
        lab.set_policy(lab.policy())
        programs = [*lab.run("descheduler"), *lab.run("soft-tainter")]
        for program in ("descheduler", "soft-tainter"):
            lab.leader(program)
        uses = _watch(lab, programs, hours * 3600, visits_every_minutes * 60)
        _print(uses)
        _print_verdict(lab)
    finally:
        lab.end()


def _watch(lab: Lab, programs: list[Program], run_s: float, visits_every_s: float) -> dict[str, list[Use]]:
    """Account -> what it used after the warm-up."""
    visits, uses = Visits(lab), defaultdict[str, list[Use]](list)
    begin_s = _truth(lab).now_s + WARM_UP_S
    next_visit_s, next_report_s = begin_s, begin_s + REPORT_EVERY_S
    while (now_s := _truth(lab).now_s) < begin_s + run_s:
        lab.processes.check()
        for program in programs if now_s >= begin_s else ():
            with _going_on(f"{program.account}, a sample"):
                uses[program.account].append(use_of(program, now_s))
        if now_s >= next_visit_s:
            with _going_on("a visit"):
                visits.go_on()
            next_visit_s += visits_every_s
        if now_s >= next_report_s:
            print(f"after {(now_s - begin_s) / 3600:.1f} h:", flush=True)
            _print(uses)
            next_report_s += REPORT_EVERY_S
        time.sleep(SAMPLE_EVERY_S / SPEED)
    return uses


def _truth(lab: Lab) -> Truth:
    return lab.until_truth(lambda _: True, PATIENCE_S, "the cluster answers")


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    """One answer that comes too late, or a refusal that follows from it, is said and does not end the run."""
    try:
        yield
    except (*NOT_YET, RefusedError) as error:
        print(f"{what} is left out: {error!r}", flush=True)


def _print(uses: dict[str, list[Use]]) -> None:
    print(f"{'':16}{'':14}{'first':>9}{'last':>9}{'least':>9}{'most':>9}{'per hour':>10}")
    for account, taken in uses.items():
        if len(taken) < 2:
            print(f"{account:16}too short to tell")
            continue
        for quantity in QUANTITIES:
            values = [getattr(use, quantity) for use in taken]
            numbers = f"{values[0]:9.1f}{values[-1]:9.1f}{min(values):9.1f}{max(values):9.1f}"
            print(f"{account:16}{quantity:14}{numbers}{per_hour(taken, quantity):+10.2f}", flush=True)


def _print_verdict(lab: Lab) -> None:
    truth = _truth(lab)
    print(f"{len(truth.own_moves)} migrations of ours, {len(truth.migrations)} in all; {len(truth.vms)} VMs")
    try:
        lab.check_unharmed()
    except AssertionError as error:
        sys.exit(f"harm was done: {error}")


if __name__ == "__main__":
    main()
