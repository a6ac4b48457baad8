"""Pressure stall information (PSI, "some": share of time in which something waits) from how loaded a node is.

CPU, ``load`` = cores wanted / cores there
    ``min(1, 0.3 * x² + s)`` with ``x = (load - 0.7) / 0.3`` held in 0..1, and ``s = 1 - 1/load``
    above load 1, else 0: the share of demand that is starved. None up to 70 %; 0.033 at 80 %, 0.13 at 90 %,
    0.3 at 100 %, 0.41 at 112 %.
Memory, ``load`` = memory in use / memory there
    ``min(1, 0.5 * x² + s)`` with ``x = (load - 0.9) / 0.1`` held in 0..1, and the same ``s``.
IO
    half of the memory pressure: reading back what was reclaimed. Disks and networks are not modelled.

Kernel: Documentation/accounting/psi.rst. It gives no such function; this one has the shape that matters here.
"""

import numpy as np

from simulator.world.vmtable import FloatArray


def cpu_pressure(load: FloatArray) -> FloatArray:
    """0..1, for loads >= 0."""
    return _pressure(load, start=0.7, at_capacity=0.3)


def memory_pressure(load: FloatArray) -> FloatArray:
    """0..1, for loads >= 0."""
    return _pressure(load, start=0.9, at_capacity=0.5)


def io_pressure(memory_pressure: FloatArray) -> FloatArray:
    """0..0.5."""
    return 0.5 * memory_pressure


def _pressure(load: FloatArray, *, start: float, at_capacity: float) -> FloatArray:
    x = np.minimum(np.maximum(load - start, 0.0) / (1.0 - start), 1.0)
    pressure: FloatArray = np.minimum(at_capacity * x * x + (1.0 - 1.0 / np.maximum(load, 1.0)), 1.0)
    return pressure
