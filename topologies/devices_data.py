"""A thousand devices on one topic: a fast, seeded generator of exact bytes, and the plain recomputation of the answers.

Every device sends a reading every 10 ms: device i at a phase of i * 10 us, so a thousand devices produce 100,000 readings
per second of event time. A value is JSON of exactly 160 bytes,

    {"d":"dev-000123","s":4711,"t":1700000047111,"v":[48.215,90.034,12.700],"st":"ok","pad":"xxx..."}

with the device, its sequence number from 0, epoch ms, and three sensors from 10 to 99.999. The key is the device's
name, the record's timestamp is `t`. Each device is in order, except for one reading in a thousand, which is sent 1 to
200 positions (of the same device) later: up to 2 s. Readings may also be lost, for the gap detector to find.

Readings are generated in blocks of columns. The bytes depend on the seed only, and each block has its own random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VALUE_BYTES: Final = 160
PERIOD_MS: Final = 10
MOST_LATE_SLOTS: Final = 200
BLOCK_SLOTS: Final = 256
"""Slots generated at once. More than `MOST_LATE_SLOTS`, so a late reading is in the next block at the latest."""

MOST_DEVICES: Final = 100_000
_SENSORS: Final = 3
_KEY_BYTES: Final = 10

Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Readings:
    """n readings in the order in which they are sent.

    Attributes:
        devices: int64[n], number of the device.
        sequence: int64[n], the sequence number, which is the slot in which the reading was taken.
        slots: int64[n], the slot in which the reading is sent; later than `sequence` if it is late.
        timestamps: int64[n], epoch ms.
        sensors: int64[n, 3], thousandths.
        text: uint8[n, 160], the values' bytes.
    """

    devices: Int64s
    sequence: Int64s
    slots: Int64s
    timestamps: Int64s
    sensors: Int64s
    text: Bytes

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, rows: npt.NDArray[Any]) -> Readings:
        """The given rows, in the given order."""
        return Readings(*(column[rows] for column in self._columns()))

    def then(self, other: Readings) -> Readings:
        """These readings followed by others."""
        pairs = zip(self._columns(), other._columns(), strict=True)
        return Readings(*(np.concatenate(pair) for pair in pairs))

    def in_order(self) -> Readings:
        """The readings in sending order: by slot, then device; a late reading after the regular one of its slot."""
        is_late = self.slots > self.sequence
        position = (self.slots * MOST_DEVICES + self.devices) * 2 + is_late
        return self.take(np.argsort(position, kind="stable"))

    def keys(self) -> pa.BinaryArray:
        """The devices' names as an Arrow column."""
        return device_names(self.devices)

    def values(self) -> pa.BinaryArray:
        """The values as an Arrow column."""
        return _binary(self.text)

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.devices, self.sequence, self.slots, self.timestamps, self.sensors, self.text


@dataclass(frozen=True)
class Devices:
    """The workload to generate.

    Attributes:
        slots: The number of readings of each device.
        devices: The number of devices, at most 100,000 (beyond that a phase is longer than a second).
        seed: The seed of all random numbers.
        late_share: The share of late readings.
        lost_share: The share of lost readings.
        start_ms: The time of the first reading.
    """

    slots: int
    devices: int = 1_000
    seed: int = 42
    late_share: float = 0.001
    lost_share: float = 0.0
    start_ms: int = 1_700_000_000_000

    def blocks(self) -> Iterator[Readings]:
        """All readings that are not lost, block by block, in the order in which they are sent."""
        held: Readings | None = None
        for first in range(0, self.slots, BLOCK_SLOTS):
            end = min(first + BLOCK_SLOTS, self.slots)
            block = self._block(first, end)
            if held is not None:
                block = held.then(block)
            is_last = end == self.slots
            is_due = (block.slots < end) | is_last
            held = block.take(np.flatnonzero(~is_due))
            yield block.take(np.flatnonzero(is_due)).in_order()

    def _block(self, first: int, end: int) -> Readings:
        """The readings taken in the slots [first, end), whenever they are sent."""
        shape = (end - first, self.devices)
        random = np.random.default_rng([self.seed, first])
        sequence = np.repeat(np.arange(first, end), self.devices)
        devices = np.tile(np.arange(self.devices), end - first)
        timestamps = self.start_ms + sequence * PERIOD_MS + devices // 100
        sensors = random.integers(10_000, 100_000, (len(sequence), _SENSORS))
        is_late = random.random(shape).ravel() < self.late_share
        late_by = np.zeros(len(sequence), np.int64)
        late_by[is_late] = random.integers(1, MOST_LATE_SLOTS + 1, int(is_late.sum()))
        text = _text(devices, sequence, timestamps, sensors)
        block = Readings(devices, sequence, sequence + late_by, timestamps, sensors, text)
        if not self.lost_share:
            return block
        return block.take(np.flatnonzero(random.random(len(sequence)) >= self.lost_share))


def device_names(devices: Int64s) -> pa.BinaryArray:
    """The names of devices, which are the keys: `dev-000123`."""
    names = np.empty((len(devices), _KEY_BYTES), np.uint8)
    names[:, :4] = np.frombuffer(b"dev-", np.uint8)
    names[:, 4:] = digits(devices, 6)
    return _binary(names)


def digits(numbers: Int64s, width: int) -> Bytes:
    """ASCII digits of numbers >= 0, zero-padded: uint8[n, width]."""
    result = np.empty((len(numbers), width), np.uint8)
    rest = numbers
    for column in range(width - 1, -1, -1):
        quotient = rest // 10
        result[:, column] = rest - quotient * 10 + ord("0")
        rest = quotient
    return result


def _text(devices: Int64s, sequence: Int64s, timestamps: Int64s, sensors: Int64s) -> Bytes:
    """The values' bytes; rows with sequence numbers of the same length share one layout. `sequence` rises."""
    text = np.empty((len(sequence), VALUE_BYTES), np.uint8)
    begin = 0
    while begin < len(sequence):
        width = len(str(sequence[begin]))
        end = int(np.searchsorted(sequence, 10**width))
        rows = slice(begin, end)
        sample, places = _layout(width)
        part = text[rows]
        part[:] = np.frombuffer(sample, np.uint8)
        part[:, places["d"] : places["d"] + 6] = digits(devices[rows], 6)
        part[:, places["s"] : places["s"] + width] = digits(sequence[rows], width)
        part[:, places["t"] : places["t"] + 13] = digits(timestamps[rows], 13)
        for sensor in range(_SENSORS):
            at = places["v"] + 7 * sensor
            number = digits(sensors[rows, sensor], 5)
            part[:, at : at + 2] = number[:, :2]
            part[:, at + 3 : at + 6] = number[:, 2:]
        begin = end
    return text


def _layout(width: int) -> tuple[bytes, dict[str, int]]:
    """A template value for sequence numbers of a given width, and the offsets of its variable parts."""
    body = b'{"d":"dev-000000","s":' + b"0" * width + b',"t":0000000000000,"v":[00.000,00.000,00.000],"st":"ok","pad":"'
    sample = body + b"x" * (VALUE_BYTES - len(body) - 2) + b'"}'
    places = {"d": b'"dev-', "s": b'"s":', "t": b'"t":', "v": b"["}
    return sample, {name: sample.index(mark) + len(mark) for name, mark in places.items()}


def _binary(rows: Bytes) -> pa.BinaryArray:
    """Rows of equal length as an Arrow column, without a copy of the data."""
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
