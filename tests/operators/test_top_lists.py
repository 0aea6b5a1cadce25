"""`top` of a table with lists made of bytes (`TopLists`): the same results, changelogs and counters as with lists of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import KTable, Materialized, Processor, Record, StreamsBuilder, StringSerde, col
from streams.operators.table.table_aggregate import TableTop
from streams.operators.table.table_materializer import TableMaterializer
from streams.operators.table.top_lists import TopLists
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.both_ways import Fed, Seen, any_fed, played, quietly
from tests.budget import up_to

VALUES = [
    None,
    b'{"g":"x","n":1}',
    b'{"g":"x","n":1.0}',
    b'{"n":1,"g":"x"}',
    b'{"g":"x","n":2,"more":[1, 2.50, {"a": null}]}',
    b'{"g":"x","n":2,"more":[1,2.5,{"a":null}]}',
    b'{"g":"x","n":3,"t":"\\u00e4\\n"}',
    b'{"g":"y","n":9007199254740993}',
    b'{"g":"y","n":9007199254740992,"i":123456789012345678901234567890}',
    b'{"g":"y","n":-0.0}',
    b'{"g":"y","n":null}',
    b'{"g":"y","n":"text"}',
    b'{"g":null,"n":5}',
]
KEYS = (b"a", b"b", b"c", b"d", b"e")
steps_of_updates = st.lists(st.lists(any_fed(VALUES, KEYS), max_size=14), min_size=1, max_size=4)
SCORES: dict[str, Any] = {
    "number": lambda row: row["n"],
    "tuple": lambda row: None if row["n"] is None else (row["n"], row["g"]),
}


class Reads(Processor[str, Any, str, Any]):
    """Reads the list of a group for each record, and sometimes writes it."""

    def process(self, record: Record[str, Any]) -> None:
        store = self.ctx.store("best")
        found = store.get("x")
        if record.timestamp % 8 == 7:
            store.put("x", [{"g": "x", "n": 0}])
        self.ctx.forward(
            record.with_value(None if found is None else found.value if hasattr(found, "value") else found)
        )


def program(score: str, n: int, largest: bool, ties: bool, below: str) -> Topology:
    builder = StreamsBuilder()
    rows = builder.table("in")
    best = rows.group_by(col("g"), key_serde=StringSerde()).top(
        n, SCORES[score], largest, materialized=Materialized("best"), ties=ties
    )
    if below == "old values":
        best.explode(lambda key, place: f"{key}{place}").to("out")
        return builder.build()
    best.map_values(_changed if below == "changes" else _itself).to_stream().to("out")
    if below == "joined":
        builder.stream("in").select_key(lambda row: "x").join(best, lambda row, found: found).to("joined")
    if below == "read":
        builder.stream("in").select_key(lambda row: "x").process(Reads, stores=["best"]).to("read")
    return builder.build()


def _itself(rows: list[Any]) -> Any:
    return rows


def _changed(rows: list[Any]) -> Any:
    for row in rows:
        row["seen"] = True
    return rows


def both(topology: Topology, steps: Sequence[Sequence[Fed]], restarts: Sequence[int], **settings: Any) -> Seen:
    """Requires that both ways leave the same behind."""
    given_settings = {"partitions": {"in": 2}, "processing": "skip", "production": "skip", **settings}
    with quietly():
        found = played(topology, steps, restarts, **given_settings)
        with patch.object(TableTop, "lists_together", False):
            expected = played(topology, steps, restarts, **given_settings)
    assert (found.topics, found.counters, found.failed) == (expected.topics, expected.counters, expected.failed)
    return found


@pytest.mark.parametrize("below", ["list", "changes", "old values", "joined", "read"])
@up_to(40)
@given(
    steps=steps_of_updates,
    restarts=st.sets(st.integers(0, 3)),
    score=st.sampled_from(sorted(SCORES)),
    n=st.integers(1, 3),
    largest=st.booleans(),
    ties=st.booleans(),
)
def test_lists_of_bytes_are_those_of_objects(below, steps, restarts, score, n, largest, ties):
    both(program(score, n, largest, ties, below), steps, sorted(restarts))


def rows_of(*numbers: Any, first: int = 0) -> list[Fed]:
    return [
        Fed("in", b"%d" % at, b'{"g":"x","n":%d}' % number, at, partition=0) for at, number in enumerate(numbers, first)
    ]


def of_table(table: KTable[Any, Any]) -> None:
    table.group_by(col("g"), key_serde=StringSerde()).top(2, SCORES["number"]).to_stream().to("out")


def test_the_lists_of_a_step_are_written_together():
    """No list is set for an update, and no value but the updates' own is decoded."""
    builder, values = StreamsBuilder(), []
    of_table(builder.table("in"))
    read = TableTop._value

    def counting(self: TableTop, key: bytes) -> Any:
        values.append(key)
        return read(self, key)

    error = AssertionError("a list is set by itself")
    with (
        patch.object(TableTop, "_value", counting),
        patch.object(TableTop, "_set", side_effect=error),
        patch.object(TopLists, "_settle", side_effect=error),
        TopologyTestDriver(builder.build()) as driver,
    ):
        topic = driver.create_input_topic("in")
        for first in (0, 5):
            with driver.batch():
                for at in range(first, first + 5):
                    topic.pipe_input(str(at), {"g": "x", "n": at}, at)
        found = driver.create_output_topic("out").read_values_to_list()
    assert [[one["n"] for one in best] for best in found] == [[4, 3], [9, 8]]
    # A list of another length, or the first values that differ, are enough to see that a list has changed.
    assert len(values) < 30


def test_the_lists_of_a_step_become_rows_for_another_operator_that_reads_single_rows():
    with patch.object(TopLists, "_settle", autospec=True, side_effect=TopLists._settle) as settled:
        found = both(program("number", 2, True, False, "read"), [rows_of(1, 2, 3)], [])
    assert settled.called
    assert b'[{"g":"x","n":1}]' in found.values("read"), "the list before the last updates"


def test_a_table_without_a_cache_sets_each_list():
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(col("g"), key_serde=StringSerde())
    grouped.top(2, SCORES["number"], materialized=Materialized("best", caching=False)).to_stream().to("out")
    with patch.object(TableMaterializer, "update", autospec=True, side_effect=TableMaterializer.update) as updated:
        assert len(played(builder.build(), [rows_of(1, 2, 3)]).values("out")) == 3
    assert updated.call_count >= 3
