"""The formats of rows in internal stores, and the check that restored rows have them.

Operators take such rows apart by the lengths inside them, whole columns at a time. So a row of another format must not get into a
store: it is refused where it is read from a changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import numbers_at
from state.errors import ForeignRowError
from state.headers import decode_headers
from state.stores.buffer_values import BUFFERED_KEY_BYTES, NULL
from state.stores.changelog_records import ChangelogBatch
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.spec import (
    HASH_BYTES,
    NO_HASH,
    PARTITION_BYTES,
    SUBSCRIPTION_VERSIONS,
    RowFormat,
    StoreKind,
    StoreSpec,
)
from state.stores.suppressed_rows import update_parts
from state.stores.unmatched_lists import TIME_SIDE
from state.stores.unmatched_rows import header_cells, wrong_lists

Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def check_format(spec: StoreSpec, records: ChangelogBatch, offsets: Int64s, topic: str, partition: int) -> None:
    """Refuses records that are not in the format of their store. Raises `ForeignRowError`."""
    found = None if spec.rows is None or spec.rows not in _CHECKS else misfit(spec.rows, records)
    if found is not None:
        raise _foreign(spec, found, offsets, topic, partition)


def check_keys(spec: StoreSpec, records: ChangelogBatch, offsets: Int64s, topic: str, partition: int) -> None:
    """Refuses records whose keys are not of the store's kind. Raises `ForeignRowError`."""
    found = _short_key(spec, records)
    if found is not None:
        raise _foreign(spec, found, offsets, topic, partition)


def _foreign(spec: StoreSpec, found: tuple[int, str], offsets: Int64s, topic: str, partition: int) -> ForeignRowError:
    at, why = found
    form = f"{spec.kind.value} rows" if spec.rows is None else spec.rows.value
    return ForeignRowError(spec.name, topic, partition, int(offsets[at]), form, why)


def _short_key(spec: StoreSpec, records: ChangelogBatch) -> tuple[int, str] | None:
    if records.keys.null_count:
        return int(np.argmin(_valid(records.keys))), "it has no key"
    suffix = (SESSION_SUFFIX if spec.kind is StoreKind.SESSION else WINDOW_SUFFIX) if spec.kind.segmented else 0
    if not suffix or not len(records):
        return None
    sizes = _sizes(records.keys)
    return (int(sizes.argmin()), f"its key has less than {suffix} bytes") if int(sizes.min()) < suffix else None


def misfit(form: RowFormat, records: ChangelogBatch) -> tuple[int, str] | None:
    """The index of the first record that is not in the format, with the reason; None if all are in the format."""
    found = [(int(np.argmax(wrong)), why) for wrong, why in _CHECKS[form](records) if wrong.any()]
    return min(found, default=None)


def _waiting(records: ChangelogBatch) -> Iterator[tuple[Mask, str]]:
    short = _sizes(records.keys) < 17
    yield short, "its key has less than 17 bytes"
    valid = _valid(records.values)
    cut_off = valid & (_sizes(records.values) < 5)
    yield cut_off, "its value has less than 5 bytes"
    at = np.flatnonzero(valid & ~short & ~cut_off)
    keys, values = records.keys.take(pa.array(at)), records.values.take(pa.array(at))
    yield _mask(at, valid, _bytes_at(keys, 8) != _bytes_at(values, 0)), "its key and its value name different sides"
    heads = _numbers(values, 1)
    yield _mask(at, valid, (heads < 0) | (heads > _sizes(values) - 5)), "its headers are longer than the row"


def _buffered(records: ChangelogBatch) -> Iterator[tuple[Mask, str]]:
    short = _sizes(records.keys) < BUFFERED_KEY_BYTES
    yield short, f"its key has fewer than {BUFFERED_KEY_BYTES} bytes"
    valid = _valid(records.values)
    at = np.flatnonzero(valid & ~short)
    if len(at):
        keys, values = records.keys.take(pa.array(at)), records.values.take(pa.array(at))
        parts = update_parts(values)
        wrong = parts.wrong | (parts.new[2] == NULL)
        yield _mask(at, valid, wrong), "the lengths inside its value are not those of its parts"
        sure = pa.array(np.flatnonzero(~wrong))
        times = numbers_at(values.take(sure), 0) != numbers_at(keys.take(sure), 1)
        yield _mask(at[~wrong], valid, times), "its key and its value have different times"


def _unmatched(records: ChangelogBatch) -> Iterator[tuple[Mask, str]]:
    short = _sizes(records.keys) < TIME_SIDE.size
    yield short, f"its key has fewer than {TIME_SIDE.size} bytes"
    at = np.flatnonzero(~short)
    sides = np.zeros(len(short), np.int64)
    sides[at] = _bytes_at(records.keys.take(pa.array(at)), TIME_SIDE.size - 1)
    yield sides > 1, "its key names neither side of the join"
    at = np.flatnonzero(_valid(records.values) & ~short)
    headers = header_cells(records.headers)
    own = None if headers is None else [headers[row] for row in at.tolist()]
    wrong = wrong_lists(sides[at], records.values.take(pa.array(at)), own)
    yield _mask(at, short, wrong), "its value is not a list of values of the side that its key names"


