"""The traces of a run as a file: what the descheduler would have sent to a collector, at virtual dates."""

from controller.telemetry.otlp import SERVICE, otlp_json
from controller.telemetry.spans import AttributeValue
from simulator.engine.run import Finished, Run


def traces_of(run: Run, finished: Finished) -> bytes:
    """OTLP JSON."""
    resource: dict[str, AttributeValue] = {
        "service.name": SERVICE,
        "vm_rebalancer.scenario": run.scenario.name,
        "vm_rebalancer.seed": run.seed,
        "vm_rebalancer.policy": run.policy.digest,
    }
    return otlp_json(finished.spans, resource)
