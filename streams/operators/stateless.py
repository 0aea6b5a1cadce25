"""Operators without state: filter, map, flat_map, peek, branch, and rows for lake sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.model.expressions import Expression, ValueFields
from streams.model.ownership import all_unchanging, lending, may_share, only_reads, snapshot
from streams.model.record import Record
from streams.model.table_columns import RowLayout, RowMaker
from streams.operators.aggregate.column_rows import ABSENT, INT, TEXT, FieldColumn, FieldValues, cells
from streams.operators.columnar import NULL_KEY, ColumnarBatch, KeyColumn
from streams.operators.expressions import Bools, computed, first_bytes, true_rows
from streams.operators.json_fields import fields_of, frame_of
from streams.operators.operator import (
    Operator,
    OperatorContext,
    call_each,
    lent,
    own_results,
    refuse_rows,
    with_timestamps,
)
from streams.serdes.base import shown
from streams.serdes.json_text import loads
from streams.users_code import line_of

# --- Checks of the results of users' functions in stateless operators.


def wrong_result(fn: Callable[..., Any], operator: str, wanted: str, gave: object) -> TypeError:
    """The error for a function's wrong result, with the line where the function begins."""
    line = line_of(fn)
    where = f" ({line})" if line else ""
    return TypeError(f"{operator} must give {wanted}, it gave {shown(gave)}{where}")


def pair(fn: Callable[..., Any], operator: str, wanted: str, gave: Any) -> tuple[Any, Any]:
    """The key and value of a result that is not a tuple, such as a list of two.

    Raises:
        TypeError: The result is a text, bytes, a dict or a set, or does not have two elements.
    """
    if not isinstance(gave, str | bytes | dict | set):
        try:
            key, value = gave
        except (TypeError, ValueError):
            pass
        else:
            return key, value
    raise wrong_result(fn, operator, wanted, gave)


def items(fn: Callable[..., Any], operator: str, wanted: str, gave: Iterable[Any]) -> Iterator[Any]:
    """Iterates over the results of a record. A generator's results are copied, because it may still change them.

    Raises:
        TypeError: The function returned something that is not iterable.
    """
    try:
        each = iter(gave)
    except TypeError:
        raise wrong_result(fn, operator, f"{wanted}, [] for none", gave) from None
    return map(snapshot, each) if each is gave else each


# --- `merge`, and the nodes that connect the parts of other operators (Kafka Streams: `PassThrough`).


class PassThrough(Operator):
    """Forwards all records of all parents unchanged."""

    leaves_values = True

    def process_batch(self, batch: ColumnarBatch) -> None:
        self.ctx.forward_batch(batch)


class FunctionOperator(Operator):
    """Base class of the operators that call a user's function for each record.

    Args:
        fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.fn)


# --- `peek` and `foreach` (Kafka Streams: `KStreamPeek`).


class Peek(FunctionOperator):
    """Calls a function for each record and forwards the record unchanged. `foreach` is a peek without children.

    Args:
        fn: `(key, value) -> anything`. If a step fails and is repeated, the function is called for its records again.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Call the function for all records, then forward them."""
        arguments = lent(batch, self.fn) if self.ctx.has_children else ()
        records, _ = call_each(self.ctx, batch, self.fn, *arguments)
        self.ctx.forward_batch(records)


# --- `filter` and `filter_not` (Kafka Streams: `KStreamFilter`).


class Filter(Operator):
    """Forwards the records for which the predicate is true or, with `negate`, false.

    Args:
        predicate: `(key, value) -> bool`; also called for null keys and values. If it `takes_timestamp`, it gets that, too.
        negate: True for `filter_not`.
        expression: The expression that the predicate computes, if it reads only the value; otherwise None.
    """

    leaves_values = True

    def __init__(
        self, predicate: Callable[[Any, Any], bool], negate: bool = False, expression: Expression | None = None
    ) -> None:
        self.predicate = predicate
        self.negate = negate
        self.expression = expression

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Test all records. If values are JSON texts that are not decoded yet, only the expression's fields are read from them."""
        fields = None if self.expression is None else fields_of(batch.values, self.expression.paths)
        if self.expression is not None and fields is not None:
            self._scan(batch, self.expression, fields)
            return
        records, passes = call_each(self.ctx, batch, self._passes, *lent(batch, self.predicate))
        self.ctx.forward_batch(records if all(passes) else records.take(np.flatnonzero(passes)))

    def _scan(self, batch: ColumnarBatch, expression: Expression, fields: FieldValues) -> None:
        failed: dict[int, Exception] = {}
        passes = true_rows(expression, frame_of(fields), np.ones(len(batch), np.bool_), failed) != self.negate
        passes[list(failed)] = False
        records = batch if passes.all() else batch.take(np.flatnonzero(passes))
        for row in sorted(failed):
            self.ctx.refuse(batch, row, failed[row])
        self.ctx.forward_batch(records)

    def _passes(self, *record: Any) -> bool:
        return bool(self.predicate(*record)) is not self.negate


