"""Extracts the event times of a source's records, and drops records by their timestamps.

If the extractor uses only timestamps and they are valid, whole columns pass unchanged; otherwise each record is extracted by
itself. `partition_times` (largest timestamp so far of each partition) belongs to the caller, who may keep it over reads.
Invariant: a timestamp that is refused advances no time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from streams.engine.graph.event_time import checked, latest, too_far
from streams.engine.graph.rows import NOW
from streams.engine.graph.step_context import SourceRows, StepContext
from streams.model.expressions import Expression
from streams.model.ownership import only_reads
from streams.model.record import NO_TIME
from streams.model.timestamps import (
    ConsumedRecord,
    CustomTimestampExtractor,
    ExpressionTimestampExtractor,
    FieldTimestampExtractor,
    WallclockTimestampExtractor,
)
from streams.operators.aggregate.column_rows import INT, FieldColumn
from streams.operators.expressions import Frame, computed
from streams.serdes.json import is_plain_json
from streams.topology.graph import SourceNode

DROPPED = -1

_OF_FIELDS = (FieldTimestampExtractor, ExpressionTimestampExtractor)


class TimestampReader:
    """Extracts the timestamps of one source.

    Args:
        source: The source, with its extractor.
        run: Policies and counters.
        partition_times: (topic, partition) -> largest timestamp so far; updated.
    """

    def __init__(self, source: SourceNode, run: StepContext, partition_times: dict[tuple[str, int], int]) -> None:
        self.needs_record: bool = source.timestamp_extractor.needs_record
        extractor = source.timestamp_extractor
        users = extractor.fn if isinstance(extractor, CustomTimestampExtractor) else None
        self.reads: bool = (
            only_reads(users) if users else type(extractor).__module__ == CustomTimestampExtractor.__module__
        )
        """Whether the extractor leaves keys and values as they are."""
        self._source = source
        self._extractor = source.timestamp_extractor
        self._run = run
        self._times = partition_times

    def column(self, rows: SourceRows, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the timestamps if no key or value is needed. `DROPPED` marks dropped records, and `NOW` the step's clock."""
        place = (rows.topic, rows.partition)
        if isinstance(self._extractor, WallclockTimestampExtractor):
            return np.full(len(timestamps), NOW, np.int64)
        before = self._times.get(place, NO_TIME)
        limit = self._latest
        if not len(timestamps):
            return timestamps
        largest = int(timestamps.max())
        if largest > limit or timestamps.min() < 0:
            sane = np.where(timestamps > limit, NO_TIME, timestamps)
            seen = np.maximum.accumulate(np.maximum(sane, before))
            for row in np.flatnonzero(sane < 0).tolist():
                sane[row] = self.one(rows, row, None, None, int(seen[row]))
            timestamps, largest = sane, int(sane.max())
        self._times[place] = max(before, largest)
        return timestamps

    @property
    def _latest(self) -> int:
        return latest(self._run.settings, self._run.now_ms)

    @property
    def expression(self) -> Expression | None:
        """The expression that computes the time from fields of JSON values; None if it cannot run on columns."""
        extractor = self._extractor
        if isinstance(extractor, _OF_FIELDS) and extractor.scale and is_plain_json(self._source.value_serde):
            return extractor.expression
        return None

    def of_fields(
        self, rows: SourceRows, fields: Mapping[str, FieldColumn], rejected: Collection[int]
    ) -> npt.NDArray[np.int64]:
        """Computes timestamps from decoded fields: integers at once, everything else through `record`."""
        assert isinstance(self._extractor, _OF_FIELDS), "others do not say which fields they read"
        assert self._extractor.scale is not None, "only numbers are computed as columns"
        times, by = self._extractor.scale
        count = len(rows.offsets)
        # Rows that fail here have no time in the column, and fail again as records.
        column = computed(self._extractor.expression, Frame(count, fields), np.ones(count, np.bool_), {})
        simple = (column.kinds == INT) & (column.ints < 2**53) & (column.ints > -(2**53))
        timestamps = np.where(simple, column.ints * times // by, DROPPED)
        negative = int((simple & (timestamps < 0)).sum())
        self._run.counters.add(f"dropped:{self._source.name}:timestamp", negative)
        timestamps = np.maximum(timestamps, DROPPED)
        if len(timestamps) and timestamps.max() > self._latest:
            for row in np.flatnonzero(timestamps > self._latest).tolist():
                timestamps[row] = self._turn_away(rows, row, int(timestamps[row]))
        for row in np.flatnonzero(~simple).tolist():
            if row in rejected:
                timestamps[row] = 0  # not dropped here, because the caller rejects the row with its own error
                continue
            value = self._source.value_serde.deserialize(rows.topic, rows.values[row])
            timestamps[row] = self.record(rows, row, None, value)
        return timestamps

    def record(self, rows: SourceRows, row: int, key: object, value: object) -> int:
        """Returns the timestamp of one deserialised record, `DROPPED` or `NOW`, and advances the partition's time."""
        place = (rows.topic, rows.partition)
        before = self._times.get(place, NO_TIME)
        timestamp = self.one(rows, row, key, value, before)
        if timestamp > before:
            self._times[place] = timestamp
        return timestamp

    def one(self, rows: SourceRows, row: int, key: object, value: object, partition_time: int) -> int:
        """Calls the extractor. Errors follow the deserialisation policy; records with negative results are dropped and counted."""
        record = ConsumedRecord(
            rows.topic,
            rows.partition,
            int(rows.offsets[row]),
            int(rows.timestamps[row]),
            key,
            value,
            rows.headers_of(row),
        )
        try:
            timestamp = checked(self._extractor.extract(record, partition_time, NOW))
        except Exception as error:
            self._run.handlers.handle("deserialization", self._source.name, rows.origin(row), error)
            return DROPPED
        if timestamp < 0 and timestamp != NOW:
            self._run.counters.add(f"dropped:{self._source.name}:timestamp")
            return DROPPED
        return timestamp if timestamp <= self._latest else self._turn_away(rows, row, timestamp)

    def _turn_away(self, rows: SourceRows, row: int, timestamp: int) -> int:
        """Applies the policy `future` to a timestamp that is too late, and drops the record."""
        error = too_far(timestamp, self._run.settings, self._run.now_ms)
        self._run.handlers.handle("future", self._source.name, rows.origin(row), error)
        return DROPPED
