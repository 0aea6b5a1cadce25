"""Every kind of store against a dictionary: keys that are prefixes of one another, empty, all 0xff; both directions."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore
from state.tables.rocks import RocksTable
from state.tables.table import MemoryTable

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
@settings(max_examples=25, deadline=None)
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
@settings(max_examples=30, deadline=None)
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
        assert list(store.fetch_keys(key, other, low, high, reverse)) == [
            (k, s, v) for s, k, v in inside if key <= k <= other
        ]
        assert store.fetch(key, low) == model.get((key, low))
        assert store.multi_fetch([(key, low), (other, high)]) == [model.get((key, low)), model.get((other, high))]

    on_table(WINDOW, check, rocks)


@pytest.mark.parametrize("rocks", [False, True])
@settings(max_examples=30, deadline=None)
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
@settings(max_examples=30, deadline=None)
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
