"""Readings of a thousand devices (see `topologies.devices_data`), as columns and as batches of bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.generators.records import Batch, Columns
from topologies.devices_data import Devices

DEVICES = 1_000


def devices(count: int, seed: int = 42) -> Devices:
    """At least `count` readings: whole slots of all devices."""
    return Devices(slots=-(-count // DEVICES), devices=DEVICES, seed=seed)


def batches(of: Devices, role: str) -> Iterator[Batch]:
    """The readings as bytes, in the order in which they are sent."""
    for block in of.blocks():
        yield Batch(role, block.keys(), block.values(), block.timestamps)


def columns(of: Devices) -> Columns:
    """The readings' `key` (the device's number), `n` (the sequence number), `milli` (of the first sensor) and `timestamp`."""
    blocks = [(one.devices, one.sequence, one.sensors[:, 0].copy(), one.timestamps) for one in of.blocks()]
    parts = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    return Columns(dict(zip(("key", "n", "milli", "timestamp"), parts, strict=True)))
