"""Tables of SQL databases: the rows and the position in one transaction of the database. `SqliteSink` and `PostgresSink`."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from streams.errors import (
    ConfigError,
    LakeError,
    LakePositionError,
    LakeSchemaError,
    SinkUnavailableError,
    StreamsError,
)
from streams.sinks.sink import SinkTable, as_json

if TYPE_CHECKING:
    import pyarrow as pa

POSITIONS = "streams_positions"
"""The table with the position of each sink, in the schema of the sink's table."""
_AT_ONCE = 10_000
"""How many rows are Python objects at one time."""
_COPIED = 500
"""For this many rows or more, PostgreSQL's COPY costs less than a statement for each row."""
_WAIT_S = 30
"""How long to wait for another transaction that holds a lock, seconds."""


class SqlSink(ABC):
    """A table of a database; subclasses have the differences between databases.

    Args:
        table: The table's name, or `schema.table`. A missing table is created with the first rows.
    """

    target: str
    _types: ClassVar[Mapping[str, str]]
    """The database's type for each type of Arrow; nested types have the database type under `nested`."""
    _placeholder: ClassVar[str]

    def __init__(self, table: str) -> None:
        self._name = table
        self._connection: Any = None

    @abstractmethod
    def _connect(self) -> Any:
        """A DB-API 2.0 connection whose transactions begin and end only by statements."""

    @abstractmethod
    def _tables(self) -> set[str]:
        """The names of tables in the schema of the sink's table."""

    @abstractmethod
    def _wrong(self, error: Exception) -> LakeError:
        """Turns the database's error into one for people."""

    def _adapted(self, value: Any, nested: pa.DataType | None) -> Any:
        """A value in the form that the driver takes; `nested` is the type of a value that becomes JSON."""
        return value if nested is None else as_json(value, nested).decode()

    def open(self, table: SinkTable) -> str | None:
        """Connects, and returns the position of the last commit, as `Sink.open` describes."""
        self._table = table
        with self._explained():
            self._connection = self._connect()
            found = self._tables()
            self._has_table, self._has_positions = self._bare in found, POSITIONS in found
            position = self._position() if self._has_positions else None
            if self._has_table:
                self._check()
        if position is not None and not self._has_table:
            raise LakePositionError(
                f"{table.owner}: the {self.target} was dropped: the rows that were written to it so far are missing. Nothing was "
                f"written. Put the table back. Or start over with `streams reset` and delete the sink's row in {POSITIONS}: "
                f"{self._forget()}."
            )
        return position

    def write(self, rows: pa.Table, deleted: pa.Table) -> None:
        """Writes the batch within a transaction."""
        with self._explained():
            self._run("BEGIN")
            if not self._has_table:
                self._run(self._create())
            if not self._has_positions:
                self._run(
                    f"CREATE TABLE IF NOT EXISTS {self._positions} (owner {self._text} PRIMARY KEY, position {self._text})"
                )
            if deleted.num_rows:
                same = " AND ".join(f"{quoted(key)} = {self._placeholder}" for key in self._table.keys)
                self._many(f"DELETE FROM {self._quoted} WHERE {same}", deleted)
            if rows.num_rows:
                self._upsert(rows)

    def commit(self, position: str, after: str | None) -> None:
        """Writes the position, and commits the transaction, as `Sink.commit` describes."""
        owner, mark = self._table.owner, self._placeholder
        with self._explained():
            if after is None:
                insert = f"INSERT INTO {self._positions} (owner, position) VALUES ({mark}, {mark})"
                done = self._run(f"{insert} ON CONFLICT (owner) DO NOTHING", owner, position)
            else:
                update = f"UPDATE {self._positions} SET position = {mark} WHERE owner = {mark} AND position = {mark}"
                done = self._run(update, position, owner, after)
            if done.rowcount != 1:
                self._run("ROLLBACK")
                raise self._table.conflict()
            self._run("COMMIT")
        self._has_table = self._has_positions = True

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()  # what is not committed is rolled back
            self._connection = None

    @property
    def _parts(self) -> list[str]:
        return self._name.split(".")

    @property
    def _bare(self) -> str:
        return self._parts[-1]

    @property
    def _quoted(self) -> str:
        return ".".join(map(quoted, self._parts))

    @property
    def _positions(self) -> str:
        return ".".join(map(quoted, [*self._parts[:-1], POSITIONS]))

    @property
    def _text(self) -> str:
        return self._types["string"]

    def _forget(self) -> str:
        return f"DELETE FROM {self._positions} WHERE owner = '{self._table.owner}'"

    def _create(self) -> str:
        keys = self._table.keys
        columns = [
            f"{quoted(field.name)} {self._type(field.type)}{' NOT NULL' if field.name in keys else ''}"
            for field in self._table.schema
        ]
        unique = [f"PRIMARY KEY ({', '.join(map(quoted, keys))})"] if keys else []
        return f"CREATE TABLE IF NOT EXISTS {self._quoted} ({', '.join([*columns, *unique])})"

    def _type(self, kind: pa.DataType) -> str:
        return self._types.get(str(kind).partition("[")[0].partition("(")[0], self._types["nested"])

    def _upsert(self, rows: pa.Table) -> None:
        self._many(self._insert(self._row(self._placeholder)), rows)

    @property
    def _columns(self) -> str:
        return ", ".join(map(quoted, self._table.schema.names))

    def _row(self, cell: str) -> str:
        return f"VALUES ({', '.join([cell] * len(self._table.schema.names))})"

    def _insert(self, rows: str) -> str:
        """The statement that inserts rows. With keys, it updates the rows that have the same keys."""
        names, keys = self._table.schema.names, self._table.keys
        insert = f"INSERT INTO {self._quoted} ({self._columns}) {rows}"
        if not keys:
            return insert
        others = [f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in keys]
        update = f"UPDATE SET {', '.join(others)}" if others else "NOTHING"
        return f"{insert} ON CONFLICT ({', '.join(map(quoted, keys))}) DO {update}"

    def _check(self) -> None:
        """Lets the database plan the statement, which finds missing columns, and keys without a unique index."""
        try:
            self._run(f"EXPLAIN {self._insert(self._row('NULL'))}")
        except Exception as error:
            if isinstance(found := self._wrong(error), SinkUnavailableError):
                raise found from error
            raise LakeSchemaError(
                f"{self._table.owner}: the {self.target} does not have the columns that the sink writes "
                f"({', '.join(self._table.schema.names)}), or no unique index of the keys "
                f"({', '.join(self._table.keys) or 'none'}): {first_line(error)}. Nothing was written. Alter the table, or name "
                f"its columns with schema=..., key=..., timestamp=... and keys=..., or write a new table."
            ) from error

    def _position(self) -> str | None:
        select = f"SELECT position FROM {self._positions} WHERE owner = {self._placeholder}"
        found = self._run(select, self._table.owner).fetchone()
        return None if found is None else str(found[0])

    def _run(self, statement: str, *values: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, values)
        return cursor

    def _many(self, statement: str, rows: pa.Table) -> None:
        for part in rows.to_batches(_AT_ONCE):
            self._connection.cursor().executemany(statement, self._cells(part))

    def _cells(self, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
        columns = []
        for field, column in zip(rows.schema, rows.columns, strict=True):
            nested = self._type(field.type) == self._types["nested"]
            cells = column.to_pylist()
            columns.append(
                [None if one is None else self._adapted(one, field.type if nested else None) for one in cells]
            )
        return list(zip(*columns, strict=True))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Rolls back after a refusal of the database, and raises the project's error for it."""
        try:
            yield
        except StreamsError:
            raise
        except Exception as error:
            found = self._wrong(error)
            self.close()
            raise found from error

    def _refused(self, error: Exception) -> LakeSchemaError:
        return LakeSchemaError(
            f"{self._table.owner}: the {self.target} does not take this batch: {first_line(error)}. Nothing of it was written, and "
            f"its rows wait in the sink's internal topic. Let the table take them, or filter such records out before the "
            f"sink, then start again."
        )

    def _away(self, error: Exception) -> SinkUnavailableError:
        return SinkUnavailableError(
            f"{self._table.owner}: the database of the {self.target} does not answer: {first_line(error)}. Nothing of this batch "
            f"was written, and its rows wait in the sink's internal topic. The sink is opened again until it answers."
        )


class SqliteSink(SqlSink):
    """A table of an SQLite file, which is on the driver's host. Times are ISO 8601 text (UTC), decimals and nested values text.

    Args:
        path: The file; a missing one is created.
        table: The table's name.
    """

    _types = {  # noqa: RUF012 - a ClassVar by its declaration in the base class
        "string": "TEXT",
        "int64": "INTEGER",
        "double": "REAL",
        "bool": "BOOLEAN",
        "binary": "BLOB",
        "timestamp": "TEXT",
        "date32": "TEXT",
        "decimal128": "TEXT",
        "nested": "TEXT ",  # the space makes it another type than other texts
    }
    _placeholder = "?"

    def __init__(self, path: str | os.PathLike[str], table: str) -> None:
        super().__init__(table)
        self._path = os.fspath(path)
        self.target = f"sqlite table {table} of {self._path}"

    def _connect(self) -> Any:
        # No isolation level: transactions begin and end by statements, also around the creation of tables.
        return sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)

    def _run(self, statement: str, *values: Any) -> Any:
        return super()._run("BEGIN IMMEDIATE" if statement == "BEGIN" else statement, *values)

    def _tables(self) -> set[str]:
        return {name for (name,) in self._run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}

    def _adapted(self, value: Any, nested: pa.DataType | None) -> Any:
        if isinstance(value, datetime | date):
            return value.isoformat()
        return str(value) if isinstance(value, Decimal) else super()._adapted(value, nested)

    def _wrong(self, error: Exception) -> LakeError:
        busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        return self._away(error) if busy else self._refused(error)


