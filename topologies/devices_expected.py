"""The results of `devices` recomputed by plain numpy and pandas, without any code of the engine.

Lateness is recomputed too. A task's stream time is the largest timestamp that it has seen, and a window accepts no record
once stream time has reached the window's end plus grace. With as many tasks as partitions, a task sees exactly one partition
in offset order, so its stream time is the running maximum; with any other number of tasks, lateness could differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from topologies.devices_data import Devices

Table = dict[str, dict[str, Any]]


def expected_windows(readings: pd.DataFrame, size_ms: int, grace_ms: int) -> Table:
    """The expected contents of the topics of windowed statistics, by `device|window start`.

    Args:
        readings: The result of `all_readings`.
        size_ms: The size of the tumbling windows.
        grace_ms: How late a reading may be.
    """
    starts = readings["timestamp"] // size_ms * size_ms
    taken = readings.assign(window_start=starts)[starts + size_ms + grace_ms > readings["stream_time"]]
    rows = (
        taken.groupby(["device", "window_start"])["sensor"]
        .agg(readings="count", mean="mean", min="min", max="max", last="last")
        .reset_index()
        .to_dict("records")
    )
    return {f"dev-{row['device']:06d}|{row['window_start']}": _without_device(row) for row in rows}


def expected_gaps(readings: pd.DataFrame) -> dict[str, int]:
    """The missing readings between the first and the last sequence number, by device, without devices that miss none."""
    ends = readings.groupby("device")["sequence"].agg(["count", "min", "max"])
    missing = ends["max"] - ends["min"] + 1 - ends["count"]
    return {f"dev-{device:06d}": int(count) for device, count in missing[missing > 0].items()}


def all_readings(devices: Devices, partition_of: npt.NDArray[np.int32]) -> pd.DataFrame:
    """Every reading that is sent, in order: device, sequence, timestamp, sensor (the first one), stream_time.

    Args:
        devices: The workload.
        partition_of: int32[devices], the partition of each device's key.
    """
    blocks = [
        pd.DataFrame(
            {
                "device": block.devices,
                "sequence": block.sequence,
                "timestamp": block.timestamps,
                "sensor": block.sensors[:, 0] / 1000,
                "partition": partition_of[block.devices],
            }
        )
        for block in devices.blocks()
    ]
    readings: pd.DataFrame = pd.concat(blocks, ignore_index=True)
    readings["stream_time"] = readings.groupby("partition")["timestamp"].cummax()
    return readings


def _without_device(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "device"}
