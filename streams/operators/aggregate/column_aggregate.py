"""Aggregates fields of JSON values as columns, a whole step at once: over all time, or in windows identified by their start."""

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

# --- The columns that aggregates read: a declared field as it is, and an expression once it is computed.


def columns_of(
    aggregates: Iterable[Aggregate], values: FieldValues, taken: Bools, failed: dict[int, Exception]
) -> list[FieldColumn | None]:
    """Returns the column that each aggregate reads; None for an aggregate without a field, such as a count.

    If a row fails for one aggregate, later aggregates do not read it.

    Args:
        aggregates: The aggregates.
        values: The fields of n rows.
        taken: bool[n], the rows to aggregate.
        failed: Row -> its error; this function adds errors.
    """
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
    """Adds to the column `by` what the aggregate keeps of each row, such as `name` in `agg.max_by('name', by='n')`.

    A row that does not take part, because its `by` is null, keeps nothing.
    """
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
    """Returns the column without the values that `check` refuses, such as texts in a sum.

    Only rows in `needed` are checked; their errors are added to `errors`. Other rows lose their value if it looks wrong.
    """
    if type(aggregate).checked is Aggregate.checked:
        return column
    # Every aggregate takes finite numbers. An aggregate that keeps values also takes everything that came as JSON text.
    suspicious = ~np.isfinite(column.floats)
    if not takes_text and column.texts is not None:
        texts = column.kinds == TEXT
        if type(aggregate).checked is Ordering.checked:  # it takes every string
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
    """The aggregate's error for a value without fields, such as a text; None if the aggregate reads no field."""
    try:
        aggregate.value_in("")
    except Exception as error:
        return error
    return None


Int64s = npt.NDArray[np.int64]


def _name_result(keys: BinaryColumn, results: ColumnarBatch, row: int) -> HeldRecord:
    """The record that errors about a result name. Many records made the result, so this one has only its key and its window."""
    named = results.keys[row]
    window = named.window if isinstance(results.keys, WindowedKeys) else None
    return HeldRecord(keys[row].as_py(), None, int(results.timestamps[row]), results.headers_of(row), window)


# --- The rows of a step. If they cannot be aggregated at once, they become records, which are aggregated one by one.


def concerns_records(error: Exception) -> bool:
    """Whether a record may have caused an error, rather than the store, Kafka or the machine."""
    if isinstance(error, StreamsError):
        return isinstance(error, RecordError)
    return not isinstance(error, MemoryError) and not is_of_state(error)


def coded_keys(codec: Codec, keys: KeyColumn) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Writes keys as bytes.

    Returns:
        int32[n], the code of each row's key; and for each code, the key's bytes. No two codes have the same bytes.

    Raises:
        Exception: A key cannot be written.
    """
    data = codec.keys(keys)
    if len(set(data)) == len(data):
        return keys.codes, data
    numbers, of_rows = numbered(data, keys)
    return np.where(keys.codes == NULL_KEY, NULL_KEY, of_rows).astype(np.int32), list(numbers)


class FieldRows(NamedTuple):
    """The rows of a step, and the bytes of their keys.

    Attributes:
        batch: The rows. No two of `batch.keys.objects` have the same bytes.
        values: The rows' values.
        data: The bytes of each of `batch.keys.objects`, as the store has them.
    """

    batch: ColumnarBatch
    values: FieldValues
    data: list[bytes]

    @classmethod
    def of(cls, codec: Codec, batch: ColumnarBatch) -> FieldRows:
        """Writes the keys of a batch whose values are `FieldValues`.

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
    """The records of a step, with what the aggregates have read from each of them as its value.

    Args:
        taken: bool[n], the rows to aggregate.
    """

    def __init__(self, fields: FieldAggregates, rows: FieldRows, taken: Bools) -> None:
        self.errors: dict[int, Exception] = {}
        """Row -> its error: the value has no fields, an expression fails, or an aggregate refuses the field's value."""
        self.columns = columns_of(fields.aggregates.values(), rows.values, taken, self.errors)
        """The column that each aggregate reads; None for an aggregate without a field."""
        self.functions = AggregationFunctions(
            partial(_add, fields), fields.initial, fields.merge, fields.result, built_in=True
        )
        """The functions that aggregate these records."""
        self._batch = rows.batch

    @property
    def failing(self) -> npt.NDArray[np.bool_]:
        """bool[n], the rows with an error."""
        failing = np.zeros(len(self._batch), np.bool_)
        failing[list(self.errors)] = True
        return failing

    def records(self, rows: Int64s) -> ColumnarBatch:
        """These rows as records. If a row has an error, its record's value is that error."""
        columns = self.columns
        read = ([None if column is None else cell(column, row) for column in columns] for row in rows.tolist())
        values = [self.errors.get(row) or value for row, value in zip(rows.tolist(), read, strict=True)]
        return self._batch.take(rows).with_values(values)


