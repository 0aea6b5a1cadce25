"""What each query of Nexmark gives, recomputed by DuckDB from the generator's columns; it shares no code with the engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from benchmarks.nexmark.events import BLOCK, block

_SHOWN = 5


@dataclass(frozen=True)
class Expected:
    """The rows of a query.

    Attributes:
        sql: They themselves, over `person`, `auction` and `bid`, whose `ms` is the event time.
        found: The same columns of the output, whose rows have `key` (as text), `start` and `end` of a window, and `value` (JSON).
        is_table: Whether only the last value of each key counts.
        windowed: How a key ends: with `8` bytes, the start of a window, or with `16`, the end and the start of a session.
    """

    sql: str
    found: Mapping[str, str] = field(default_factory=dict)
    is_table: bool = False
    windowed: int = 0


def _whole(*names: str) -> dict[str, str]:
    return {name: f"(value->>'{name}')::BIGINT" for name in names}


def _number(*names: str) -> dict[str, str]:
    return {name: f"(value->>'{name}')::DOUBLE" for name in names}


def _text(*names: str) -> dict[str, str]:
    return {name: f"value->>'{name}'" for name in names}


_BID = {**_whole("auction", "bidder", "price"), **_text("channel", "url", "dateTime", "extra")}
_WINNING = """
    SELECT a.id, a.category, a.seller, max(b.price) AS price FROM auction a
    JOIN bid b ON a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires GROUP BY ALL
