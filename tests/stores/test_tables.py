"""The table on disk, by RocksDB's C API and by rocksdict: locks, damage, scans at close, kills, and what opening costs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from state.errors import StateCorruptedError, StateError, StateLockedError
from state.restore.directory import StateDirectory
from state.stores.dump import read_task_store
from state.stores.position import StorePosition
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore, open_task_store
from state.tables import native_library as library
from state.tables.files import make_private
from state.tables.native_library import native_available
from state.tables.native_table import NativeTable
from state.tables.rocks import RocksTable
from state.tables.rocks_common import RocksSettings, database_options
from state.tables.table import MemoryTable, OrderedTable
from streams import StreamsBuilder
from streams.application.owned_topics import write_manifest
from streams.topology.plan import build_plan

QUICK, PATIENT = RocksSettings(lock_timeout_s=0.2), RocksSettings(lock_timeout_s=120)
ROWS = [(b"%05d" % i, os.urandom(100)) for i in range(20_000)]

KINDS = {"native": NativeTable, "rocksdict": RocksTable}
OTHER = {NativeTable: RocksTable, RocksTable: NativeTable}


@pytest.fixture(params=KINDS)
def Table(request):
    return KINDS[request.param]


def columns(rows):
    keys, values = zip(*rows, strict=True)
    return [(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))]


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


def test_write_is_there_after_reopening(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write([(b"a", b"1"), (b"b", b""), (b"c", b"3")])
    table.write([(b"a", None), (b"d", b"4")], [(b"c", b"d")])
    table.close()
    table = Table(tmp_path / "db")
    assert list(table.scan(b"", None)) == [(b"b", b""), (b"d", b"4")]
    assert list(table.scan(b"a", b"d", reverse=True)) == [(b"b", b"")]
    assert list(table.scan(b"a", None, reverse=True)) == [(b"d", b"4"), (b"b", b"")]
    assert table.multi_get([b"d", b"a", b"b"]) == [b"4", None, b""]
    table.close()


def test_ranges_are_deleted_before_rows_are_put(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write([(b"a1", b"old"), (b"a2", b"old")])
    table.write([(b"a2", b"new")], [(b"a", b"b")])
    assert list(table.scan(b"", None)) == [(b"a2", b"new")]
    table.close()


def test_sorted_file_overwrites_and_deletes(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    table.write_sorted(columns([(b"a", None), (b"b", b"new"), (b"d", b"4")]))
    table.write_sorted([])
    table.close()
    table = Table(tmp_path / "db")
    assert list(table.scan(b"", None)) == [(b"b", b"new"), (b"c", b"3"), (b"d", b"4")]
    assert not (tmp_path / "db" / "ingest.part").exists()
    table.close()


def test_a_table_closes_with_scans_open_and_can_be_opened_again(tmp_path, Table):
    table = Table(tmp_path / "db", QUICK)
    table.write(ROWS)
    scan = table.scan(b"", None)
    next(scan)
    table.close()
    table.close()
    with pytest.raises(StateError, match="closed while a scan"):
        list(scan)
    with pytest.raises(StateError, match="is closed"):
        table.get(b"a")
    Table(tmp_path / "db", QUICK).close()


def test_a_snapshot_keeps_the_rows_of_its_moment(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    before = table.snapshot()
    table.write([(b"a", b"2"), (b"d", b"2")], [(b"b", b"c")])
    rows = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    assert list(before.scan(b"", None)) == rows
    assert list(before.scan(b"", None, True)) == rows[::-1]
    assert [before.get(key) for key in (b"a", b"b", b"d")] == [b"1", b"1", None]
    assert before.multi_get([b"d", b"c", b"a"]) == [None, b"1", b"1"]
    assert before.get_columns(pa.array([b"a", b"d"], pa.binary())).to_pylist() == [b"1", None]
    found = before.scan_ranges(pa.array([b"a"], pa.binary()), pa.array([b"c"], pa.binary()))
    assert found.values.to_pylist() == [b"1", b"1"]
    assert list(table.scan(b"", None)) == [(b"a", b"2"), (b"c", b"1"), (b"d", b"2")]
    with pytest.raises(StateError, match="can only be read"):
        before.write([(b"a", b"3")])
    before.close()
    table.close()
    Table(tmp_path / "db").close()


def test_a_snapshot_that_outlives_its_table_says_so(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write([(b"a", b"1")])
    left = table.snapshot()
    table.close()
    for use in (lambda: left.get(b"a"), lambda: list(left.scan(b"", None))):
        with pytest.raises(StateError, match="is closed"):
            use()
    left.close()
    Table(tmp_path / "db").close()
    assert os.listdir(tmp_path) == ["db"]


def test_a_store_open_elsewhere_is_named(tmp_path, Table):
    path = tmp_path / "db"
    process = child(f"""
        from {Table.__module__} import {Table.__name__} as Table
        table = Table({str(path)!r})
        print("open")
        input()
    """)
    assert process.stdout.readline() == "open\n"
    with pytest.raises(StateLockedError, match=r"open elsewhere .*within 0\.2 s.*fuser"):
        Table(path, QUICK)
    # It is waited for: the process ends soon.
    process.stdin.close()
    Table(path, PATIENT).close()
    process.wait()


def test_a_damaged_block_is_an_error_and_no_short_scan(tmp_path, Table):
    path = tmp_path / "db"
    table = Table(path)
    table.write(ROWS)
    table.close()
    file = max(path.glob("*.sst"), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
    file.write_bytes(data)
    table = Table(path, RocksSettings(block_cache_bytes=1 << 20))
    with pytest.raises(StateCorruptedError, match="restored from its changelog"):
        list(table.scan(b"", None))
    with pytest.raises(StateCorruptedError):
        [table.get(key) for key, _ in ROWS]
    with pytest.raises(StateCorruptedError):
        table.get_columns(pa.array([key for key, _ in ROWS], pa.binary()))
    table.close()


@pytest.mark.parametrize("victim", ["MANIFEST-*", "CURRENT", "*.sst"])
def test_missing_or_spoilt_files_are_named_at_opening(tmp_path, victim, Table):
    path = tmp_path / "db"
    table = Table(path)
    table.write(ROWS)
    table.close()
    for file in path.glob(victim):
        if victim == "CURRENT":
            file.write_text("rubbish\n")
        else:
            file.unlink()
    with pytest.raises(StateCorruptedError):
        Table(path)


def test_a_damaged_block_that_is_read_at_opening_is_no_lock(tmp_path, Table):
    """RocksDB calls it "block checksum mismatch", which has the word in it."""
    path = tmp_path / "db"
    table = Table(path)
    table.write(ROWS)
    table.close()
    (largest,) = sorted(path.glob("*.sst"), key=lambda file: file.stat().st_size)[-1:]
    data = bytearray(largest.read_bytes())
    # The file's own index and properties lie at its end, in front of the footer of 53 bytes.
    for place in range(len(data) - 1000, len(data) - 53):
        data[place] ^= 0xFF
    largest.write_bytes(data)
    with pytest.raises(StateCorruptedError):
        Table(path, QUICK)


def test_a_path_with_the_word_in_it_is_no_lock(tmp_path, Table):
    path = tmp_path / "blockchain" / "db"
    table = Table(path)
    table.write(ROWS)
    table.close()
    for file in path.glob("MANIFEST-*"):
        file.unlink()
    with pytest.raises(StateCorruptedError):
        Table(path, QUICK)


def test_who_waits_longer_shares_the_memory():
    assert database_options(QUICK) is database_options(PATIENT)
    assert library.handles(QUICK) is library.handles(PATIENT)


def test_a_folder_that_cannot_be_used_is_named(tmp_path, Table):
    (tmp_path / "db").write_text("a file")
    with pytest.raises(StateError, match="could not be opened"):
        Table(tmp_path / "db")


@pytest.mark.slow
def test_killed_after_each_write_nothing_of_it_is_lost(tmp_path, Table):
    process = child(f"""
        import os, signal
        from {Table.__module__} import {Table.__name__} as Table
        from tests.stores.test_tables import columns
        table = Table({str(tmp_path / "db")!r})
        table.write((b"%05d" % i, b"v") for i in range(3000))
        table.write_sorted(columns([(b"x%05d" % i, b"v") for i in range(3000)]))
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert process.wait() == -signal.SIGKILL
    table = Table(tmp_path / "db")
    assert sum(1 for _ in table.scan(b"", None)) == 6000
    table.close()


