"""RocksDB's library of pyspark's jar: found, unpacked, missing; its kernels are ready before a fork."""

import subprocess
import sys
import zipfile

import pyarrow as pa
import pytest

from state import machine_code
from state.errors import StateError
from state.tables import native_kernels
from state.tables import native_library as library
from state.tables.native_table import NativeTable
from state.tables.open_tables import open_table
from state.tables.rocks import RocksTable


@pytest.fixture
def afresh():
    library.find_library.cache_clear()
    yield
    library.find_library.cache_clear()


def make_jar(path, content):
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("librocksdbjni-linux64.so", content)
    return path


def test_tables_are_native_unless_that_is_switched_off(tmp_path, monkeypatch):
    monkeypatch.delenv(library.SWITCH_VARIABLE, raising=False)
    table = open_table(tmp_path / "db")
    assert isinstance(table, NativeTable)
    table.write([(b"a", b"1")])
    table.close()
    monkeypatch.setenv(library.SWITCH_VARIABLE, "0")
    table = open_table(tmp_path / "db")
    assert isinstance(table, RocksTable)
    assert table.get(b"a") == b"1"
    table.close()


@pytest.mark.parametrize("broken", ["no jar", "another system", "rubbish"])
def test_a_library_that_cannot_be_used_is_no_error(tmp_path, monkeypatch, afresh, broken):
    jar = make_jar(tmp_path / "rocksdbjni-1.jar", b"not a library")
    monkeypatch.delenv(library.SWITCH_VARIABLE, raising=False)
    monkeypatch.setattr(library, "_jars", lambda: iter([] if broken == "no jar" else [jar]))
    monkeypatch.setattr(library, "cache_folder", lambda: tmp_path)
    if broken == "another system":
        monkeypatch.setattr(library.platform, "system", lambda: "Plan 9")
    assert not library.native_available()
    with pytest.raises(StateError, match="not found in pyspark's rocksdbjni jar"):
        library.library()


def test_the_library_is_unpacked_once_and_as_a_whole(tmp_path):
    jar = make_jar(tmp_path / "rocksdbjni-1.jar", b"first")
    folder = tmp_path / "cache"
    folder.mkdir()
    target = library.unpack(jar, "librocksdbjni-linux64.so", folder)
    assert target.read_bytes() == b"first"
    before = target.stat().st_mtime_ns
    assert library.unpack(jar, "librocksdbjni-linux64.so", folder).stat().st_mtime_ns == before
    # Left by a full disk: too short to be the library.
    target.write_bytes(b"fi")
    assert library.unpack(jar, "librocksdbjni-linux64.so", folder).read_bytes() == b"first"
    # Another version has another name.
    other = library.unpack(make_jar(jar, b"other"), "librocksdbjni-linux64.so", folder)
    assert other != target
    assert {path.name for path in folder.iterdir()} == {target.name, other.name}, "nothing else is left"


@pytest.mark.slow
def test_kernels_are_ready_before_a_fork_and_no_thread_runs(tmp_path):
    code = f"""
import os
import numpy as np
import pyarrow as pa
from pathlib import Path
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, open_task_store
from state import columns, sorting
from state.tables import native_kernels
from streams.engine.spark.warm_up import warm_up
threads = len(os.listdir("/proc/self/task"))
warm_up()
print(len(os.listdir("/proc/self/task")) - threads)
modules = (columns, sorting, native_kernels)
made = {{name: f for module in modules for name, f in vars(module).items() if hasattr(f, "signatures")}}
before = {{name: len(f.signatures) for name, f in made.items()}}
spec = StoreSpec("s", StoreKind.WINDOW, retention_ms=100, segment_ms=10, retain_duplicates=True)
store = open_task_store(Path({str(tmp_path)!r}), [spec], spill_bytes=100_000)
for step in range(1, 4):
    keys, times = pa.array([b"%d" % (n % 99) for n in range(6000)], pa.binary()), np.arange(6000) % 30
    for part in range(0, 6000, 6000 // step):
        some = slice(part, part + 6000 // step)
        store.store("s").fetch_ranges(keys[some], times[some] - 5, times[some] + 5)
        store.store("s").put_columns(keys[some], times[some], keys[some], times[some])
    list(store.changelog())
    store.apply(StorePosition("q", step, {{"s": step}}))
print([name for name, f in made.items() if len(f.signatures) > before[name]])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["0", "[]"]


@pytest.mark.timeout(60)
def test_a_range_whose_rows_together_are_larger_than_the_first_buffers_is_read(tmp_path):
    rows = [(b"%05d" % number, bytes([number % 256]) * 10_000) for number in range(30)]
    table = NativeTable(tmp_path / "db")
    table.write(rows)
    found = table.scan_ranges(pa.array([b"0", b"00010"], pa.binary()), pa.array([b"1", b"1"], pa.binary()))
    assert found.ranges.tolist() == [0] * 30 + [1] * 20
    assert list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)) == rows + rows[10:]
    table.close()


def test_whether_kernels_were_compiled_on_this_machine_is_seen_without_numba(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "__file__", str(tmp_path / "state" / "machine_code.py"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert not machine_code.kernels_compiled()
    python = f"py{sys.version_info.major}{sys.version_info.minor}.nbi"
    module = tmp_path / "cache" / "tables_1a2b"
    module.mkdir(parents=True)
    (module / "native_kernels.fill_file-23.py27.nbi").touch()
    (module / f"sorting.sort_rows-23.{python}").touch()  # the test driver compiles that
    assert not machine_code.kernels_compiled()
    (module / f"native_kernels.fill_file-23.{python}").touch()
    assert machine_code.kernels_compiled()


def test_the_kernel_that_stands_for_all_is_there():
    assert callable(native_kernels.fill_file)


FIRST_KERNELS = """
import sys, threading, time
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from state.kafka.partitioner import partition_for_keys
import pyarrow as pa

def waits(thread):
    frame, names = sys._current_frames().get(thread.ident), []
    while frame:
        names.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return any(file.endswith("compiler_lock.py") for file, _ in names)

with global_compiler_lock:
    # As a thread has it that compiles something else just now.
    other = threading.Thread(target=partition_for_keys, args=(pa.array([b"a"], pa.binary()), 3))
    other.start()
    while not waits(other):
        time.sleep(0.01)
    assert cpu_target.target_context
other.join()
"""


@pytest.mark.slow
def test_two_threads_may_run_their_first_kernels_at_the_same_time():
    """Processes that serve copies did, and waited for each other forever."""
    subprocess.run([sys.executable, "-c", FIRST_KERNELS], check=True, timeout=120)
