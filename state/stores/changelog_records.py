"""The conversion between local rows and changelog records, for every kind of store; used by commit and restore.

| kind | changelog key | changelog value | record timestamp |
|---|---|---|---|
| key-value | key | value | passed to the put |
| timestamped key-value | key | bare value | the value's timestamp |
| window, timestamped window | key ∥ start(8) ∥ seq(4) | value, bare value | the same |
| session | key ∥ end(8) ∥ start(8) | value | passed to the put |
| versioned | key | bare value | the version's timestamp |
| key-value of suppressed updates | key | value (`suppressed_rows`) | passed to the put |
| key-value of unmatched records | key | list of values (`unmatched_lists`) | passed to the put |
| those of rows with headers | the same | value, whose headers are the record's (`header_rows`) | the same |

(Kafka Streams' own formats.) Marks of a version (`byte_stores.BOUNDED`, `FORGOTTEN`) are a header of its record.

A local key begins with the store's id(2), in segmented stores followed by the segment(8).
The conversion to local rows works on whole columns, because a restore handles millions of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.columns import joined, numbers_at, one_column, packed, sliced
from state.errors import RestoreError
from state.headers import encode_headers
from state.sorting import last_of_each
from state.stores.byte_stores import BOUNDED, FORGOTTEN, TOMBSTONE, VALUE
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX
from state.stores.header_rows import headers_in_front, without_headers
from state.stores.segments import Segments
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.stores.suppressed_rows import changelog_columns, local_columns
from state.stores.unmatched_rows import local_values, logged_columns
from state.tables.buffer import WriteColumns

Int64s = npt.NDArray[np.int64]

_MARKS = {
    mark: encode_headers([("__streams.version", name)])
    for mark, name in ((BOUNDED, b"bounded"), (FORGOTTEN, b"forgotten"))
}
"""First byte of a local value -> the headers of its changelog record."""


def _headers_of(mark: bytes) -> pa.Scalar:
    # Not at import: to make a scalar, pyarrow imports pandas, which commands that read no state do without.
    return pa.scalar(_MARKS[mark], pa.binary())


@dataclass(frozen=True, slots=True)
class ChangelogBatch:
    """Changelog records of one store, columns of equal length.

    Attributes:
        keys: Binary, none null.
        values: Binary, null = tombstone.
        timestamps: int64, ms.
        headers: Encoded headers, null = none; None = none at all.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps: Int64s
    headers: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.timestamps)


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows for a store's table.

    Attributes:
        keys: Local keys, strictly rising.
        values: Local values, null = delete.
        firsts: Segment -> first offset among the records that belong to it.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    firsts: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.keys)


def changelog_batches(spec: StoreSpec, writes: Iterable[WriteColumns]) -> Iterator[ChangelogBatch]:
    """Changelog records for a store's writes (local keys and values), part by part."""
    skip = 10 if spec.kind.segmented else 2
    if spec.rows is RowFormat.SUPPRESSED:
        yield from _updates(list(writes), skip)
        return
    for keys, values, timestamps in writes:
        if spec.kind is StoreKind.VERSIONED:
            batch = _versions(keys, values, timestamps, skip)
        elif spec.rows is RowFormat.UNMATCHED:
            logged, headers = logged_columns(values)
            batch = ChangelogBatch(sliced(keys, skip), logged, timestamps, headers)
        else:
            bare, headers = sliced(values, 8) if spec.kind.timestamped else values, None
            if spec.rows is RowFormat.WITH_HEADERS:
                bare, cells = without_headers(bare)
                headers = None if cells is None else pa.array(cells, pa.binary())
            batch = ChangelogBatch(sliced(keys, skip), bare, timestamps, headers)
        if len(batch):
            yield batch


def _updates(writes: list[WriteColumns], skip: int) -> Iterator[ChangelogBatch]:
    """Changelog records of a store of suppressed updates, all at once, because several parts may have places of the same key."""
    if writes:
        keys, values, timestamps = zip(*writes, strict=True)
        logged = changelog_columns(sliced(one_column(keys), skip), one_column(values))
        yield ChangelogBatch(logged.keys, logged.values, np.concatenate(timestamps)[logged.rows], logged.headers)


def _versions(keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: Int64s, skip: int) -> ChangelogBatch:
    """Changelog records of a versioned store.

    The store's own stream time (a bare prefix as key) and versions pruned from the history (no value) never reach the changelog.
    """
    logged = pc.and_(pc.greater(pc.binary_length(keys), skip), values.is_valid())
    keys, values = keys.filter(logged), values.filter(logged)
    marks = pc.binary_slice(values, 0, 1)
    deleted = pc.is_in(marks, pa.array([TOMBSTONE, FORGOTTEN], marks.type))
    bare = pc.if_else(deleted, pa.scalar(None, pa.binary()), sliced(values, 1))
    headers = pa.nulls(len(values), pa.binary())
    for mark in _MARKS:
        headers = pc.if_else(pc.equal(marks, mark), _headers_of(mark), headers)
    own = None if headers.null_count == len(headers) else headers
    return ChangelogBatch(sliced(keys, skip, 8), bare, timestamps[logged.to_numpy(zero_copy_only=False)], own)