"""
_EURO = "price * 0.908::DOUBLE"

_CLASSES = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
_COUNTED = {"bids": "*", "bidders": "DISTINCT bidder", "auctions": "DISTINCT auction"}
_STATISTICS = ", ".join(
    f"count({counted}) FILTER ({where}) AS {kind}_{what}"
    for what, counted in _COUNTED.items()
    for kind, where in _CLASSES.items()
)
_NAMES = [f"{kind}_{what}" for what in _COUNTED for kind in _CLASSES]

EXPECTED: Final[Mapping[str, Expected]] = {
    "q0": Expected('SELECT auction, bidder, price, channel, url, "dateTime", extra FROM bid', _BID),
    "q1": Expected(
        f'SELECT auction, bidder, {_EURO} AS price, "dateTime", extra FROM bid',
        {**_whole("auction", "bidder"), **_number("price"), **_text("dateTime", "extra")},
    ),
    "q2": Expected("SELECT auction, price FROM bid WHERE auction % 123 = 0", _whole("auction", "price")),
    "q3": Expected(
        "SELECT a.id, p.name, p.city, p.state FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        {**_whole("id"), **_text("name", "city", "state")},
        is_table=True,
    ),
    "q4": Expected(
        f"SELECT category::VARCHAR AS category, avg(price) AS mean FROM ({_WINNING}) GROUP BY category",
        {"category": "key", **_number("mean")},
        is_table=True,
    ),
    "q5": Expected(
        """
        WITH counts AS (
            SELECT ms // 2000 * 2000 - hop * 2000 AS start, auction, count(*) AS num
            FROM bid, range(5) hops(hop) GROUP BY ALL
        ), most AS (SELECT start, max(num) AS num FROM counts GROUP BY start)
        SELECT start::VARCHAR AS start, num, list_sort(list(auction)) AS auctions
        FROM counts JOIN most USING (start, num) GROUP BY ALL
        """,
        {"start": "key", **_whole("num"), "auctions": "list_sort((value->'auctions')::BIGINT[])"},
        is_table=True,
    ),
    "q6": Expected(
        """
        WITH won AS (
            SELECT a.seller, a.id, arg_max(b."dateTime", (b.price, -b.n)) AS won, max(b.price) AS price FROM auction a
            JOIN bid b ON a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires GROUP BY ALL
        )
        SELECT seller::VARCHAR AS seller, sum(price)::DOUBLE / count(*) AS mean FROM (
            SELECT *, row_number() OVER (PARTITION BY seller ORDER BY won DESC, id DESC) AS place FROM won
        ) WHERE place <= 10 GROUP BY seller
        """,
        {"seller": "key", **_number("mean")},
        is_table=True,
    ),
    "q7": Expected(
        "SELECT ms // 10000 * 10000 AS start, max(price) AS price FROM bid GROUP BY start",
        {"start": "start", "price": "(value->'best'->>'price')::BIGINT"},
        is_table=True,
        windowed=8,
    ),
    "q8": Expected(
        "SELECT DISTINCT p.id::VARCHAR AS id, p.ms // 10000 * 10000 AS start, p.name FROM person p "
        "JOIN auction a ON a.seller = p.id AND a.ms // 10000 = p.ms // 10000",
        {"id": "key", "start": "start", **_text("name")},
        is_table=True,
        windowed=8,
    ),
    "q9": Expected(_WINNING, _whole("id", "category", "seller", "price"), is_table=True),
    "q10": Expected(
        'SELECT auction, bidder, price, channel, url, "dateTime", extra, "dateTime"[:10] AS dt, "dateTime"[12:16] AS hm FROM bid',
        {**_BID, **_text("dt", "hm")},
    ),
    "q11": Expected(
        """
        WITH marked AS (
            SELECT bidder, ms, (ms - lag(ms) OVER (PARTITION BY bidder ORDER BY ms, n) > 10000)::INT AS new, n FROM bid
        ), numbered AS (
            SELECT *, sum(coalesce(new, 0)) OVER (PARTITION BY bidder ORDER BY ms, n) AS session FROM marked
        )
        SELECT bidder::VARCHAR AS bidder, min(ms) AS start, max(ms) AS "end", count(*) AS bids
        FROM numbered GROUP BY bidder, session
        """,
        {"bidder": "key", "start": "start", "end": '"end"', **_whole("bids")},
        is_table=True,
        windowed=16,
    ),
    # The clock is in no column: only the sums over all windows can be known.
    "q12": Expected(
        "SELECT bidder::VARCHAR AS bidder, count(*)::BIGINT AS bids FROM bid GROUP BY bidder",
        {"bidder": "key", "bids": "sum((value->>'bids')::BIGINT)::BIGINT"},
        is_table=True,
        windowed=8,
    ),
    "q13": Expected(
        "SELECT auction, bidder, price, \"dateTime\", 'side-' || (auction % 1000) AS value FROM bid",
        {**_whole("auction", "bidder", "price"), **_text("dateTime", "value")},
    ),
    "q14": Expected(
        f"""
        SELECT auction, bidder, {_EURO} AS price, "dateTime", extra, CASE WHEN hour BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour <= 6 OR hour >= 20 THEN 'nightTime' ELSE 'otherTime' END AS "bidTimeType",
            length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM (SELECT *, "dateTime"[12:13]::INT AS hour FROM bid) WHERE {_EURO} > 1000000 AND {_EURO} < 50000000
        """,
        {
            **_whole("auction", "bidder"),
            **_number("price"),
            **_text("dateTime", "extra", "bidTimeType"),
            **_whole("c_counts"),
        },
    ),
    "q15": Expected(
        f'SELECT "dateTime"[:10] AS day, {_STATISTICS} FROM bid GROUP BY day',
        {"day": "key", **_whole(*_NAMES)},
        is_table=True,
    ),
    "q16": Expected(
        f'SELECT channel, "dateTime"[:10] AS day, max("dateTime"[12:16]) AS minute, {_STATISTICS} FROM bid GROUP BY ALL',
        {
            "channel": "key::JSON->>'channel'",
            "day": "key::JSON->>'day'",
            **_text("minute"),
            **_whole(*_NAMES),
        },
        is_table=True,
    ),
    "q17": Expected(
        """
        SELECT auction, "dateTime"[:10] AS day, count(*) AS total, count(*) FILTER (price < 10000) AS rank1,
            count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2, count(*) FILTER (price >= 1000000) AS rank3,
            min(price) AS least, max(price) AS most, avg(price) AS mean, sum(price)::BIGINT AS sum
        FROM bid GROUP BY auction, day
        """,
        {
            "auction": "(key::JSON->>'auction')::BIGINT",
            "day": "key::JSON->>'day'",
            **_whole("total", "rank1", "rank2", "rank3", "least", "most"),
            **_number("mean"),
            **_whole("sum"),
        },
        is_table=True,
    ),
    "q18": Expected(
        'SELECT bidder, auction, max("dateTime") AS last FROM bid GROUP BY bidder, auction',
        {
            "bidder": "(value->'last'->>'bidder')::BIGINT",
            "auction": "(value->'last'->>'auction')::BIGINT",
            "last": "value->'last'->>'dateTime'",
        },
        is_table=True,
    ),
    "q19": Expected(
        "SELECT auction::VARCHAR AS auction, list_sort(max(price, 10), 'DESC') AS prices, range(1, len(prices) + 1) AS ranks "
        "FROM bid GROUP BY auction",
        {
            "auction": "key",
            "prices": "(value->'$[*].price')::BIGINT[]",
            "ranks": "(value->'$[*].rank_number')::BIGINT[]",
        },
        is_table=True,
    ),
    "q20": Expected(
        """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b."dateTime", b.extra, a."itemName", a.description,
            a."initialBid", a.reserve, a.seller, a.category, a.expires
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
        """,
        {
            **_BID,
            **_text("itemName", "description"),
            **_whole("initialBid", "reserve", "seller", "category"),
            **_text("expires"),
        },
    ),
    "q21": Expected(
        """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid
        ) WHERE channel_id IS NOT NULL
        """,
        {**_whole("auction", "bidder", "price"), **_text("channel", "channel_id")},
    ),
    "q22": Expected(
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, "
        "split_part(url, '/', 6) AS dir3 FROM bid",
        {**_whole("auction", "bidder", "price"), **_text("channel", "dir1", "dir2", "dir3")},
    ),
}

Part = Sequence[tuple[bytes | None, bytes | None]]
Rows = Iterable[Part]


def differences(query: str, events: int, output: Rows) -> tuple[list[str], int]:
    """What differs between the expected rows and an output, in words, and the number of the output's records.

    Args:
        query: Its name.
        events: How many events there were.
        output: The output's keys and values, in parts; those of one key in order.
    """
    expected = EXPECTED[query]
    with duckdb.connect(_loaded(events), read_only=True) as database:
        database.execute(f"CREATE TEMP TABLE wanted AS {expected.sql}")
        count = _take_in(database, expected, output)
        return _compared(database, expected), count


@cache
def _loaded(events: int) -> Path:
    """A database with so many events, for all runs of this process."""
    path = Path(_folder().name) / f"{events}.duckdb"
    with duckdb.connect(path) as database:
        for first in range(0, events, BLOCK):
            for kind, made in block(first, min(BLOCK, events - first)).items():
                database.register("made", made)
                verb = f"INSERT INTO {kind}" if first else f"CREATE TABLE {kind} AS"
                database.execute(f'{verb} SELECT *, epoch_ms("dateTime"::TIMESTAMP) AS ms FROM made')
    return path


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """What is deleted with this process."""
    return tempfile.TemporaryDirectory(prefix="nexmark-")


def _take_in(database: duckdb.DuckDBPyConnection, expected: Expected, output: Rows) -> int:
    """Makes the table `found` of an output, and returns the number of its records."""
    columns = ", ".join(f'{text} AS "{name}"' for name, text in expected.found.items())
    if expected.is_table:
        count = _insert(database, "sent", "*", (_keyed(part, expected.windowed) for part in output))
        database.execute(
            "CREATE TEMP TABLE kept AS SELECT * FROM (SELECT *, rowid AS n FROM sent) QUALIFY n = max(n) OVER (PARTITION BY bytes)"
        )
        grouped = "GROUP BY ALL" if "sum(" in columns else ""
        database.execute(f"CREATE TEMP TABLE found AS SELECT {columns} FROM kept WHERE value IS NOT NULL {grouped}")
        return count
    return _insert(database, "found", columns, (pa.table({"value": _values(part)}) for part in output))


def _insert(database: duckdb.DuckDBPyConnection, table: str, columns: str, parts: Iterable[pa.Table]) -> int:
    count = 0
    for number, part in enumerate(parts):
        database.register("part", part)
        verb = f"INSERT INTO {table}" if number else f"CREATE TEMP TABLE {table} AS"
        database.execute(f"{verb} SELECT {columns} FROM part")
        count += len(part)
    return count


def _values(part: Part) -> pa.Array:
    return pa.array([value for _, value in part], pa.binary()).cast(pa.string())


def _keyed(part: Part, ends: int) -> pa.Table:
    """The records with their keys, of which so many bytes say what the window is."""
    keys = [key or b"" for key, _ in part]
    bounds = [key[len(key) - ends :] for key in keys]
    columns = {
        "bytes": pa.array(keys, pa.binary()),
        "key": pa.array([_text_of(key[: len(key) - ends]) for key in keys], pa.string()),
        "start": pa.array([int.from_bytes(one[-8:], "big") for one in bounds], pa.int64()),
        "end": pa.array([int.from_bytes(one[:-8], "big") for one in bounds], pa.int64()),
        "value": _values(part),
    }
    return pa.table(columns)


def _text_of(key: bytes) -> str:
    """A key as text; numbers have 8 bytes, of which the first is zero."""
    return str(int.from_bytes(key, "big")) if key[:1] == b"\0" else key.decode()


def _compared(database: duckdb.DuckDBPyConnection, expected: Expected) -> list[str]:
    columns = ", ".join(f'"{name}"' for name in expected.found)
    if _digest(database, "wanted", columns) == _digest(database, "found", columns):
        return []
    lines = []
    for what, one, other in (("missing", "wanted", "found"), ("not expected", "found", "wanted")):
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE wrong AS SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
        )
        (count,) = database.sql("SELECT count(*) FROM wrong").fetchall()[0]
        if count:
            shown = database.sql(f"SELECT * FROM wrong LIMIT {_SHOWN}").fetchall()
            lines += [*(f"{what}: {row}" for row in shown), f"{what}: {count:,} in all"]
    return lines


def _digest(database: duckdb.DuckDBPyConnection, table: str, columns: str) -> tuple[object, ...]:
    """A digest of a table's rows in any order. Comparing two of them takes a third of the time of comparing all rows."""
    digest = f"sum(hash({columns})::HUGEINT), bit_xor(hash({columns}))"
    return database.sql(f"SELECT count(*), {digest} FROM {table}").fetchall()[0]
