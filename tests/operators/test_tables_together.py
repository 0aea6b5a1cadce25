"""Tables, and streams that look rows up, give the same results for a step's records together as one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams import Branched, Consumed, JsonSerde, Materialized, StreamsBuilder, StringSerde, Topology, col, fields
from streams.dsl.kstream import KStream
from streams.dsl.ktable import KTable
from streams.model.record import Record
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import TypedTimestampedKeyValueStore
from streams.operators.table.table_aggregate import TableGroupBy
from streams.operators.table.table_steps import TableSource
from tests.both_ways import Fed, check_both_ways, counted

VALUES = (b'{"a": 1}', b'{"b":[1,2], "c": 1e2}', b"null", None, b"3", b'"text"', b'{"a":2}')
POISON = (b"{", b"\xff")
KEYS = (b"a", b"b", b"c", b"d", None)
Program = Callable[[StreamsBuilder, KStream[Any, Any], KTable[Any, Any]], object]


def feed(seed: int, topics: Sequence[str], poison: bool = False) -> list[list[Fed]]:
    """Steps of records with few keys, tombstones, null keys, headers, several partitions and times out of order."""
    rng = random.Random(seed)
    return [
        [
            Fed(
                rng.choice(topics),
                rng.choice(KEYS + ((b"\xff",) if poison else ())),
                rng.choice(VALUES + (POISON if poison else ())),
                rng.randrange(30),
                rng.choice([(), (("h", b"1"),), (("h", None), ("g", b""))]),
                rng.randrange(2),
            )
            for _ in range(size)
        ]
        for size in (25, 1, 40, 3, 25)
    ]


def seen(*parts: Any) -> Any:
    """What a user's function was called with; changed values would show."""
    return list(parts)


def changing(key: Any, value: Any, row: Any) -> Any:
    """Changes the row that it was given, which is then seen by others of the step only if it came with the step."""
    if isinstance(row, dict):
        row["seen"] = row.get("seen", 0) + 1
    return [value, dict(row) if isinstance(row, dict) else row]


def failing(value: Any) -> Any:
    """Fails for some values."""
    if value == 3:
        raise ValueError("three")
    return value


def fine(key: Any, value: Any) -> bool:
    """Whether a value has fields."""
    return isinstance(value, dict)


