"""A look at a simulated cluster in the middle of a run, for ``vm-rebalancer plan --scenario``."""

import msgspec

from controller.cluster.caches import ClusterCaches
from controller.plan.sources import Cluster, LookError, policy_of_file
from controller.policy.model import Mode, Policy
from simulator.build import build
from simulator.engine.ports import AgendaClock, BrokenInvariant, SimulatedMetrics
from simulator.engine.run import Run, policy_for, rebalance
from simulator.engine.watches import streams
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.loading import load_scenario
from simulator.seeds import plain_random


def scenario(name: str, minute: float, seed: int, policy_file: str | None) -> tuple[Cluster, Policy]:
    """The cluster as it is after so many minutes with the rebalancer at work.

    ``policy_file`` as for ``simulate --policy``. Raises LookError, PolicyErrors.
    """
    try:
        asked = load_scenario(name)
        policy = policy_of_file(policy_file, Mode.AUTOMATIC) if policy_file else policy_for(asked)
        simulation = build(asked, seed)
        shortened = msgspec.structs.replace(asked, minutes=minute)
        rebalance(Run(shortened, seed, policy, command=f"simulate {name} --seed {seed}"), simulation)
    except (ScenarioErrors, BrokenInvariant) as error:
        raise LookError(str(error)) from error
    caches = ClusterCaches()
    for stream in streams(caches.informers(), simulation.agenda, plain_random(seed, "look")):
        stream.list(simulation.store)
    metrics = SimulatedMetrics(simulation.metrics, simulation.troubles, simulation.agenda)
    title = f"scenario {asked.name}, minute {minute:g}, seed {seed}"
    return Cluster(title, caches, metrics, AgendaClock(simulation.agenda)), policy
