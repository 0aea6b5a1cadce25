"""Runs SQL in a separate process, which has a limit of memory, and is killed when a query does not end in time.

DuckDB looks for an interrupt only between its steps, so one call of a function may run for minutes, and DuckDB does not count all
of its memory. Such a process gets a query and the rows of its tables (Arrow), and returns the result (JSON): it has no files, no
connections, and nothing of this process but those rows. It is kept for the next query, because it takes a second to start.
"""

from __future__ import annotations

import os
import queue
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
import pyarrow as pa

from streams.errors import QueryError, StoreNotReadyError
from streams.serdes.json_text import loads

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUERIES = 2
"""How many queries in SQL run at a time: each has its memory and a process."""
_PARSED_BYTES = 64 * 1024
_PARSED_S = 2.0
_STARTED_S = 60.0
"""How long a process may take to start, also on a busy machine."""
_GRACE_S = 2.0
"""A query's process is killed this long after the limit, because DuckDB is asked to stop first."""
_BESIDES_BYTES = 512 * 1024 * 1024
"""The memory of a process beyond DuckDB's: the rows, the result, and what DuckDB does not count."""
_AT_A_TIME = 100
"""This many rows of a result are fetched at a time, so that their bytes are counted early."""
_SIZE = struct.Struct(">Q")
_FIXED: Mapping[str, Any] = {
    "threads": 1,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_CODE = "from streams.serve.sql.process import main; main()"


def parsed(text: str) -> dict[str, Any]:
    """The syntax tree of one `SELECT`.

    Raises:
        QueryError: The text is not one `SELECT`.
        StoreNotReadyError: Too many others are being parsed.
    """
    if len(text.encode(errors="replace")) > _PARSED_BYTES:
        raise QueryError(f"the query has more than {_PARSED_BYTES // 1024} KiB")
    with _parsers("64MB").one(_PARSED_S) as process:
        found: dict[str, Any] = process.ask({"do": "parse", "sql": text}, (), _PARSED_S)
    return found


def computed(text: str, tables: Mapping[str, pa.Table], limits: Any) -> Any:
    """The result of a query: columns, rows.

    Args:
        text: The SQL.
        tables: Name -> rows; columns of JSON text have the type `arrow.json`, which DuckDB knows.
        limits: The limits of the query (`SqlLimits`).

    Raises:
        QueryError: The query is wrong, or costs more than allowed.
        StoreNotReadyError: Too many others are running.
    """
    asked = {
        "do": "run",
        "sql": text,
        "seconds": limits.seconds,
        "rows": limits.result_rows,
        "bytes": limits.result_bytes,
        "tables": list(tables),
    }
    with _runners(limits.memory).one(limits.seconds) as process:
        return process.ask(asked, list(map(_written, tables.values())), limits.seconds)


class _Alarms:
    """Calls functions when their time is up, from one lasting thread: starting one per query would cost as much as the query."""

    _LOOK_S = 0.05

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[object, tuple[float, Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def at(self, seconds: float, call: Callable[[], object]) -> Iterator[None]:
        """Calls a function once after this number of seconds, unless the block has ended by then."""
        name = object()
        with self._lock:
            self._set[name] = time.monotonic() + seconds, call
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="sql-alarms", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._set.pop(name, None)

    def _look(self) -> None:
        quiet = 0
        while True:
            time.sleep(self._LOOK_S)
            with self._lock:
                now_s = time.monotonic()
                for name, (at_s, call) in list(self._set.items()):
                    if at_s <= now_s:
                        del self._set[name]
                        call()
                quiet = 0 if self._set else quiet + 1
                if quiet * self._LOOK_S > _IDLE_S:
                    self._thread = None
                    return


_IDLE_S = 10.0
"""After this long without a query, the thread ends; the next query starts it again."""
_at = _Alarms().at


class _Process:
    """A process that answers queries.

    Args:
        memory: The memory that DuckDB may use in it.
    """

    def __init__(self, memory: str) -> None:
        # Only the variables that are needed to find this program: others may have secrets.
        known = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
        path = os.pathsep.join(one for one in sys.path if one) or os.curdir
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**known, "PYTHONPATH": os.pathsep.join([os.getcwd(), path]), "LC_ALL": "C.UTF-8"},
            # Ctrl-C ends this process, and thereby that one.
            start_new_session=True,
        )
        self._killed = False
        self._exchanged(None, (), _STARTED_S)

    @property
    def lives(self) -> bool:
        """Whether the process is alive and can be asked."""
        return not self._killed and self._process.poll() is None

    def ask(self, asked: Mapping[str, Any], frames: Sequence[bytes], seconds: float) -> Any:
        """Sends a query, and returns the answer.

        Raises:
            QueryError: The query is wrong, took too long, or needed too much memory.
        """
        answer = self._exchanged(asked, frames, seconds + _GRACE_S)
        if answer is None:
            if self._killed:
                raise QueryError(f"the query takes longer than {seconds:g} s")
            raise QueryError("the query needs more memory than a query may take: Out of Memory")
        if "error" in answer:
            raise QueryError(answer["error"])
        return answer["answer"]

    def end(self) -> None:
        """Kills the process, and waits for its end."""
        self._kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()

    def _exchanged(self, asked: Mapping[str, Any] | None, frames: Sequence[bytes], seconds: float) -> Any:
        """Sends a message if there is one, and returns the next answer; None: the process has ended, or was killed in the end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _at(seconds, self._kill):
            try:
                if asked is not None:
                    _write(self._process.stdin, orjson.dumps(asked), *frames)
                data = _read(self._process.stdout)
                return None if data is None else loads(data)
            except (OSError, ValueError):
                # The process ended within a message.
                return None

    def _kill(self) -> None:
        self._killed = True
        self._process.kill()


class _Processes:
    """Processes that are kept for the next query.

    Args:
        most: The most processes.
        memory: The memory that DuckDB may use in each.
    """

    def __init__(self, most: int, memory: str) -> None:
        self._memory = memory
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(most):
            self._idle.put(None)

    @contextmanager
    def one(self, wait_s: float) -> Iterator[_Process]:
        """Lends a process for the block.

        Raises:
            StoreNotReadyError: No process becomes free in time, or a new one does not start.
        """
        try:
            found = self._idle.get(timeout=wait_s + _GRACE_S)
        except queue.Empty:
            raise StoreNotReadyError("this server is running as many SQL queries as it can: try again") from None
        try:
            if found is None or not found.lives:
                found = _Process(self._memory)
                if not found.lives:
                    raise StoreNotReadyError("the SQL process does not start now: try again")
            yield found
        finally:
            if found is not None and not found.lives:
                found.end()
                found = None
            self._idle.put(found)


@lru_cache(4)
def _parsers(memory: str) -> _Processes:
    return _Processes(1, memory)


@lru_cache(16)
def _runners(memory: str) -> _Processes:
    return _Processes(QUERIES, memory)


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _write(stream: BinaryIO | Any, *frames: bytes) -> None:
    for frame in frames:
        stream.write(_SIZE.pack(len(frame)))
        stream.write(frame)
    stream.flush()


def _read(stream: BinaryIO | Any) -> bytes | None:
    """Reads the next frame; None: the stream has ended."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    data: bytes = stream.read(size)
    return data if len(data) == size else None


# --- In the process.


def main() -> None:
    """Answers queries until the input ends."""
    import duckdb

    memory = sys.argv[1]
    given, said = sys.stdin.buffer, sys.stdout.buffer
    database = duckdb.connect(":memory:", config={**_FIXED, "memory_limit": memory})
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    # Otherwise the first query would have to wait for this.
    _answered(database, {"do": "run", "sql": "SELECT 1", "seconds": _STARTED_S, "rows": 1, "bytes": 100}, ())
    _limit_memory(memory)
    _write(said, b"{}")
    while (data := _read(given)) is not None:
        asked = orjson.loads(data)
        tables = [(name, _read(given)) for name in asked.get("tables", ())]
        _write(said, _answered(database, asked, tables))


def _answered(database: DuckDBPyConnection, asked: Mapping[str, Any], tables: Sequence[Any]) -> bytes:
    from streams.serdes.json_shown import shown_json

    try:
        # A cursor has its own tables, which are deleted with it.
        with database.cursor() as cursor:
            if asked["do"] == "parse":
                return orjson.dumps({"answer": _tree(cursor, asked["sql"])})
            for name, rows in tables:
                cursor.register(name, pa.ipc.open_stream(rows).read_all())
            return shown_json({"answer": _computed(cursor, asked)})
    except QueryError as error:
        return orjson.dumps({"error": str(error)})
    except MemoryError:
        return orjson.dumps({"error": "the query needs more memory than a query may take: Out of Memory"})
    except RecursionError:
        return orjson.dumps({"error": "SQL: the query is nested too deeply"})


def _tree(cursor: DuckDBPyConnection, text: str) -> Any:
    import duckdb

    with _explained():
        statements = cursor.extract_statements(text)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QueryError("one SELECT is allowed, and nothing else")
        found = cursor.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree = orjson.loads(found[0]) if found else {}
    if tree.get("error"):
        raise QueryError(f"SQL: {tree.get('error_message')}")
    return tree


def _computed(cursor: DuckDBPyConnection, asked: Mapping[str, Any]) -> dict[str, Any]:
    from streams.serdes.json_shown import shown_json

    seconds, most_rows, most_bytes = asked["seconds"], asked["rows"], asked["bytes"]
    rows: list[Any] = []
    size = 0
    with _at(seconds, cursor.interrupt), _explained(f"the query takes longer than {seconds:g} s"):
        answer = cursor.execute(asked["sql"])
        description = answer.description or ()
        while some := answer.fetchmany(_AT_A_TIME):
            found = _cells(description, some)
            size += len(shown_json(found))
            rows += found
            if len(rows) > most_rows:
                raise QueryError(f"the result has more than {most_rows} rows: aggregate, or add a LIMIT")
            if size > most_bytes:
                raise QueryError(f"the result has more than {most_bytes} bytes: aggregate, or add a LIMIT")
    return {"columns": [column[0] for column in description], "rows": rows}


def _cells(description: Sequence[Any], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows of a result as plain JSON data."""
    from streams.serdes.json_shown import shown

    reads = [loads if str(column[1]) == "JSON" else shown for column in description]
    return [[cell if cell is None else read(cell) for read, cell in zip(reads, row, strict=True)] for row in rows]


class _explained:
    """Turns DuckDB's errors within the block into errors of this project."""

    def __init__(self, interrupted: str = "") -> None:
        self._interrupted = interrupted

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import duckdb

        if isinstance(error, duckdb.InterruptException):
            raise QueryError(self._interrupted) from error
        if isinstance(error, duckdb.Error):
            raise QueryError(f"SQL: {error}") from error


def _limit_memory(memory: str) -> None:
    """Limits the memory to what this process uses now, what DuckDB may use, and an allowance for the rows and the result."""
    number = "".join(one for one in memory if one.isdigit() or one == ".")
    unit = {"K": 10**3, "M": 10**6, "G": 10**9}.get(memory.strip().upper().lstrip("0123456789. ")[:1], 1)
    with suppress(OSError, ValueError, FileNotFoundError):
        with open("/proc/self/statm", encoding="ascii") as status:
            now = int(status.read().split()[0]) * resource.getpagesize()
        most = now + int(float(number) * unit) + _BESIDES_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    # A process that was killed leaves no copy of the rows behind.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
