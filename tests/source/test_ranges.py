"""The true size of a range: told once it is far above what was planned."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from types import SimpleNamespace

import numpy as np
import orjson
import pyarrow as pa
import pytest

from state.columns import RecordColumns
from state.commit.marker import MARKER_KEY, CommitMarker
from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.producer import TransactionalProducer
from state.kafka.reader import close_shared_readers
from streams.broker import EmbeddedBroker
from streams.engine.source.log import LiveLog
from streams.engine.source.offsets import OffsetRange
from streams.engine.source.partition_times import PartitionTimes, with_partition_times
from streams.engine.source.topics import SourceSpec
from streams.engine.spark import worker
from streams.engine.step import read
from streams.engine.step.job import DEFAULT_MEMORY
from streams.engine.step.read import PlannedRange, bounded
from streams.errors import RangeTooLargeError
from streams.model.record import NO_TIME
from streams.model.table_columns import RecordPart, RowLayout, ScalarType, TableColumn
from tests.conftest import TopicFactory


def piece(first: int, records: int, size: int) -> RecordColumns:
    numbers = np.arange(first, first + records, dtype=np.int64)
    return RecordColumns(
        "t", 3, numbers, numbers, pa.nulls(records, pa.binary()), pa.array([b"v" * size] * records, pa.binary())
    )


def pieces(count: int, records: int, size: int) -> Iterator[RecordColumns]:
    for number in range(count):
        yield piece(number * records, records, size)


def test_a_range_that_is_far_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "NEVER_TOO_LARGE", 0)
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
    monkeypatch.setattr(read, "NEVER_TOO_LARGE", 0)
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

    monkeypatch.setattr(read, "NEVER_TOO_LARGE", 0)
    monkeypatch.setattr(worker, "job_of_worker", lambda payload: job)
    monkeypatch.setattr(read, "shared_reader", lambda *_, **__: reader)
    monkeypatch.setattr(worker, "read_range", read_range)
    with pytest.raises(RangeTooLargeError, match="max_bytes_per_trigger = 20,000"):
        list(worker.read_partition(b"", PlannedRange("batch", "id", OffsetRange("t", 3, 0, 1_000))))
    assert len(taken) < 100


def test_rows_of_a_lake_sink_may_be_as_large_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = RowLayout((TableColumn("note", ScalarType("STRING"), RecordPart.FIELD),))
    row = orjson.dumps({"note": "x" * 1_000})
    large = [RecordColumns("t", 3, np.arange(10), np.arange(10), pa.nulls(10, pa.binary()), pa.array([row] * 10))] * 20
    monkeypatch.setattr(read, "NEVER_TOO_LARGE", 0)
    monkeypatch.setattr(read, "shared_reader", lambda *_, **__: SimpleNamespace(read=lambda end, most: iter(large)))
    job = SimpleNamespace(layout=layout, client={}, bulk_io=False, prefetch_bytes=1, max_bytes=20_000)
    monkeypatch.setattr(worker, "rows_job", lambda payload: job)
    planned = PlannedRange("batch", "id", OffsetRange("t", 3, 0, 200))
    assert sum(batch.num_rows for batch in worker.read_rows(b"", [planned])) == 200


# --- Partition times are taken from markers that may only just be committed.


def marker() -> CommitMarker:
    """Of a step that has read `in-0` up to offset 5, where the partition time was 77."""
    state = with_partition_times({}, {("in", 0): (5, 77)})
    return CommitMarker(
        query_id="query",
        task=0,
        tasks=1,
        topology_hash="hash",
        version=1,
        batch_id=0,
        batch="b0",
        ranges={"in": {"0": (0, 5)}},
        topic_ids={"in": "id"},
        stream_time=77,
        operator_state=state,
        changelog_ends={},
        expired_before={},
        counts={},
        changelog_hash="00",
        now_ms=1,
    )


def test_the_marker_of_the_last_step_is_waited_for(broker: EmbeddedBroker, topic: TopicFactory) -> None:
    client, commits = {"bootstrap.servers": broker.bootstrap_servers}, topic()
    with KafkaAdmin(client) as admin, TransactionalProducer(client, commits) as producer:
        times = PartitionTimes(LiveLog(client, admin), commits, partial(wait_until_decided, admin, timeout_s=30))
        assert times.before([OffsetRange("in", 0, 0, 5)]) == {("in", 0): NO_TIME}
        producer.init_transactions()
        producer.begin()
        producer.send(commits, 0, MARKER_KEY, marker().to_bytes(), 1)
        producer.flush()
        # As after a commit whose control records are not written yet: what was written shows a moment later.
        commit = threading.Timer(0.5, producer.commit)
        commit.start()
        try:
            assert times.before([OffsetRange("in", 0, 5, 9)]) == {("in", 0): 77}
        finally:
            commit.join()
            close_shared_readers()
