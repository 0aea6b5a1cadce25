"""Event time of the records of a source, and which of them go on at all.

Whole columns pass as they are while an extractor looks at timestamps only and they are valid; otherwise record by
record. `partition_times` (largest timestamp so far of each partition) belongs to the caller, who may keep it over
reads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streams.errors import RecordError
from streams.operators.column_rows import INT
from streams.runtime.json_fields import JsonFields
from streams.runtime.rows import NOW
from streams.runtime.run import NO_TIME, Run, SourceRows
from streams.serdes.json import JsonSerde
from streams.topology.graph import SourceNode
from streams.topology.timestamps import ConsumedRecord, FieldTimestampExtractor, WallclockTimestampExtractor

DROPPED = -1


class TimestampReader:
    """Extracts the timestamps of one source.

    Args:
        source: Its extractor counts.
        run: For policies and counters.
        partition_times: (topic, partition) -> largest timestamp so far; updated.
    """

    def __init__(self, source: SourceNode, run: Run, partition_times: dict[tuple[str, int], int]) -> None:
        self.needs_record: bool = source.timestamp_extractor.needs_record
        self._source = source
        self._extractor = source.timestamp_extractor
        self._run = run
        self._times = partition_times

    def column(self, rows: SourceRows, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Timestamps where no key or value is needed; `DROPPED` marks records that end here, `NOW` the step's clock."""
        place = (rows.topic, rows.partition)
        if isinstance(self._extractor, WallclockTimestampExtractor):
            return np.full(len(timestamps), NOW, np.int64)
        before = self._times.get(place, NO_TIME)
        invalid = np.flatnonzero(timestamps < 0)
        if len(invalid):
            seen = np.maximum.accumulate(np.maximum(timestamps, before))
            timestamps = timestamps.copy()
            for row in invalid.tolist():
                timestamps[row] = self.one(rows, row, None, None, int(seen[row]))
        if len(timestamps):
            self._times[place] = max(before, int(timestamps.max()))
        return timestamps

    @property
    def field(self) -> str | None:
        """Path of the JSON field that holds the time, if it can be read as a column; else None."""
        extractor = self._extractor
        if (
            isinstance(extractor, FieldTimestampExtractor)
            and extractor.scale
            and type(self._source.value_serde) is JsonSerde
        ):
            return ".".join(extractor.path)
        return None

    def of_field(self, rows: SourceRows, fields: JsonFields, index: int) -> npt.NDArray[np.int64]:
        """Timestamps out of a decoded field: whole numbers at once, whatever else as `record` does."""
        assert isinstance(self._extractor, FieldTimestampExtractor), "only its fields are decoded as columns"
        assert self._extractor.scale is not None, "only numbers are decoded as columns"
        times, by = self._extractor.scale
        column = fields.fields[index]
        simple = (column.kinds == INT) & (np.abs(column.ints) < 2**53)
        timestamps = np.where(simple, column.ints * times // by, DROPPED)
        negative = int((simple & (timestamps < 0)).sum())
        self._run.counters.add(f"dropped:{self._source.name}:timestamp", negative)
        timestamps = np.maximum(timestamps, DROPPED)
        for row in np.flatnonzero(~simple).tolist():
            if row in fields.rejected:
                timestamps[row] = 0  # not dropped here: the caller rejects it, with its own error
                continue
            value = self._source.value_serde.deserialize(rows.topic, rows.values[row])
            timestamps[row] = self.record(rows, row, None, value)
        return timestamps

    def record(self, rows: SourceRows, row: int, key: object, value: object) -> int:
        """Timestamp of one deserialised record; `DROPPED` or `NOW` as above."""
        place = (rows.topic, rows.partition)
        before = self._times.get(place, NO_TIME)
        timestamp = self.one(rows, row, key, value, before)
        if timestamp > before:
            self._times[place] = timestamp
        return timestamp

    def one(self, rows: SourceRows, row: int, key: object, value: object, partition_time: int) -> int:
        """Ask the extractor; errors follow the deserialisation policy, negative results are dropped and counted."""
        record = ConsumedRecord(
            rows.topic, rows.partition, rows.offsets[row], rows.timestamps[row], key, value, rows.headers_of(row)
        )
        try:
            timestamp = self._extractor.extract(record, partition_time, NOW)
        except Exception as error:
            if isinstance(error, RecordError) or self._extractor.needs_record:
                self._run.handlers.handle("deserialization", self._source.name, rows.origin(row), error)
                return DROPPED
            raise
        if timestamp < 0 and timestamp != NOW:
            self._run.counters.add(f"dropped:{self._source.name}:timestamp")
            return DROPPED
        return timestamp