@pytest.mark.slow
def test_killed_at_any_time_a_write_is_there_as_a_whole_or_not_at_all(tmp_path, Table):
    path = tmp_path / "db"
    for attempt in range(3):
        process = child(f"""
            from {Table.__module__} import {Table.__name__} as Table
            from tests.stores.test_tables import columns
            table = Table({str(path)!r})
            done = step = int(table.get(b"step") or b"0")
            while True:
                step += 1
                rows = [(b"%05d" % i, b"%d" % step) for i in range(5000)]
                head = [(b"!step", b"%d" % step)]
                if step % 2:
                    table.write(head + rows + [(b"step", b"%d" % step)])
                else:
                    table.write_sorted(columns(head + rows + [(b"step", b"%d" % step)]))
                if step == done + 1:
                    print("ready")
        """)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.15 + 0.037 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        table = Table(path)
        rows = dict(table.scan(b"", None))
        table.close()
        assert rows, "some steps were done"
        assert len(set(rows.values())) == 1, "rows of two steps are mixed"
        assert len(rows) == 5002


def test_opening_is_cheap(tmp_path, Table):
    Table(tmp_path / "db").close()
    seconds = []
    for _ in range(10):
        started = time.process_time()
        Table(tmp_path / "db").close()
        seconds.append(time.process_time() - started)
    # Seconds of the processor; about 0.004 on the machine that this was written on.
    assert min(seconds) < 0.1


