"""`global_table_from`: the rows of a table that the program gives, as bytes, in the topic, and for the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.changelog import changelog_topic
from state.errors import OpenTransactionError, ProduceError
from streams import Int64Serde, JsonSerde, Serde, StreamsBuilder, StringSerde, Topology, TopologyError, col, fields
from streams.application.given_tables import ensure_given_tables, given_rows, records_of, write_rows
from streams.application.markers import last_rows
from streams.application.owned_topics import described_topics
from streams.application.rights import needed_rights
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.serve.scans import Scan
from streams.testing import TopologyTestDriver
from streams.testing.simulation import SimulatedKafka
from streams.topology.graph import GivenRows
from streams.topology.manifest import manifest
from streams.topology.plan import build_plan
from tests.budget import up_to

TOPIC = changelog_topic("app", "countries")


@dataclass
class Country:
    code: str
    name: str


def program(frame: Any, key: str | list[str] = "code", **serdes: Serde[Any]) -> Topology:
    """Each order with the name of its country."""
    builder = StreamsBuilder()
    countries = builder.global_table_from(frame, "countries", key=key, **serdes)
    orders = builder.stream("orders")
    orders.join(countries, col("country"), fields(left=["id"], country=col("right.name"))).to("out")
    return builder.build()


def rows_of(frame: Any, key: str | list[str] = "code", **serdes: Serde[Any]) -> dict[bytes, bytes]:
    return records_of(given_rows(program(frame, key, **serdes))[0])


TWO = pa.table({"code": ["DE", "FR"], "name": ["Germany", "France"]})


def test_records_look_rows_up_and_a_restart_changes_them() -> None:
    with TopologyTestDriver(program(TWO)) as driver:
        orders, out = driver.create_input_topic("orders"), driver.create_output_topic("out")
        orders.pipe_input("k", {"id": 1, "country": "DE"})
        assert out.read_value() == {"id": 1, "country": "Germany"}
        driver.restart(program(pd.DataFrame({"code": ["DE", "ES"], "name": ["Deutschland", "Spain"]})))
        for number, code in enumerate(("DE", "FR", "ES"), 2):
            orders.pipe_input("k", {"id": number, "country": code})
        assert out.read_values_to_list() == [{"id": 2, "country": "Deutschland"}, {"id": 4, "country": "Spain"}]
        assert [row.key for row in driver.served().store("countries").scan(Scan()).rows] == ["DE", "ES"]


def test_a_test_gives_the_rows_that_a_function_makes_with_spark() -> None:
    with TopologyTestDriver(program(lambda spark: spark.table("countries"))) as driver:
        driver.create_input_topic("countries").pipe_input("DE", {"name": "Germany"})
        driver.create_input_topic("orders").pipe_input("k", {"id": 1, "country": "DE"})
        assert driver.create_output_topic("out").read_value() == {"id": 1, "country": "Germany"}


@pytest.mark.parametrize(
    ("columns", "key", "serde", "data"),
    [
        ({"code": ["DE"]}, "code", None, b"DE"),
        ({"code": [7]}, "code", None, b"7"),
        ({"code": [True]}, "code", None, b"true"),
        ({"code": [7]}, "code", Int64Serde(), (7).to_bytes(8, "big")),
        ({"a": ["x"], "b": [1]}, ["b", "a"], None, b'{"a":"x","b":1}'),
    ],
    ids=["text", "a number as text", "a boolean as text", "a number", "several columns"],
)
def test_keys_are_those_of_from_dataframe(columns: Any, key: Any, serde: Any, data: bytes) -> None:
    assert list(rows_of(pa.table(columns), key, **({"key_serde": serde} if serde else {}))) == [data]


def test_values_are_json_with_times_in_utc() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    frame = pd.DataFrame({
        "code": ["DE", "FR"],
        "at": pd.Series([at, at]).dt.tz_convert("Europe/Berlin"),
        "day": [date(2026, 1, 2), None],
        "kind": pd.Categorical(["a", "b"]),
        "score": [1.5, None],
        "tags": [["x"], []],
    })  # fmt: skip
    assert rows_of(frame[frame["code"] == "FR"]) == {
        b"FR": b'{"code":"FR","at":"2026-01-02T02:04:05+00:00","day":null,"kind":"b","score":null,"tags":[]}'
    }
    typed = JsonSerde(Country)
    with TopologyTestDriver(program(TWO, value_serde=typed)) as driver:
        assert driver.get_key_value_store("countries").get("FR") == Country("FR", "France")


class _Broken:
    isStreaming = True

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise AssertionError("a stream is not read")


def _no_file(spark: object) -> object:
    raise FileNotFoundError("countries.csv")


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (pa.table({"code": ["DE", None]}), "the row 1 has a null in its key: code = None"),
        (pa.table({"code": ["DE", "FR", "DE"]}), "the row 2 has the key of another row: code = 'DE'"),
        (pa.table({"id": ["DE"], "name": ["x"]}), "there is no column 'code', only id, name"),
        (
            pa.table([["DE"], ["x"], ["y"]], ["code", "name", "name"]),
            "two columns have the same name: code, name, name",
        ),
        (pa.table({"code": [1.5]}), r"the row 0 \(code = 1.5\) .*a key of float has no unique text form"),
        (pa.table({"code": ["DE"], "b": [b"x"]}), "bytes"),
        (pa.table({"code": ["DE"], "b": [Decimal("1.5")]}), "Decimal"),
        (pa.table({"code": ["DE"], "b": [timedelta(1)]}), "timedelta"),
        (pa.table({"code": ["DE"], "b": [float("nan")]}), "nan is not a finite number"),
        (pa.table({"code": ["DE"], "t": pa.array([1], pa.timestamp("ns"))}), "column 't' have parts of a microsecond"),
        (_no_file, "the rows cannot be made: countries.csv"),
        (lambda spark: [{"code": "DE"}], r"\[{'code': 'DE'}\] has no Arrow columns"),
        (_Broken(), "the DataFrame is a stream"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_rows_that_cannot_be_a_table_are_refused(frame: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)the rows of the table 'countries': .*{told}.*Nothing was written"):
        rows_of(frame)


def test_rows_that_do_not_fit_a_type_or_delete_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)the row 0 \(code = 'DE'\) cannot be written: .*name"):
        rows_of(pa.table({"code": ["DE"]}), value_serde=JsonSerde(Country))

    class Nothing(JsonSerde[Any]):
        def serialize(self, topic: str, value: Any, headers: Any = None) -> None:
            return None

    with pytest.raises(ConfigError, match="would be written as null, which deletes"):
        rows_of(TWO, value_serde=Nothing())


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda b: b.global_table_from([1], "n", key="id"), r"takes a DataFrame or an Arrow table.*not \[1\]"),
        (lambda b: b.global_table_from(TWO, "n", key=()), r"global_table_from\(..., 'n'\) needs key="),
        (lambda b: b.global_table_from(TWO, "a name", key="code"), "a name"),
        (lambda b: [b.global_table_from(TWO, "n", key="code") for _ in "ab"], "Two stores are called 'n'"),
    ],
    ids=["no table", "no key", "a bad name", "a name twice"],
)
def test_a_call_that_cannot_be_is_refused(add: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        add(StreamsBuilder())


def test_the_topic_is_the_application_s_own() -> None:
    topology = program(TWO)
    plan = build_plan(topology, "app")
    assert plan.internal_topics[TOPIC] == "the rows of the table 'countries'"
    (sub,) = plan.sub_topologies
    table = sub.global_tables["countries"]
    assert table.source.topics == (TOPIC,)
    assert table.given is None, "tasks get no rows with their job"
    written = manifest(topology)
    assert written["global_tables"] == {"countries": "countries-changelog"}
    assert TOPIC in described_topics(written, "app"), "a reset deletes it"
    assert not any(
        "countries" in right.name for right in needed_rights(topology, StreamsConfig(application_id="app")).rights
    )
    assert "countries-changelog <-- the rows of a pyarrow Table, by code" in topology.explain()
    assert "countries-changelog" in topology.describe()


# --- Writing the rows.


def given_of(rows: Mapping[str, int]) -> GivenRows:
    frame = pa.table({"code": pa.array(list(rows), pa.string()), "n": pa.array(list(rows.values()), pa.int64())})
    return GivenRows("countries", frame, ("code",), StringSerde(), JsonSerde())


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)), min_size=1, max_size=6))
@up_to(100)
def test_each_start_writes_what_differs_and_nothing_else(starts: list[dict[str, int]]) -> None:
    """Against a plain model: the topic has the last start's rows, and one record for each difference between two starts."""
    kafka, before = SimulatedKafka({TOPIC: 1}), dict[str, int]()
    for number, rows in enumerate(starts):
        found = given_of(rows)
        changed = [code for code, n in rows.items() if before.get(code) != n]
        deleted = before.keys() - rows.keys()
        end = kafka.log_ends([(TOPIC, 0)])[TOPIC, 0][1]
        assert write_rows(kafka, "app", found, records_of(found), number) == (len(changed), len(deleted))
        new = kafka.columns(TOPIC, 0, end)
        assert sorted(() if new is None else (key or b"" for key, _ in new.cells())) == sorted(
            code.encode() for code in [*changed, *deleted]
        )
        wanted = {code.encode(): b'{"code":"%s","n":%d}' % (code.encode(), n) for code, n in rows.items()}
        assert {key: value for key, value in last_rows(kafka, (TOPIC, 0)).items() if value is not None} == wanted
        before = rows


