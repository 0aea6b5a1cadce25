"""Converts keys and values of typed stores to bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import FEW_CELLS, BinaryColumn, binary_column, cell_sizes, long_cells, numbers_at, sliced
from state.exact_json import read as read_json
from state.kafka.topics import NO_LIMIT
from streams.errors import OversizedRowError
from streams.model.record import NO_TIME, ValueAndTimestamp
from streams.operators.columnar import EncodedValues, KeyColumn, WrittenValues, value_column
from streams.serdes.base import Itself, Serde, cannot_keep, comes_back, kept
from streams.serdes.columns import normal_cells, read_all, write_all
from streams.serdes.json import is_plain_json
from streams.serdes.json_text import all_kept
from streams.serdes.order import KeyOrder, KeySpan, check_bound, key_order

# --- Converts a store's keys and values to bytes by its serdes, and checks that a row fits the changelog.

_TIMESTAMP = 8
"""The size in bytes of the timestamp at the beginning of a local value of a timestamped store."""


def _stamped(value: bytes | None, timestamp: int) -> bytes | None:
    return None if value is None else timestamp.to_bytes(_TIMESTAMP, "big") + value


class _KeptSerdes(NamedTuple):
    """Serdes derived from a store's serdes. They are cached, because a task makes the codecs of its stores again for each step."""

    keys: Serde
    values: Serde
    shares: bool
    check: Callable[[Any], object] | None
    order: KeyOrder


@lru_cache(1024)
def _kept_serdes(key_serde: Itself[Serde], value_serde: Itself[Serde]) -> _KeptSerdes:
    values = kept(value_serde.one)
    shares = comes_back(values)
    check = getattr(values, "check", None) if shares else None
    return _KeptSerdes(kept(key_serde.one), values, shares, check, key_order(key_serde.one))