def test_a_kill_right_after_an_ingestion_leaves_a_name_that_is_not_written_to(tmp_path, Table):
    rows = [(b"%05d" % number, b"x" * 100) for number in range(2000)]
    table = Table(tmp_path / "db")
    table.write_sorted(columns(rows))
    table.close()
    (ingested,) = (tmp_path / "db").glob("*.sst")
    # What a kill leaves behind between the two halves of the move: both names of the one file.
    (tmp_path / "db" / "ingest.part").hardlink_to(ingested)
    table = Table(tmp_path / "db")
    table.write_sorted(columns([(b"z%05d" % number, b"y") for number in range(50)]))
    assert list(table.scan(b"0", b"1")) == rows
    table.close()


def test_either_kind_opens_what_the_other_has_written(tmp_path, Table):
    table = Table(tmp_path / "db")
    table.write(ROWS[:5000])
    table.write_sorted(columns([(b"x%05d" % i, b"v") for i in range(5000)]))
    table.write([(b"x00000", None)], [(b"00000", b"00100")])
    table.close()
    expected = [*ROWS[100:5000], *((b"x%05d" % i, b"v") for i in range(1, 5000))]
    other = OTHER[Table](tmp_path / "db")
    assert list(other.scan(b"", None)) == expected  # type: ignore[attr-defined]
    other.write([(b"y", b"1"), (b"00100", None)])  # type: ignore[attr-defined]
    other.write_sorted(columns([(b"z%05d" % i, b"v") for i in range(5000)]))  # type: ignore[attr-defined]
    other.close()  # type: ignore[attr-defined]
    table = Table(tmp_path / "db")
    assert list(table.scan(b"", None)) == [*expected[1:], (b"y", b"1"), *((b"z%05d" % i, b"v") for i in range(5000))]
    table.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_many_look_ups_at_once(tmp_path, Table, read_only):
    """In any order, of keys that come twice or have no row, with values that are larger than what is set aside for them."""
    rows = {b"%05d" % i: bytes([i % 256]) * (i * 7 % 500) for i in range(0, 3_000, 2)}
    table = Table(tmp_path / "db")
    table.write(rows.items())
    table.write([(b"%05d" % i, None) for i in range(0, 3_000, 10)])
    table.close()
    table = Table(tmp_path / "db", read_only=read_only)
    asked = [b"%05d" % i for i in np.random.default_rng(1).integers(0, 3_000, 5_000)]
    found = table.get_columns(pa.array(asked, pa.binary())).to_pylist()
    assert found == [None if int(key) % 10 == 0 else rows.get(key) for key in asked]
    table.close()