def test_a_start_that_ends_half_way_changes_nothing_and_is_fenced_by_the_next() -> None:
    kafka = SimulatedKafka({TOPIC: 1})
    old = given_of({"a": 1})
    write_rows(kafka, "app", old, records_of(old), 0)
    killed = kafka.producer("app-countries-rows")
    killed.init_transactions()
    killed.begin()
    killed.send(TOPIC, 0, b"a", None, 1)
    new = given_of({"a": 1, "b": 2})
    assert write_rows(kafka, "app", new, records_of(new), 2) == (1, 0), "what was not committed was not written"
    with pytest.raises(ProduceError):
        killed.commit()
    assert set(last_rows(kafka, (TOPIC, 0))) == {b"a", b"b"}


def test_rows_are_not_compared_with_what_an_open_transaction_hides() -> None:
    kafka = SimulatedKafka({TOPIC: 1})
    kafka.hang(TOPIC, 0)
    found = given_of({"a": 1})
    with pytest.raises(OpenTransactionError, match="app-countries-rows: a transaction is open"):
        write_rows(kafka, "app", found, records_of(found), 0)


def test_the_topic_is_made_once_compacted_with_one_partition() -> None:
    kafka: Any = SimulatedKafka()
    topology = program(TWO)
    assert ensure_given_tables(topology, "app", kafka, 1) == [TOPIC]
    assert ensure_given_tables(topology, "app", kafka, 1) == []
    assert kafka.topic_config(TOPIC)["cleanup.policy"] == "compact"
    assert kafka.partition_count(TOPIC) == 1


def test_a_session_is_only_asked_for_by_a_function() -> None:
    asked = []

    def session() -> Any:
        asked.append(True)
        return SimpleNamespace(table=lambda name: TWO)

    records_of(given_rows(program(TWO))[0], session)
    assert not asked
    assert set(records_of(given_rows(program(lambda spark: spark.table("t")))[0], session)) == {b"DE", b"FR"}
    assert asked
