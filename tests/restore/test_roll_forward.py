"""What a crash leaves, or another query, or another topic: each is mended by an honest retry, and nothing of it stays."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from state.changelog import DELETE_RETENTION_MS, changelog_topic
from state.commit.digest import StepDigest
from state.errors import KafkaClientError, RestoreError
from state.restore import restorer as loading
from state.restore.plan import Action
from state.restore.restorer import Restorer, nowhere
from state.stores.changelog_records import ChangelogBatch
from state.stores.codec import timestamped
from state.stores.dump import state_digest
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StoreOrigin, StorePosition, TaskStore
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, MemoryLogs, commit

A, B = StoreSpec("a", StoreKind.KEY_VALUE), StoreSpec("b", StoreKind.KEY_VALUE)
VOLATILE = StoreSpec("m", StoreKind.KEY_VALUE, persistent=False)
WINDOWS = StoreSpec("w", StoreKind.TIMESTAMPED_WINDOW, retention_ms=100, segment_ms=10)


class Killed(BaseException):
    """Stands for the end of the process."""


class FragileTable(MemoryTable):
    """Dies before or after its n-th write from when it is told to."""

    def __init__(self):
        super().__init__()
        self.until_death = None

    def event(self):
        if self.until_death is not None:
            self.until_death -= 1
            if self.until_death < 0:
                raise Killed

    def write(self, changes, delete_ranges=(), halfway=None, durable=True):
        changes = list(changes)
        self.event()
        super().write(changes, delete_ranges)
        self.event()


def bring(store, logs, target, now_ms=1000, reach=nowhere):
    return Restorer(logs, APPLICATION, 0).restore_to(store, target, now_ms, reach)


def put_both(store, value):
    for name in ("a", "b"):
        store.store(name).put(b"k", value, 1)
        store.store(name).put(value, value, 1)


def contents(store):
    return {name: state_digest(store, name) for name in store.specs}


@pytest.fixture
def behind():
    """A table one step behind Kafka, the logs, the target and what the stores must hold then."""
    logs, table = MemoryLogs(), FragileTable()
    live = TaskStore(MemoryTable(), [A, B])
    put_both(live, b"1")
    bring(TaskStore(table, [A, B]), logs, commit(live, logs, 1))
    put_both(live, b"2")
    return table, logs, commit(live, logs, 2), contents(live)


def test_a_roll_forward_that_a_read_error_ends_is_simply_done_again(behind):
    table, logs, target, expected = behind
    for failing in range(2):
        logs.fail_after = logs.reads + failing
        with pytest.raises(KafkaClientError):
            bring(TaskStore(table, [A, B]), logs, target)
    logs.fail_after = None
    store = TaskStore(table, [A, B])
    report = bring(store, logs, target)
    assert contents(store) == expected
    assert {done.action for done in report.stores} == {Action.TAIL}


def test_a_roll_forward_is_one_write(behind):
    table, logs, target, expected = behind
    for event in range(2):
        table.until_death = event
        with pytest.raises(Killed):
            bring(TaskStore(table, [A, B]), logs, target)
        table.until_death = None
        step = TaskStore(table, [A, B]).position.version
        assert step == 1 + event, "before the one write there is nothing of it, after it all"
    store = TaskStore(table, [A, B])
    assert bring(store, logs, target).stores == ()
    assert contents(store) == expected


def test_nothing_is_written_before_it_is_proven(behind):
    table, logs, target, _ = behind
    points = []
    table.until_death = 0
    with pytest.raises(Killed):
        bring(TaskStore(table, [A, B]), logs, target, reach=points.append)
    assert points == ["restore_read"]


def test_half_a_step_in_local_state_is_restored_before_anybody_is_accused(behind):
    """As a roll-forward store by store has left it: a row and an offset of the step, but not its number."""
    table, logs, target, expected = behind
    store = TaskStore(table, [A, B])
    place = target.changelog_begins["a"]
    store.restore("a", [b"k"], [b"2"], [1], offsets=[place], next_offset=place + 1)
    # By its number it is one step behind, so this was taken for a tail of one step with a record missing.
    bring(store, logs, target)
    assert contents(store) == expected


def test_wrong_offsets_in_local_state_are_corrected_by_a_restore(behind, monkeypatch):
    table, logs, target, expected = behind
    real = MemoryLogs.read
    calls = []

    def torn(self, topic, partition, start, end):
        calls.append(topic)
        # The first reading of a misses a record; as a reader on a leader without it would.
        yield from () if len(calls) == 1 else real(self, topic, partition, start, end)

    monkeypatch.setattr(MemoryLogs, "read", torn)
    store = TaskStore(table, [A, B])
    report = bring(store, logs, target)
    assert {done.action for done in report.stores} == {Action.FROM_START}
    assert contents(store) == expected


@pytest.mark.parametrize(("records", "size"), [(1, 1 << 20), (500_000, 1)])
def test_a_tail_that_is_too_large_for_one_write_comes_in_chunks(behind, monkeypatch, records, size):
    table, logs, target, expected = behind
    monkeypatch.setattr(loading, "CHUNK_RECORDS", records)
    monkeypatch.setattr(loading, "CHUNK_BYTES", size)
    points = []
    store = TaskStore(table, [A, B])
    bring(store, logs, target, reach=points.append)
    assert points == ["restore_halfway", "restore_read"]
    assert contents(store) == expected


def test_stores_in_memory_may_be_further_behind_than_the_one_on_disk():
    """A task moved between two workers: the one it comes back to has an old state in memory."""
    logs, disk, first, second = MemoryLogs(), MemoryTable(), MemoryTable(), MemoryTable()
    specs, target = [A, VOLATILE], None
    for version, memory in ((1, first), (2, second), (3, second)):
        store = TaskStore(disk, specs, memory)
        if target is not None:
            bring(store, logs, target)
        for name in ("a", "m"):
            store.store(name).put(b"%d" % version, b"v", 1)
        target = commit(store, logs, version)
    store = TaskStore(disk, specs, second)
    store.store("a").put(b"4", b"v", 1)
    store.store("m").put(b"4", b"v", 1)
    target = committed_only(store, logs, 4)
    back = TaskStore(disk, specs, first)
    bring(back, logs, target)
    assert [key for key, _ in back.rows("m")] == [key for key, _ in back.rows("a")] == [b"1", b"2", b"3", b"4"]


def committed_only(store, logs, version):
    """A step that is in Kafka, whose process died before it reached the store."""
    twin = TaskStore(MemoryTable(), list(store.specs.values()))
    for name in store.logged_stores:
        for keys, values, timestamps in store._state_of[name].buffers[name].written():
            for key, value, timestamp in zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), strict=True):
                twin.store(name).put(key[2:], value, timestamp)
    return commit(twin, logs, version)


def test_memory_of_another_query_is_not_believed():
    logs, memory = MemoryLogs(), MemoryTable()
    old = TaskStore(MemoryTable(), [A, VOLATILE], memory)
    old.store("m").put(b"old", b"v", 1)
    old.apply(StorePosition("query-old", 1, {"a": 0, "m": 1}, 1))
    live = TaskStore(MemoryTable(), [A, VOLATILE])
    for name in ("a", "m"):
        live.store(name).put(b"new", b"v", 1)
    target = commit(live, logs, 1)
    store = TaskStore(MemoryTable(), [A, VOLATILE], memory)
    bring(store, logs, target)
    assert [key for key, _ in store.rows("m")] == [b"new"]


def foreign_windows():
    """A table in which an older query has expired all before 4900."""
    table = MemoryTable()
    old = TaskStore(table, [WINDOWS])
    old.store("w").put(b"k", 5000, timestamped(b"old", 5000), 5000)
    old.expire("w", 4900)
    old.apply(StorePosition("query-old", 7, {"w": 1}, 7000))
    return table


def write_windows(store, *times):
    for time in times:
        store.store("w").put(b"k", time, timestamped(b"new", time), time)


def test_bounds_of_another_query_do_not_survive_where_nothing_was_committed():
    store = TaskStore(foreign_windows(), [WINDOWS])
    bring(store, MemoryLogs(), None)
    write_windows(store, 1000)
    assert dict(store.changelog())["w"].keys.to_pylist() != []
    assert store.expired_before == {"w": 0}


def test_bounds_of_another_query_do_not_survive_a_restore():
    logs, live = MemoryLogs(), TaskStore(MemoryTable(), [WINDOWS])
    for version, time in enumerate((1000, 1010, 1020), 1):
        write_windows(live, time)
        target = commit(live, logs, version)
    store = TaskStore(foreign_windows(), [WINDOWS])
    bring(store, logs, target)
    assert contents(store) == contents(live)
    assert store.expired_before == live.expired_before
    assert store.trim_offsets == live.trim_offsets == {"w": 0}
    assert TaskStore(store.table, [WINDOWS]).expired_before == live.expired_before, "nor when it is opened again"


def test_an_interrupted_restore_of_another_query_is_not_gone_on_with():
    old, new = MemoryLogs(), MemoryLogs()
    table = MemoryTable()
    for logs, word in ((old, b"old"), (new, b"new")):
        live = TaskStore(MemoryTable(), [A])
        for version in range(1, 5):
            live.store("a").put(b"%s%d" % (word, version), b"x", version)
            target = commit(live, logs, version)
        if logs is old:
            interrupted(TaskStore(table, [A]), logs, replace(target, query_id="query-old"))
    store = TaskStore(table, [A])
    report = bring(store, new, target)
    assert [done.action for done in report.stores] == [Action.FROM_START]
    assert contents(store) == contents(live)


def interrupted(store, logs, target, now_ms=1000):
    """Some chunks of a restore, and then the end."""
    logs.run, limit = 1, loading.CHUNK_RECORDS
    loading.CHUNK_RECORDS = 2
    logs.fail_after = logs.reads + 3
    try:
        with pytest.raises(KafkaClientError):
            bring(store, logs, target, now_ms)
    finally:
        loading.CHUNK_RECORDS, logs.fail_after = limit, None
    assert store.position is None
    assert store.offsets["a"] > 0


@pytest.mark.parametrize(
    ("later", "topic", "action"),
    [
        (0, "id", Action.TAIL),
        (DELETE_RETENTION_MS, "id", Action.FROM_START),
        (0, "id-2", Action.FROM_START),
    ],
)
def test_an_interrupted_restore_is_gone_on_with_only_while_it_can_be_trusted(later, topic, action):
    logs, live, table = MemoryLogs(), TaskStore(MemoryTable(), [A]), MemoryTable()
    for version in range(1, 5):
        live.store("a").put(b"%d" % version, b"x", version)
        target = commit(live, logs, version)
    interrupted(TaskStore(table, [A]), logs, target)
    logs.ids[changelog_topic(APPLICATION, "a")] = topic
    store = TaskStore(table, [A])
    report = bring(store, logs, replace(target, changelog_ids={"a": topic}), now_ms=1000 + later)
    assert [done.action for done in report.stores] == [action]
    assert contents(store) == contents(live)


def test_a_changelog_created_again_is_recognised_although_it_has_grown(behind):
    table, logs, target, expected = behind
    store = TaskStore(table, [A, B])
    bring(store, logs, target)
    logs.ids[changelog_topic(APPLICATION, "a")] = "id-2"
    with pytest.raises(RestoreError, match="deleted and created again after step 2") as caught:
        bring(store, logs, target)
    assert "streams adopt" in str(caught.value)
    assert contents(store) == expected, "the local state may be all that is left"
    # Once it has been taken over, the topic is what it is, if it has what the step wrote.
    taken_over = replace(target, query_id="query-2", changelog_ids={})
    bring(store, logs, taken_over)
    assert contents(store) == expected
    assert store.origins["a"].topic_id == "id-2"


def test_a_store_without_changelog_of_another_query_is_emptied():
    unlogged, table, logs = replace(B, logged=False), MemoryTable(), MemoryLogs()
    old = TaskStore(table, [A, unlogged])
    old.store("b").put(b"old", b"v", 1)
    old.apply(StorePosition("query-old", 1, {"a": 0}, 1))
    live = TaskStore(MemoryTable(), [A, unlogged])
    live.store("a").put(b"new", b"v", 1)
    target = commit(live, logs, 1)
    store = TaskStore(table, [A, unlogged])
    bring(store, logs, target)
    assert list(store.rows("b")) == []
    store.store("b").put(b"own", b"v", 1)
    store.apply(StorePosition("query", 2, store.offsets, 1))
    bring(store, logs, replace(target, version=2, changelog_ends=store.offsets))
    assert [key for key, _ in store.rows("b")] == [b"own"]


def test_the_digest_goes_by_order_not_by_parts(monkeypatch):
    from state.commit import digest as blocks

    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 4)
    live = TaskStore(MemoryTable(), [A])
    for number in range(11):
        live.store("a").put(b"%d" % number, None if number % 3 else b"v" * number, number)
    batch = dict(live.changelog())["a"]
    whole = StepDigest()
    whole.add("a", batch)
    for size in (1, 3, 4, 5, 8):
        parts = StepDigest()
        for start in range(0, 11, size):
            cut = slice(start, start + size)
            parts.add(
                "a", replace(batch, keys=batch.keys[cut], values=batch.values[cut], timestamps=batch.timestamps[cut])
            )
        assert (parts.records, parts.hexdigest()) == (11, whole.hexdigest())
    swapped = StepDigest()
    swapped.add("a", replace(batch, keys=batch.keys.take([1, 0, *range(2, 11)])))
    assert swapped.hexdigest() != whole.hexdigest()


def test_time_zero_has_the_digest_of_what_a_client_writes_for_it():
    batch = ChangelogBatch(pa.array([b"k"], pa.binary()), pa.array([b"v"], pa.binary()), np.array([0], np.int64))
    digests = []
    for time in (0, 1, 2):
        digest = StepDigest()
        digest.add("a", replace(batch, timestamps=np.array([time], np.int64)))
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1] != digests[2]


def test_where_rows_come_from_is_written_with_them():
    store = TaskStore(MemoryTable(), [A])
    store.restore("a", [b"k"], [b"v"], [1], origin=StoreOrigin("query", "id", 5))
    assert TaskStore(store.table, [A]).origins == {"a": StoreOrigin("query", "id", 5)}
    store.apply(StorePosition("query", 1, {"a": 1}, 9, {"a": "id"}))
    assert store.origins == {"a": StoreOrigin("query", "id", 9)}
    store.reset("a")
    assert TaskStore(store.table, [A]).origins == {}
