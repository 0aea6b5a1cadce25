"""`AggregateBatches`: a step's records aggregated together by functions of the user, over all time or in windows.

A function is called once for each record and window, in the order of the records, as in Kafka Streams. Everything around the calls
happens once for a step: values are read one after the other while the functions run, windows are assigned to whole columns, a store
is asked once for all groups, and results are written as columns (`streams.operators.pending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streams.model.record import NO_TIME
from streams.operators.aggregate.aggregates import StreamAggregate, WindowAggregate, WindowPairs
from streams.operators.aggregate.columns.column_rows import Groups, group
from streams.operators.columnar import ColumnarBatch, Int64s, each_value
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import CachedRow
from streams.operators.table.table_materializer import numbered

Aggregating: TypeAlias = "StreamAggregate | WindowAggregate"


class _Records(NamedTuple):
    """The records of one operator, and their windows."""

    operator: Aggregating
    batch: ColumnarBatch
    pairs: WindowPairs


class AggregateBatches:
    """See `BatchProcessor`. The streams of a cogroup share a store, so their records are aggregated in one order.

    Args:
        operators: Those of the group; all of them have caches.
    """

    def __init__(self, operators: Sequence[Aggregating]) -> None:
        self._operators = operators
        for operator in operators:
            operator.emits_together = True

    def process_batches(self, batches: Sequence[ColumnarBatch]) -> None:
        parts = [
            _Records(operator, batch, operator.pairs(batch))
            for operator, batch in zip(self._operators, batches, strict=True)
        ]
        _Fold(parts).run()


class _Fold:
    """The calls of the functions in a step, one for each pair of a record and a window.

    Args:
        parts: The records of each operator.

    Raises:
        Exception: A key cannot be written, or the store cannot be read; nothing has happened.
    """

    def __init__(self, parts: Sequence[_Records]) -> None:
        self._parts = parts
        self._store = parts[0].operator.store
        order = np.concatenate([one.batch.order[one.pairs.rows] for one in parts])
        self._sequence = np.argsort(order, kind="stable")
        which = np.repeat(np.arange(len(parts)), [len(one.pairs.rows) for one in parts])
        self._which = which[self._sequence].tolist()
        self._rows = np.concatenate([one.pairs.rows for one in parts])[self._sequence].tolist()
        self._timestamps = np.concatenate([one.batch.timestamps[one.pairs.rows] for one in parts])[self._sequence]
        self._groups, self._entries = self._look_up()

    def run(self) -> None:
        """Calls the functions, and leaves the results pending."""
        for operator, batch, pairs in self._parts:
            operator.begin(batch, pairs)
        codec, private = self._store.codec, self._parts[0].operator.ctx.private_rows
        values: Any = PrivateValues(self._entries, codec) if private else [one.value for one in self._entries]
        done, end_of_failed = np.ones(len(self._rows), np.bool_), -1
        begun: list[int] = []
        groups = self._groups.of_rows
        for at, (functions, key, value, number) in enumerate(self._calls()):
            if at < end_of_failed:
                continue
            try:
                before = values[number]
                if before is None:
                    begun.append(at)
                    values[number] = functions.added(key, value, functions.initial())
                else:
                    values[number] = functions.aggregator(key, value, before)
            except Exception as error:
                self._refuse(at, error)  # raises, unless values are private
                first, end_of_failed = self._calls_of_record(at)
                values.restore(groups[first:at].tolist())
                done[first:end_of_failed] = False
        self._keep(np.flatnonzero(done), values, self._times(done, np.array(begun, np.int64)))
        failed = {self._rows[at] for at in np.flatnonzero(~done).tolist()}
        opened = [(self._rows[at], self._entries[groups[at]]) for at in begun if done[at]]
        for operator, batch, _ in self._parts:
            operator.end(batch, opened, failed)

    def _look_up(self) -> tuple[Groups, list[CachedRow]]:
        """The groups of the calls, and the row of each in the store."""
        codes, number_of = [np.empty(0, np.int32)], dict[bytes, int]()
        for _, batch, pairs in self._parts:
            mine, numbers = numbered(self._store.codec.keys(batch.keys), batch.keys.take(pairs.rows))
            codes.append(
                np.array([number_of.setdefault(key, len(number_of)) for key in mine] or [0], np.int32)[numbers]
            )
        starts = np.concatenate([one.pairs.starts for one in self._parts])
        groups = group(np.concatenate(codes)[self._sequence], starts[self._sequence])
        data = list(number_of)
        places = zip((data[code] for code in groups.codes.tolist()), groups.starts.tolist(), strict=True)
        return groups, self._store.entries(list(places))

    def _calls(self) -> Iterator[tuple[Any, ...]]:
        """What each call is made of: functions, key, value, and the number of its group."""
        groups = self._groups.of_rows.tolist()
        if len(self._parts) == 1:
            return zip(*_columns(self._parts[0]), groups, strict=False)
        calls = [zip(*_columns(one), strict=False) for one in self._parts]
        return ((*next(calls[which]), number) for which, number in zip(self._which, groups, strict=True))

    def _refuse(self, at: int, error: Exception) -> None:
        """Applies the processing policy to the record of a call."""
        operator, batch, _ = self._parts[self._which[at]]
        operator.ctx.refuse(batch, self._rows[at], error)

    def _calls_of_record(self, at: int) -> tuple[int, int]:
        """The first call for the record of a call, and the first one for the next record."""
        first, end, record = at, at + 1, (self._which[at], self._rows[at])
        while first > 0 and (self._which[first - 1], self._rows[first - 1]) == record:
            first -= 1
        while end < len(self._rows) and (self._which[end], self._rows[end]) == record:
            end += 1
        return first, end

    def _times(self, done: npt.NDArray[np.bool_], begun: Int64s) -> list[int]:
        """The timestamp of each group after the calls: the largest one of its records since its aggregate began."""
        groups, begun = self._groups.of_rows, begun[done[begun]]
        times = np.array([one.timestamp for one in self._entries], np.int64)
        since = np.zeros(len(times), np.int64)
        times[groups[begun]], since[groups[begun]] = NO_TIME, begun  # the last assignment to an index wins
        counted = np.flatnonzero(done & (np.arange(len(done)) >= since[groups]))
        np.maximum.at(times, groups[counted], self._timestamps[counted])
        found: list[int] = times.tolist()
        return found

    def _keep(self, done: Int64s, values: Sequence[Any], times: Sequence[int]) -> None:
        """Keeps the groups of the calls that were made for the end of the step, in the order of their first calls."""
        groups = self._groups.of_rows[done]
        first, last = np.full(len(values), -1), np.full(len(values), -1)
        first[groups[::-1]], last[groups] = done[::-1], done
        called = np.flatnonzero(last >= 0)
        for number in called[np.argsort(first[called])].tolist():
            entry, at = self._entries[number], int(last[number])
            entry.set(values[number], times[number])
            operator, batch, _ = self._parts[self._which[at]]
            row = self._rows[at]
            operator.keep(batch.keys[row], batch.headers_of(row), entry)


class PrivateValues:
    """The aggregates of a fold as bytes: each call gets an object of its own, and a record that fails can be undone.

    Args:
        entries: The rows.
        codec: That of their store.
    """

    def __init__(self, entries: Sequence[CachedRow], codec: Codec) -> None:
        self._codec = codec
        self._cells = [codec.value(one.value) for one in entries]
        self._before = list(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, number: int) -> Any:
        return self._codec.read_value(self._cells[number])

    def __setitem__(self, number: int, value: Any) -> None:
        cell = self._codec.value(value)
        self._before[number], self._cells[number] = self._cells[number], cell

    def restore(self, numbers: Iterable[int]) -> None:
        """Takes the last assignment to each of these aggregates back."""
        for number in numbers:
            self._cells[number] = self._before[number]


def _columns(part: _Records) -> tuple[Iterable[Any], ...]:
    """What the calls of one operator are made of: functions, keys, values."""
    operator, batch, pairs = part
    return repeat(operator.functions), batch.keys.take(pairs.rows), each_value(batch.values, pairs.rows)