def appended(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    """Changes the aggregate."""
    if key == "text" and len(aggregate) == 2:
        raise ValueError("three")
    aggregate += value
    return aggregate


def removed(key: Any, value: Any, aggregate: list[Any]) -> list[Any] | None:
    """Changes the aggregate, or deletes the group."""
    aggregate.remove(value[0])
    return aggregate or None


def shortened(left: list[Any], right: list[Any]) -> list[Any] | None:
    """Deletes the group of one."""
    return left[1:] or None


def spoilt(key: Any, value: Any, row: Any) -> Any:
    """Fails for some records, after it has changed others."""
    if value == 3:
        raise ValueError("three")
    return changing(key, value, row)


PROGRAMS: dict[str, Program] = {
    "a left join": lambda builder, stream, table: stream.left_join(table, seen).to("out"),
    "an inner join": lambda builder, stream, table: stream.join(table, lambda key, a, b: seen(key, a, b)).to("out"),
    "a joiner that changes rows": lambda builder, stream, table: stream.left_join(table, changing).to("out"),
    "a joiner that fails": lambda builder, stream, table: stream.left_join(table, spoilt).to("out"),
    "joins by fields, some of values that have none": lambda builder, stream, table: [
        stream.left_join(table, fields(left="*", right=["a"])).to("selected"),
        stream.filter(fine).join(table, fields(whole=col("left"), b=col("right.b.1"))).to("named"),
        stream.join(table.filter(lambda key, value: value != 3), changing).to("changed"),
    ],
    "a join by fields that are computed": lambda builder, stream, table: stream.join(
        table, fields(sum=col("left.a") + col("right.a"))
    ).to("out"),
    "a table with updates below": lambda builder, stream, table: [
        table.to_stream().to("updates"),
        stream.join(table, seen).to("out"),
    ],
    "joins with derived tables": lambda builder, stream, table: [
        stream.left_join(table.filter(lambda key, value: value != 3), seen).to("filtered"),
        stream.join(table.map_values(lambda key, value: [key, value]), seen).to("mapped"),
        stream.join(table.filter_not(lambda key, value: value == 3).map_values(str), seen).to("both"),
    ],
    "records that are dropped": lambda builder, stream, table: (
        (joined := stream.join(table, seen)).to("out"),
        joined.dropped().to("dropped"),
    ),
    "operators below a join": lambda builder, stream, table: [
        (joined := stream.left_join(table, seen)).map_values(lambda key, value: [key, value]).to("mapped"),
        joined.filter(lambda key, value: value[1] != 3).to("filtered"),
        joined.flat_map(lambda key, value: [(key, value[1]), ("other", value[2])]).to("flat"),
        joined.map(lambda key, value: (str(value[1]), key)).to("moved"),
        joined.map_values(lambda key, value: failing(value[1])).peek(lambda key, value: None).to("failing"),
    ],
    "branches below a join": lambda builder, stream, table: [
        branch.to(f"branch-{name}")
        for name, branch in stream.left_join(table, seen)
        .split("by-")
        .branch(lambda key, value: value[1] == 3, Branched("three"))
        .branch(lambda key, value: failing(value[2]) is None, Branched("none"))
        .default_branch(Branched("rest"))
        .items()
    ],
    "grouped tables": lambda builder, stream, table: [
        (groups := table.group_by(lambda key, value: (str(failing(value)), [key])))
        .count(materialized=Materialized(name="counted"))
        .to_stream()
        .to("counts"),
        groups.aggregate(list, appended, removed, materialized=Materialized(name="keys")).to_stream().to("keys"),
        groups.reduce(lambda left, right: left + right, shortened, materialized=Materialized(name="all"))
        .to_stream()
        .to("all"),
    ],
    "derived tables below": lambda builder, stream, table: [
        table.filter(lambda key, value: value != 3).map_values(failing).to_stream().to("derived"),
        table.map_values(lambda key, value: failing(value), Materialized(name="mapped")).to_stream().to("stored"),
        table.filter(lambda key, value: value != "text", materialized=Materialized(name="filtered"))
        .to_stream()
        .to("kept"),
        table.group_by(lambda key, value: (str(value), key)).count().to_stream().to("counts"),
    ],
    "a table alone": lambda builder, stream, table: table.to_stream().to("updates"),
    "a stream as a table": lambda builder, stream, table: stream.left_join(
        stream.filter(lambda key, value: value != 3).to_table(materialized=Materialized(name="made")), seen
    ).to("out"),
}


def program(shape: Program, **how: Any) -> Topology:
    builder = StreamsBuilder()
    consumed = Consumed(StringSerde(), JsonSerde())
    table = builder.table("table", consumed, Materialized(name="rows", **how))
    shape(builder, builder.stream("in", consumed), table)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("shape", PROGRAMS)
def test_updates_and_look_ups_in_turns(shape: str, caching: bool, seed: int) -> None:
    found = check_both_ways(
        program(PROGRAMS[shape], caching=caching),
        feed(seed, ["in", "table", "table"]),
        restarts=[1, 2],
        partitions={"in": 2, "table": 2},
        rocksdb=seed == 0 and shape == "an inner join",
        mode=["strict", "compat"][seed % 2],
        processing="skip",
    )
    assert any(topic == "test-rows-changelog" for topic, _ in found.topics)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("caching", [True, False])
def test_records_at_fault(caching: bool, policy: str) -> None:
    """Of both topics, in what order dead letters come, and which one stops the application."""
    for seed, shape in enumerate(["a joiner that fails", "operators below a join", "derived tables below"]):
        found = check_both_ways(
            program(PROGRAMS[shape], caching=caching),
            feed(seed, ["in", "table"], poison=True),
            partitions={"in": 2, "table": 2},
            deserialization=policy,
            processing=policy,
            **({"dead_letter_topic": "dead"} if policy == "dlq" else {}),
        )
        assert (found.failed is not None) == (policy == "fail")


@pytest.mark.parametrize("caching", [True, False])
def test_rows_that_the_store_cannot_take(caching: bool) -> None:
    """Rows whose values its serde cannot write, or that do not fit the changelog."""
    builder = StreamsBuilder()
    how = Materialized(name="rows", value_serde=StringSerde(), caching=caching)
    table = builder.table("table", Consumed(StringSerde(), JsonSerde()), how)
    table.to_stream().to("updates")
    builder.stream("in", Consumed(StringSerde(), JsonSerde())).left_join(table, seen).to("out")
    found = check_both_ways(
        builder.build(), feed(4, ["in", "table"]), partitions={"in": 2, "table": 2}, processing="skip"
    )
    assert found.counters["dropped:KTABLE-SOURCE-table:processing"]


def test_a_table_that_gets_several_batches_in_a_step() -> None:
    """As behind an operator that has results at once, and others at the end of the step."""

    def results(parts: int) -> tuple[list[Any], list[Any]]:
        rng = random.Random(8)
        store = TaskStore(MemoryTable(), [StoreSpec("rows", StoreKind.TIMESTAMPED_KEY_VALUE)])
        context = Context(TypedTimestampedKeyValueStore(store.store("rows"), Codec("log", StringSerde(), JsonSerde())))
        operator = TableSource("rows", send_old=True)
        operator.init(context)  # type: ignore[arg-type]
        keys = [rng.choice("abcdef") for _ in range(60)]
        values = [rng.choice([None, 1, 2]) for _ in keys]
        times = np.array([rng.randrange(9) for _ in keys])
        for rows in np.array_split(np.arange(len(keys)), parts):
            at = rows.tolist()
            records = [values[row] for row in at]
            batch = ColumnarBatch(KeyColumn.of([keys[row] for row in at]), records, times[rows], rows)
            operator.process_batch(batch)
        operator.flush()
        return context.forwarded, list(store.changelog())

    together, log = results(1)
    assert together
    for parts in (2, 5):
        found, its_log = results(parts)
        assert found == together
        assert [(name, one.keys, one.values, one.timestamps.tolist()) for name, one in its_log] == [
            (name, one.keys, one.values, one.timestamps.tolist()) for name, one in log
        ]


class Context:
    """What a table needs of `OperatorContext`."""

    has_children = True
    private_rows = False

    def __init__(self, rows: TypedTimestampedKeyValueStore) -> None:
        self.rows = rows
        self.forwarded: list[Record] = []

    def store(self, name: str) -> TypedTimestampedKeyValueStore:
        return self.rows

    def forward(self, record: Record) -> None:
        self.forwarded.append(record)

    def forward_batch(self, batch: ColumnarBatch) -> None:
        self.forwarded += batch.records()

    def attempt(self, action: Callable[[], None], held: object) -> None:
        action()


def by_text(key: Any, value: Any) -> Any:
    """A group for most rows, none for some; some fail."""
    if value == "text":
        raise ValueError("no group")
    return None if value == 3 else (str(value)[:9], value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("history", [None, 100])
@pytest.mark.parametrize("selector", [by_text, col("a"), fields("a", "b")])
def test_updates_are_sent_to_their_groups_together(selector: Any, history: int | None, seed: int) -> None:
    builder = StreamsBuilder()
    table = builder.table("table", materialized=Materialized(name="rows", history_retention=history))
    table.group_by(selector, key_serde=JsonSerde()).aggregate(list, appended, removed).to_stream().to("out")
    with counted(TableGroupBy) as answers:
        check_both_ways(builder.build(), feed(seed, ("table",)), (1,), partitions={"table": 2}, processing="skip")
    assert set(answers) == {"together"}
