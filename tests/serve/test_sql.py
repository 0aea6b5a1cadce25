"""SQL over served stores: results, what is loaded for them, and what a query may not do."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from streams.errors import QueryError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.requests import Limits, SqlLimits
from streams.serve.scans import Scan
from streams.serve.sql.queries import Query
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click

MAX = Scan().to_ms


@pytest.fixture
def driver():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 10_000 * number) for number, name in enumerate(NAMES)] + [("k007", 70_000)])
        driver.create_input_topic("names").pipe_input("k007", {"name": "Ada", "age": 36})
        yield driver


@pytest.fixture
def ask(driver):
    def ask(sql, limits=SqlLimits(), **params):  # noqa: B008
        api = Api(driver.served(), Guard(Security()), Limits(sql=limits))
        client = TestClient(api.application(), client=("127.0.0.1", 1), base_url="http://localhost")
        return client.post("/v1/sql", json={"sql": sql}, params=params)

    return ask


@pytest.mark.parametrize(
    ("sql", "rows", "loaded"),
    [
        ("SELECT key, value FROM counts WHERE key = 'k007'", [["k007", 2]], 1),
        ("SELECT sum(value), count(*) FROM counts", [[61, 60]], 60),
        ("SELECT key FROM COUNTS c WHERE c.value > 1 AND 'k007' = c.key", [["k007"]], 1),
        ("SELECT key FROM counts WHERE key = 'k007' OR key = 'k008' ORDER BY key", [["k007"], ["k008"]], 60),
        ("SELECT count(*) FROM counts WHERE key <> 'k007'", [[59]], 60),
        ("SELECT window_start, window_end, value FROM windows WHERE key = 'k007'", [[70_000, 80_000, 1]], 1),
        ("SELECT count(*) FROM windows WHERE window_start BETWEEN 100000 AND 200000 AND value = 1", [[11]], 11),
        ("SELECT count(*) FROM windows WHERE window_start > 580000", [[1]], 2),
        ("SELECT key FROM sessions WHERE window_start >= 585000", [["k059"]], 1),
        ("SELECT count(*) FROM sessions WHERE window_start < 530000", [[2]], 9),
        ("SELECT value->>'name', (value->>'age')::INT + 1 FROM names", [["Ada", 37]], 1),
        ("SELECT n.key, c.value FROM names n JOIN counts c USING (key)", [["k007", 2]], 61),
        # Twice the same table: neither condition may leave out rows of the other one.
        ("SELECT (SELECT count(*) FROM counts WHERE key = 'k007') + count(*) FROM counts", [[61]], 60),
        ("WITH one AS (SELECT * FROM counts WHERE key = 'k001') SELECT count(*) FROM one", [[1]], 1),
        ("SELECT value FROM names", [[{"name": "Ada", "age": 36}]], 1),
        ("SELECT 1 + 1", [[2]], 0),
        # What is called key here is not the key.
        ("SELECT count(*) FROM counts AS t(v, key, ts) WHERE key = 2", [[1]], 60),
        ("SELECT count(*) FROM counts AS t(value, key, ts) WHERE value = 'k007'", [[1]], 60),
        (
            "SELECT count(*) FROM windows AS w(key, value, timestamp, window_end, window_start) WHERE window_start <= 20000",
            [[2]],
            60,
        ),
    ],
)
def test_results_and_what_is_loaded_for_them(ask, sql, rows, loaded):
    found = ask(sql)
    assert found.status_code == 200, found.text
    assert (found.json()["rows"], found.json()["loaded"]) == (rows, loaded)


def test_a_result_says_as_of_what_it_is(ask):
    found = ask("SELECT key AS k, count(*) AS n FROM counts GROUP BY key ORDER BY key LIMIT 1")
    assert found.json()["columns"] == ["k", "n"]
    assert len(found.json()["tasks"]) == 3
    assert found.headers["streams-commit"].count("=1") == 3
    ahead = found.headers["streams-commit"].replace("=1", "=2")
    assert ask("SELECT 1 FROM counts", commits=ahead).status_code == 409


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x')",
        "ATTACH '/tmp/other.db'",
        "COPY counts TO '/tmp/stolen'",
        "COPY (SELECT 1) TO '/tmp/stolen'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE '/tmp/stolen'",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "CREATE TABLE mine AS SELECT 1",
        "DELETE FROM counts",
        "SELECT 1; SELECT 2",
        "SELECT * FROM query('COPY counts TO ''/tmp/stolen''')",
        "SELECT * FROM NAMES_OF_THIS_TEST",
        "SELECT * FROM history",
        "SELECT FROM WHERE",
        "",
    ],
)
def test_a_query_reaches_nothing_but_the_stores(ask, sql):
    found = ask(sql)
    assert (found.status_code, found.json()["error"]) == (400, "QueryError"), found.text


def test_a_constant_of_another_type_leaves_nothing_out(ask):
    # DuckDB converts the text of each key to a number, so it has to see all keys.
    assert "Conversion Error" in ask("SELECT count(*) FROM counts WHERE key = 7").text


def test_limits_of_rows_memory_and_time(ask):
    few = SqlLimits(loaded_rows=59, result_rows=5)
    assert "reads more than 59 rows" in ask("SELECT * FROM counts", few).text
    assert ask("SELECT * FROM counts WHERE key = 'k001'", few).status_code == 200
    assert "has more than 5 rows" in ask("SELECT * FROM range(6)", few).text
    assert ask("SELECT * FROM range(5)", few).status_code == 200
    much = "SELECT count(*) FROM (SELECT DISTINCT md5(i::VARCHAR) FROM range(3000000) t(i))"
    assert "Out of Memory" in ask(much, SqlLimits(memory="20MB")).text
    long = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7"
    assert "takes longer than 0.2 s" in ask(long, SqlLimits(seconds=0.2)).text


def test_conditions_narrow_only_what_they_are_about(driver):
    stores = driver.served().stores
    for sql, scan in (
        (
            "SELECT * FROM windows WHERE 5 <= window_start AND window_start < 9 AND key = 'a'",
            Scan(None, None, None, b"a", 5, 9),
        ),
        ("SELECT * FROM windows WHERE NOT (window_start < 9)", Scan()),
        ("SELECT * FROM windows WHERE window_start + 1 < 9", Scan()),
        ("SELECT * FROM windows WHERE value = 3 AND (key = 'a' OR window_start = 1)", Scan()),
        ("SELECT * FROM windows w, counts c WHERE w.key = 'a'", Scan()),
        ("SELECT * FROM windows WHERE value.key = 'a'", Scan()),
        ("SELECT * FROM windows WHERE window_start >= -5 AND window_start <= 8", Scan(to_ms=8)),
    ):
        query = Query(sql, stores)
        assert query.scan(stores["windows"], 1000) == scan, sql


def test_a_body_without_sql_is_explained(ask, driver):
    with pytest.raises(QueryError, match="one SELECT"):
        Query("", {})
    client = TestClient(
        Api(driver.served(), Guard(Security())).application(), client=("127.0.0.1", 1), base_url="http://localhost"
    )
    assert '{\\"sql\\"' in client.post("/v1/sql", json={"query": "SELECT 1"}).text