class PostgresSink(SqlSink):
    """A table of a PostgreSQL database (the extra `postgres`). Times are `timestamptz`, decimals `numeric`, nested values `jsonb`.

    Args:
        address: `postgresql://user@host/database`, or `host=... dbname=...`. A password in it stays in the driver's memory and does
            not appear in any description; `PGPASSWORD`, `PGPASSFILE` and `PGSERVICE` work too.
        table: The table's name, or `schema.table`.
    """

    _types = {  # noqa: RUF012 - a ClassVar by its declaration in the base class
        "string": "TEXT",
        "int64": "BIGINT",
        "double": "DOUBLE PRECISION",
        "bool": "BOOLEAN",
        "binary": "BYTEA",
        "timestamp": "TIMESTAMPTZ",
        "date32": "DATE",
        "decimal128": "NUMERIC(38, 18)",
        "nested": "JSONB",
    }
    _placeholder = "%s"

    def __init__(self, address: str, table: str) -> None:
        super().__init__(table)
        self._address = address
        self.target = f"postgres table {table}"

    def _connect(self) -> Any:
        try:
            import psycopg
        except ImportError as error:
            raise ConfigError(
                "PostgresSink needs psycopg: pip install 'streams-on-spark[postgres]', on the driver."
            ) from error
        connection = psycopg.connect(self._address, autocommit=True, connect_timeout=_WAIT_S)
        # A driver that hangs must not hold rows forever: its transaction ends, and its commit fails.
        for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(f"SET {setting} = '{_WAIT_S}s'")
        return connection

    def _upsert(self, rows: pa.Table) -> None:
        """Copies the rows into the table; if they may be updates, through a temporary table."""
        if rows.num_rows < _COPIED:
            return super()._upsert(rows)
        to = self._quoted
        if self._table.keys:
            to = quoted("streams_batch")
            columns = f"SELECT {self._columns} FROM {self._quoted} WITH NO DATA"
            self._run(f"CREATE TEMPORARY TABLE {to} ON COMMIT DROP AS {columns}")
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {to} ({self._columns}) FROM STDIN") as copy:
            for part in rows.to_batches(_AT_ONCE):
                for row in self._cells(part):
                    copy.write_row(row)
        if self._table.keys:
            self._run(self._insert(f"SELECT {self._columns} FROM {to}"))

    def _many(self, statement: str, rows: pa.Table) -> None:
        super()._many(statement, rows)
        # Behind a pipeline, as psycopg sends many rows, PostgreSQL's timeout of idle transactions does not run.
        self._run("SELECT 1")

    def _tables(self) -> set[str]:
        schema = f"'{self._parts[0]}'" if len(self._parts) > 1 else "current_schema()"
        select = f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}"
        return {name for (name,) in self._run(select).fetchall()}

    def _wrong(self, error: Exception) -> LakeError:
        import psycopg

        ended = self._connection is not None and self._connection.closed  # by a timeout, for example
        return self._away(error) if ended or isinstance(error, psycopg.OperationalError) else self._refused(error)


def quoted(name: str) -> str:
    """Quotes a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def first_line(error: Exception) -> str:
    """The first line of a database's error."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