def local_rows(
    spec: StoreSpec,
    prefix: bytes,
    segments: Segments | None,
    records: ChangelogBatch,
    offsets: Int64s,
    places: dict[bytes, bytes] | None = None,
) -> LocalRows:
    """Local rows for changelog records in offset order. The last record of a key wins; expired ones are left out.

    `places` are those of the store's suppressed updates (`suppressed_rows.local_columns`), which the records change.

    Raises:
        RestoreError: A record cannot come from a changelog of this kind.
    """
    keys, values, stamps = records.keys, records.values, records.timestamps
    if keys.null_count:
        raise _foreign(spec, offsets, "a record without a key")
    firsts: dict[int, int] = {}
    if places is not None:
        keys, values = local_columns(keys, values, records.headers, places)
    if spec.rows is RowFormat.UNMATCHED:
        values = local_values(values, records.headers)
    if spec.rows is RowFormat.WITH_HEADERS:
        values = headers_in_front(values, None if records.headers is None else records.headers.to_pylist())
    if spec.kind is StoreKind.VERSIONED:
        values = _local_versions(values, records.headers)
        keys = joined(pa.scalar(prefix, pa.binary()), keys, packed(stamps))
    else:
        if spec.kind.timestamped:
            values = joined(packed(stamps), values)
        if segments is None:
            keys = joined(pa.scalar(prefix, pa.binary()), keys)
        else:
            keys, values, firsts = _file_by_segment(spec, segments, keys, values, offsets)
    keys, values = _last_of_each(keys, values)
    return LocalRows(keys, values, firsts)


def _local_versions(values: pa.BinaryArray, headers: pa.BinaryArray | None) -> pa.BinaryArray:
    """The local values of a versioned store's changelog records."""
    local = pc.fill_null(joined(pa.scalar(VALUE, pa.binary()), values), TOMBSTONE)
    if headers is None or headers.null_count == len(headers):
        return local
    bounded, forgotten = (pc.fill_null(pc.equal(headers, _headers_of(mark)), False) for mark in (BOUNDED, FORGOTTEN))
    local = pc.if_else(bounded, joined(pa.scalar(BOUNDED, pa.binary()), values), local)
    return pc.if_else(forgotten, pa.scalar(FORGOTTEN, pa.binary()), local)


def _file_by_segment(
    spec: StoreSpec, segments: Segments, keys: pa.BinaryArray, values: pa.BinaryArray, offsets: Int64s
) -> tuple[pa.BinaryArray, pa.BinaryArray, dict[int, int]]:
    """Puts the segment before each key, and leaves out the rows of expired segments."""
    # The time that decides the segment comes first in the suffix: a window's start, a session's end.
    times = _times(spec, keys, SESSION_SUFFIX if spec.kind is StoreKind.SESSION else WINDOW_SUFFIX, offsets)
    filed = times // segments.width_ms
    alive = filed >= segments.bound
    if not alive.all():
        mask = pa.array(alive)
        keys, values, filed, offsets = keys.filter(mask), values.filter(mask), filed[alive], offsets[alive]
    found, first, place = np.unique(filed, return_index=True, return_inverse=True)
    prefixes = pa.array([segments.prefix(segment) for segment in found.tolist()], pa.binary())
    keys = joined(prefixes.take(pa.array(place)), keys)
    return keys, values, dict(zip(found.tolist(), offsets[first].tolist(), strict=True))


def _times(spec: StoreSpec, keys: pa.BinaryArray, suffix: int, offsets: Int64s) -> Int64s:
    """The big-endian number at the beginning of each key's suffix."""
    if not len(keys):
        return np.empty(0, np.int64)
    if pc.min(pc.binary_length(keys)).as_py() < suffix:
        raise _foreign(spec, offsets, f"a key of less than {suffix} bytes")
    times = numbers_at(keys, -suffix)
    if int(times.min()) < 0:
        raise _foreign(spec, offsets, "a key with a time below zero")
    return times


def _last_of_each(keys: pa.BinaryArray, values: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Sorts by key and retains the last row of each key."""
    rows = pa.array(last_of_each(keys))
    return keys.take(rows), values.take(rows)


def _foreign(spec: StoreSpec, offsets: Int64s, what: str) -> RestoreError:
    return RestoreError(
        f"the changelog of store {spec.name!r} has {what} in offsets [{offsets[0]}, {offsets[-1]}], which no "
        f"{spec.kind.value} store wrote: the topic belongs to another store or application, or the kind of the store "
        f"was changed; give the store the kind that it had, or another name"
    )
