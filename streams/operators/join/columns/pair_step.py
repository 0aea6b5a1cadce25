"""What the joins of streams over columns have in common: the results of pairs and of records without a partner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streams.model.waiting import LEFT
from streams.operators.columnar import NULL_KEY, ColumnarBatch, Int64s
from streams.operators.encoded_values import EncodedValues, take_values, value_column, values_at
from streams.operators.join.columns.joined_objects import JoinedObjects
from streams.operators.join.columns.partners import Pairs
from streams.operators.join.columns.records import Bools, JoinRecords, placed
from streams.operators.join.columns.stored_step import StoredStep
from streams.operators.join.columns.waiting import JoinStep, WaitingStep
from streams.operators.join.columns.waiting_compat import CompatWaitingStep
from streams.operators.join.columns.waiting_strict import StrictWaitingStep
from streams.operators.join.options import StreamJoin
from streams.operators.join.outer_join_buffer import CompatOuterJoinBuffer, OuterJoinBuffer
from streams.operators.stores.codec import Codec
from streams.serdes.json import JsonSerde, is_plain_json


@dataclass(frozen=True, slots=True)
class StepResults:
    """The results of a step.

    Attributes:
        batch: The results in order.
        places: int64[m], the record that each result comes from, times two, plus one if it is a result of this very record.
        without_key: The records without a key that have given their result at once.
        write: Writes what has changed of the waiting records.
    """

    batch: ColumnarBatch
    places: Int64s
    without_key: Int64s
    write: Callable[[], None]


class PairStep(StoredStep):
    """One step.

    Args:
        join: The join.
        codecs: The codecs of the stores by side.
        records: The records; the index of their node is the side.
        time: int64[n], stream time at each record.
        is_open: Which records are processed.
        stored: Which records are stored.
    """

    def __init__(
        self,
        join: StreamJoin,
        codecs: Sequence[Codec],
        records: JoinRecords,
        time: Int64s,
        is_open: Bools,
        stored: Bools,
    ) -> None:
        super().__init__(codecs, records, time, is_open, stored, join.keeps_values)
        self.join = join
        self.is_left = records.nodes == LEFT
        self._objects = self._joined_objects()

    def results(self, pairs: Pairs, buffer: OuterJoinBuffer | None) -> StepResults:
        """The results of all pairs, and of records without a partner if there is a buffer for these."""
        results = [(self._joined(pairs), 2 * pairs.rows + 1)]
        without_key = self.alone_without_key()
        if buffer is None:
            self.check_unchanged(pairs.rows)
            return StepResults(*placed(results), without_key, lambda: None)
        waiting = self._waiting(pairs, buffer)
        due, at = waiting.results()
        at_once = np.sort(np.concatenate([without_key, waiting.at_once]))
        results += [(due, 2 * at), (self._alone(at_once), 2 * at_once + 1)]
        self.check_unchanged(np.concatenate([pairs.rows, at_once]))
        return StepResults(*placed(results), without_key, waiting.write)

    def may_be_alone(self, pairs: Pairs) -> tuple[Bools, Pairs]:
        """The open records that may be without a partner, and the pairs with the partners that may be waiting."""
        return self.is_open, pairs

    def _joined_objects(self) -> JoinedObjects | None:
        """Makes results of the bytes of values; None where these do not say all of the values, or results have to be computed."""
        values, (first, second) = self.batch.values, self.codecs
        if not (isinstance(values, EncodedValues) and is_plain_json(values.serde) and values.is_untouched):
            return None
        return JoinedObjects.of(self.join.fields) if first.writes_as(second) else None

    def _waiting(self, pairs: Pairs, buffer: OuterJoinBuffer) -> WaitingStep:
        may_be_alone, met = self.may_be_alone(pairs)
        step = JoinStep(self.join, self.codecs, self.records, self.time, may_be_alone, met, self.column, self._objects)
        return (
            CompatWaitingStep(step, buffer)
            if isinstance(buffer, CompatOuterJoinBuffer)
            else StrictWaitingStep(step, buffer)
        )

    def _joined(self, pairs: Pairs) -> ColumnarBatch:
        """The results of all pairs."""
        results = self._called(pairs) if self._objects is None else self._made(pairs, self._objects)
        return self.of_rows(pairs.rows, results, np.maximum(self.timestamps[pairs.rows], pairs.times))

    def _called(self, pairs: Pairs) -> list[Any]:
        """The results that the joiner gives for objects."""
        joiner, keys, rows = self.join.joiner, self.batch.keys, pairs.rows
        values, objects, from_left = list(self.batch.values), keys.objects, self.is_left[rows]
        columns = (rows.tolist(), keys.codes[rows].tolist(), self.partners_of(pairs), from_left.tolist())
        return [
            joiner(objects[key], values[row], other) if is_left else joiner(objects[key], other, values[row])
            for row, key, other, is_left in zip(*columns, strict=True)
        ]

    def _made(self, pairs: Pairs, objects: JoinedObjects) -> EncodedValues:
        """The results made of the bytes of values."""
        cells, partners = self.cells_of(pairs)
        is_left, certain = self.is_left[pairs.rows], np.arange(len(cells)) < len(self.records)
        left, right = np.where(is_left, pairs.rows, partners), np.where(is_left, partners, pairs.rows)
        return objects.of_pairs(cells, left, right, certain)

    def partners_of(self, pairs: Pairs) -> list[Any]:
        """The partner's value of each pair."""
        return self.values_from(pairs, 1 - self.records.nodes[pairs.rows])

    def alone_without_key(self) -> Int64s:
        """The records of outer sides with a value, but no key, which give their result at once."""
        outer = self.records.by_node([self.join.is_outer(side) for side in range(2)])
        return np.flatnonzero((self.batch.keys.codes == NULL_KEY) & self.records.has_value & (outer != 0))

    def _alone(self, rows: Int64s) -> ColumnarBatch:
        """The results of records that give theirs at once, without a partner."""
        if self._objects is None:
            sides, keys = self.records.nodes[rows].tolist(), self.batch.keys.take(rows)
            columns = zip(sides, keys, values_at(self.batch.values, rows), strict=True)
            results: Sequence[Any] = [self.join.joined(side, key, value, None) for side, key, value in columns]
        else:
            # Records without a key have no bytes in a store.
            cells = value_column(take_values(self.batch.values, rows), JsonSerde(), "")
            results = self._objects.of_one_side(cells, self.is_left[rows], certain=True)
        return self.of_rows(rows, results, self.timestamps[rows])
