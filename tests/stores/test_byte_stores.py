"""Every kind of store against a dictionary: keys that are prefixes of one another, empty, all 0xff; both directions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.stores import codec
from state.stores.byte_stores import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord
from state.stores.dump import dump, state_digest
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable
from tests.budget import up_to

KEYS = st.sampled_from(
    [
        b"",
        b"a",
        b"ab",
        b"a\x00",
        b"a" + bytes(12),
        b"a" + bytes(20),
        b"\xff",
        b"\xff\xff",
        b"a" + b"\x00" * 7 + b"\x05",
        b"b",
    ]
)
TIMES = st.integers(0, 60)
VALUES = st.none() | st.binary(min_size=1, max_size=3)
WINDOW = StoreSpec("s", StoreKind.WINDOW, retention_ms=100, segment_ms=10)
JOIN = StoreSpec("s", StoreKind.WINDOW, retention_ms=100, segment_ms=10, retain_duplicates=True)
SESSION = StoreSpec("s", StoreKind.SESSION, retention_ms=100, segment_ms=10)
KEY_VALUE = StoreSpec("s", StoreKind.KEY_VALUE)


def on_table(spec, check, rocks):
    """Runs a check on a fresh store; `step()` applies what was written so far."""
    with tempfile.TemporaryDirectory() as folder:
        table = RocksTable(Path(folder) / "db") if rocks else MemoryTable()
        store = TaskStore(table, [spec])
        version = iter(range(1, 1000))
        check(store.store("s"), lambda: store.apply(StorePosition("q", next(version), {"s": 0})))
        store.close()


def put_all(puts, put, step):
    """Applies half of the writes, so that reads meet both the table and the buffer."""
    for number, one in enumerate(puts):
        put(*one)
        if number == len(puts) // 2:
            step()


@pytest.mark.parametrize("rocks", [False, True])
@up_to(25)
@given(st.lists(st.tuples(KEYS, VALUES), max_size=20), KEYS, KEYS, st.booleans())
def test_key_value(rocks, puts, lower, upper, reverse):
    def check(store, step):
        model = {}

        def put(key, value):
            store.put(key, value, 0)
            model[key] = value

        put_all(puts, put, step)
        rows = sorted(((k, v) for k, v in model.items() if v is not None), reverse=reverse)
        assert list(store.all(reverse)) == rows
        assert list(store.range(lower, upper, reverse)) == [r for r in rows if lower <= r[0] <= upper]
        assert list(store.range(None, upper, reverse)) == [r for r in rows if r[0] <= upper]
        assert list(store.range(lower, None, reverse)) == [r for r in rows if r[0] >= lower]
        assert list(store.prefix(lower, reverse)) == [r for r in rows if r[0].startswith(lower)]
        assert store.multi_get([lower, upper]) == [model.get(lower), model.get(upper)]
        assert store.delete_range(lower, upper, 0) == len([r for r in rows if lower <= r[0] <= upper])
        assert list(store.all(reverse)) == [r for r in rows if not lower <= r[0] <= upper]

    on_table(KEY_VALUE, check, rocks)


@pytest.mark.parametrize("rocks", [False, True])
@up_to(30)
@given(st.lists(st.tuples(KEYS, TIMES, VALUES), max_size=25), KEYS, KEYS, TIMES, TIMES, st.booleans())
def test_window(rocks, puts, key, other, low, high, reverse):
    def check(store, step):
        model = {}

        def put(key, start, value):
            store.put(key, start, value, start)
            model[key, start] = value

        put_all(puts, put, step)
        rows = sorted(((s, k, v) for (k, s), v in model.items() if v is not None), reverse=reverse)
        inside = [(s, k, v) for s, k, v in rows if low <= s <= high]
        assert list(store.fetch_range(key, low, high, reverse)) == [(s, v) for s, k, v in inside if k == key]
        assert list(store.fetch_all(low, high, reverse)) == [(k, s, v) for s, k, v in inside]
        assert store.fetch(key, low) == model.get((key, low))
        assert store.multi_fetch([(key, low), (other, high)]) == [model.get((key, low)), model.get((other, high))]

    on_table(WINDOW, check, rocks)


@pytest.mark.parametrize("rocks", [False, True])
@up_to(30)
@given(
    st.lists(st.tuples(KEYS, st.integers(0, 12), st.binary(max_size=2)), max_size=25), KEYS, TIMES, TIMES, st.booleans()
)
def test_window_with_duplicates(rocks, puts, key, low, high, reverse):
    def check(store, step):
        model = []

        def put(key, start, value):
            store.put(key, start, value, start)
            store.put(key, start, None, start)
            model.append((start, key, len(model), value))

        put_all(puts, put, step)
        rows = sorted(model, reverse=reverse)
        inside = [row for row in rows if low <= row[0] <= high]
        assert list(store.fetch_range(key, low, high, reverse)) == [(s, v) for s, k, _, v in inside if k == key]
        assert list(store.fetch_all(low, high, reverse)) == [(k, s, v) for s, k, _, v in inside]

    on_table(JOIN, check, rocks)


@pytest.mark.parametrize("rocks", [False, True])
@up_to(30)
@given(st.lists(st.tuples(KEYS, TIMES, TIMES, VALUES), max_size=25), KEYS, TIMES, TIMES, st.booleans())
def test_session(rocks, puts, key, low, high, reverse):
    def check(store, step):
        model = {}

        def put(key, start, length, value):
            store.put(key, start, start + length, value, start)
            model[key, start, start + length] = value

        put_all(puts, put, step)
        rows = sorted(((e, s, k, v) for (k, s, e), v in model.items() if v is not None), reverse=reverse)
        assert list(store.find_sessions(key, low, high, reverse)) == [
            (s, e, v) for e, s, k, v in rows if k == key and e >= low and s <= high
        ]
        assert list(store.fetch(key, reverse)) == [(s, e, v) for e, s, k, v in rows if k == key]
        assert list(store.fetch_all(low, high, reverse)) == [(k, s, e, v) for e, s, k, v in rows if low <= e <= high]
        assert store.fetch_session(key, low, high) == model.get((key, low, high))

    on_table(SESSION, check, rocks)


def test_times_below_zero_find_nothing_wrong():
    def check(store, step):
        store.put(b"k", 0, b"v", 0)
        assert list(store.fetch_range(b"k", -5, 0)) == [(0, b"v")]
        assert list(store.fetch_range(b"k", -5, -1)) == []
        assert list(store.fetch_all(-5, -1)) == []

    on_table(WINDOW, check, rocks=False)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (StoreKind.WINDOW, {}, "retention_ms"),
        (StoreKind.VERSIONED, {"retention_ms": -1}, "retention_ms"),
        (StoreKind.SESSION, {"retention_ms": 1, "segment_ms": 0}, "segment_ms"),
        (StoreKind.KEY_VALUE, {"retain_duplicates": True}, "duplicates"),
    ],
)
def test_impossible_specs_are_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        StoreSpec("s", kind, **arguments)


def test_segments_are_as_wide_as_in_kafka_streams():
    assert StoreSpec("s", StoreKind.WINDOW, retention_ms=10).segment_width_ms == 60_000
    assert StoreSpec("s", StoreKind.WINDOW, retention_ms=300_000).segment_width_ms == 150_000


# --- Byte formats against Kafka Streams' (reference 2.12), written out by hand.

STAMPS = st.integers(0, 2**63 - 1)


def test_golden_bytes():
    assert codec.pack_window_suffix(1, 2) == bytes.fromhex("000000000000000100000002")
    assert codec.pack_session_suffix(2, 1) == bytes.fromhex("00000000000000020000000000000001")
    assert codec.timestamped(b"v", 1_700_000_000_000) == bytes.fromhex("0000018bcfe56800") + b"v"
    assert codec.pack_segment_prefix(3, 5) == bytes.fromhex("00030000000000000005")


@given(st.binary(max_size=20), STAMPS, st.integers(0, 2**31 - 1))
def test_window_key_round_trip(key, start, sequence):
    data = key + codec.pack_window_suffix(start, sequence)
    assert codec.split_window_key(data) == (key, start, sequence)
    assert codec.window_start(data) == start


@given(st.binary(max_size=20), STAMPS, STAMPS)
def test_session_key_round_trip(key, end, start):
    data = key + codec.pack_session_suffix(end, start)
    assert codec.split_session_key(data) == (key, end, start)


@given(st.binary(max_size=20), STAMPS)
def test_timestamped_round_trip(value, timestamp):
    assert codec.split_timestamped(codec.timestamped(value, timestamp)) == (value, timestamp)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"\x00", b"\x01"), (b"\x01\xff\xff", b"\x02")],
)
def test_prefix_end(prefix, end):
    assert codec.prefix_end(prefix) == end


# --- Versioned stores (KIP-889) against a plain model.

SPEC = StoreSpec("s", StoreKind.VERSIONED, retention_ms=20)
VERSIONED_KEYS = st.sampled_from([b"", b"a", b"a" + bytes(8), b"b"])


def fresh(table=None):
    return TaskStore(table or MemoryTable(), [SPEC])


def test_versions_and_their_ends():
    store = fresh().store("s")
    assert store.put(b"k", b"v10", 10) == VALID_TO_UNDEFINED
    assert store.put(b"k", b"v30", 30) == VALID_TO_UNDEFINED
    assert store.put(b"k", b"v20", 20) == 30
    assert store.put(b"k", b"v9", 9) == NOT_PUT
    assert store.get(b"k") == VersionedRecord(b"v30", 30, None)
    assert store.get(b"k", 25) == VersionedRecord(b"v20", 20, 30)
    assert store.get(b"k", 10) == VersionedRecord(b"v10", 10, 20)
    assert store.get(b"k", 9) is None
    assert store.delete(b"k", 40) == VersionedRecord(b"v30", 30, None)
    assert store.get(b"k") is None
    assert store.get(b"k", 35) == VersionedRecord(b"v30", 30, 40)
    assert store.get(b"k", 19) is None, "beyond the history"


def test_the_newest_version_is_the_last_record_of_its_key():
    task = fresh()
    store = task.store("s")
    store.put(b"k", b"new", 30)
    task.apply(StorePosition("q", 1, {"s": 1}))
    store.put(b"k", b"old", 20)
    batch = dict(task.changelog())["s"]
    assert batch.keys.to_pylist() == [b"k", b"k"]
    assert batch.values.to_pylist() == [b"old", b"new"]
    assert batch.timestamps.tolist() == [20, 30]


@up_to(150)
@given(
    st.lists(st.tuples(VERSIONED_KEYS, st.none() | st.binary(max_size=2), st.integers(0, 60)), max_size=30),
    VERSIONED_KEYS,
    st.integers(0, 60),
)
def test_against_a_model_and_restored(puts, key, as_of):
    task = fresh()
    store = task.store("s")
    versions: dict[bytes, dict[int, bytes | None]] = {}
    stream_time = -1
    log = []
    for number, (k, value, timestamp) in enumerate(puts):
        given_back = store.put(k, value, timestamp)
        if timestamp < stream_time - 20:
            assert given_back == NOT_PUT
            continue
        stream_time = max(stream_time, timestamp)
        versions.setdefault(k, {})[timestamp] = value
        newer = [t for t in versions[k] if t > timestamp]
        assert given_back == min(newer, default=VALID_TO_UNDEFINED)
        if number % 5 == 4:
            log += record_list(task)
            task.apply(StorePosition("q", number, {"s": len(log)}))
    log += record_list(task)
    task.apply(StorePosition("q", 1000, {"s": len(log)}))
    restored = fresh()
    if log:
        keys, values, timestamps = zip(*log, strict=True)
        restored.restore("s", keys, values, timestamps)
    for one in (store, restored.store("s")):
        assert one.stream_time == stream_time
        of_key = versions.get(key, {})
        newest = max(of_key, default=None)
        assert one.get(key) == expected(of_key, newest)
        if as_of >= stream_time - 20 and of_key:
            assert one.get(key, as_of) == expected(of_key, max((t for t in of_key if t <= as_of), default=None))


class KeptApart:
    """One key in Kafka Streams' versioned store: the newest value, and the history before it with the time at which that ends."""

    def __init__(self):
        self.newest, self.ended, self.history = None, -1, {}

    def put(self, value, time):
        if self.newest is not None and time >= self.newest[0]:
            if time > self.newest[0]:
                self.reach(*self.newest)
                self.ended = time
            self.newest = None if value is None else (time, value)
        elif self.newest is None and time >= self.ended:
            if value is None:
                self.reach(time, None)
            else:
                self.newest = time, value
        elif time >= self.ended:
            self.reach(time, value)
            self.ended = self.newest[0]
            return self.ended
        else:
            self.history[time] = value
            return min(at for at in (*self.history, self.ended) if at > time)
        return VALID_TO_UNDEFINED

    def reach(self, time, value):
        """Continues the history up to a time; in between there is nothing."""
        self.history.setdefault(self.ended, None)
        self.history[time] = value
        self.ended = time

    def get(self, as_of):
        if self.newest is not None and self.newest[0] <= as_of:
            return self.newest[1]
        times = [at for at in self.history if at <= as_of]
        return self.history[max(times)] if times and as_of < self.ended else None


