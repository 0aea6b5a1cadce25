"""Rows of columns as records, for steps that cannot be processed at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.errors import RecordError, StreamsError
from streams.model.record import Record
from streams.operators.aggregate.columns.aggregate_columns import columns_of
from streams.operators.aggregate.columns.column_rows import ColumnRows, cell
from streams.operators.aggregate.field_aggregates import FieldAggregates
from streams.operators.aggregate.functions import AggregationFunctions
from streams.operators.aggregate.windowed import WindowedAggregation
from streams.operators.operator_context import OperatorContext


def concerns_records(error: Exception) -> bool:
    """Whether an error may be caused by a record, and not by the store, Kafka or the machine."""
    if isinstance(error, StreamsError):
        return isinstance(error, RecordError)
    return not isinstance(error, MemoryError)


class RowKeys:
    """The keys of a step's rows.

    Args:
        rows: The rows.
        read_key: Reads a key's bytes.
    """

    def __init__(self, rows: ColumnRows, read_key: Callable[[bytes], Any]) -> None:
        self.objects: list[Any] = []
        """The keys by their codes; None for null and for those that cannot be read."""
        self._errors: dict[int, Exception] = {}
        for code, data in enumerate(rows.keys):
            try:
                self.objects.append(read_key(data))
            except Exception as error:
                self._errors[code] = error
                self.objects.append(None)
        # The last one stands for rows without a key, whose code is -1.
        there = np.array([*(key is not None for key in self.objects), False])[rows.key_codes]
        wrong = np.array([*(code in self._errors for code in range(len(rows.keys))), False])[rows.key_codes]
        self.readable: npt.NDArray[np.bool_] = there
        """bool[n], whether a row has a key that can be read."""
        self.missing = int((~there & ~wrong).sum())
        """How many rows have no key."""
        self._rows, self._wrong = rows, wrong

    def fail(self, ctx: OperatorContext) -> None:
        """Apply the processing policy to the rows whose key cannot be read."""
        for row in np.flatnonzero(self._wrong).tolist():
            fail(ctx, self._rows, row, self._errors[int(self._rows.key_codes[row])])


class PickedFields:
    """The records of a step, whose values are what the aggregates read of them.

    Args:
        fields: The aggregates.
        rows: The rows.
        taken: bool[n], the rows to aggregate.
    """

    def __init__(self, fields: FieldAggregates, rows: ColumnRows, taken: npt.NDArray[np.bool_]) -> None:
        self.taken = taken
        self.errors: dict[int, Exception] = {}
        """Row -> its error, where a value has no fields, or an expression fails."""
        self.columns = columns_of(fields.aggregates.values(), rows, taken, self.errors)
        """What each aggregate reads."""
        self.functions = AggregationFunctions(partial(_add, fields), fields.initial, fields.merge, fields.result)
        """The functions of the aggregation for these records."""
        self._rows = rows

    @property
    def failing(self) -> npt.NDArray[np.bool_]:
        """bool[n], the rows with an error."""
        failing = np.zeros(len(self._rows), np.bool_)
        failing[list(self.errors)] = True
        return failing

    def record(self, row: int, keys: RowKeys) -> Record:
        """One row as a record. Its value is its error, if it has one."""
        rows = self._rows
        value = self.errors.get(row) or [None if column is None else cell(column, row) for column in self.columns]
        return Record(keys.objects[rows.key_codes[row]], value, int(rows.timestamps[row]), rows.headers_of(row))


def process_one_by_one(
    operator: WindowedAggregation[Any], picked: PickedFields, keys: RowKeys, rows: ColumnRows, at: npt.NDArray[np.int64]
) -> None:
    """Processes the rows `at` as records; an error concerns one row alone."""
    functions, operator.functions = operator.functions, picked.functions
    try:
        for row in at.tolist():
            try:
                operator.process(picked.record(row, keys))
            except Exception as error:
                fail(operator.ctx, rows, row, error)
    finally:
        operator.functions = functions


def fail(ctx: OperatorContext, rows: ColumnRows, row: int, error: Exception) -> None:
    """Apply the processing policy to an error of one row."""
    with ctx.resume(rows.place(row)):
        ctx.attempt(partial(_raise, error))


def _raise(error: Exception) -> None:
    raise error


def _add(fields: FieldAggregates, key: Any, picked: Any, accumulator: Any) -> Any:
    if isinstance(picked, Exception):
        raise picked
    return fields.add_picked(key, picked, accumulator)
