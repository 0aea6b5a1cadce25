"""Records that pass a task unit by unit give what they give depth first, whatever their nodes share (`planning.units`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import numpy as np
import pytest

from streams import (
    Consumed,
    Grouped,
    Int64Serde,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
)
from streams.dsl.kstream import KStream
from streams.engine.graph.node import Inbox
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.topology.plan import build_plan
from tests.both_ways import check_both_ways
from tests.budget import seeds
from tests.runtime.test_records_together import feed

Streams = tuple["KStream[Any, Any]", "KStream[Any, Any]"]


def test_what_was_read_for_one_pass_is_not_read_again_for_the_next() -> None:
    """Each node of a group gets its records back when the group fails, and one without records gets none."""
    inbox = Inbox()
    batch = ColumnarBatch(KeyColumn.of(["a"]), [1], np.array([1]), np.array([0]))
    inbox.add(batch, lambda: batch)
    assert len(inbox.take()) == 1
    assert inbox.read is not None
    assert len(inbox.take()) == 0
    assert inbox.read is None


class Growing(Processor[Any, Any, Any, Any]):
    """Forwards one list again and again, and changes it in between."""

    transient = "seen"

    def init(self, ctx: Any) -> None:
        super().init(ctx)
        self.seen: list[Any] = []

    def process(self, record: Record[Any, Any]) -> None:
        self.seen.append(record.value)
        self.ctx.forward(record.with_value(self.seen))
        if len(self.seen) == 3:
            self.seen.clear()


class Clock(Processor[Any, Any, Any, Any]):
    """Forwards each record twice with what it sees of time, and once for each interval of stream time."""

    def init(self, ctx: Any) -> None:
        super().init(ctx)
        every = timedelta(milliseconds=7)
        ctx.schedule(
            every, PunctuationType.STREAM_TIME, lambda time: ctx.forward(Record("tick", [ctx.node, time], time))
        )
        ctx.schedule(every, PunctuationType.WALL_CLOCK_TIME, lambda time: ctx.forward(Record("tock", 1, time)))

    def process(self, record: Record[Any, Any]) -> None:
        for number in range(2):
            value = [record.value, number, self.ctx.stream_time, str(self.ctx.record_metadata)]
            self.ctx.forward(record.with_value(value))

    def flush(self) -> None:
        self.ctx.forward(Record("end", [self.ctx.node], 0))


class Counting(Processor[Any, Any, Any, Any]):
    """Counts in a store that others use, too."""

    def process(self, record: Record[Any, Any]) -> None:
        counts = self.ctx.store("counts")
        count = (counts.get("all") or 0) + 1
        counts.put("all", count)
        self.ctx.forward(record.with_value([record.value, count]))


class Scanning(Processor[Any, Any, Any, Any]):
    """Forwards all rows of a table."""

    def process(self, record: Record[Any, Any]) -> None:
        self.ctx.forward(record.with_value([str(row) for row in self.ctx.store("one").all()]))


def kept(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    """A stream behind a node with a store, so that nothing after it runs in the readers."""
    return stream.deduplicate(timedelta(milliseconds=1), by=lambda value: value)


def mutable_values(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    left.process(Growing).process(Counting, "counts").to("out")


def every_aggregate(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    def added(key: Any, value: Any, values: list[Any]) -> list[Any]:
        values.append(value)
        return values

    lists = left.group_by_key().aggregate(list, added, Materialized("lists", caching=False))
    lists.to_stream().to_table(Materialized("rows", caching=False)).to_stream().to("out")


def ticks_above_each_other(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    left.process(Clock).process(Clock).filter(lambda key, value: value is not None).to("out")
    right.process(Clock).to("other")


def ways_that_meet(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    twice = kept(left).flat_map_values(lambda value: [value, value])
    twice.merge(twice.map_values(str)).merge(kept(right)).to("out")


def paths_that_part_at_single_results(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    """What one record gives on each path comes in the order of the paths, also where a path gives several results."""
    seen = kept(left)
    twice = seen.flat_map_values(lambda value: [value, [value]])
    paths = seen.map_values(str).merge(twice).merge(seen.filter(lambda key, value: value != 1)).merge(kept(right))
    paths.to("out")
    paths.group_by_key(Grouped(StringSerde(), JsonSerde(), name="g")).aggregate(
        list, lambda key, value, values: [*values, value][-9:], Materialized("lists", caching=False)
    ).to_stream().to("lists")


def a_path_that_comes_twice(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    """The results of one node come before and behind those of another one, so there is no order of nodes."""
    seen = kept(left)
    first, second, third = (seen.map_values(lambda value, n=n: [n, value]) for n in range(3))
    first.merge(third).map_values(str).merge(second).to("out")
    kept(right).to("other")


def joins_that_meet(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    windows = JoinWindows.of_time_difference_and_grace(9, 9)
    other = kept(right)
    one = left.outer_join(other, lambda a, b: [a, b], windows)
    one.merge(other.left_join(left, lambda b, a: [b, a], windows)).to("out")


def a_stream_joined_with_a_part_of_itself(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    seen = kept(left)
    windows = JoinWindows.of_time_difference_and_grace(9, 99)
    seen.map_values(str).left_join(seen.filter(lambda key, value: value != 1), lambda a, b: [a, b], windows).to(
        "joined"
    )
    kept(right).to("out")


def ticks_that_meet(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    ticks = left.process(Clock)
    ticks.merge(ticks.process(Clock)).merge(right.process(Clock)).to("out")


def one_store(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    kept(left).process(Counting, "counts").to("out")
    kept(right).map_values(str).process(Counting, "counts").to("other")


def one_topic(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    seen = kept(left)
    seen.to("out")
    seen.flat_map_values(lambda value: [1, value]).to("out")
    kept(right).to("out")


def tables_in_a_row(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    one, other = left.to_table(Materialized("one")), right.to_table(Materialized("other"))
    both = one.outer_join(other, lambda a, b: [a, b])
    third = left.map_values(str).to_table(Materialized("third"))
    both.left_join(third, lambda pair, value: [*pair, value]).to_stream().to("out")
    left.left_join(one, lambda value, row: [value, row]).to("other")


def beside_a_processor(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    table = right.to_table(Materialized("rows", caching=False))
    left.join(table, lambda value, row: [value, row]).to("out")
    left.process(Clock).to("other")
    table.to_stream().group_by_key(Grouped(name="g")).count(Materialized("n")).to_stream().to("counts", NUMBERS)


def a_scan_and_a_join_of_tables(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    """A scan writes rows that the cache has not forwarded yet, and may never forward; joins must not see them."""
    other, one = left.to_table(Materialized("other")), right.to_table(Materialized("one"))
    kept(right).process(Scanning, "one").to("out")
    other.join(one, lambda value, row: [value, row], Materialized("both", caching=False)).to_stream().to("both")


def results_at_the_end_and_a_table(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    """What a count emits at the end of the step finds all rows of the step, although they wait for the end, too."""
    table = right.to_table(Materialized("rows"))
    counts = left.group_by_key(Grouped(name="g")).count(Materialized("n"))
    counts.to_stream().left_join(table, lambda count, row: [count, row]).to("out")


def two_ways_to_one_store(left: KStream[Any, Any], right: KStream[Any, Any]) -> None:
    """Each update looks up the row that comes of it on another path, which it takes later or earlier."""
    table = left.to_table(Materialized("rows"))
    early = table.to_stream()
    early.join(table, lambda value, row: [value, row]).to("same")
    mapped = table.map_values(lambda value: [value], Materialized("mapped"))
    early.left_join(mapped, lambda value, row: [value, row]).to("out")
    table.to_stream().left_join(mapped, lambda value, row: [row, value]).to("other")
    kept(right).to("third")


NUMBERS = Produced(StringSerde(), Int64Serde())
SHAPES: dict[str, Callable[..., None]] = {
    one.__name__: one
    for one in (
        mutable_values,
        every_aggregate,
        ticks_above_each_other,
        ways_that_meet,
        paths_that_part_at_single_results,
        a_path_that_comes_twice,
        joins_that_meet,
        a_stream_joined_with_a_part_of_itself,
        ticks_that_meet,
        one_store,
        one_topic,
        tables_in_a_row,
        beside_a_processor,
        a_scan_and_a_join_of_tables,
        results_at_the_end_and_a_table,
        two_ways_to_one_store,
    )
}


def program(shape: str) -> Any:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=JsonSerde())
    builder.add_state_store(Stores.key_value_store("counts", StringSerde(), JsonSerde()))
    left, right = (builder.stream(topic, Consumed(StringSerde(), JsonSerde())) for topic in ("left", "right"))
    SHAPES[shape](left, right)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(6), least=2))
@pytest.mark.parametrize("shape", SHAPES)
def test_unit_by_unit(shape: str, seed: int) -> None:
    steps = feed(seed, topics=("left", "right"))
    with mock.patch("streams.engine.task.task_graph._PART_RECORDS", 3 if seed % 2 else 10_000):
        seen = check_both_ways(
            program(shape), steps, partitions={"left": 2, "right": 2}, apart_ms=10, restarts=[1], processing="skip"
        )
    assert any(records for (topic, _), records in seen.topics.items() if topic == "out")


def single(shape: str) -> dict[tuple[str, ...], str]:
    """The units in which records go one by one, with the reasons."""
    found = {}
    for sub in build_plan(program(shape), "test").sub_topologies:
        found |= {unit.nodes: unit.reason for unit in sub.units if not unit.groups}
    return found


def test_a_processor_does_not_slow_down_what_is_beside_it() -> None:
    assert single("beside_a_processor") == {}


def test_results_of_each_record_pass_the_stateless_nodes_below_part_by_part() -> None:
    (sub,) = build_plan(program("beside_a_processor"), "test").sub_topologies
    parts = [unit.nodes for unit in sub.units if unit.in_parts]
    assert [[name.split("-")[1] for name in nodes] for nodes in parts] == [["PROCESSOR", "SINK"]]


def test_joins_of_tables_in_a_row_take_batches() -> None:
    assert single("tables_in_a_row") == {}


def test_paths_go_depth_first_only_from_where_they_part_to_where_they_meet() -> None:
    ((nodes, reason),) = single("ways_that_meet").items()
    assert "gets results of one record from several nodes" in reason
    assert [name.split("-")[1] for name in nodes] == ["FLATMAPVALUES", "MAPVALUES", "MERGE"]


@pytest.mark.parametrize("shape", ["joins_that_meet", "a_stream_joined_with_a_part_of_itself"])
def test_results_of_one_record_that_meet_in_one_order_are_batches(shape: str) -> None:
    assert single(shape) == {}


def test_paths_that_part_where_a_record_has_one_result_are_batches() -> None:
    reasons = single("paths_that_part_at_single_results").values()
    assert not any("from several nodes" in reason for reason in reasons)


def test_paths_without_one_order_go_depth_first() -> None:
    (reason,) = single("a_path_that_comes_twice").values()
    assert "gets results of one record from several nodes" in reason


def test_nodes_that_share_a_store_go_depth_first() -> None:
    assert any("share" in reason and "'counts'" in reason for reason in single("one_store").values())
