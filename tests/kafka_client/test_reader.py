""""""

from __future__ import annotations

import itertools
import os
import select
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from state.columns import RecordColumns
from state.errors import KafkaClientError, OffsetsLostError, ProduceError, ReadTimeoutError, TopicNotFoundError
from state.headers import Header
from state.kafka.admin import KafkaAdmin
from state.kafka.config import DEFAULT_PREFETCH_BYTES, ClientConfig
from state.kafka.consumers import RECORDS, RecordSampler, SampledRecord
from state.kafka.reader import POOL_PREFETCH_BYTES, SMALLEST_PREFETCH_BYTES, ReaderPool, open_range_reader
from tests.conftest import TopicFactory

from .rows import ReadRow, Row, abort_rows, commit_rows, eventually, read_rows, rows_of

WAKE_S = 10.0
MIXED = [
    Row(b"k0", b"v0", 10),
    Row(None, b"no key", 20),
    Row(b"no value", None, 30),
    Row(None, None, 40),
    Row(b"", b"", 50),
    Row(b"k5", b"v5", 60, [("h", b"1"), ("h", b"2"), ("null", None), ("", b"no name"), ("empty", b"")]),
    Row(b"k6", b"x" * 5_000, 70, [("größe", b"\x00\xff")]),
    Row(b"k7", b"v7", 5),
]


def as_read(rows: list[Row], first_offset: int = 0) -> list[ReadRow]:
    return [ReadRow(first_offset + i, r.key, r.value, r.timestamp, list(r.headers)) for i, r in enumerate(rows)]


def test_every_kind_of_record(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    commit_rows(client, name, MIXED)
    assert read_rows(client, name, 0, 9, bulk) == as_read(MIXED)


def test_header_names_that_are_no_utf_8_keep_their_bytes(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    rows = [Row(b"k", b"v", 1, [("caf\udce9", b"1"), ("h", b"\xff")]), Row(b"k", b"v", 2, [("ü", None)])]
    commit_rows(client, name, rows, bulk=True)
    if bulk:
        assert read_rows(client, name, 0, 3, bulk) == as_read(rows)
        return
    with pytest.raises(KafkaClientError, match=rf"{name}-0 offset 0 .* not UTF-8.*bulk_io"):
        read_rows(client, name, 0, 3, bulk)
    # Tried before anything reaches the client, which would take the process down.
    with pytest.raises(ProduceError, match=r"b'caf\\xe9' is not UTF-8.*bulk_io"):
        commit_rows(client, name, rows, bulk)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_records_with_and_without_headers_around_the_sizes_where_lengths_grow(
    client: ClientConfig, topic: TopicFactory, compression: str
) -> None:
    name = topic()
    sizes = (0, 1, 63, 64, 65, 8191, 8192)
    header_lists: list[list[Header]] = [[], [("h", b"")], [("h", None)] * 70]
    fields = [None, *(b"\0" * size for size in sizes), *(b"\x01" * size for size in sizes)]
    rows = [
        Row(key, value, 1 + i, headers)
        for i, (key, value, headers) in enumerate(itertools.product(fields[:8:3], fields, header_lists))
    ]
    commit_rows({**client, "compression.type": compression}, name, rows)
    for bulk in (True, False):
        assert read_rows(client, name, 0, len(rows) + 1, bulk) == as_read(rows)


@pytest.mark.parametrize("max_records", [1, 3, 8])
def test_runs_of_limited_length(client: ClientConfig, topic: TopicFactory, bulk: bool, max_records: int) -> None:
    name = topic()
    commit_rows(client, name, MIXED)
    assert read_rows(client, name, 0, 9, bulk, max_records=max_records) == as_read(MIXED)


def test_columns_without_any_header_have_no_header_column(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    name = topic()
    commit_rows(client, name, MIXED[:5])
    reader = open_range_reader(client, name, 0, 0, bulk)
    runs = list(reader.read(6))
    reader.close()
    assert {(run.topic, run.partition, run.headers) for run in runs} == {(name, 0, None)}
    assert sum(map(len, runs)) == 5
    assert sum(run.keys.null_count for run in runs) == 2


def test_ranges_over_control_records_and_aborted_transactions(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    name = topic()
    first, lost, second = MIXED[:3], [Row(b"aborted", b"x")] * 4, MIXED[3:5]
    commit_rows(client, name, first)  # 0..2, control 3
    abort_rows(client, name, lost)  # 4..7, control 8
    commit_rows(client, name, second)  # 9..10, control 11
    expected = as_read(first) + as_read(second, 9)
    for start in range(12):
        for end in range(start, 13):
            within = [row for row in expected if start <= row.offset < end]
            assert read_rows(client, name, start, end, bulk) == within, (start, end)


def test_one_reader_goes_on_over_many_ranges(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    for i in range(5):
        commit_rows(client, name, [Row(b"%d" % (2 * i), b"a"), Row(b"%d" % (2 * i + 1), b"b")])
    reader = open_range_reader(client, name, 0, 0, bulk, timeout_s=60)
    seen = []
    for end in (0, 1, 1, 3, 4, 8, 15, 15):
        seen += [row.offset for columns in reader.read(end) for row in rows_of(columns)]
        assert reader.position == end
    commit_rows(client, name, [Row(b"later", b"c")])
    seen += [row.offset for columns in reader.read(17) for row in rows_of(columns)]
    reader.close()
    assert seen == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15]


def test_a_range_that_ends_with_a_control_record_is_not_waited_for(
    client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, bulk: bool
) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"k", b"v")])
    eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], 2)
    # Nothing follows it: who waited for something to come would wait until the reader gives up.
    reader = open_range_reader(client, name, 0, 0, bulk, timeout_s=60)
    assert len(list(reader.read(1))) == 1
    assert list(reader.read(2)) == []
    assert reader.position == 2
    reader.close()


