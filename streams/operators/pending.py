"""The pending updates of operators with a cache, emitted at the end of a step: the last update of each row, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from state.columns import BinaryColumn, binary_column
from state.headers import encode_headers
from streams.model.record import Headers, HeldRecord
from streams.operators.columnar import Changes, ColumnarBatch, HeldRows, Int64s, JsonValues, KeyColumn
from streams.operators.operator import OperatorContext
from streams.operators.stores.key_value import CachedRow, TypedTimestampedKeyValueStore, drain_pending
from streams.operators.stores.window import TypedTimestampedWindowStore

Pending: TypeAlias = "dict[Any, tuple[Any, Headers, CachedRow]]"
"""Location in the store -> the key, the headers and the row of its last update."""


RowStore: TypeAlias = TypedTimestampedKeyValueStore | TypedTimestampedWindowStore
"""A store of rows with a cache."""


def emit_pending(
    ctx: OperatorContext,
    store: RowStore,
    pending: Pending,
    emit: Callable[[Any, Headers, CachedRow], None],
    result: Callable[[Any, Headers, CachedRow], HeldRecord],
) -> None:
    """Remove the pending updates and emit them, in order of time.

    Each is emitted under the processing policy, so that a failure does not affect the others. Errors name its `result`.
    """
    for key, headers, row in drain_pending(store, pending):
        ctx.attempt(partial(emit, key, headers, row), result(key, headers, row))


class WrittenRows(NamedTuple):
    """Rows as columns: the bytes of keys, window starts, local values, timestamps, and the bytes of the values alone."""

    keys: BinaryColumn
    starts: Int64s
    values: BinaryColumn
    timestamps: Int64s
    cells: BinaryColumn

    @classmethod
    def of(cls, store: RowStore, rows: Sequence[CachedRow]) -> WrittenRows:
        """Makes the columns of rows.

        Raises:
            Exception: A row cannot be written.
        """
        keys, cells = binary_column([row.key for row in rows]), store.codec.values([row.value for row in rows])
        timestamps = np.array([row.timestamp for row in rows], np.int64)
        values = store.codec.timestamped_column(keys, cells, timestamps)
        return cls(keys, np.array([row.start for row in rows], np.int64), values, timestamps, cells)

    def put(self, store: RowStore) -> None:
        """Writes the rows in their order."""
        put_rows(store, self.keys, self.starts, self.values, self.timestamps)


def put_rows(store: RowStore, keys: BinaryColumn, starts: Int64s, values: BinaryColumn, timestamps: Int64s) -> None:
    """Writes local values in their order; null deletes."""
    if isinstance(store, TypedTimestampedWindowStore):
        store.put_columns(keys, starts, values, timestamps)
    else:
        store.put_column(keys, values, timestamps)


def write_together(store: RowStore, rows: Sequence[CachedRow]) -> bool:
    """Write all rows in order and return True; if a row cannot be written, write none and return False."""
    try:
        written = WrittenRows.of(store, rows)
    except Exception:
        return False
    written.put(store)
    return True


def emit_together(
    ctx: OperatorContext,
    store: RowStore,
    viewed: Callable[[Sequence[Any]], Sequence[Any]],
    send_old: bool,
    keys_of: Callable[[KeyColumn, Int64s], KeyColumn],
    result: Callable[[Any, Headers, CachedRow], HeldRecord],
) -> None:
    """Remove a store's pending updates and emit them as columns, in the same order.

    If one of them cannot be written, all stay pending. `emit_pending` then emits them one by one, so that only the failing one is
    lost.
    """
    if not store.pending:
        store.forget_cache()
        return
    updates = sorted(store.pending.values(), key=lambda one: one[2].timestamp)
    rows = [row for _, _, row in updates]
    values = [row.value for row in rows]
    try:
        written = WrittenRows.of(store, rows)
        olds = viewed(store.codec.old_values(binary_column([row.stored for row in rows]))) if send_old else None
        results = viewed(values)
    except Exception:
        return
    store.pending.clear()
    written.put(store)
    # The sink writes the bytes that the store has written, unless the objects are handed out and may change.
    shared = results is values and store.codec.holds_json
    store.forget_cache()
    if results is values and ctx.results_change:
        # The results may contain objects of the values that were aggregated.
        results = store.codec.encoded(written.cells) or store.codec.read_values(written.cells.to_pylist())
    elif shared:
        results = JsonValues(written.cells, lambda: values)
    changes = Changes(results, olds)
    headers = [encode_headers(one) if one else None for _, one, _ in updates]
    keys = keys_of(store.codec.key_column([key for key, _, _ in updates], [row.key for row in rows]), written.starts)
    held = HeldRows(lambda row: result(*updates[row]), np.arange(len(rows)))
    order = np.arange(len(rows))
    batch = ColumnarBatch(keys, changes, written.timestamps, order, headers if any(headers) else None, held=held)
    forwarded = [not row.is_no_op for row in rows]
    ctx.forward_batch(batch if all(forwarded) else batch.take(np.flatnonzero(forwarded)))
