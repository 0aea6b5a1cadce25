"""What the tests of sinks in databases write."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

from streams.sinks import SinkTable

NUMBERS = SinkTable("app/sink", pa.schema([("key", pa.string()), ("n", pa.int64())]), ("key",))
NONE = pa.table({"key": pa.array([], pa.string())})

ROW = {
    "text": "a",
    "real": 1.5,
    "yes": True,
    "bytes": b"\0",
    "at": datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
    "day": date(2026, 1, 2),
    "price": Decimal("9.500000000000000000"),
    "tags": [("a", "b")],
    "legs": [{"from": "JFK", "miles": None}],
}
"""A value of each type, and the schema of that."""
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("real", pa.float64()),
        ("yes", pa.bool_()),
        ("bytes", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(38, 18)),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("legs", pa.list_(pa.struct([("from", pa.string()), ("miles", pa.int64())]))),
    ]
)


def numbers(*rows: tuple[str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "n": n} for key, n in rows], NUMBERS.schema)