def test_gap_of_a_compacted_topic(client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, bulk: bool) -> None:
    name = topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms=100,
        delete_retention_ms=0,
    )
    for i in range(4):
        commit_rows(client, name, [Row(b"same", b"%d" % (10 * i + j)) for j in range(5)])
        time.sleep(0.15)
    end = 24  # Each transaction takes an offset more than it has records.
    eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], end)
    deadline = time.monotonic() + 150
    rows = read_rows(client, name, 0, end, bulk)
    while True:
        other_way = read_rows(client, name, 0, end, not bulk)
        gap = rows[0].offset
        below, first = read_rows(client, name, 0, gap, bulk), read_rows(client, name, 1, gap + 1, bulk)
        before, rows = rows, read_rows(client, name, 0, end, bulk)
        # The cleaner only ever takes away, so all of these were read from the same log.
        if len(rows) <= 10 and rows == before:
            break
        assert time.monotonic() < deadline, f"the cleaner did not run: {len(rows)} records are left"
        time.sleep(0.2)
    assert rows[-1].value == b"34"
    assert other_way == rows
    assert gap > 1
    assert (below, first) == ([], rows[:1])


def test_offsets_lost_to_deletion(client: ClientConfig, topic: TopicFactory, admin: KafkaAdmin, bulk: bool) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"%d" % i, b"v") for i in range(10)])
    eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], 11)
    assert admin.delete_records({(name, 0): 6}) == {(name, 0): 6}
    reader = open_range_reader(client, name, 0, 2, bulk)
    with pytest.raises(OffsetsLostError, match=rf"{name}-0: offset 2 .*\[6, 11\).*DeleteRecords") as caught:
        list(reader.read(11))
    assert (caught.value.expected, caught.value.earliest, caught.value.latest) == (2, 6, 11)
    assert reader.failed
    with pytest.raises(KafkaClientError, match="open a new one"):
        list(reader.read(11))
    reader.close()
    assert [row.offset for row in read_rows(client, name, 6, 11, bulk)] == [6, 7, 8, 9]


def test_offset_beyond_the_log(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"k", b"v")])
    with pytest.raises(OffsetsLostError, match="truncated, or deleted and created again"):
        read_rows(client, name, 100, 110, bulk)


