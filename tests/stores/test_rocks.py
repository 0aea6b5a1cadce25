"""The table on disk, by RocksDB's C API and by rocksdict: locks, damage, scans at close, kills, and what opening costs."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from state.errors import StateCorruptedError, StateError, StateLockedError
from state.tables import native_library as library
from state.tables.native_table import NativeTable
from state.tables.rocks import RocksTable
from state.tables.rocks_common import RocksSettings, database_options

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


def test_killed_after_each_write_nothing_of_it_is_lost(tmp_path, Table):
    process = child(f"""
        import os, signal
        from {Table.__module__} import {Table.__name__} as Table
        from tests.stores.test_rocks import columns
        table = Table({str(tmp_path / "db")!r})
        table.write((b"%05d" % i, b"v") for i in range(3000))
        table.write_sorted(columns([(b"x%05d" % i, b"v") for i in range(3000)]))
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert process.wait() == -signal.SIGKILL
    table = Table(tmp_path / "db")
    assert sum(1 for _ in table.scan(b"", None)) == 6000
    table.close()


def test_killed_at_any_time_a_write_is_there_as_a_whole_or_not_at_all(tmp_path, Table):
    path = tmp_path / "db"
    for attempt in range(3):
        process = child(f"""
            from {Table.__module__} import {Table.__name__} as Table
            from tests.stores.test_rocks import columns
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
    assert list(other.scan(b"", None)) == expected
    other.write([(b"y", b"1"), (b"00100", None)])
    other.write_sorted(columns([(b"z%05d" % i, b"v") for i in range(5000)]))
    other.close()
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
