"""Repartition topics that the plan adds where a task reads its own partition, and what a program does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from state.columns import RecordColumns
from streams import (
    Grouped,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Record,
    Repartitioned,
    Stores,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
)
from streams.engine.graph.rows import RowBatch
from streams.engine.graph.settings import TaskSettings
from streams.engine.reader.pipeline import ReaderPipeline
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare
from streams.topology.manifest import as_written, manifest
from streams.topology.plan import SubTopology, build_plan, plan_alone, with_added_topics, with_needed_topics
from streams.topology.planning.repartitions import Placed, added_topics
from streams.topology.topology import Topology
from streams.topology.ways import why_not_live

Build = Callable[[StreamsBuilder], object]


def built(build: Build) -> Topology:
    builder = StreamsBuilder(default_value_serde=JsonSerde())
    build(builder)
    return builder.build()


def by_user(builder: StreamsBuilder) -> Any:
    return builder.stream("orders").select_key(lambda key, order: order["user"])


def counted(builder: StreamsBuilder) -> None:
    by_user(builder).group_by_key().count(materialized=Materialized("counts")).to_stream().to("out")


def grouped(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders").filter(lambda key, order: order["amount"] > 1)
    grouped = orders.group_by(lambda key, order: order["user"], Grouped(name="by-user"))
    grouped.count(materialized=Materialized("counts")).to_stream().to("out")


def windowed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=20), timedelta(milliseconds=10))
    table = by_user(builder).group_by_key().windowed_by(windows).count(materialized=Materialized("windows"))
    closed = table.suppress(Suppressed.until_window_closes())
    closed.to_stream().map(lambda of, count: (f"{of.key}@{of.window.start}", count)).to("out")


def enriched(builder: StreamsBuilder) -> None:
    users = builder.table("users", materialized=Materialized("users"))
    by_user(builder).join(users, lambda order, user: {**order, **user}, Joined(name="enriched")).to("out")


def both(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders")
    builder.stream("users").left_join(
        orders,
        lambda user, order: [user, order],
        JoinWindows.of_time_difference_with_no_grace(timedelta(milliseconds=9)),
    ).to("out")


def tables(builder: StreamsBuilder) -> None:
    orders = builder.table("orders", materialized=Materialized("orders"))
    users = builder.table("users", materialized=Materialized("users"))
    orders.outer_join(users, lambda order, user: [order, user]).to_stream().to("out")


def foreign(builder: StreamsBuilder) -> None:
    orders = builder.table("orders", materialized=Materialized("orders"))
    users = builder.table("users", materialized=Materialized("users"))
    orders.join(users, lambda order, user: [order, user], foreign_key=lambda order: order["user"]).to_stream().to("out")


def merged(builder: StreamsBuilder) -> None:
    both = builder.stream("orders").merge(builder.stream("users"))
    both.group_by_key().count(materialized=Materialized("counts")).to_stream().to("out")


def cogrouped(builder: StreamsBuilder) -> None:
    add = lambda key, value, total: total + 1  # noqa: E731
    users = builder.stream("users").group_by_key()
    by_user(builder).group_by_key().cogroup(add).cogroup(users, add).aggregate(
        lambda: 0, materialized=Materialized("totals")
    ).to_stream().to("out")


def looked_up(builder: StreamsBuilder) -> None:
    users = builder.global_table("users")
    joined = by_user(builder).join(users, lambda key, order: key, lambda order, user: {**order, **user})
    joined.to("out")


def written_back(builder: StreamsBuilder) -> None:
    spread = by_user(builder).repartition(Repartitioned(name="spread", partitions=2))
    spread.group_by_key().count(materialized=Materialized("counts")).to_stream().to("out")


class Sums(Processor[Any, Any, Any, Any]):
    """Adds up amounts by key."""

    def process(self, record: Record[Any, Any]) -> None:
        store = self.ctx.get_state_store("sums")
        total = (store.get(record.key) or 0) + record.value["amount"]
        store.put(record.key, total)
        self.ctx.forward(record.with_value(total))


def processed(builder: StreamsBuilder) -> None:
    builder.add_state_store(Stores.key_value_store("sums", StringSerde(), JsonSerde()))
    by_user(builder).process(Sums, "sums", named="summing").to("out")


def distinct(builder: StreamsBuilder) -> None:
    by_user(builder).deduplicate(timedelta(milliseconds=15), named="once").to("out")


PROGRAMS = (
    counted, grouped, windowed, enriched, both, tables, foreign, merged, cogrouped, looked_up, written_back, processed, distinct,
)  # fmt: skip
UNEVEN = {"orders": 3, "users": 4}


def topics(build: Build, placed: Mapping[str, Placed] | None = None, tasks: int | None = None) -> dict[str, str]:
    known = {name: Placed(count) for name, count in UNEVEN.items()} if placed is None else placed
    return added_topics(with_needed_topics(built(build), known, tasks))


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (counted, ["KSTREAM-AGGREGATE"]),
        (grouped, ["by-user-repartition"]),
        (enriched, ["enriched-repartition"]),
        (both, ["orders-repartition"]),
        (tables, ["orders-repartition"]),
        (foreign, []),
        (merged, ["orders-repartition"]),
        (looked_up, []),
        (written_back, []),
        (processed, ["summing-repartition"]),
        (distinct, ["once-repartition"]),
    ],
)
def test_where_topics_are_added(build: Build, names: list[str]) -> None:
    found = topics(build)
    assert len(found) == len(names)
    assert all(one.startswith(name) for one, name in zip(sorted(found), names, strict=True)), found


def test_each_has_a_reason() -> None:
    (why,) = topics(grouped).values()
    assert why.endswith(" makes keys before KSTREAM-AGGREGATE-counts"), why
    assert topics(merged) == {"orders-repartition": "orders has 3 partitions, and users has 4"}
    text = with_needed_topics(built(merged), {name: Placed(count) for name, count in UNEVEN.items()}, None).describe()
    assert "(topic: orders-repartition, because orders has 3 partitions, and users has 4)" in text


def test_even_topics_need_none() -> None:
    even = {"orders": Placed(3), "users": Placed(3)}
    assert [build for build in (both, tables, merged, foreign) if topics(build, even)] == []


def test_as_many_partitions_as_the_tasks_that_are_asked_for() -> None:
    found = topics(merged, tasks=8)
    assert found == {
        "orders-repartition": "orders has 3 partitions, and there are 8 tasks",
        "users-repartition": "users has 4 partitions, and there are 8 tasks",
    }


@pytest.mark.parametrize(
    ("functions", "names"),
    [
        (("crc32", "crc32"), []),
        (("crc32", "murmur2"), ["orders-repartition"]),
        (("crc32", "fnv1a"), ["orders-repartition", "users-repartition"]),
        ((None, "murmur2"), ["orders-repartition"]),
        ((None, None), ["orders-repartition", "users-repartition"]),
    ],
)
def test_topics_that_were_written_by_different_functions(
    functions: tuple[str | None, str | None], names: list[str]
) -> None:
    placed = dict(zip(("orders", "users"), (Placed(3, one) for one in functions), strict=True))
    assert sorted(topics(merged, placed)) == names


def test_what_the_application_writes_is_placed_like_what_it_meets() -> None:
    assert list(topics(enriched, {"orders": Placed(3, "crc32"), "users": Placed(3, "crc32")})) == [
        "enriched-repartition"
    ]


@pytest.mark.parametrize("build", PROGRAMS)
def test_no_sub_topology_is_refused(build: Build) -> None:
    topology = with_needed_topics(built(build), {name: Placed(count) for name, count in UNEVEN.items()}, None)
    assert [why for sub in plan_alone(topology).sub_topologies if (why := why_not_live(sub))] == []


def test_names_do_not_depend_on_the_order_of_the_program() -> None:
    def in_order(first: int) -> Topology:
        def build(builder: StreamsBuilder) -> None:
            streams = [
                lambda: builder.stream("orders").select_key(lambda key, order: order["user"]),
                lambda: builder.stream("orders").select_key(lambda key, order: order["item"]),
            ]
            for number in (first, 1 - first):
                streams[number]().group_by_key().count(materialized=Materialized(f"counts-{number}"))

        return built(build)

    plans = [build_plan(with_added_topics(in_order(first), {}), "app") for first in (0, 1)]
    assert plans[0].repartition_topics == plans[1].repartition_topics
    assert len(plans[0].repartition_topics) == 2
    one, other = ({sub.name: sub.topology_hash for sub in plan.sub_topologies} for plan in plans)
    assert one == other


def test_groupings_of_one_stream_share_a_topic() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = by_user(builder).group_by_key(Grouped(name="by-user"))
        stream.count(materialized=Materialized("counts"))
        stream.reduce(lambda old, new: new, materialized=Materialized("last"))

    assert list(topics(build)) == ["by-user-repartition"]


def test_stores_keep_their_names() -> None:
    for build in PROGRAMS:
        topology = built(build)
        assert with_added_topics(topology, {"orders": "", "users": ""}).stores == topology.stores


def test_a_program_without_them_keeps_its_plan() -> None:
    """The manifest says whether an application has them, and `streams diff` compares with what it has."""
    plain = built(grouped)
    with_topics = with_added_topics(plain, {})
    assert "repartitioned" not in manifest(plain)
    assert as_written(plain, manifest(plain)) is plain
    assert manifest(as_written(plain, manifest(with_topics))) == manifest(with_topics)
    assert compare(manifest(plain), plain) == []
    assert compare(manifest(with_topics), plain) == []
    assert compare(manifest(plain), with_topics) != []


def test_explain_tells_what_a_first_start_adds() -> None:
    plain = built(grouped)
    assert (
        "Repartition topics that a first start adds, unless it is with execution=micro-batch\n  by-user-repartition: "
        in plain.explain()
    )
    assert "Added repartition topics\n  by-user-repartition: " in with_added_topics(plain, {}).explain()
    assert "repartition topic" not in built(tables).explain()


# --- The same tables and results


NAMES = ("ann", "bob", "cem", "dee", "eve")
TABLES = ("counts", "orders", "users", "totals", "sums")


def play(topology: Topology, execution: str) -> tuple[dict[str, Any], list[Any]]:
    """What is in the stores, and the results of each key in their order."""
    with TopologyTestDriver(topology, partitions={**UNEVEN, "out": 2}, execution=execution) as driver:
        read = {topic for source in topology.sources() for topic in source.topics} | set(topology.global_tables)
        orders = driver.create_input_topic("orders")
        users = driver.create_input_topic("users") if len(read) > 1 else None
        for at in range(20):
            if users is not None and at % 3 == 0:
                users.pipe_input(NAMES[at % 5], {"user": NAMES[at % 5], "city": at, "amount": 1}, at)
            order = NAMES[(at * 7) % 4]
            orders.pipe_input(order, {"user": NAMES[at % 3], "item": order, "amount": at % 5 + 1}, at)
            if at == 10:
                driver.restart()
        orders.pipe_input("end", {"user": "end", "item": "end", "amount": 2}, 1_000)
        results: dict[str, list[Any]] = {}
        for one in driver.create_output_topic("out").read_records_to_list():
            results.setdefault(str(one.key), []).append((one.value, one.timestamp))
        stores = topology.stores.keys() & set(TABLES)
        return {name: dict(driver.get_key_value_store(name).all()) for name in stores}, sorted(results.items())


class Watched(ReaderPipeline):
    """Checks that no record leaves the task of its partition on its way to something with state."""

    def __init__(self, sub: SubTopology, tasks: int, settings: TaskSettings) -> None:
        super().__init__(sub, tasks, settings)
        self._placed = sub.placed_entries

    def run(self, columns: RecordColumns) -> Iterator[tuple[int, RowBatch]]:
        """See `ReaderPipeline`."""
        for task, rows in super().run(columns):
            assert rows.entry not in self._placed or task == columns.partition, (columns.topic, columns.partition, task)
            yield task, rows


@pytest.mark.slow
@pytest.mark.parametrize("build", PROGRAMS)
def test_no_record_changes_its_task_and_the_results_are_the_same(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    without = play(built(build), "micro-batch")
    assert without[1]
    monkeypatch.setattr("streams.testing.query.ReaderPipeline", Watched)
    assert play(built(build), "live") == without