def _suppressed(records: ChangelogBatch) -> Iterator[tuple[Mask, str]]:
    """The masks of wrong rows, with reasons: of Kafka Streams' version 3, and of releases before 1.0, without a version."""
    valid = _valid(records.values)
    marks = [None] * len(valid) if records.headers is None else records.headers.to_pylist()
    versions = [dict(decode_headers(cell)).get("v") for cell in marks]
    theirs = valid & np.array([version is not None for version in versions], np.bool_)
    unknown = theirs & np.array([version != b"\x03" for version in versions], np.bool_)
    named = next((versions[row] for row in np.flatnonzero(unknown)), None)
    yield (
        unknown,
        f"its header 'v' names the version {(named or b'').hex()} of suppressed updates, and this release knows 3",
    )
    at = np.flatnonzero(theirs & ~unknown)
    if len(at):
        wrong = update_parts(records.values.take(pa.array(at))).wrong
        yield _mask(at, valid, wrong), "the lengths inside its value are not those of its parts"
    before = valid & ~theirs
    yield before & (_sizes(records.keys) < 8), "its key has fewer than 8 bytes, and it has no header 'v'"
    cut_off = before & (_sizes(records.values) < 24)
    yield cut_off, "its value has less than 24 bytes"
    at = np.flatnonzero(before & ~cut_off)
    values = records.values.take(pa.array(at))
    lengths = np.array([_numbers(values, place) for place in (8, 12, 16, 20)], np.int64)
    too_long = (lengths < -1).any(axis=0) | (np.maximum(lengths, 0).sum(axis=0) > _sizes(values) - 24)
    yield _mask(at, valid, too_long), "the lengths inside its value are not those of its parts"


def _subscription(records: ChangelogBatch) -> Iterator[tuple[Mask, str]]:
    short = _sizes(records.keys) < 4
    yield short, "its key has less than 4 bytes"
    at = np.flatnonzero(~short)
    keys = records.keys.take(pa.array(at))
    foreign = _numbers(keys, 0)
    yield _mask(at, short, (foreign < 0) | (foreign > _sizes(keys) - 4)), "the foreign key is longer than the row's key"
    valid = _valid(records.values)
    cut_off = valid & (_sizes(records.values) < 2)
    yield cut_off, "its value has less than 2 bytes"
    at = np.flatnonzero(valid & ~cut_off)
    values = records.values.take(pa.array(at))
    flags, sizes = _bytes_at(values, 0), _sizes(values)
    versions = flags & ~NO_HASH
    yield (
        _mask(at, valid, ~np.isin(versions, SUBSCRIPTION_VERSIONS)),
        f"it is of version {int(versions.max(initial=0))} of subscriptions, and this release knows 0 and 1",
    )
    needed = 2 + np.where(flags & NO_HASH, 0, HASH_BYTES) + np.where(versions == 1, PARTITION_BYTES, 0)
    yield _mask(at, valid, sizes < needed), "its value is cut off"


_CHECKS: Mapping[RowFormat, Callable[[ChangelogBatch], Iterator[tuple[Mask, str]]]] = {
    RowFormat.WAITING: _waiting,
    RowFormat.BUFFERED: _buffered,
    RowFormat.UNMATCHED: _unmatched,
    RowFormat.SUPPRESSED: _suppressed,
    RowFormat.SUBSCRIPTION: _subscription,
}


def _sizes(cells: pa.BinaryArray) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(cells), 0).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)


def _valid(cells: pa.BinaryArray) -> Mask:
    valid: Mask = cells.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _mask(at: npt.NDArray[np.int64], like: Mask, wrong: Mask) -> Mask:
    """A mask over all rows, from a mask over some of them."""
    mask = np.zeros(len(like), np.bool_)
    mask[at[wrong]] = True
    return mask


def _bytes_at(cells: pa.BinaryArray, place: int) -> npt.NDArray[np.int64]:
    return _read(cells, place, 1, np.uint8)


def _numbers(cells: pa.BinaryArray, place: int) -> npt.NDArray[np.int64]:
    return _read(cells, place, 4, ">i4")


def _read(cells: pa.BinaryArray, place: int, size: int, kind: Any) -> npt.NDArray[np.int64]:
    """Reads a number of `size` bytes from each cell, at byte `place`. No cell may be null or too short."""
    if not len(cells):
        return np.empty(0, np.int64)
    data = pc.binary_slice(cells, place, place + size).cast(pa.binary(size)).buffers()[1]
    return np.frombuffer(data, kind, len(cells)).astype(np.int64)
