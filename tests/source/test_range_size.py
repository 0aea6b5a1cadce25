"""The true size of a range: told once it is far above what was planned."""

import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import numpy as np
import orjson
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from streams.errors import RangeTooLargeError
from streams.microbatch.job import DEFAULT_MEMORY
from streams.microbatch.read import PlannedRange
from streams.model.row_layout import Origin, RowLayout, TableColumn
from streams.model.table_columns import ScalarType
from streams.source import range_records
from streams.source.offsets import OffsetRange
from streams.source.planner import SourceSpec
from streams.source.range_records import bounded
from streams.spark import worker


def piece(first: int, records: int, size: int) -> RecordColumns:
    numbers = np.arange(first, first + records, dtype=np.int64)
    return RecordColumns(
        "t", 3, numbers, numbers, pa.nulls(records, pa.binary()), pa.array([b"v" * size] * records, pa.binary())
    )


def pieces(count: int, records: int, size: int) -> Iterator[RecordColumns]:
    for number in range(count):
        yield piece(number * records, records, size)


def test_a_range_that_is_far_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_records, "NEVER_TOO_LARGE", 0)
    taken = []
    with pytest.raises(RangeTooLargeError) as caught:
        taken.extend(bounded(pieces(100, 10, 1_000), OffsetRange("t", 3, 0, 1_000), 20_000))
    # It is not read to its end first.
    assert 7 <= len(taken) <= 8
    said = str(caught.value)
    assert said.startswith("t-3: the first ")
    assert "max_bytes_per_trigger = 20,000" in said
    fitting, needed = (int(number) for number in re.findall(r"(?:records|bytes)_per_trigger = (\d+) (?:or|and)", said))
    # With either of the two it would have passed.
    assert 15 <= fitting <= 20
    assert len(list(bounded(pieces(100, 10, 1_000), OffsetRange("t", 3, 0, 1_000), needed))) == 100


def test_what_is_not_far_above_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(bounded(pieces(10, 10, 1_000), OffsetRange("t", 3, 0, 100), 1))) == 10
    monkeypatch.setattr(range_records, "NEVER_TOO_LARGE", 0)
    assert len(list(bounded(pieces(10, 10, 1_000), OffsetRange("t", 3, 0, 100), 30_000))) == 10
    # A record that is too large by itself cannot be planned any smaller.
    assert len(list(bounded(pieces(1, 1, 1_000), OffsetRange("t", 3, 0, 1), 1))) == 1


def test_the_reader_of_a_task_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SimpleNamespace(read=lambda end, most: pieces(100, 10, 1_000))
    source = SourceSpec({}, max_bytes=20_000)
    job = SimpleNamespace(
        sub=SimpleNamespace(name="t"), tasks=1, client={}, bulk_io=False, source=source, memory=DEFAULT_MEMORY
    )
    taken: list[RecordColumns] = []

    def read_range(_job: object, _planned: object, of: Iterable[RecordColumns]) -> Iterator[object]:
        taken.extend(of)
        yield from ()

    monkeypatch.setattr(range_records, "NEVER_TOO_LARGE", 0)
    monkeypatch.setattr(worker, "job_of_worker", lambda payload: job)
    monkeypatch.setattr(range_records, "shared_reader", lambda *_, **__: reader)
    monkeypatch.setattr(worker, "read_range", read_range)
    with pytest.raises(RangeTooLargeError, match="max_bytes_per_trigger = 20,000"):
        list(worker.read_partition(b"", PlannedRange("batch", "id", OffsetRange("t", 3, 0, 1_000))))
    assert len(taken) < 100


def test_rows_of_a_lake_sink_may_be_as_large_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = RowLayout((TableColumn("note", ScalarType("STRING"), Origin.FIELD),))
    row = orjson.dumps({"note": "x" * 1_000})
    large = [RecordColumns("t", 3, np.arange(10), np.arange(10), pa.nulls(10, pa.binary()), pa.array([row] * 10))] * 20
    monkeypatch.setattr(range_records, "NEVER_TOO_LARGE", 0)
    monkeypatch.setattr(
        range_records, "shared_reader", lambda *_, **__: SimpleNamespace(read=lambda end, most: iter(large))
    )
    job = SimpleNamespace(layout=layout, client={}, bulk_io=False, prefetch_bytes=1, max_bytes=20_000)
    monkeypatch.setattr(worker, "rows_job", lambda payload: job)
    planned = PlannedRange("batch", "id", OffsetRange("t", 3, 0, 200))
    assert sum(batch.num_rows for batch in worker.read_rows(b"", [planned])) == 200
