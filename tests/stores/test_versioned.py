"""Versioned stores (KIP-889) against a plain model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.stores.byte_stores import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord
from state.stores.dump import dump, state_digest
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore
from state.tables.table import MemoryTable

SPEC = StoreSpec("s", StoreKind.VERSIONED, retention_ms=20)
KEYS = st.sampled_from([b"", b"a", b"a" + bytes(8), b"b"])


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


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2), st.integers(0, 60)), max_size=30),
    KEYS,
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
