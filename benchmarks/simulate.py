"""How fast the simulator is: simulated time over wall time, by scenario and program, and what it was asked to be.

python -m benchmarks.simulate              hotspot, pilot, week, large
python -m benchmarks.simulate pilot my.yaml

One run after the other, each in a process of its own: the peak memory is that run's, and nothing is warm. Where other
work shares the machine, CPU time says more than wall time; ratios within one table compare best.
"""

import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from simulator.engine.run import Run, policy_for, run, run_baseline
from simulator.report.scores import scores
from simulator.scenario.loading import load_scenario

SCENARIOS = ("hotspot", "pilot", "week", "large")
LIMITS_S = {"pilot": 10, "week": 120, "large": 90}
"""Wall seconds that a run of the rebalancer may take on two cores."""
PROGRAMS = {"rebalancer": run, "baseline": run_baseline}


class Measured(NamedTuple):
    simulated_s: float
    wall_s: float
    cpu_s: float
    peak_mb: float
    migrations: int


def measure(name: str, program: str) -> Measured:
    scenario = load_scenario(name)
    asked = Run(scenario, 1, policy_for(scenario), f"benchmark {name}", program)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    finished = PROGRAMS[program](asked)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(scenario.minutes * 60, wall_s, cpu_s, peak_mb, scores(finished.record).migrations)


def main(names: list[str]) -> None:
    columns = (
        f"{'simulated':>10} {'wall':>9} {'limit':>6} {'CPU':>9} {'ratio':>8} {'peak':>8} {'migrations':>10}"
    )
    print(f"{'scenario':<12} {'program':<11} {columns}")
    for name in names:
        for program in PROGRAMS:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                m = pool.submit(measure, name, program).result()
            limit = f"{LIMITS_S[name]} s" if name in LIMITS_S and program == "rebalancer" else ""
            print(
                f"{name:<12} {program:<11} {m.simulated_s:>8.0f} s {m.wall_s:>7.2f} s {limit:>6} {m.cpu_s:>7.2f} s "
                f"{m.simulated_s / m.wall_s:>7.0f}x {m.peak_mb:>5.0f} MB {m.migrations:>10}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(SCENARIOS))
