"""Aggregates of declared fields over the columns of a step, plain or in windows that are identified by their start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state.columns import BinaryColumn, column_of, rows_where, valid_rows
from streams.errors import RecordError, StreamsError
from streams.model.aggregates import Aggregate, Chosen, Collect, CountDistinct, Ordering, Ranked
from streams.model.expressions import Expression
from streams.model.record import HeldRecord, Record
from streams.model.sketches import ApproxCountDistinct
from streams.model.windows import Windows
from streams.operators.aggregate.accumulators import FieldAccumulators, accumulators_of
from streams.operators.aggregate.aggregates import (
    Fold,
    FoldedAggregate,
    RecordsOfOperator,
    StreamAggregate,
    WindowAggregate,
    WindowAggregateOnClose,
    WindowPairs,
    assign_any,
    without_windows,
)
from streams.operators.aggregate.column_rows import (
    ABSENT,
    TEXT,
    Assigned,
    FieldColumn,
    FieldValues,
    RankedColumn,
    cell,
    group,
)
from streams.operators.aggregate.functions import AggregationFunctions, FieldAggregates
from streams.operators.columnar import (
    NULL_KEY,
    Changes,
    ColumnarBatch,
    HeldRows,
    KeyColumn,
    OneByOne,
    WindowedKeys,
    each_value,
)
from streams.operators.expressions import Bools, Frame, computed, first_bytes
from streams.operators.operator import OperatorContext, compute_all, part_of
from streams.operators.pending import WrittenRows
from streams.operators.stores.codec import Codec, timestamps_of
from streams.operators.stores.key_value import CachedRow
from streams.operators.stores.window import TypedTimestampedWindowStore
from streams.operators.table.table_materializer import numbered
from streams.users_code import is_of_state

# --- The columns that aggregates read: declared fields as they are, expressions computed.


def columns_of(
    aggregates: Iterable[Aggregate], values: FieldValues, taken: Bools, failed: dict[int, Exception]
) -> list[FieldColumn | None]:
    """The column of each aggregate; None for one that has no field."""
    frame = Frame(len(values), values.fields)
    needed = taken.copy()
    found: list[FieldColumn | None] = []
    for aggregate in aggregates:
        if values.without_fields.any() and (wrong := _error_without_fields(aggregate)) is not None:
            failed.update(dict.fromkeys(rows_where(needed & values.without_fields).tolist(), wrong))
            needed &= ~values.without_fields
        errors: dict[int, Exception] = {}
        column = _column(aggregate, values, frame, needed, errors)
        if column is not None:
            keeps = isinstance(aggregate, Chosen | Collect | CountDistinct | ApproxCountDistinct)
            column = _checked(aggregate, aggregate.checked, keeps, column, needed, errors)
            if isinstance(aggregate, Ranked):
                column = _ranked(aggregate, column, frame, needed, errors)
        found.append(column)
        needed[list(errors)] = False
        failed.update(errors)
    return found


def _column(
    aggregate: Aggregate, values: FieldValues, frame: Frame, needed: Bools, errors: dict[int, Exception]
) -> FieldColumn | None:
    if isinstance(aggregate.field, Expression):
        return computed(aggregate.field, frame, needed, errors)
    return None if aggregate.field is None else values.fields[aggregate.field]


def _ranked(
    aggregate: Ranked, by: FieldColumn, frame: Frame, needed: Bools, errors: dict[int, Exception]
) -> FieldColumn:
    """The column with what the aggregate keeps of the rows that take part."""
    values, ranked = dict[str | None, FieldColumn](), needed & (by.kinds != ABSENT)
    ranked[list(errors)] = False
    for name, part in aggregate.parts:
        wrong: dict[int, Exception] = {}
        column = computed(part, frame, ranked, wrong)
        values[name] = _checked(aggregate, aggregate.kept, True, column, ranked, wrong)
        ranked[list(wrong)] = False
        errors.update(wrong)
    return RankedColumn(by.kinds, by.ints, by.floats, by.texts, values)


def _checked(
    aggregate: Aggregate,
    check: Callable[[Any], Any],
    takes_text: bool,
    column: FieldColumn,
    needed: Bools,
    errors: dict[int, Exception],
) -> FieldColumn:
    """The column without the values that the aggregate cannot take, such as texts in a sum, or need not take."""
    if type(aggregate).checked is Aggregate.checked:
        return column
    # Every aggregate takes finite numbers, and what keeps values takes all that came as text.
    suspicious = ~np.isfinite(column.floats)
    if not takes_text and column.texts is not None:
        texts = column.kinds == TEXT
        if type(aggregate).checked is Ordering.checked:  # which takes every string as it is
            texts &= first_bytes(column.texts) != ord('"')
        suspicious |= texts
    if not suspicious.any():
        return column
    left_out = suspicious & ~needed
    for row in rows_where(suspicious & needed).tolist():
        try:
            check(cell(column, row))
        except RecordError as error:
            errors[row] = error
            left_out[row] = True
    return column.without(left_out)


def _error_without_fields(aggregate: Aggregate) -> Exception | None:
    """The error for a value that has no fields, such as a text; None if the aggregate reads none of it."""
    try:
        aggregate.value_in("")
    except Exception as error:
        return error
    return None


Int64s = npt.NDArray[np.int64]


def _name_result(keys: BinaryColumn, results: ColumnarBatch, row: int) -> HeldRecord:
    """What errors name for a result, which no single record caused: its key, and its window if it has one."""
    named = results.keys[row]
    window = named.window if isinstance(results.keys, WindowedKeys) else None
    return HeldRecord(keys[row].as_py(), None, int(results.timestamps[row]), results.headers_of(row), window)


# --- The rows of a step, and these as records where they cannot be processed at once.


def concerns_records(error: Exception) -> bool:
    """Whether an error may be caused by a record, and not by the store, Kafka or the machine."""
    if isinstance(error, StreamsError):
        return isinstance(error, RecordError)
    return not isinstance(error, MemoryError) and not is_of_state(error)


def coded_keys(codec: Codec, keys: KeyColumn) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """The keys' bytes, each once, and the code of each row's key.

    Raises:
        Exception: A key cannot be written.
    """
    data = codec.keys(keys)
    if len(set(data)) == len(data):
        return keys.codes, data
    numbers, of_rows = numbered(data, keys)
    return np.where(keys.codes == NULL_KEY, NULL_KEY, of_rows).astype(np.int32), list(numbers)


class FieldRows(NamedTuple):
    """The rows of a step.

    Attributes:
        batch: They themselves; each key stands there once.
        values: Their values.
        data: The bytes of the keys in the store.
    """

    batch: ColumnarBatch
    values: FieldValues
    data: list[bytes]

    @classmethod
    def of(cls, codec: Codec, batch: ColumnarBatch) -> FieldRows:
        """Writes the keys.

        Raises:
            Exception: A key cannot be written.
        """
        keys, values = batch.keys, batch.values
        assert isinstance(values, FieldValues), "others have no columns"
        codes, data = coded_keys(codec, keys)
        if codes is not keys.codes:
            objects = dict(zip(reversed(codec.keys(keys)), reversed(keys.objects), strict=True))
            batch = replace(batch, keys=KeyColumn(codes, [objects[key] for key in data]))
        return cls(batch, values, data)


class PickedFields:
    """The records of a step, whose values are what the aggregates read of them.

    Args:
        taken: bool[n], the rows to aggregate.
    """

    def __init__(self, fields: FieldAggregates, rows: FieldRows, taken: Bools) -> None:
        self.errors: dict[int, Exception] = {}
        """Row -> its error, where a value has no fields, or an expression fails."""
        self.columns = columns_of(fields.aggregates.values(), rows.values, taken, self.errors)
        """What each aggregate reads."""
        self.functions = AggregationFunctions(
            partial(_add, fields), fields.initial, fields.merge, fields.result, built_in=True
        )
        """The functions of the aggregation for these records."""
        self._batch = rows.batch

    @property
    def failing(self) -> npt.NDArray[np.bool_]:
        """bool[n], the rows with an error."""
        failing = np.zeros(len(self._batch), np.bool_)
        failing[list(self.errors)] = True
        return failing

    def records(self, rows: Int64s) -> ColumnarBatch:
        """Some of the rows to aggregate. The value of one with an error is the error."""
        columns = self.columns
        read = ([None if column is None else cell(column, row) for column in columns] for row in rows.tolist())
        values = [self.errors.get(row) or value for row, value in zip(rows.tolist(), read, strict=True)]
        return self._batch.take(rows).with_values(values)


def fields_in_time(fields: FieldAggregates, rows: FieldRows, assigned: Assigned) -> tuple[PickedFields, Int64s, Int64s]:
    """What the aggregates read of records that are in time for a window; and, of those without an error, the pairs to add.

    Args:
        fields: The aggregates.
        rows: The records.
        assigned: Their windows.

    Returns:
        What was read; int64[p], the row of each pair; int64[p], the start of its window, ms.
    """
    pairs, in_time = assigned.rows, np.zeros(len(rows.batch), np.bool_)
    in_time[pairs] = True
    picked = PickedFields(fields, rows, in_time)
    done = ~picked.failing[pairs]
    return picked, pairs[done], assigned.starts[done]


def _add(fields: FieldAggregates, key: Any, picked: Any, accumulator: Any) -> Any:
    if isinstance(picked, Exception):
        raise picked
    return fields.add_picked(key, picked, accumulator)


def rows_of_fields(
    ctx: OperatorContext, codec: Codec, batch: ColumnarBatch, takes_null_values: bool
) -> tuple[FieldRows, Bools]:
    """The records of a batch of fields, except those whose keys cannot be written; and which of them are aggregated."""
    _, rows = compute_all(ctx, batch, partial(FieldRows.of, codec))
    keyed = rows.batch.keys.codes != NULL_KEY
    ctx.drop_many(int((~keyed).sum()), "null_key")
    dropped = keyed & rows.values.nulls & (not takes_null_values)
    ctx.drop_many(int(dropped.sum()), "null_value")
    return rows, keyed & ~dropped


# --- Aggregates of declared fields, plain or in tumbling, hopping and calendar windows.
#
# Records are aggregated with functions, as any others (`FoldedAggregate`); those whose fields alone were read, as columns, with one
# access to the store per group. The store holds the accumulators as a JSON list, in the order of the aggregates; the
# emitted value is an object of their results. With `bare`, a single aggregate's accumulator is the stored value and its result the
# emitted one, as in Kafka Streams' `count`.


class AddedGroups(NamedTuple):
    """The groups of a step's records, with these added; groups are numbered in the order of their first rows.

    Attributes:
        keys: The bytes of the key of each group.
        starts: int64[G], the start of its window, ms.
        known: bool[G], whether it was in the store before.
        before: The accumulators of the groups in the store.
        accumulators: Those of all groups, in slots.
        slots: int64[G], the slot of each group.
        times: int64[G], the largest timestamp of its records, ms.
        of_rows: int64[m], the group of each row.
    """

    keys: BinaryColumn
    starts: Int64s
    known: Bools
    before: Sequence[Any]
    accumulators: FieldAccumulators
    slots: Int64s
    times: Int64s
    of_rows: Int64s

    def written(self, order: Int64s, codec: Codec) -> WrittenRows:
        """The rows of the store for the groups, in an order."""
        keys, times = self.keys.take(pa.array(order)), self.times[order]
        cells = self.accumulators.written(self.slots[order], codec)
        return WrittenRows(keys, self.starts[order], codec.timestamped_column(keys, cells, times), times, cells)


class AddsFields(FoldedAggregate):
    """An aggregation that adds fields of JSON values, those of many records at once."""

    fields: FieldAggregates

    def added(
        self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s
    ) -> AddedGroups:
        """Adds rows to the groups of their keys and windows; changes nothing.

        Nothing is decoded or encoded row by row, except the accumulators of the stored rows.

        Raises:
            Exception: They cannot be added at once.
        """
        batch, codec = rows.batch, self.store.codec
        groups = group(batch.keys.codes[at], window_starts)
        keys = column_of(rows.data, groups.codes)
        stored = _stored(self.store, keys, groups.starts)
        known = valid_rows(stored)
        # Slots with known accumulators come first.
        slots = np.empty(len(known), np.int64)
        slots[np.argsort(~known, kind="stable")] = np.arange(len(known))
        there = stored.drop_null() if stored.null_count else stored
        before = codec.old_values(there)
        accumulators = accumulators_of(self.fields, columns, before, len(known), len(at))
        accumulators.apply(at, slots[groups.of_rows])
        accumulators.check()
        times = np.full(len(known), -1, np.int64)
        times[known] = timestamps_of(there)
        np.maximum.at(times, groups.of_rows, batch.timestamps[at])
        return AddedGroups(keys, groups.starts, known, before, accumulators, slots, times, groups.of_rows)


def _stored(store: Any, keys: BinaryColumn, starts: Int64s) -> BinaryColumn:
    """The local values of groups."""
    if isinstance(store, TypedTimestampedWindowStore):
        return store.fetch_columns(keys, starts)
    found: BinaryColumn = store.stored_column(keys)
    return found


class _FoldedGroups(NamedTuple):
    """The groups of a step and the updates to forward, both in order of time, then of their first rows.

    Attributes:
        keys: The keys of the groups, without windows.
        arrivals: int64[G], the places of the groups in the order of their first rows.
    """

    rows: WrittenRows
    results: ColumnarBatch
    keys: KeyColumn
    arrivals: Int64s


class ColumnAggregate(AddsFields):
    """Aggregates fields of JSON values.

    Only an operator with caching gets fields, and forwards at the end of the step. Mostly it gets those of a step at once; what
    comes from operators in front of it may come in several batches, and then it adds one record after the other.
    """

    takes_null_values: ClassVar[bool] = True

    @property
    def changes_in_place(self) -> bool:
        """What fails is reading a field, before any aggregate is changed."""
        return False

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._folded: _FoldedGroups | None = None

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Aggregate the records of the group, or the fields of those of the operator."""
        self._unfold()
        if isinstance(batch.values, FieldValues):
            self._process_fields(*rows_of_fields(self.ctx, self.store.codec, batch, self.takes_null_values))
        else:
            super().process_batch(batch)

    def _process_fields(self, rows: FieldRows, taken: Bools) -> None:
        picked, batch = PickedFields(self.fields, rows, taken), rows.batch
        at = rows_where(taken & ~picked.failing)
        assigned = self._assigned(batch.timestamps[at])
        try:
            self._folded = self._fold(rows, picked.columns, at[assigned.rows], assigned.starts)
        except Exception as error:
            if not concerns_records(error):
                raise
            self._add_in_turn(picked, picked.records(at), assigned)
        else:
            self.ctx.drop_many(len(assigned.late), "late")
            self.begin(batch, WindowPairs(assigned.within(at), {}))
        for row in sorted(picked.errors):
            self.ctx.refuse(batch, row, picked.errors[row])

    def _add_in_turn(self, picked: PickedFields, records: ColumnarBatch, assigned: Assigned) -> None:
        """Adds one record after the other. They are halved until those are found whose groups cannot be read."""
        keys, values = records.keys.take(assigned.rows), [records.values[row] for row in assigned.rows.tolist()]
        pairs, calls = WindowPairs(assigned, {"late": assigned.late}), (repeat(picked.functions), keys.each(), values)
        try:
            fold = Fold([RecordsOfOperator(self, records, pairs, calls)])
        except Exception as error:
            if not len(records) or not concerns_records(error):
                raise
            if len(records) == 1:
                self.ctx.refuse(records, 0, error)
                return
            for half in np.array_split(np.arange(len(records)), 2):
                self._add_in_turn(picked, part_of(records, half), assigned.part(int(half[0]), int(half[-1]) + 1))
        else:
            fold.run()

    def _assigned(self, timestamps: Int64s) -> Assigned:
        """The windows of records."""
        return without_windows(np.arange(len(timestamps)))

    def _unfold(self) -> None:
        """Leaves the groups that are folded so far pending row by row, where the records of the next batch find them."""
        folded, self._folded = self._folded, None
        if folded is None:
            return
        rows = folded.rows
        entries = self.store.entries(list(zip(rows.keys.to_pylist(), rows.starts.tolist(), strict=True)))
        values, times = self.store.codec.read_values(rows.cells.to_pylist()), rows.timestamps.tolist()
        for at in folded.arrivals.tolist():
            entries[at].set(values[at], times[at])
            self.keep(folded.keys[at], folded.results.headers_of(at), entries[at])

    def _emit_updates(self) -> None:
        folded, self._folded = self._folded, None
        if folded is not None:
            folded.rows.put(self.store)
            self.ctx.forward_batch(folded.results)
        super()._emit_updates()

    def _fold(
        self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s
    ) -> _FoldedGroups:
        """Adds rows to the groups of their keys and windows; changes nothing.

        Raises:
            Exception: They cannot be added at once.
        """
        if self.store.pending:
            raise OneByOne("rows are pending")
        added = self.added(rows, columns, at, window_starts)
        order = np.argsort(added.times, kind="stable")
        last_rows = np.zeros(len(order), np.int64)
        last_rows[added.of_rows] = at  # the last assignment to an index wins
        slots, before, old = added.slots[order], added.before, None
        if self.send_old:
            old = [self.fields.result(before[slot]) if slot < len(before) else None for slot in slots.tolist()]
        changes = Changes(added.accumulators.values(slots), old)
        written = added.written(order, self.store.codec)
        last = last_rows[order]
        results = self._results(rows.batch, last, written, changes)
        return _FoldedGroups(written, results, rows.batch.keys.take(last), np.argsort(order))

    def _results(self, batch: ColumnarBatch, last: Int64s, written: WrittenRows, changes: Changes) -> ColumnarBatch:
        """The updates of groups, in order; `last` has the last row of each."""
        keys = self._keys(batch.keys.take(last), written.starts)
        headers = None if batch.headers is None else [batch.headers[row] for row in last.tolist()]
        numbers = np.arange(len(last))
        held = HeldRows(lambda row: _name_result(written.keys, results, row), numbers)
        results = ColumnarBatch(keys, changes, written.timestamps, numbers, headers, held=held)
        return results


