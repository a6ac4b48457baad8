"""Recorded series of VMs' use, from a CSV or Parquet file with the columns
``time,vm,cpu_cores,memory_bytes``.

``time``: seconds since the start of the run, or RFC 3339 instants, which count from the earliest in the file.
``vm``: ``namespace/name``. An empty ``cpu_cores`` or ``memory_bytes`` leaves that as it was.
"""

import csv
import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.scenario.checking import Problem, ScenarioErrors, unknown_name
from simulator.world.vmtable import FloatArray, IntArray

COLUMNS = ("time", "vm", "cpu_cores", "memory_bytes")


class Series(NamedTuple):
    """Rows in order of time; NaN: no value."""

    times_s: FloatArray
    vms: IntArray
    """Positions in the order of the names that were given."""
    cpu_cores: FloatArray
    memory_bytes: FloatArray


def read_series(file: str, positions: Mapping[str, int]) -> Series:
    """``positions``: namespace/name -> position of each VM of the scenario.

    Raises ``ScenarioErrors`` with the row for what cannot be read, and for VMs that the scenario does not
    have.
    """
    path = Path(file)
    try:
        rows = list(_parquet(path) if path.suffix == ".parquet" else _csv(path))
    except OSError as error:
        raise _error(file, str(error.strerror), "a readable CSV or Parquet file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise _error(file, str(error), "a CSV file in UTF-8") from None
    if not rows:
        raise _error(file, "no rows", "at least one")
    times = _times(file, [time for _, (time, _, _, _) in rows])
    vms = np.array([_position(file, row, str(vm), positions) for row, (_, vm, _, _) in rows], dtype=np.intp)
    cores = np.array([_number(file, row, "cpu_cores", value) for row, (_, _, value, _) in rows])
    memory = np.array([_number(file, row, "memory_bytes", value) for row, (_, _, _, value) in rows])
    order = np.argsort(times, kind="stable")
    return Series(times[order], vms[order], cores[order], memory[order])


Row = tuple[int, tuple[Any, Any, Any, Any]]


def _csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        _check_columns(str(path), reader.fieldnames or ())
        for record in reader:
            if None in record or None in record.values():
                raise _error(
                    str(path), f"row {reader.line_num} has too many or too few columns", "one for each name"
                )
            yield reader.line_num, (record["time"], record["vm"], record["cpu_cores"], record["memory_bytes"])


def _parquet(path: Path) -> Iterator[Row]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise _error(
            str(path), "Parquet needs pyarrow, which is not installed", "a CSV file, or pip install pyarrow"
        ) from None
    try:
        table = parquet.read_table(path)
    except ValueError as error:  # what pyarrow's errors are made of
        raise _error(str(path), str(error), "a Parquet file") from None
    _check_columns(str(path), table.column_names)
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    yield from enumerate(zip(*columns, strict=True), start=1)


def _check_columns(file: str, found: Iterable[str]) -> None:
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise _error(file, f"no column {', '.join(missing)}", f"the columns {', '.join(COLUMNS)}")


def _times(file: str, values: list[Any]) -> FloatArray:
    try:
        times = np.array([float(value) for value in values])
    except (TypeError, ValueError):
        try:
            instants = [
                value if isinstance(value, datetime) else datetime.fromisoformat(value) for value in values
            ]
            earliest = min(instants)
            times = np.array([(instant - earliest).total_seconds() for instant in instants])
        except (TypeError, ValueError) as error:
            raise _error(
                file, f"time: {error}", "seconds since the start, or RFC 3339 instants, throughout"
            ) from None
    if not (np.isfinite(times).all() and (times >= 0).all()):
        raise _error(file, "time: negative or not finite", "seconds since the start, 0 and up")
    return times


def _position(file: str, row: int, vm: str, positions: Mapping[str, int]) -> int:
    if vm not in positions:
        problem = unknown_name("load.replay", vm, positions, "VM")
        raise ScenarioErrors(f"{file} row {row}", [problem])
    return positions[vm]


def _number(file: str, row: int, column: str, value: Any) -> float:
    if value is None or value == "":
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        raise ScenarioErrors(
            f"{file} row {row}", [Problem(column, repr(value), "a number, 0 and up, or nothing")]
        )
    return number


def _error(file: str, found: str, allowed: str) -> ScenarioErrors:
    return ScenarioErrors(file, [Problem("load.replay", found, allowed)])
