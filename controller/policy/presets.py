"""Named choices of the policy and what they stand for.

Threshold presets have the names and values of the OpenShift descheduler operator (there in percent). The
queries read series that the recording rules in ``charts/vm-rebalancer/files/recording-rules.yaml`` record.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from controller.policy.model import Bounds, BoundsKind, Query


def _deviation(under: float, over: float) -> Bounds:
    return Bounds(BoundsKind.DEVIATION, under, over)


def _static(under: float, over: float) -> Bounds:
    return Bounds(BoundsKind.STATIC, under, over)


def _recorded(name: str, series: str) -> Query:
    return Query(name=name, expression=series, recorded=True, window=timedelta(minutes=1))


DEVIATION_THRESHOLDS: Mapping[str, Bounds] = MappingProxyType(
    {
        "Low": _deviation(0.1, 0.1),
        "Medium": _deviation(0.2, 0.2),
        "High": _deviation(0.3, 0.3),
        "AsymmetricLow": _deviation(0.0, 0.1),
        "AsymmetricMedium": _deviation(0.0, 0.2),
        "AsymmetricHigh": _deviation(0.0, 0.3),
    }
)

UTILIZATION_THRESHOLDS: Mapping[str, Bounds] = MappingProxyType(
    {
        "Low": _static(0.1, 0.3),
        "Medium": _static(0.2, 0.5),
        "High": _static(0.4, 0.7),
    }
)

MULTI_EVICTIONS: Mapping[str, int] = MappingProxyType({"Simple": 1, "Modest": 2, "Rapid": 5})
"""Preset -> VMs on the move from one node at once."""

QUERIES: Mapping[str, Query] = MappingProxyType(
    {
        query.name: query
        for query in (
            _recorded("PrometheusCPUUsage", "vm_rebalancer:node_cpu_utilization:avg1m"),
            _recorded("PrometheusCPUPSIPressure", "vm_rebalancer:node_cpu_pressure:rate1m"),
            _recorded(
                "PrometheusCPUPSIPressureByUtilization",
                "vm_rebalancer:node_cpu_pressure_by_utilization:rate1m",
            ),
            _recorded("PrometheusMemoryPSIPressure", "vm_rebalancer:node_memory_pressure:rate1m"),
            _recorded("PrometheusIOPSIPressure", "vm_rebalancer:node_io_pressure:rate1m"),
            _recorded("PrometheusCPUCombined", "vm_rebalancer:node_cpu_combined:score"),
            _recorded("PrometheusCPUMemoryCombinedProfile", "vm_rebalancer:node_cpu_memory_combined:score"),
        )
    }
)
"""Preset -> the query it reads."""