# --- `map` and `select_key`: one record in, one out, under another key (Kafka Streams: `KStreamMap`).


class Map(FunctionOperator):
    """Maps each record to a new key and value.

    Args:
        fn: `(key, value) -> (key, value)`.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward the results, with the timestamps and headers of the records."""
        records, pairs = call_each(self.ctx, batch, self._mapped)
        keys = _new_keys([key for key, _ in pairs])
        values = own_results(self.ctx, self.fn, records, [value for _, value in pairs])
        self.ctx.forward_batch(replace(records, keys=keys, values=values))

    def _mapped(self, key: Any, value: Any) -> tuple[Any, Any]:
        made = self.fn(key, value)
        return made if type(made) is tuple and len(made) == 2 else pair(self.fn, "map", "a tuple (key, value)", made)


class SelectKey(FunctionOperator):
    """Maps each record to a new key.

    Args:
        fn: `(key, value) -> key`. If it `takes_timestamp`, it gets that, too.
        expression: What the function computes, if columns of the value's fields are enough for that; otherwise None.
    """

    leaves_values = True

    def __init__(self, fn: Callable[..., Any], expression: Expression | ValueFields | None = None) -> None:
        super().__init__(fn)
        self.expression = expression

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Compute all keys. If values are JSON texts that are not decoded yet, only the expression's fields are read from them."""
        found = keys_of_fields(batch, self.expression)
        if found is None:
            records, made = call_each(self.ctx, batch, self.fn, *lent(batch, self.fn))
            keys = _new_keys(made)
        else:
            keys, failed = found
            refuse_rows(self.ctx, batch, failed)
            done = np.setdiff1d(np.arange(len(batch)), list(failed))
            records, keys = (batch.take(done), keys.take(done)) if failed else (batch, keys)
        self.ctx.forward_batch(replace(records, keys=keys))


Keyed: TypeAlias = tuple[KeyColumn, dict[int, Exception]]
"""The key of each record, and row -> its error. A row with an error has a null key."""


def keys_of_fields(batch: ColumnarBatch, expression: Expression | ValueFields | None) -> Keyed | None:
    """Computes keys from columns of fields. Returns None without an expression, or if values are not JSON texts or are decoded."""
    fields = None if expression is None else fields_of(batch.values, expression.paths)
    if expression is None or fields is None:
        return None
    failed: dict[int, Exception] = {}
    return _keys_of_fields(expression, fields, failed), failed


def keys_of_calls(batch: ColumnarBatch, fn: Callable[[Any, Any], Any]) -> Keyed:
    """Computes each record's key by `fn(key, value)`. Unlike `call_each`, it refuses no record: the caller gets the errors."""
    keys = list[Any]()
    failed: dict[int, Exception] = {}
    for row, arguments in enumerate(zip(*lent(batch, fn), strict=False)):
        try:
            keys.append(fn(*arguments))
        except Exception as error:
            keys.append(None)
            failed[row] = error
    return KeyColumn.of(keys), failed


def _keys_of_fields(
    expression: Expression | ValueFields, fields: FieldValues, failed: dict[int, Exception]
) -> KeyColumn:
    """A key for each value: the result of the expression, or an object of the results of several."""
    frame, every = frame_of(fields), np.arange(len(fields))
    if isinstance(expression, Expression):
        return _keys_of_cells(computed(expression, frame, np.ones(len(fields), np.bool_), failed))
    rows, parts = ~fields.nulls, list[list[Any]]()
    for _, one in expression.computed:
        errors: dict[int, Exception] = {}
        parts.append(cells(computed(one, frame, rows, errors), every))
        rows[list(errors)] = False
        failed.update(errors)
    names = [name for name, _ in expression.computed]
    return _new_keys(
        [
            None if null else dict(zip(names, values, strict=True))
            for null, values in zip(fields.nulls.tolist(), zip(*parts, strict=True), strict=True)
        ]
    )


def _keys_of_cells(column: FieldColumn) -> KeyColumn:
    """A column of keys. All records with the same string or integer share one key object."""
    there = column.kinds != ABSENT
    if (column.kinds[there] == INT).all():
        numbers, codes = np.unique(column.ints[there], return_inverse=True)
        return KeyColumn(_at_rows(there, codes), numbers.tolist())
    if column.texts is not None and (column.kinds[there] == TEXT).all():
        texts = column.texts.filter(pa.array(there)).dictionary_encode()
        if (first_bytes(texts.dictionary) == ord('"')).all():
            return KeyColumn(_at_rows(there, texts.indices.to_numpy()), list(map(loads, texts.dictionary.to_pylist())))
    return _new_keys(cells(column, np.arange(len(there))))


