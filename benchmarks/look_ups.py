"""The cost of a look-up in a table on disk: sorted keys at once, and one by one, against the rows and the cache.

    python -m benchmarks.look_ups [--rows 250000 --rows 2500000] [--cache-mib 8]

The table is filled as a task fills it, in steps that are written and merged, and read with random keys of which nearly all have
a row. Every value that is read is compared. CPU time of this process, which RocksDB's background threads do not use meanwhile.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from state.tables.open_tables import DiskTable, open_table
from state.tables.rocks_common import rocks_settings

_Read = TypeVar("_Read")
_SEED = 7
_MIB = 1024 * 1024
# A row is written this often on average; so e⁻³, a twentieth, of the keys have none.
_WRITES_PER_ROW = 3


def fill(table: DiskTable, rows: int, steps: int) -> dict[int, int]:
    """Writes rows of random numbers in steps; returns the last step of each number, which its value tells."""
    random = np.random.default_rng(_SEED)
    written: dict[int, int] = {}
    for step in track(range(steps), f"{rows:,} rows", console=Console(stderr=True), transient=True):
        numbers = np.unique(random.integers(0, rows, _WRITES_PER_ROW * rows // steps))
        table.write_columns(_keys(numbers), pa.array([_value(step)] * len(numbers), pa.binary()))
        written.update(dict.fromkeys(numbers.tolist(), step))
    return written


def look_up(table: DiskTable, written: dict[int, int], rows: int, count: int) -> tuple[float, float]:
    """CPU µs of a look-up among sorted keys at once, and of one by one.

    Raises:
        ValueError: A value is wrong.
    """
    numbers = np.unique(np.random.default_rng(_SEED + 1).integers(0, rows, count))
    keys = _keys(numbers)
    asked = keys.to_pylist()
    expected = [None if step is None else _value(step) for step in map(written.get, numbers.tolist())]
    together, values = _cpu_us(lambda: table.get_columns(keys), len(keys))
    single, found = _cpu_us(lambda: [table.get(key) for key in asked], len(keys))
    if not values.to_pylist() == found == expected:
        raise ValueError("look-ups gave wrong values")
    return together, single


def _cpu_us(read: Callable[[], _Read], count: int) -> tuple[float, _Read]:
    """CPU µs for each of `count` look-ups, the second time, and what they gave."""
    read()
    before = time.process_time()
    found = read()
    return (time.process_time() - before) * 1e6 / count, found


def _keys(numbers: npt.NDArray[np.int64]) -> pa.BinaryArray:
    return pa.array([b"\x00\x00\x00\x01key-%010d" % number for number in numbers.tolist()], pa.binary())


def _value(step: int) -> bytes:
    return b"%025d" % step


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Rows of the table; several times for several.")] = None,
    cache_mib: Annotated[int, typer.Option(help="RocksDB's block cache, MiB.")] = 8,
    steps: Annotated[int, typer.Option(help="Steps in which the table is filled.")] = 24,
    count: Annotated[int, typer.Option(help="Keys that are looked up.")] = 100_000,
) -> None:
    """Measure look-ups; prints CPU microseconds a key."""
    shown = Table("rows", "at once", "one by one", title=f"CPU µs a look-up, {cache_mib} MiB of cache")
    for size in rows or [250_000, 2_500_000]:
        with tempfile.TemporaryDirectory(prefix="streams-look-ups-") as folder:
            table = open_table(Path(folder) / "table", rocks_settings(cache_mib * _MIB))
            together, single = look_up(table, fill(table, size, steps), size, count)
            table.close()
        shown.add_row(f"{size:,}", f"{together:.2f}", f"{single:.2f}")
    Console().print(shown)


if __name__ == "__main__":
    typer.run(main)
