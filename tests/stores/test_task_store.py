"""A task's stores through steps, restarts, kills and expiry."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from state.commit.digest import StepDigest
from state.errors import StateError
from state.stores.codec import pack_window_suffix, timestamped
from state.stores.dump import dump, state_digest
from state.stores.position import META_KEY
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore, open_task_store
from state.tables import buffer as buffers
from state.tables.buffer import BufferMemory
from state.tables.table import MemoryTable

TABLE = StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE)
JOIN = StoreSpec("join", StoreKind.WINDOW, retention_ms=100, segment_ms=10, retain_duplicates=True)
WINDOWS = StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=100, segment_ms=10)
SESSIONS = StoreSpec("sessions", StoreKind.SESSION, retention_ms=100, segment_ms=10)
SPECS = [TABLE, JOIN, WINDOWS, SESSIONS]


def position(version, **offsets):
    return StorePosition("query", version, offsets, version * 1000)


def columns(batch):
    return list(zip(batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True))


@pytest.fixture(params=["memory", "rocks", "rocks with spills"])
def opened(request, tmp_path):
    """Opens the same stores again and again."""
    table = MemoryTable()

    def open_(specs=SPECS):
        if request.param == "memory":
            return TaskStore(table, specs)
        return open_task_store(tmp_path, specs, spill_bytes=0 if "spills" in request.param else 1 << 20)

    return open_


def test_nothing_is_there_before_the_first_step(opened):
    store = opened()
    assert store.position is None
    assert store.offsets == {}
    assert dict(store.changelog()) == {}
    assert list(store.store("table").all()) == []
    store.close()


def test_a_step_is_applied_with_its_position_and_survives_a_restart(opened):
    store = opened()
    store.store("table").put(b"a", timestamped(b"1", 7), 7)
    store.store("join").put(b"k", 5, b"x", 5)
    store.store("join").put(b"k", 5, b"y", 5)
    store.apply(position(1, table=2, join=4, windows=0, sessions=0))
    store.close()
    store = opened()
    assert store.position == position(1, table=2, join=4, windows=0, sessions=0)
    assert store.store("table").get(b"a") == timestamped(b"1", 7)
    # The sequence goes on where it was: Kafka Streams would overwrite x here.
    store.store("join").put(b"k", 5, b"z", 5)
    assert list(store.store("join").fetch_range(b"k", 0, 9)) == [(5, b"x"), (5, b"y"), (5, b"z")]
    assert [key for key, _, _ in columns(dict(store.changelog())["join"])] == [b"k" + pack_window_suffix(5, 2)]
    store.close()
    assert list(opened().store("join").fetch_range(b"k", 0, 9)) == [(5, b"x"), (5, b"y")]


def test_changelog_has_the_last_value_of_each_key(opened):
    store = opened()
    table = store.store("table")
    for key, value in ((b"b", b"1"), (b"a", b"1"), (b"c", b""), (b"b", b"2")):
        table.put(key, timestamped(value, len(value) + 5), len(value) + 5)
    table.put(b"a", None, 9)
    records = columns(dict(store.changelog())["table"])
    assert sorted(records) == [(b"a", None, 9), (b"b", b"2", 6), (b"c", b"", 5)]
    assert set(dict(store.changelog())) == {"table"}
    store.discard()
    assert dict(store.changelog()) == {}
    store.close()


def test_changelog_is_in_the_order_of_the_first_writes():
    store = TaskStore(MemoryTable(), SPECS)
    for key in (b"b", b"a", b"b", b"c"):
        store.store("table").put(key, timestamped(b"", 1), 1)
    assert dict(store.changelog())["table"].keys.to_pylist() == [b"b", b"a", b"c"]


def test_discard_forgets_writes_and_expiry(opened):
    store = opened()
    store.store("windows").put(b"k", 5, timestamped(b"v", 5), 5)
    store.apply(position(1, windows=1))
    store.store("windows").put(b"k", 55, timestamped(b"v", 55), 55)
    store.expire("windows", 50)
    assert store.store("windows").fetch(b"k", 5) is None
    store.discard()
    assert store.store("windows").fetch(b"k", 5) is not None
    assert store.store("windows").fetch(b"k", 55) is None
    assert store.trim_offsets["windows"] == 0
    assert store.expired_before["windows"] == 0
    store.close()


def test_expired_segments_go_with_the_next_step_and_free_the_changelog(opened):
    store = opened()
    windows = store.store("windows")
    for version, start in enumerate((5, 15, 25, 15), 1):
        windows.put(b"k", start, timestamped(b"v", start), start)
        store.apply(position(version, windows=version * 10))
    assert store.trim_offsets["windows"] == 0
    store.expire("windows", 19)
    assert [start for start, _ in windows.fetch_range(b"k", 0, 100)] == [15, 25], "segments go as a whole"
    # Too late for the first segment: ignored. Written before it expired in the same step: gone with it.
    windows.put(b"k", 6, timestamped(b"late", 6), 6)
    windows.put(b"l", 16, timestamped(b"v", 16), 16)
    store.expire("windows", 20)
    store.apply(position(5, windows=50))
    assert [row.window_start for row in dump(store, "windows")] == [25]
    assert store.trim_offsets["windows"] == 20
    store.close()
    store = opened()
    assert store.trim_offsets["windows"] == 20
    assert store.expired_before["windows"] == 20
    store.store("windows").put(b"k", 6, timestamped(b"late", 6), 6)
    assert store.store("windows").fetch(b"k", 6) is None
    store.expire("windows", 1000)
    store.apply(position(6, windows=60))
    assert list(dump(store, "windows")) == []
    assert store.trim_offsets["windows"] == 60, "nothing of the changelog is needed any more"
    store.close()


def test_ids_survive_added_and_removed_stores(opened):
    store = opened([TABLE])
    store.store("table").put(b"a", timestamped(b"1", 1), 1)
    store.apply(position(1, table=1))
    store.close()
    other = StoreSpec("another", StoreKind.KEY_VALUE)
    store = opened([other, TABLE])
    store.store("another").put(b"a", b"2", 1)
    store.apply(position(2, table=1, another=1))
    store.close()
    store = opened([other])
    assert store.offsets == {"another": 1}
    store.apply(position(3, another=1))
    store.close()
    store = opened([other, TABLE])
    assert store.store("another").get(b"a") == b"2"
    assert store.offsets == {"another": 1}, "a store that was away is restored from the start"
    store.close()


def test_a_store_of_another_layout_starts_empty(opened):
    store = opened([WINDOWS])
    store.store("windows").put(b"k", 5, timestamped(b"v", 5), 5)
    store.apply(position(1, windows=1))
    store.close()
    store = opened([StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=100, segment_ms=50)])
    assert store.offsets == {}
    assert list(store.store("windows").fetch_all(0, 100)) == []
    store.close()


def test_stores_in_memory_have_no_offset_in_a_new_process(tmp_path):
    volatile = StoreSpec("volatile", StoreKind.KEY_VALUE, persistent=False)
    kept = MemoryTable()
    store = open_task_store(tmp_path, [TABLE, volatile], volatile=kept)
    store.store("volatile").put(b"a", b"1", 1)
    store.apply(position(1, table=0, volatile=1))
    assert store.offsets == {"table": 0, "volatile": 1}
    store.close()
    store = open_task_store(tmp_path, [TABLE, volatile], volatile=kept)
    assert store.store("volatile").get(b"a") == b"1"
    store.close()
    store = open_task_store(tmp_path, [TABLE, volatile])
    assert store.offsets == {"table": 0}
    assert store.position == position(1, table=0)
    store.close()


def test_unlogged_stores_have_no_changelog():
    store = TaskStore(MemoryTable(), [StoreSpec("s", StoreKind.WINDOW, retention_ms=1, logged=False)])
    store.store("s").put(b"k", 1, b"v", 1)
    assert store.logged_stores == []
    assert dict(store.changelog()) == {}
    store.apply(position(1))
    assert store.trim_offsets == {}
    assert list(store.store("s").fetch_range(b"k", 0, 1)) == [(1, b"v")]


def test_spilled_writes_reach_the_table_in_one_write(tmp_path):
    store = open_task_store(tmp_path, SPECS, spill_bytes=20_000)
    for i in range(500):
        store.store("table").put(b"%03d" % (i % 300), timestamped(b"%d" % i, i), i)
        store.store("sessions").put(b"%03d" % i, i, i, b"s", i)
    assert any(name.startswith("spill-") for name in os.listdir(tmp_path))
    assert len(dict(store.changelog())["table"]) == 300
    store.expire("sessions", 400)
    store.apply(position(1, table=300, sessions=500))
    assert os.listdir(tmp_path) == ["db"]
    assert [row.value for row in dump(store, "table")] == [b"%d" % i for i in (*range(300, 500), *range(200, 300))]
    assert [row.window_start for row in dump(store, "sessions")] == list(range(400, 500))
    store.close()


def test_the_changelog_of_a_spilled_step_comes_in_parts_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(buffers, "_PART_ROWS", 50)
    monkeypatch.setattr(buffers, "_PART_BYTES", 2_000)
    store = open_task_store(tmp_path, SPECS, spill_bytes=50_000)
    whole = TaskStore(MemoryTable(), SPECS)
    for i in range(1000):
        for one in (store, whole):
            value = b"v" * (1 if i < 500 else 200)
            one.store("table").put(b"%04d" % i, timestamped(value, i), i)
    parts = [batch for name, batch in store.changelog() if name == "table"]
    assert [len(part) for part in parts[:3]] == [50, 50, 50]
    assert max(part.keys.nbytes + part.values.nbytes for part in parts[-10:]) < 3_000
    assert [len(batch) for _, batch in whole.changelog()] == [1000], "what lies in memory comes at once"
    digests = []
    for one in (store, whole):
        digest = StepDigest()
        for name, batch in one.changelog():
            digest.add(name, batch)
        digests.append((digest.records, digest.hexdigest()))
    assert digests[0] == digests[1]
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("spill_bytes", [1 << 26, 50_000])
def test_killed_at_any_time_there_is_no_half_step(tmp_path, spill_bytes):
    for attempt in range(2):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(f"""
                    from pathlib import Path
                    from state.stores.task_store import StorePosition
                    from tests.stores.test_task_store import SPECS, open_task_store, timestamped
                    store = open_task_store(Path({str(tmp_path)!r}), SPECS, {spill_bytes})
                    version = store.position.version if store.position else 0
                    while True:
                        version += 1
                        for i in range(1000):
                            store.store("table").put(b"%d" % i, timestamped(b"%d" % version, 1), 1)
                        store.store("windows").put(b"k", version, timestamped(b"v", 1), 1)
                        store.expire("windows", version - 50)
                        store.apply(StorePosition("query", version, {{"table": version * 1000}}))
                        print("step", flush=True)
                """),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "step\n"
        try:
            process.wait(0.1 + 0.029 * attempt)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        store = open_task_store(tmp_path, SPECS)
        version = store.position.version
        assert store.offsets["table"] == version * 1000
        assert {row.value for row in dump(store, "table")} == {b"%d" % version}
        starts = [row.window_start for row in dump(store, "windows")]
        assert starts[-1] == version
        assert starts == list(range(starts[0], version + 1))
        assert starts[0] <= max(version - 50, 1)
        store.close()


def test_dump_and_digest(opened):
    store = opened()
    store.store("table").put(b"a", timestamped(b"1", 7), 7)
    store.store("windows").put(b"k", 5, timestamped(b"w", 6), 6)
    store.store("sessions").put(b"k", 5, 9, b"s", 9)
    before = state_digest(store, "table")
    assert list(dump(store, "table")) == [], "only what is committed"
    store.apply(position(1))
    assert list(dump(store, "table")) == [(b"a", None, None, 7, b"1")]
    assert list(dump(store, "windows")) == [(b"k", 5, None, 6, b"w")]
    assert list(dump(store, "sessions")) == [(b"k", 5, 9, None, b"s")]
    assert state_digest(store, "table") != before
    store.close()


def test_a_newer_format_is_refused():
    table = MemoryTable()
    table.write([(META_KEY, b'{"format": 99}')])
    with pytest.raises(StateError, match="format 99"):
        TaskStore(table, SPECS)


def test_unknown_store_is_a_key_error():
    with pytest.raises(KeyError):
        TaskStore(MemoryTable(), SPECS, memory=BufferMemory()).store("nope")