def _at_rows(there: Bools, codes: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """int32[n], the key codes of all rows, made from the codes of the rows that have a key."""
    found = np.full(len(there), NULL_KEY, np.int32)
    found[there] = codes
    return found


def _new_keys(keys: list[Any]) -> KeyColumn:
    """A column of new keys. A key that is part of a value is copied, so that it does not change with the value."""
    return KeyColumn.of(keys if all_unchanging(keys) else list(map(snapshot, keys)))


# --- `map_values` (Kafka Streams: `KStreamMapValues`).


class MapValues(FunctionOperator):
    """Maps each record to a new value. The record keeps its key, and so its task.

    Args:
        fn: `(key, value) -> value`; also called for null values. If it `takes_timestamp`, it gets that, too.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        records, values = call_each(
            self.ctx, batch, self.fn, *with_timestamps(batch, self.fn, batch.keys.each(), batch.values)
        )
        self.ctx.forward_batch(records.with_values(own_results(self.ctx, self.fn, records, values)))


# --- `flat_map` and `flat_map_values`: any number of records out of one (Kafka Streams: `KStreamFlatMap`).


class FlatMap(FunctionOperator):
    """Maps each record to any number of records. If the function fails for a record, none of its results is forwarded.

    Args:
        fn: `(key, value) -> iterable of (key, value)`.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        records, pairs = _call_for_several(self.ctx, batch, self._pairs)
        keys = _new_keys([key for key, _ in pairs])
        values = _apart(self.ctx, self.fn, [value for _, value in pairs])
        self.ctx.forward_batch(replace(records, keys=keys, values=values))

    def _pairs(self, key: Any, value: Any) -> list[tuple[Any, Any]]:
        wanted = "a list of tuples (key, value)"
        return [
            one if type(one) is tuple and len(one) == 2 else pair(self.fn, "flat_map", wanted, one)
            for one in items(self.fn, "flat_map", wanted, self.fn(key, value))
        ]


class FlatMapValues(FunctionOperator):
    """Maps each record to any number of values of the same key. If the function fails for a record, no result is forwarded.

    Args:
        fn: `(key, value) -> iterable of values`.
    """

    def process_batch(self, batch: ColumnarBatch) -> None:
        records, values = _call_for_several(self.ctx, batch, self._values)
        self.ctx.forward_batch(records.with_values(_apart(self.ctx, self.fn, values)))

    def _values(self, key: Any, value: Any) -> list[Any]:
        return list(items(self.fn, "flat_map_values", "a list of values", self.fn(key, value)))


def _call_for_several(
    ctx: OperatorContext, batch: ColumnarBatch, function: Callable[..., list[Any]]
) -> tuple[ColumnarBatch, list[Any]]:
    """Calls a function that returns a list for each record. Returns each record as often as it has results, and all results."""
    records, results = call_each(ctx, batch, function)
    rows = np.repeat(np.arange(len(records)), np.fromiter(map(len, results), np.int64, len(results)))
    return records.with_values(results).take(rows), list(chain.from_iterable(results))


def _apart(ctx: OperatorContext, fn: Callable[..., Any], values: list[Any]) -> list[Any]:
    """Copies results, if functions below may change a result and others may share parts of it."""
    if not ctx.results_change or all_unchanging(values):
        return values
    flat = not may_share(fn) and all(type(one) is dict and all_unchanging(one.values()) for one in values)
    return values if flat and len(set(map(id, values))) == len(values) else list(map(snapshot, values))


# --- `split().branch(...)` (Kafka Streams: `KStreamBranch`).


class Branch(Operator):
    """Sends each record to the child of the first predicate that is true. If none is true, no child gets it.

    Args:
        predicates: Functions `(key, value) -> bool`; None is true for every record (default branch).
        children: Names of the children, one for each predicate.
    """

    leaves_values = True

    def __init__(self, predicates: Sequence[Callable[[Any, Any], bool] | None], children: Sequence[str]) -> None:
        calls = (None if predicate is None else lending(predicate) for predicate in predicates)
        self.branches = tuple(zip(calls, children, strict=True))

    def process_batch(self, batch: ColumnarBatch) -> None:
        records, chosen = call_each(self.ctx, batch, self._first_match)
        for _, child in self.branches:
            rows = [row for row, one in enumerate(chosen) if one == child]
            self.ctx.forward_batch(records.take(np.array(rows, np.int64)), child)

    def _first_match(self, key: Any, value: Any) -> str | None:
        for predicate, child in self.branches:
            if predicate is None or predicate(key, value):
                return child
        return None


# --- The operator before a lake sink: each record becomes a row of the sink's columns.
#
# If a record does not fit, the processing policy decides about it here (fail, skip, dead letter), so the sink gets no bad records.


class ToRows(Operator):
    """Maps each record to its key and row in the sink's internal topic.

    Args:
        layout: The columns.
    """

    leaves_values = True

    def __init__(self, layout: RowLayout) -> None:
        self._rows = RowMaker(layout)

    def process_batch(self, batch: ColumnarBatch) -> None:
        times = iter(batch.timestamps.tolist())

        def row(key: Any, value: Any) -> tuple[Any, Any]:
            return self._rows.row(Record(key, value, next(times)))

        records, rows = call_each(self.ctx, batch, row)
        keys = KeyColumn.of([key for key, _ in rows])
        self.ctx.forward_batch(replace(records, keys=keys, values=[value for _, value in rows], headers=None))
