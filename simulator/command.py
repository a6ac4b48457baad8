"""``vm-rebalancer simulate``: the real controller on a simulated cluster."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from simulator.engine.ports import BrokenInvariant
from simulator.engine.run import Finished, Run, policy_for, run, run_baseline
from simulator.engine.traces import traces_of
from simulator.record import RunRecord
from simulator.report.html import write_report
from simulator.report.scores import by_label, scores, to_json
from simulator.report.table import table
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.expect import unmet
from simulator.scenario.loading import list_scenarios, load_scenario
from simulator.scenario.schema import Scenario

BASELINE = "baseline"


@click.command()
@click.argument("scenario", default="hotspot")
@click.option("--list", "list_only", is_flag=True, help="List the scenarios that ship with the program.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Run so many seeds from --seed.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Runs side by side.")
@click.option("--minutes", type=click.FloatRange(0, 100_000, min_open=True), help="Run so long instead.")
@click.option(
    "--policy", type=click.Path(dir_okay=False), help="The policy to try: a policy.yaml or a ConfigMap."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change the scenario (repeatable)."
)
@click.option(
    "--cluster", type=click.Path(dir_okay=False), default="", help="Take nodes and VMs from a cluster dump."
)
@click.option(
    "--against", multiple=True, metavar="baseline|FILE", help="Compare with the classic loop or a policy."
)
@click.option(
    "--baseline-interval", type=click.FloatRange(1), default=180.0, show_default=True, help="Seconds."
)
@click.option("--no-soft-tainter", is_flag=True, help="No soft taints, for both sides.")
@click.option("--report", type=click.Path(dir_okay=False), help="Where the HTML report goes.")
@click.option("--no-report", is_flag=True)
@click.option("--events", type=click.Path(dir_okay=False), help="Write the event log there, as JSON lines.")
@click.option(
    "--traces",
    type=click.Path(dir_okay=False),
    help="Write the first run's traces there, as OTLP JSON, which Jaeger opens.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def simulate(**given: Any) -> None:
    """Run the rebalancer on a simulated cluster, in virtual time.

    SCENARIO is the name of one that ships with the program, or a YAML file.
    """
    asked = _Asked(**given)
    if asked.list_only:
        for name, description in list_scenarios():
            click.echo(f"{name:<12} {' '.join(description.split())}")
        return
    try:
        _simulate(asked)
    except (ScenarioErrors, BrokenInvariant) as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, as click has parsed it."""

    scenario: str
    list_only: bool
    seed: int
    seeds: int
    jobs: int
    minutes: float | None
    policy: str | None
    overrides: tuple[str, ...]
    cluster: str
    against: tuple[str, ...]
    baseline_interval: float
    no_soft_tainter: bool
    report: str | None
    no_report: bool
    events: str | None
    traces: str | None
    output: str


def _simulate(asked: _Asked) -> None:
    scenario = load_scenario(asked.scenario, asked.overrides, cluster=asked.cluster)
    if asked.policy and scenario.policy != load_scenario(asked.scenario, cluster=asked.cluster).policy:
        raise click.UsageError("--set changes the scenario's policy, which --policy takes the place of")
    if asked.minutes is not None:
        scenario = msgspec.structs.replace(scenario, minutes=asked.minutes)
    runs = [
        replace(program, seed=seed, command=_command(seed))
        for program in _programs(scenario, asked)
        for seed in range(asked.seed, asked.seed + asked.seeds)
    ]
    if asked.traces:
        runs[0] = replace(runs[0], traced=True)  # another run has the same pods, and so the same traces
    target = None if asked.no_report else Path(asked.report or f"vm-rebalancer-{scenario.name}.html")
    events = Path(asked.events) if asked.events else None
    traces = Path(asked.traces) if asked.traces else None
    for path in filter(None, (target, events, traces)):
        _check_writable(path)
    finished = _run_all(runs, asked.jobs)
    records = [f.record for f in finished]
    _print_scores(records, asked.output)
    if events is not None:
        events.write_bytes(b"".join(f.events for f in finished))
        click.echo(f"event log: {events}", err=True)
    if traces is not None:
        traces.write_bytes(traces_of(runs[0], finished[0]))
        click.echo(f"traces: {traces}", err=True)
    if target is not None:
        write_report(target, records)
        click.echo(f"report: {target}", err=True)
    if asked.policy is None:
        _tell_unmet(scenario, records)


def _print_scores(records: Sequence[RunRecord], output: str) -> None:
    runs = by_label(records)
    if output == "json":
        click.echo(to_json(runs))
    else:
        Console().print(table(runs))


def _programs(scenario: Scenario, asked: _Asked) -> Iterator[Run]:
    """What is run: the rebalancer, then everything it is compared with."""
    policy = policy_for(scenario, _read(asked.policy), asked.policy) if asked.policy else policy_for(scenario)
    soft_tainter, interval_s = not asked.no_soft_tainter, asked.baseline_interval
    first = Run(scenario, 0, policy, "", soft_tainter=soft_tainter, baseline_interval_s=interval_s)
    yield first
    for other in asked.against:
        if other == BASELINE:
            yield replace(first, label=BASELINE)
        else:
            yield replace(first, label=Path(other).stem, policy=policy_for(scenario, _read(other), other))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise click.ClickException(f"cannot read {path}: {reason}") from None


def _check_writable(path: Path) -> None:
    """Before the run, not after it: nobody wants to wait for a report that cannot be written."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


def _command(seed: int) -> str:
    """The command line that repeats one run."""
    words = ["vm-rebalancer", *sys.argv[1:]]
    return shlex.join([*words, "--seed", str(seed), "--seeds", "1"])


def _run_all(runs: Sequence[Run], jobs: int) -> list[Finished]:
    """In the order asked for. Raises what a run raises."""
    with _progress() as bar:
        if jobs > 1 and len(runs) > 1:
            task = bar.add_task("runs", total=len(runs))
            with ProcessPoolExecutor(jobs) as pool:
                futures = [pool.submit(_run_one, asked) for asked in runs]
                for future in as_completed(futures):
                    future.result()
                    bar.advance(task)
                return [future.result() for future in futures]
        return [_run_with_bar(asked, bar) for asked in runs]


def _run_one(asked: Run) -> Finished:
    return run_baseline(asked) if asked.label == BASELINE else run(asked)


def _run_with_bar(asked: Run, bar: Progress) -> Finished:
    task = bar.add_task(
        f"{asked.scenario.name}, {asked.label}, seed {asked.seed}", total=asked.scenario.minutes * 60
    )
    go = run_baseline if asked.label == BASELINE else run
    return go(asked, lambda passed_s: bar.update(task, completed=passed_s))


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar


def _tell_unmet(scenario: Scenario, records: Sequence[RunRecord]) -> None:
    """A scenario says what a good rebalancer does in it; that was written for its own policy."""
    for record in records:
        if record.label == "rebalancer":
            for miss in unmet(scenario.expect, msgspec.structs.asdict(scores(record))):
                click.echo(f"not as the scenario expects (seed {record.seed}): {miss}", err=True)
