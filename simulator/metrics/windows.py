"""Prometheus' functions over a window of samples, for many series at once.

All series of a window were scraped at the same instants, so a window is (times_s: k, values: k x n, k >= 1).
"""

import numpy as np

from simulator.world.vmtable import FloatArray


def average_over_time(_times_s: FloatArray, values: FloatArray, _start_s: float, _end_s: float) -> FloatArray:
    """``avg_over_time``: the plain mean of the samples; n values."""
    mean: FloatArray = values.mean(axis=0)
    return mean


def rate(times_s: FloatArray, values: FloatArray, start_s: float, end_s: float) -> FloatArray:
    """``rate`` of counters over the window [start, end]; n values, NaN with fewer than two samples.

    As Prometheus 2 does it (``promql/functions.go``, ``extrapolatedRate``): a fall is a counter's restart
    from zero; the slope is carried on to an edge of the window that lies within 1.1 sample distances, else
    half a distance; and never to before the point at which the counter would have been zero. (Prometheus 3
    asks about the edge before it asks about zero; the two differ only in a counter's first minute.)
    """
    samples = len(times_s)
    if samples < 2:
        return np.full(values.shape[1], np.nan)
    sampled_s = times_s[-1] - times_s[0]
    distance_s = sampled_s / (samples - 1)
    before, after = values[:-1], values[1:]
    increase = values[-1] - values[0] + np.where(after < before, before, 0.0).sum(axis=0)
    to_start_s = np.full(values.shape[1], times_s[0] - start_s)
    growing = (increase > 0) & (values[0] >= 0)
    to_zero_s = sampled_s * (values[0][growing] / increase[growing])
    to_start_s[growing] = np.minimum(to_start_s[growing], to_zero_s)
    to_end_s = end_s - times_s[-1]
    near_s = 1.1 * distance_s
    covered_s = sampled_s + np.where(to_start_s < near_s, to_start_s, distance_s / 2)
    covered_s = covered_s + (to_end_s if to_end_s < near_s else distance_s / 2)
    per_second: FloatArray = increase * (covered_s / sampled_s) / (end_s - start_s)
    return per_second
