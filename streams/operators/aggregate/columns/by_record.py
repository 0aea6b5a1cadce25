"""Rows of columns as records, for steps that cannot be processed at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.errors import NoFieldsError, RecordError, StreamsError
from streams.model.aggregates import Aggregate
from streams.model.expressions.expression import Expression
from streams.model.record import Record
from streams.operators.aggregate.columns.accumulate import cell
from streams.operators.aggregate.columns.column_rows import ColumnRows
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.operator_context import OperatorContext


class OneByOne(Exception):
    """The records of a step cannot be processed at once, although none of them need be at fault."""


def concerns_records(error: Exception) -> bool:
    """Whether an error may be caused by a record, and not by the store, Kafka or the machine."""
    if isinstance(error, StreamsError):
        return isinstance(error, RecordError)
    return not isinstance(error, MemoryError)


class PickedFields:
    """The records of a step, whose values are the fields that the aggregates read.

    Args:
        fields: The aggregates.
        rows: The rows.
        read_key: Reads a key's bytes.
    """

    def __init__(self, fields: FieldAggregates, rows: ColumnRows, read_key: Callable[[bytes], Any]) -> None:
        self._rows = rows
        self._read_key = read_key
        self._paths = [field_of(one) for one in fields.aggregates.values()]
        self._first = next((path for path in self._paths if path is not None), None)
        self.functions = AggregationFunctions(partial(_add, fields), fields.initial, fields.merge, fields.result)
        """The functions of the aggregation for these records."""

    @property
    def failing(self) -> npt.NDArray[np.bool_]:
        """bool[n], whether a row's value has no fields although an aggregate reads one."""
        scalars = self._rows.without_fields
        if scalars is None or self._first is None:
            return np.zeros(len(self._rows), np.bool_)
        return scalars

    @property
    def failure(self) -> NoFieldsError:
        """The error of a value without fields."""
        assert self._first is not None, "a field is missing only if one is read"
        return NoFieldsError(self._first)

    def record(self, row: int) -> Record:
        """One row as a record. Its value is an error if it has no fields."""
        rows = self._rows
        value: Any = None
        if self.failing[row]:
            value = self.failure
        elif not rows.null_values[row]:
            value = [None if path is None else cell(rows.fields[path], row) for path in self._paths]
        return Record(
            self._read_key(rows.keys[rows.key_codes[row]]), value, int(rows.timestamps[row]), rows.headers_of(row)
        )

    def each(self, ctx: OperatorContext, at: npt.NDArray[np.int64], take: Callable[[int, Record], None]) -> None:
        """Passes the rows `at` on, one by one; an error concerns one row alone."""
        for row in at.tolist():
            try:
                take(row, self.record(row))
            except Exception as error:
                fail(ctx, self._rows, row, error)


def field_of(aggregate: Aggregate) -> str | None:
    """The path of an aggregate's field. Where rows of columns may be needed as records, expressions are not taken."""
    assert not isinstance(aggregate.field, Expression), "such aggregations take records (`WindowKind.computes`)"
    return aggregate.field


def fail(ctx: OperatorContext, rows: ColumnRows, row: int, error: Exception) -> None:
    """Apply the processing policy to an error of one row."""
    with ctx.resume(rows.place(row)):
        ctx.attempt(partial(_raise, error))


def _raise(error: Exception) -> None:
    raise error


def _add(fields: FieldAggregates, key: Any, picked: Any, accumulator: Any) -> Any:
    if isinstance(picked, NoFieldsError):
        raise picked
    return fields.add_picked(key, picked or [None] * len(fields.aggregates), accumulator)
