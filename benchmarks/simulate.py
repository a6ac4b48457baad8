"""How fast the simulator is: simulated time over wall time, for scenarios given as arguments.

python -m benchmarks.simulate hotspot pilot
"""

import resource
import sys
import time

from simulator.engine.run import Run, policy_for, run, run_baseline
from simulator.scenario import load_scenario


def main(names: list[str]) -> None:
    print(f"{'scenario':<12} {'program':<11} {'simulated s':>11} {'wall s':>8} {'ratio':>9} {'peak MB':>8}")
    for name in names:
        scenario = load_scenario(name)
        policy = policy_for(scenario)
        for label, go in (("rebalancer", run), ("baseline", run_baseline)):
            asked = Run(scenario, 1, policy, f"benchmark {name}", label=label)
            started = time.perf_counter()
            go(asked)
            took = time.perf_counter() - started
            simulated = scenario.minutes * 60
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            row = f"{simulated:>11.0f} {took:>8.2f} {simulated / took:>8.0f}x {peak_mb:>8.0f}"
            print(f"{name:<12} {label:<11} {row}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["hotspot"])
