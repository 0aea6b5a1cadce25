"""SQL's process: what a query cannot take although DuckDB would let it, and what is left of one that tried."""

from __future__ import annotations

import asyncio
import os
import time

import httpx2
import pyarrow as pa
import pytest

from streams.errors import QueryError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.requests import Limits, SqlLimits
from streams.serve.sql.process import computed, parsed
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click

QUICK = SqlLimits(seconds=0.5)
_JSON = pa.field("value", pa.string(), metadata={"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""})
ROWS = {"rows": pa.table([["a", "b"], ['{"n": 1}', None]], pa.schema([("key", pa.string()), _JSON]))}


def ask(sql, tables=ROWS, limits=QUICK):
    return computed(sql, tables, limits)


def test_a_query_gets_its_rows_and_nothing_of_an_earlier_one():
    assert ask("SELECT key, value->>'n' FROM rows ORDER BY key") == {
        "columns": ["key", "(\"value\" ->> 'n')"],
        "rows": [["a", "1"], ["b", None]],
    }
    assert ask("SELECT value FROM rows WHERE key = 'a'")["rows"] == [[{"n": 1}]]
    with pytest.raises(QueryError, match="rows does not exist"):
        ask("SELECT * FROM rows", {})
    assert ask("SELECT 18446744073709551616, sum(9223372036854775807) FROM range(3)", {})["rows"] == [
        [18446744073709551616, 27670116110564327421]
    ]


@pytest.mark.slow
def test_one_call_of_a_function_is_killed_and_the_next_query_is_answered():
    begun_s = time.monotonic()
    with pytest.raises(QueryError, match=r"takes longer than 0\.5 s"):
        ask("SELECT regexp_matches(repeat('a', 400000), '(a?){1000}b')", {})
    assert time.monotonic() - begun_s < 10
    assert ask("SELECT 1", {})["rows"] == [[1]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('a', 3000000000))",
        "SELECT list_sum(list_transform(range(100000000), x -> x * 2))",
        "SELECT string_agg(repeat('a', 1000), '') FROM range(3000000)",
        "SELECT repeat('a', 1000000) FROM range(1000)",
    ],
)
def test_memory_is_bounded_whoever_counts_it(sql):
    with pytest.raises(QueryError):
        ask(sql, {}, SqlLimits(seconds=20, memory="64MB"))
    assert ask("SELECT 1", {}, SqlLimits(memory="64MB"))["rows"] == [[1]]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT " + ", ".join(f"{number} AS c{number}" for number in range(30_000)), "64 KiB"),
        ("SELECT " + "(" * 20_000 + "1" + ")" * 20_000, "SQL|deep|memory"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("SELECT FROM", "SQL"),
        ("\0", "."),
    ],
)
def test_the_parser_is_bounded(sql, words):
    begun_s = time.monotonic()
    with pytest.raises(QueryError, match=words):
        parsed(sql)
    assert time.monotonic() - begun_s < 20
    assert parsed("SELECT 1")["error"] is False


def test_a_process_has_nothing_of_this_one(monkeypatch):
    monkeypatch.setenv("STREAMS_KAFKA", "a-secret-of-this-process")
    # A process of its own, because the others are kept.
    limits = SqlLimits(memory="65MB")
    (home,) = ask("SELECT current_setting('secret_directory')", {}, limits)["rows"][0]
    assert os.path.expanduser("~") not in home
    with pytest.raises(QueryError):
        ask("SELECT * FROM read_text('/proc/self/environ')", {}, limits)


def test_queries_wait_for_their_turn_before_rows_are_loaded(monkeypatch):
    from streams.serve.sql import queries as sql

    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 1000) for name in NAMES])
        api = Api(driver.served(), Guard(Security()), Limits(sql=SqlLimits(seconds=30)))
        loading = [0, 0]
        rows, run = sql.Query.rows, sql.Query.run

        def counted(*given):
            loading[0] += 1
            loading[1] = max(loading)
            return rows(*given)

        def left(*given):
            time.sleep(0.05)
            try:
                return run(*given)
            finally:
                loading[0] -= 1

        monkeypatch.setattr(sql.Query, "rows", counted)
        monkeypatch.setattr(sql.Query, "run", left)

        async def many():
            transport = httpx2.ASGITransport(api.application(), client=("127.0.0.1", 1))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                asked = [client.post("/v1/sql", json={"sql": "SELECT count(*) FROM counts"}) for _ in range(50)]
                return [answer.status_code for answer in await asyncio.gather(*asked)]

        codes = asyncio.run(many())
    assert loading[1] <= 2
    assert (codes.count(200), codes.count(503)) == (34, 16)