def fields_in_time(fields: FieldAggregates, rows: FieldRows, assigned: Assigned) -> tuple[PickedFields, Int64s, Int64s]:
    """Reads the fields of the records that are in time for a window, and finds the pairs of record and window to add.

    A record that is late for all its windows is not read. A record with an error has no pairs.

    Args:
        fields: The aggregates.
        rows: The records.
        assigned: The records' windows.

    Returns:
        The fields; int64[p], the row of each pair; int64[p], the start of its window, ms.
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
    """Drops and refuses the records of a batch of fields that cannot be aggregated.

    Records without a key are dropped, and also records with a null value, unless `takes_null_values`. A record whose key cannot be
    written is refused.

    Returns:
        The n records that were not refused; bool[n], which of them are left to aggregate.
    """
    _, rows = compute_all(ctx, batch, partial(FieldRows.of, codec))
    keyed = rows.batch.keys.codes != NULL_KEY
    ctx.drop_many(int((~keyed).sum()), "null_key")
    dropped = keyed & rows.values.nulls & (not takes_null_values)
    ctx.drop_many(int(dropped.sum()), "null_value")
    return rows, keyed & ~dropped


# --- Aggregates of declared fields, over all time or in tumbling, hopping and calendar windows.
#
# Whole records are aggregated with functions, as in any `FoldedAggregate`. If only fields were read, they are aggregated as
# columns, with one access to the store for each group. A group is a key, or a key and a window.
#
# The store has a group's accumulators as a JSON list, in the order of the aggregates. The emitted value is an object of the
# results. For example, `aggregate(n=agg.count(), mean=agg.mean('v'))` adds the values 1 and 4: the store has `[2,[5,2]]`, and the
# result is `{"n": 2, "mean": 2.5}`.
#
# With `bare`, as in Kafka Streams' `count`, there is a single aggregate. Then the stored value is its accumulator itself, and the
# emitted value is its result.


class AddedGroups(NamedTuple):
    """The groups of a step's records, after these were added. Groups are numbered in the order of their first rows.

    Attributes:
        keys: The bytes of each group's key.
        starts: int64[G], the start of each group's window, ms.
        known: bool[G], whether the group was in the store before.
        before: The accumulators of the known groups, as they were before the step.
        accumulators: The new accumulators of all groups, by slot.
        slots: int64[G], each group's slot. Known groups have the first slots, in the order of `before`.
        times: int64[G], the largest timestamp of the group's records so far, ms.
        of_rows: int64[m], the group of each added row.
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
        """The store's rows for the groups whose numbers are in `order`, in that order."""
        keys, times = self.keys.take(pa.array(order)), self.times[order]
        cells = self.accumulators.written(self.slots[order], codec)
        return WrittenRows(keys, self.starts[order], codec.timestamped_column(keys, cells, times), times, cells)


class AddsFields(FoldedAggregate):
    """An aggregation that adds the fields of many JSON values at once."""

    fields: FieldAggregates

    def added(
        self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s
    ) -> AddedGroups:
        """Computes the groups of keys and windows with these rows added, but writes nothing.

        Only the accumulators of stored rows are decoded one by one.

        Args:
            rows: The records.
            columns: The column that each aggregate reads.
            at: int64[m], the row of each pair of record and window.
            window_starts: int64[m], the start of its window, ms.

        Raises:
            Exception: The rows cannot be added at once, for example because a sum overflows.
        """
        batch, codec = rows.batch, self.store.codec
        groups = group(batch.keys.codes[at], window_starts)
        keys = column_of(rows.data, groups.codes)
        stored = stored_rows(self.store, keys, groups.starts)
        known = valid_rows(stored)
        # Known groups get the first slots.
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


def stored_rows(store: Any, keys: BinaryColumn, starts: Int64s) -> BinaryColumn:
    """The stored row of each group; null if the store has none."""
    if isinstance(store, TypedTimestampedWindowStore):
        return store.fetch_columns(keys, starts)
    found: BinaryColumn = store.stored_column(keys)
    return found


class FoldedGroups(NamedTuple):
    """The groups of a step, in the order of their timestamps, then of their first rows.

    Attributes:
        rows: The groups' rows of the store.
        results: The updates to forward.
        keys: The keys of the groups, without windows.
        arrivals: int64[G], the index here of each group, in the order of first rows. If group A (time 20) came before group B
            (time 10), B has index 0 and A has index 1, so `arrivals` is [1, 0].
    """

    rows: WrittenRows
    results: ColumnarBatch
    keys: KeyColumn
    arrivals: Int64s