class Codec:
    """Serdes of one store, bound to its name for messages.

    Args:
        topic: The topic passed to serdes: the changelog.
        value_serde: Serde of the values.
        room: The largest size of key and value together that fits the changelog, bytes.
    """

    def __init__(self, topic: str, key_serde: Serde, value_serde: Serde, room: int = NO_LIMIT) -> None:
        self.topic = topic
        self._room = room
        serdes = _kept_serdes(Itself(key_serde), Itself(value_serde))
        self._key_serde, self._bound_serde = serdes.keys, key_serde
        self._value_serde = serdes.values
        self._shares = serdes.shares
        self._check = serdes.check
        self.order = serdes.order
        # Most records of a step repeat a few text keys. Only texts are cached, because 1, 1.0 and True are equal but different
        # keys.
        self._text_keys: dict[str, bytes] = {}

    def key(self, key: Any) -> bytes:
        """The key's bytes. Raises ValueError for a null key, which no store accepts."""
        if type(key) is str and key in self._text_keys:
            return self._text_keys[key]
        data = self._key_serde.serialize(self.topic, key)
        if data is None:
            raise _null_key(self.topic)
        if type(key) is str:
            self._text_keys[key] = data
        return data

    def base_key(self, key: Any, data: bytes | None) -> bytes | None:
        """The bytes of a windowed key without its window; `data`, all bytes of the key, if the serde does not separate them."""
        base = getattr(self._key_serde, "serialize_base_key", None)
        return data if base is None else cast("bytes", base(self.topic, key))

    def spans(self, lower: Any, upper: Any, reverse: bool) -> list[KeySpan]:
        """The spans of bytes that contain the rows with lower <= key <= upper, in the order of the keys; None: no bound.

        Raises:
            KeyOrderError: The bytes of such keys do not sort as the keys do.
        """
        return self.order.spans(self._bound(lower), self._bound(upper), reverse)

    def _bound(self, key: Any) -> bytes | None:
        if key is None:
            return None
        check_bound(self._key_serde, key, f"The store with the changelog '{self.topic}'")
        # A bound need not be a valid key: 2 is a bound for keys that are floats. So it is written by the store's own serde.
        return self._bound_serde.serialize(self.topic, key)

    def keys(self, keys: KeyColumn) -> list[bytes]:
        """The bytes of a column's distinct keys, as `key` returns them; empty for None, which is never the key of a row."""
        data = keys.encoded(self._key_serde, self.topic)
        if None in data:
            if any(one is None and key is not None for key, one in zip(keys.objects, data, strict=True)):
                raise _null_key(self.topic)
            return [one or b"" for one in data]
        return cast("list[bytes]", data)

    def key_cells(self, keys: KeyColumn) -> BinaryColumn:
        """The bytes of each row's key, as `key` returns them."""
        cells = keys.column(self._key_serde, self.topic)
        if cells.null_count:
            raise _null_key(self.topic)
        return cells

    def key_column(self, objects: list[Any], data: list[bytes]) -> KeyColumn:
        """A column of keys whose bytes are known."""
        return KeyColumn(np.arange(len(objects), dtype=np.int32), objects, data, self._key_serde)

    def value(self, value: Any) -> bytes | None:
        return self._value_serde.serialize(self.topic, value)

    def seen(self, value: Any) -> Any:
        """Returns the value that functions see after it was stored: what deserialising its bytes gives.

        So functions see the same value in this step, from the cache, and in later steps, from the store.

        Raises:
            SerdeError: The value would be read back as something else.
        """
        if self._check is not None:
            try:
                self._check(value)
            except (TypeError, ValueError) as error:
                raise cannot_keep(self._value_serde, self.topic, value, error) from error
            return value
        data = self.value(value)
        return value if self._shares else self.read_value(data)

    def all_seen(self, values: Sequence[Any]) -> bool:
        """Whether `seen` accepts all of many values, where the store `holds_json`."""
        return all_kept(values)

    def seen_column(self, values: Sequence[Any]) -> Sequence[Any]:
        """`seen` for many values. A value that is still bytes, and whose object was not handed out, is accepted unread."""
        if isinstance(values, EncodedValues):
            if self._shares and values.serde == self._value_serde:
                values.each_handed_out(self.seen)
                return values
        elif isinstance(values, WrittenValues) and self.holds_json:
            return values
        seen = self.seen
        return [None if value is None else seen(value) for value in values]

    def fitting(self, key: bytes, value: bytes | None) -> bytes | None:
        """Returns a local value. Raises `OversizedRowError` if the row does not fit the changelog."""
        if value is not None and len(key) + len(value) > self._room:
            raise OversizedRowError(
                f"the row of key {key[:64]!r} for the changelog {self.topic!r} has {len(key) + len(value)} bytes, {self._room} "
                f"fit: keep less under one key (a list or a text that grows with each record?), or raise max_record_bytes and "
                f"the changelog's max.message.bytes"
            )
        return value

    def check_all(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        self._check_sizes(keys, values, b"")

    def _check_sizes(self, keys: BinaryColumn, values: BinaryColumn, before: bytes) -> None:
        """Raises `OversizedRowError` if a row does not fit the changelog; each value is stored after the bytes `before`."""
        sizes = cell_sizes(keys) + cell_sizes(values)
        if values.null_count:
            sizes[values.is_null().to_numpy(zero_copy_only=False)] = 0
        if len(sizes) and int(sizes.max()) + len(before) > self._room:
            row = int(sizes.argmax())
            self.fitting(keys[row].as_py(), before + values[row].as_py())

    @property
    def reader(self) -> Callable[[Any], Any]:
        """Returns `read_value` as a function, in its fastest form."""
        return read_json if is_plain_json(self._value_serde) else self.read_value

    def read_key(self, data: bytes) -> Any:
        return self._key_serde.deserialize(self.topic, data)

    def read_value(self, data: bytes | None) -> Any:
        return self._value_serde.deserialize(self.topic, data)

    def timestamped(self, value: Any, timestamp: int) -> bytes | None:
        """The local value `timestamp(8) ∥ value`; None for None."""
        return _stamped(self.value(value), timestamp)

    def old_value(self, stored: bytes | None) -> Any:
        """The value in a local value, without its timestamp; None for None."""
        return None if stored is None else self.read_value(stored[8:])

    @property
    def holds_json(self) -> bool:
        """Whether values are stored as plain JSON."""
        return is_plain_json(self._value_serde)

    def writes_as(self, other: Codec) -> bool:
        """Whether both write equal values as equal bytes. Some serdes write the store's name into the bytes."""
        return is_plain_json(self._value_serde) and is_plain_json(other._value_serde)

    def cells(self, values: Sequence[Any]) -> list[bytes | None]:
        """The bytes of many values; None for None."""
        return write_all(self._value_serde, self.topic, values)

    def values(self, values: Sequence[Any]) -> BinaryColumn:
        return value_column(values, self._value_serde, self.topic)

    def timestamped_column(
        self, keys: BinaryColumn, values: BinaryColumn, timestamps: npt.NDArray[np.int64]
    ) -> BinaryColumn:
        """The local values of many rows; null for null.

        Raises:
            OversizedRowError: A row does not fit the changelog.
            OverflowError: A timestamp is below zero.
        """
        self._check_sizes(keys, values, bytes(_TIMESTAMP))
        if len(timestamps) and int(timestamps.min()) < 0:
            raise OverflowError("a timestamp below zero cannot be stored")
        if len(timestamps) <= FEW_CELLS:
            rows = zip(long_cells(timestamps), values.to_pylist(), strict=True)
            return binary_column([None if value is None else stamp + value for stamp, value in rows])
        stamps = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_TIMESTAMP), len(timestamps), [None, pa.py_buffer(timestamps.astype(">i8"))]
        )
        return pc.binary_join_element_wise(stamps.cast(values.type), values, pa.scalar(b"", values.type))

    def read_values(self, values: Sequence[bytes | None]) -> list[Any]:
        return read_all(self._value_serde, self.topic, values, None)

    def old_values(self, stored: BinaryColumn) -> list[Any]:
        """The values in many local values, without their timestamps; None for null."""
        return self.read_values([None if data is None else data[_TIMESTAMP:] for data in stored.to_pylist()])

    def encoded(self, cells: BinaryColumn) -> EncodedValues | None:
        return EncodedValues(cells, self._value_serde, self.topic, {}) if self.holds_json else None

    def encoded_texts(self, texts: BinaryColumn) -> EncodedValues:
        """Values of a store of plain JSON. A text that orjson would write differently is read, and written again."""
        return EncodedValues(texts, self._value_serde, self.topic, {}, normal_cells(self._value_serde, texts))

    def encoded_old(self, stored: BinaryColumn) -> EncodedValues | None:
        """The result of `old_values`, not yet decoded, if the values are stored as plain JSON; otherwise None."""
        if not self.holds_json or pa.types.is_large_binary(stored.type):
            return None
        return self.encoded(sliced(stored, _TIMESTAMP))

    def read_timestamped(self, data: bytes | None) -> ValueAndTimestamp | None:
        """Reads value and timestamp from a local value."""
        if data is None:
            return None
        return ValueAndTimestamp(self.read_value(data[_TIMESTAMP:]), timestamp_of(data))


def value_of(stored: bytes | None) -> bytes | None:
    """The value's bytes in a local value; None for None."""
    return None if stored is None else stored[_TIMESTAMP:]


def timestamp_of(stored: bytes) -> int:
    """The timestamp in a local value, ms."""
    return int.from_bytes(stored[:_TIMESTAMP], "big")


def timestamps_of(stored: BinaryColumn) -> npt.NDArray[np.int64]:
    """The timestamps in many local values of a timestamped store, ms; `NO_TIME` for null."""
    if not stored.null_count and not pa.types.is_large_binary(stored.type):
        return numbers_at(stored, 0)
    cells = pc.fill_null(pc.binary_slice(stored, 0, _TIMESTAMP), NO_TIME.to_bytes(_TIMESTAMP, "big", signed=True))
    fixed = cells.cast(pa.binary(_TIMESTAMP))
    if not len(fixed):
        return np.empty(0, np.int64)
    return np.frombuffer(fixed.buffers()[1], ">i8", len(fixed), _TIMESTAMP * fixed.offset).astype(np.int64)


def _null_key(topic: str) -> ValueError:
    return ValueError(f"a null key cannot be looked up or stored ({topic})")