def test_unknown_topic_and_partition(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        read_rows(client, "no-such-topic", 0, 1, bulk)
    name = topic()
    with pytest.raises(TopicNotFoundError, match=f"partition 7 of topic '{name}'"):
        read_rows(client, name, 0, 1, bulk, partition=7)


@pytest.mark.slow
def test_no_broker(bulk: bool) -> None:
    reader = open_range_reader({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t", 0, 3, bulk, timeout_s=3)
    with pytest.raises(ReadTimeoutError, match=r"t-0: nothing came for 3 s at offset 3 .*_TRANSPORT|_ALL_BROKERS"):
        list(reader.read(5))
    reader.close()


def test_misuse_is_named(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    with pytest.raises(ValueError, match="offset >= 0"):
        open_range_reader(client, name, 0, -1, bulk)
    reader = open_range_reader(client, name, 0, 5, bulk)
    with pytest.raises(ValueError, match="before position 5"):
        list(reader.read(4))
    reader.close()
    reader.close()
    with pytest.raises(KafkaClientError, match="closed"):
        list(reader.read(6))


def test_unknown_property_does_not_show_its_value() -> None:
    with pytest.raises(KafkaClientError, match=r"sasl\.passwrd") as caught:
        open_range_reader({"bootstrap.servers": "127.0.0.1:1", "sasl.passwrd": "hush"}, "t", 0, 0)
    assert "hush" not in str(caught.value)


def test_pool_keeps_a_reader_that_goes_on_and_replaces_one_that_does_not(
    client: ClientConfig, topic: TopicFactory, bulk: bool
) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"%d" % i, b"v") for i in range(10)])
    pool = ReaderPool(max_readers=2)
    first = pool.reader(client, name, 0, 0, bulk)
    assert sum(map(len, first.read(4))) == 4
    assert pool.reader(client, name, 0, 4, bulk) is first
    again = pool.reader(client, name, 0, 2, bulk)
    assert again is not first
    assert first.closed
    assert [row.offset for columns in again.read(5) for row in rows_of(columns)] == [2, 3, 4]
    other, third = topic(), topic()
    pool.reader(client, other, 0, 0, bulk)
    pool.reader(client, third, 0, 0, bulk)
    assert again.closed
    pool.close()


def test_pool_in_a_forked_child_opens_its_own_readers(client: ClientConfig, topic: TopicFactory, bulk: bool) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"%d" % i, b"v") for i in range(10)])
    pool = ReaderPool()
    mine = pool.reader(client, name, 0, 0, bulk)
    assert sum(map(len, mine.read(4))) == 4
    child = os.fork()
    if child == 0:
        theirs = pool.reader(client, name, 0, 4, bulk)
        ok = theirs is not mine and sum(map(len, theirs.read(8))) == 4
        pool.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.reader(client, name, 0, 4, bulk) is mine
    assert sum(map(len, mine.read(8))) == 4
    pool.close()


def test_runs_end_where_a_buffer_is_full(client: ClientConfig, topic: TopicFactory) -> None:
    name = topic(max_message_bytes=9_000_000)
    large = {**client, "message.max.bytes": "9000000"}
    rows = [Row(b"k" * 700_000, b"v" * size, 10, [("h", b"z" * size)]) for size in (10, 900_000, 10, 2_500_000, 20)]
    commit_rows(large, name, rows)
    for bulk in (True, False):
        assert read_rows(large, name, 0, 6, bulk) == as_read(rows)


def test_a_value_larger_than_the_value_buffer(client: ClientConfig, topic: TopicFactory) -> None:
    name = topic(max_message_bytes=30_000_000)
    large = {**client, "message.max.bytes": "30000000"}
    rows = [Row(b"small", b"v"), Row(b"large", os.urandom(20_000_000)), Row(b"small", b"w")]
    commit_rows(large, name, rows)
    assert read_rows(large, name, 0, 4, True) == as_read(rows)