class FoldsColumns(FoldedAggregate):
    """An aggregation that forwards its updates at the end of the step, and keeps those of a batch of columns as columns until then.

    Usually one batch has the whole step. But operators above it may forward several batches in a step. Then it adds the records of
    later batches one by one.
    """

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._folded: FoldedGroups | None = None

    def _unfold(self) -> None:
        """Turns the folded groups into pending rows, so that the records of the next batch are added to these."""
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

    def _wait(self, batch: ColumnarBatch, last: Int64s, order: Int64s, written: WrittenRows, changes: Changes) -> None:
        """Keeps the updates of groups until the end of the step.

        Args:
            batch: The records.
            last: int64[G], the last record of each group, by time.
            order: int64[G], the number of each group in the order of first records, by time.
            written: The groups' rows, by time.
            changes: The groups' updates, by time.
        """
        results = self._results(batch, last, written, changes)
        self._folded = FoldedGroups(written, results, batch.keys.take(last), np.argsort(order))

    def _results(self, batch: ColumnarBatch, last: Int64s, written: WrittenRows, changes: Changes) -> ColumnarBatch:
        """The groups' updates. `last` has the last row of each group: the update gets that row's headers."""
        keys = self._keys(batch.keys.take(last), written.starts)
        headers = None if batch.headers is None else [batch.headers[row] for row in last.tolist()]
        numbers = np.arange(len(last))
        held = HeldRows(lambda row: _name_result(written.keys, results, row), numbers)
        results = ColumnarBatch(keys, changes, written.timestamps, numbers, headers, held=held)
        return results


class ColumnAggregate(FoldsColumns, AddsFields):
    """Aggregates fields of JSON values. Only an operator with caching gets fields."""

    takes_null_values: ClassVar[bool] = True

    @property
    def changes_in_place(self) -> bool:
        """False: only reading a field can fail, and all fields are read before an aggregate changes."""
        return False

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Aggregate a batch of fields, or a batch of whole records as any `FoldedAggregate` does."""
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
            self._fold(rows, picked.columns, at[assigned.rows], assigned.starts)
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
        """Adds records one by one.

        If a group cannot be read, the records are halved again and again, until each record of this group is alone and is refused.
        """
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
        """The windows of records with these timestamps."""
        return without_windows(np.arange(len(timestamps)))

    def _fold(self, rows: FieldRows, columns: Sequence[FieldColumn | None], at: Int64s, window_starts: Int64s) -> None:
        """Computes the rows and updates of groups with these rows added, which wait for the step's end.

        The arguments are as for `added`.

        Raises:
            Exception: The rows cannot be added at once.
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
        self._wait(rows.batch, last_rows[order], order, written, changes)


class StreamColumnAggregate(ColumnAggregate, StreamAggregate):
    """A `StreamAggregate` of fields of JSON values.

    Args:
        store: Name of a timestamped store of JSON values.
        fields: The aggregates.
        caching, send_old: As in `StreamAggregate`. Without caching, the operator gets no columns.
    """

    takes_null_values = False

    def __init__(self, store: str, fields: FieldAggregates, caching: bool = True, send_old: bool = False) -> None:
        super().__init__(store, fields.functions, caching, send_old)
        self.fields = fields


class WindowColumnAggregate(ColumnAggregate, WindowAggregate):
    """A `WindowAggregate` of fields of JSON values.

    A record's fields are read before anything else. So a record whose value has no fields fails without advancing stream time.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: `TimeWindows` or `CalendarWindows`.
        fields: The aggregates.
        caching, send_old: As in `WindowAggregate`. Without caching, the operator gets no columns.
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
    """A `WindowAggregateOnClose` of fields of JSON values.

    If a record is late for all its windows, its fields are not read.

    Args:
        store: Name of a timestamped window store of JSON values.
        windows: `TimeWindows` or `CalendarWindows`.
        fields: The aggregates.
        open_store, caching, send_old: As in `WindowAggregateOnClose`.
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
        """Aggregate a batch of fields, or a batch of whole records as any `FoldedAggregate` does."""
        if isinstance(batch.values, FieldValues):
            self._process_fields(*rows_of_fields(self.ctx, self.store.codec, batch, takes_null_values=True))
        else:
            super().process_batch(batch)

    def _process_fields(self, rows: FieldRows, keyed: Bools) -> None:
        # If part of the step was aggregated record by record, its windows are only in the cache so far.
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
        """Adds records one by one."""
        pairs = self.pairs(records)
        values = [records.values[row] for row in pairs.rows.tolist()]
        calls = repeat(functions), records.keys.take(pairs.rows).each(), values
        Fold([RecordsOfOperator(self, records, pairs, calls)]).run()


def _opened(added: AddedGroups, at: Int64s) -> list[tuple[int, bytes, int]]:
    """For each window that was not in the store: the row that opened it, its key and its start in ms. In the order of rows."""
    first = np.zeros(len(added.known), np.int64)
    first[added.of_rows[::-1]] = at[::-1]  # the last assignment to an index wins
    new = rows_where(~added.known)
    keys = added.keys.take(pa.array(new)).to_pylist()
    return list(zip(first[new].tolist(), keys, added.starts[new].tolist(), strict=True))