@up_to(300)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, None, b"", b"a", b"b"]), st.integers(0, 5), st.integers(0, 3)), max_size=14
    )
)
def test_what_kafka_streams_forgets_is_forgotten(puts):
    """A deletion at the time of the newest value; also after a restore, which happens where the last number is 0."""
    spec = StoreSpec("s", StoreKind.VERSIONED, retention_ms=1000)
    task, model, number = TaskStore(MemoryTable(), [spec]), KeptApart(), 0
    logged = []
    for value, time, cut in puts:
        assert task.store("s").put(b"k", value, time, forgets=True) == model.put(value, time)
        if cut < 2:
            batch = dict(task.changelog())["s"]
            logged.append(batch)
            number += len(batch)
            task.apply(StorePosition("q", number, {"s": number}))
        if cut == 0:
            task = TaskStore(MemoryTable(), [spec])
            for batch in logged:
                task.restore("s", batch.keys, batch.values, batch.timestamps, headers=batch.headers)
        for as_of in range(7):
            found = task.store("s").get(b"k", as_of)
            assert (None if found is None else found.value) == model.get(as_of)
        newest = task.store("s").get(b"k")
        assert (newest and (newest.timestamp, newest.value)) == model.newest


def record_list(task):
    batch = dict(task.changelog()).get("s")
    if batch is None:
        return []
    return list(zip(batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True))


def expected(versions, timestamp):
    if timestamp is None or versions[timestamp] is None:
        return None
    return VersionedRecord(versions[timestamp], timestamp, min((t for t in versions if t > timestamp), default=None))


def test_versions_out_of_the_history_are_pruned_and_not_logged():
    task = fresh()
    for timestamp in (10, 20, 30, 40, 50):
        task.store("s").put(b"k", b"v", timestamp)
    assert dict(task.changelog())["s"].timestamps.tolist() == [30, 40, 50]
    task.apply(StorePosition("q", 1, {"s": 3}))
    assert [row.timestamp for row in dump(task, "s")] == [30, 40, 50]
    assert state_digest(task, "s")


def test_an_empty_store():
    store = fresh().store("s")
    assert store.stream_time == -1
    assert store.get(b"k") is None
    assert store.get(b"k", 5) is None


@pytest.mark.parametrize("key", [b"", b"a"])
def test_empty_value_is_no_deletion(key):
    store = fresh().store("s")
    store.put(key, b"", 5)
    assert store.get(key) == VersionedRecord(b"", 5, None)