class StreamColumnAggregate(ColumnAggregate, StreamAggregate):
    """Aggregates fields of JSON values per key; see `StreamAggregate`.

    Args:
        store: Name of a timestamped store of JSON values.
        caching: Only an operator with caching gets columns.
    """

    takes_null_values = False

    def __init__(self, store: str, fields: FieldAggregates, caching: bool = True, send_old: bool = False) -> None:
        super().__init__(store, fields.functions, caching, send_old)
        self.fields = fields


class WindowColumnAggregate(ColumnAggregate, WindowAggregate):
    """Aggregates fields of JSON values per key and window; see `WindowAggregate`.

    The fields of a record are read before anything else: a value without fields fails, and does not advance stream time.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: `TimeWindows` or `CalendarWindows`.
        caching: Only an operator with caching gets columns.
    """

    def __init__(
        self, store: str, windows: Windows, fields: FieldAggregates, caching: bool = True, send_old: bool = False
    ) -> None:
        super().__init__(store, windows, fields.functions, None, caching, send_old)
        self.fields = fields
        self._of_picked = AggregationFunctions(fields.add_picked, fields.initial, built_in=True)
        self._picked: dict[int, list[Any]] = {}
        self._wrong: dict[int, Exception] = {}

    def rows(self, record: Record) -> list[CachedRow]:
        if record.key is not None:
            self.fields.picked(record.value)
        return super().rows(record)

    def pairs(self, batch: ColumnarBatch) -> WindowPairs:
        self._picked, self._wrong = {}, {}
        keyed = rows_where(batch.keys.codes != NULL_KEY)
        for row, value in zip(keyed.tolist(), each_value(batch.values, keyed), strict=True):
            try:
                self._picked[row] = self.fields.picked(value)
            except Exception as error:
                self._wrong[row] = error
        rows = np.setdiff1d(np.arange(len(batch)), list(self._wrong))
        pairs = super().pairs(batch.take(rows) if self._wrong else batch)
        dropped = {reason: rows[those] for reason, those in pairs.dropped.items()}
        return WindowPairs(pairs.assigned.within(rows), dropped)

    def begin(self, batch: ColumnarBatch, pairs: WindowPairs) -> None:
        wrong, self._wrong = self._wrong, {}
        for row, error in wrong.items():
            self.ctx.refuse(batch, row, error)
        super().begin(batch, pairs)

    def calls(self, batch: ColumnarBatch, pairs: WindowPairs) -> tuple[Iterable[Any], ...]:
        picked = [self._picked[row] for row in pairs.rows.tolist()]
        return repeat(self._of_picked), batch.keys.take(pairs.rows), picked

    def _assigned(self, timestamps: Int64s) -> Assigned:
        return assign_any(timestamps, self.windows, self._time.now)