def test_arriving_records_wake_who_waits_for_them_and_a_closed_reader_nobody(
    client: ClientConfig, topic: TopicFactory
) -> None:
    name = topic()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def woken() -> bool:
        return bool(select.select([reading], [], [], WAKE_S)[0]) and bool(os.read(reading, 100))

    with closing(open_range_reader(client, name, 0, 0)) as reader:
        assert reader.wake(writing)
        found: list[RecordColumns] = []
        for opened_again in (False, False, True):
            if opened_again:
                reader.reopen()
            # Whatever waits already wakes nobody.
            assert not reader.poll()
            commit_rows(client, name, [Row(b"k", b"v", 10)])
            assert woken(), "a record has arrived"
            found.clear()
            eventually(lambda: found.extend(reader.poll()) or len(found), 1)
    with suppress(BlockingIOError):
        os.read(reading, 100)
    commit_rows(client, name, [Row(b"k", b"v", 10)])
    assert not select.select([reading], [], [], 0.5)[0], "the reader is closed"
    os.close(reading)
    os.close(writing)


def test_many_readers_of_a_process_fetch_no_more_ahead_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Idle:
        failed = closed = False
        position = 0

        def close(self) -> None:
            self.closed = True

    def opened(*_: object, prefetch_bytes: int) -> Idle:
        asked.append(prefetch_bytes)
        return Idle()

    monkeypatch.setattr("state.kafka.reader.open_range_reader", opened)
    pool = ReaderPool()
    for partition in range(200):
        pool.reader({}, "t", partition, 0)
        assert sum(asked[-64:]) <= POOL_PREFETCH_BYTES + 64 * SMALLEST_PREFETCH_BYTES
    assert asked[0] == DEFAULT_PREFETCH_BYTES
    assert min(asked) == SMALLEST_PREFETCH_BYTES


def test_a_reader_whose_next_client_cannot_be_opened_releases_the_last_one_once(
    client: ClientConfig, topic: TopicFactory, bulk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_range_reader(client, topic(), 0, 0, bulk, timeout_s=60)
    released, close = [], reader._close

    def noting() -> None:
        released.append(reader)
        close()

    def refused() -> None:
        raise KafkaClientError("no more file descriptors")

    monkeypatch.setattr(reader, "_close", noting)
    monkeypatch.setattr(reader, "_open", refused)
    with pytest.raises(KafkaClientError, match="descriptors"):
        reader.reopen()
    reader.close()
    assert len(released) == 1


# --- A few records here and there: data records of committed transactions, whatever lies between.


@pytest.fixture
def sampler(client: ClientConfig) -> Iterator[RecordSampler]:
    opened = RecordSampler(client, timeout_s=60)
    yield opened
    opened.close()


def test_only_records_that_a_reader_would_see(
    client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory, sampler: RecordSampler
) -> None:
    name = topic(3)
    places = [(name, p) for p in range(3)]
    commit_rows(client, name, [Row(b"k", b"v" * 10, 100 + n) for n in range(3)])
    abort_rows(client, name, [Row(b"k", b"aborted", 5)])
    commit_rows(client, name, [Row(None, None, 200)])
    eventually(lambda: admin.end_offsets(places)[name, 0], 8)
    ends = admin.end_offsets(places)
    # Offset 3 and what follows up to 5 are control records and an aborted one; partitions 1 and 2 are empty.
    found = sampler.sample({(name, 0): 1, (name, 1): 0, (name, 2): 0}, ends)
    assert found == {
        (name, 0): [SampledRecord(1, 101, 11), SampledRecord(2, 102, 11), SampledRecord(6, 200, 0)],
        (name, 1): [],
        (name, 2): [],
    }
    assert [one.offset for one in sampler.sample({(name, 0): 3}, ends)[name, 0]] == [6]
    assert sampler.sample({(name, 0): 7}, ends) == {(name, 0): []}
    assert sampler.sample({(name, 0): 0}, {(name, 0): 2})[name, 0][-1].offset == 1


def test_little_of_many_and_places_that_are_gone(
    client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory, sampler: RecordSampler
) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"k", b"v") for _ in range(5 * RECORDS)])
    eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], 5 * RECORDS + 1)
    admin.delete_records({(name, 0): 10})
    ends = {(name, 0): 5 * RECORDS}
    assert [one.offset for one in sampler.sample({(name, 0): 30}, ends)[name, 0]] == list(range(30, 30 + RECORDS))
    assert sampler.sample({(name, 0): 3}, ends) == {(name, 0): []}
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        sampler.sample({("no-such-topic", 0): 0}, {("no-such-topic", 0): 5})