def test_a_look_up_reads_little_however_many_rows_a_file_has(tmp_path, Table):
    """Filters in one piece were read as a whole for each look-up, once they were larger than a part of the cache."""
    table = Table(tmp_path / "db", RocksSettings(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 19))
    numbers = np.arange(1_000_000)
    keys = pa.array(np.char.add(b"key-", numbers.astype("S7")), pa.binary()).sort()
    table.write_sorted([(keys, pa.array([b"value"] * len(keys), pa.binary()))])
    asked = keys.take(pa.array(np.random.default_rng(1).choice(numbers, 1_000)))
    table.get_columns(asked)
    before = read_bytes()
    assert table.get_columns(asked).null_count == 0
    assert (read_bytes() - before) / len(asked) < 20_000
    table.close()


def read_bytes() -> int:
    """The bytes that this process has read from files, from the page cache or from disk."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])


# --- Estimated sizes of stores: exact for few rows, of the right order for many, the same way in every kind of table.

SIZED = {
    "memory": lambda folder: MemoryTable(),
    "rocksdict": RocksTable,
    "native": NativeTable,
}
STORES = [StoreSpec(name, StoreKind.KEY_VALUE) for name in ("small", "large", "wide")]


@pytest.fixture(params=SIZED)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> OrderedTable:
    if request.param == "native" and not native_available():
        pytest.skip("RocksDB's library is not here")
    make: Callable[[Path], OrderedTable] = SIZED[request.param]
    return make(tmp_path / "db")


def fill(store: TaskStore, rows: dict[str, tuple[int, int]]) -> None:
    """Name -> number of rows and size of their values."""
    for name, (count, size) in rows.items():
        rng = np.random.default_rng(count)
        for number in range(count):
            store.store(name).put(b"%08d" % number, rng.bytes(size), 0)
    store.apply(StorePosition("query", 1, {}, 0))


def test_a_store_with_few_rows_is_counted(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        fill(store, {"small": (30, 10)})
        sizes = store.sizes()
        per_row = sizes["small"].bytes / 30
        # The key with the store's id, and the value with what a store adds to it.
        assert 18 <= per_row < 40
        assert sizes["small"].rows == 30
        assert sizes["large"] == sizes["wide"] == (0, 0)


def test_large_stores_share_the_rows_by_their_bytes(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        fill(store, {"small": (30, 10), "large": (20_000, 20), "wide": (5_000, 400)})
        sizes = store.sizes()
        assert sizes["small"].rows == 30
        assert sizes["large"].rows + sizes["wide"].rows == pytest.approx(25_000, rel=0.1)
        if not isinstance(table, RocksTable):
            assert sizes["large"].rows == pytest.approx(20_000, rel=0.25)
            assert sizes["wide"].bytes == pytest.approx(5_000 * 420, rel=0.5)


def test_pending_writes_are_not_counted(table: OrderedTable) -> None:
    with TaskStore(table, STORES) as store:
        store.store("small").put(b"k", b"v", 0)
        assert store.sizes()["small"] == (0, 0)


# --- Nobody but the owner may look into local state, a restore, or what is kept beside a checkpoint.


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_the_missing_ones_above_it_are_private(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(0o755)
    folder = tmp_path / "there" / "a" / "b"
    make_private(folder)
    make_private(folder)
    assert [mode(path) for path in (folder, folder.parent, folder.parent.parent)] == [0o700, 0o700, 0o755]


def test_the_state_of_a_task_is_private(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state").task("app", "in", 0)
    open_task_store(directory.path, [StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE)]).close()
    folders = [path for path in (tmp_path / "state", *(tmp_path / "state").rglob("*")) if path.is_dir()]
    assert directory.path / "db" in folders
    assert {mode(path) for path in folders} == {0o700}


def test_links_for_a_reader_are_private_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE)]
    directory = StateDirectory(tmp_path / "state").task("app", "in", 0)
    open_task_store(directory.path, specs).close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with read_task_store(directory.path, specs):
        assert [mode(path) for path in tmp_path.glob("streams-state-*/db")] == [0o700]
    assert not caplog.records, "nothing had to be mended, so there is nothing to say"


def test_what_is_kept_beside_the_checkpoint_is_private(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    file = write_manifest(build_plan(builder.build(), "app"), str(tmp_path / "checkpoint" / "app"))
    assert file is not None
    assert (mode(file), mode(file.parent), mode(file.parent.parent)) == (0o600, 0o700, 0o700)