class WindowColumnAggregateOnClose(AddsFields, WindowAggregateOnClose):
    """Aggregates fields of JSON values per key and window; see `WindowAggregateOnClose`.

    The fields of records that are late for all their windows are not read.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: `TimeWindows` or `CalendarWindows`.
        fields: The aggregates.
        open_store, caching, send_old: See `WindowAggregateOnClose`.
    """

    def __init__(
        self,
        store: str,
        windows: Windows,
        fields: FieldAggregates,
        open_store: str | None,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, windows, fields.functions, open_store)
        self.fields = fields

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Aggregate the records of the group, or the fields of those of the operator."""
        if isinstance(batch.values, FieldValues):
            self._process_fields(*rows_of_fields(self.ctx, self.store.codec, batch, takes_null_values=True))
        else:
            super().process_batch(batch)

    def _process_fields(self, rows: FieldRows, keyed: Bools) -> None:
        # Where a part of the step was aggregated record by record, its windows are in the cache alone.
        self._flush_pending()
        self.store.forget_cache()
        batch, at = rows.batch, rows_where(keyed)
        assigned = assign_any(batch.timestamps[at], self.windows, self._time.now).within(at)
        picked, pairs, starts = fields_in_time(self.fields, rows, assigned)
        try:
            added = self.added(rows, picked.columns, pairs, starts)
            written = added.written(np.arange(len(added.known)), self.store.codec)
        except Exception as error:
            if not concerns_records(error):
                raise
            self._add_in_turn(picked.records(at), picked.functions)
            return
        self.begin(batch, WindowPairs(assigned, {}))
        self.ctx.drop_many(len(assigned.late), "late")
        for row in sorted(picked.errors):
            self.ctx.refuse(batch, row, picked.errors[row])
        written.put(self.store)
        self.end(batch, _opened(added, pairs), picked.errors)

    def _add_in_turn(self, records: ColumnarBatch, functions: AggregationFunctions) -> None:
        """Adds one record after the other."""
        pairs = self.pairs(records)
        values = [records.values[row] for row in pairs.rows.tolist()]
        calls = repeat(functions), records.keys.take(pairs.rows).each(), values
        Fold([RecordsOfOperator(self, records, pairs, calls)]).run()


def _opened(added: AddedGroups, at: Int64s) -> list[tuple[int, bytes, int]]:
    """The windows that were not in the store: the row that has opened each one, its key and its start, in the order of rows."""
    first = np.zeros(len(added.known), np.int64)
    first[added.of_rows[::-1]] = at[::-1]  # the last assignment to an index wins
    new = rows_where(~added.known)
    keys = added.keys.take(pa.array(new)).to_pylist()
    return list(zip(first[new].tolist(), keys, added.starts[new].tolist(), strict=True))
