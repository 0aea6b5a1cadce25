"""Which sub-topologies run live, and why the others do not."""

from __future__ import annotations

import pytest

from streams import Repartitioned, StreamsBuilder
from streams.application.execution import Executions, obstacle, ways_of
from streams.application.prepare import Application, PreparedSub
from streams.config import Execution, StreamsConfig
from streams.errors import ConfigError
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from streams.topology.ways import why_not_live

TWO = {"in": 2, "other": 2}


def counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().to("out")
    return builder.build()


def new_keys() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).group_by_key().count().to_stream().to("out")
    return builder.build()


def by_hand() -> Topology:
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(lambda key, value: value).repartition(Repartitioned(name="by-value"))
    keyed.group_by_key().count().to_stream().to("out")
    return builder.build()


def into_a_topic() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).to("out")
    return builder.build()


def global_table() -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("other")
    builder.stream("in").select_key(lambda key, value: value).join(
        table, lambda key, value: key, lambda left, right: left
    ).to("out")
    return builder.build()


def application(topology: Topology, **settings: object) -> Application:
    config = StreamsConfig(application_id="app", bootstrap_servers="none:1", **settings)  # type: ignore[arg-type]
    plan = build_plan(topology, "app")
    return Application(plan, config, tuple(PreparedSub(sub, 2) for sub in plan.sub_topologies))


def names(ways: Executions) -> tuple[list[str], list[str]]:
    return [one.sub.name for one in ways.live], [one.sub.name for one in ways.micro_batch]


@pytest.mark.parametrize(
    ("topology", "words"),
    [(counts, None), (new_keys, "makes keys before"), (global_table, None), (by_hand, None), (into_a_topic, None)],
)
def test_the_structure_decides(topology, words: str | None) -> None:
    why = next((why for sub in build_plan(topology(), "app").sub_topologies if (why := why_not_live(sub))), None)
    assert (why is None) == (words is None)
    assert words is None or words in str(why)


def test_tasks_must_be_partitions() -> None:
    (prepared,) = application(counts()).subs
    assert obstacle(prepared, {"in": 2}) is None
    assert obstacle(prepared, {"in": 3}) == "in has 3 partitions and the sub-topology 2 tasks"
    assert obstacle(prepared, {"in": 1}) == "in has 1 partitions and the sub-topology 2 tasks"


def test_where_no_state_follows_each_partition_needs_a_task() -> None:
    (prepared,) = application(into_a_topic()).subs
    assert obstacle(prepared, {"in": 1}) is None
    assert obstacle(prepared, {"in": 3}) == "in has 3 partitions and the sub-topology 2 tasks"


def test_live_is_the_default_and_micro_batches_are_for_who_asks_for_them() -> None:
    assert StreamsConfig(application_id="app", bootstrap_servers="none:1").execution is Execution.AUTO
    assert names(ways_of(application(counts()), TWO, processes=2, others=False, refused={})) == (["in"], [])
    asked = application(counts(), execution=Execution.MICRO_BATCH)
    assert names(ways_of(asked, TWO, processes=2, others=False, refused={})) == ([], ["in"])


def test_a_run_over_what_is_there_is_live_by_default() -> None:
    ways = ways_of(application(counts(), available_now=True), TWO, processes=1, others=False, refused={})
    assert names(ways) == (["in"], [])


def test_a_run_over_what_is_there_has_one_execution_for_all_sub_topologies() -> None:
    builder = StreamsBuilder()
    for topic in ("in", "other"):
        builder.stream(topic).group_by_key().count().to_stream().to("out")
    for settings, found in (({}, (["in"], ["other"])), ({"available_now": True}, ([], ["in", "other"]))):
        app = application(builder.build(), **settings)
        ways = ways_of(app, {"in": 2, "other": 3}, processes=2, others=False, refused={})
        assert names(ways) == found
    assert "other needs them" in ways.obstacles["in"]
    ways = ways_of(app, TWO, processes=2, others=False, refused={})
    assert names(ways) == (["in", "other"], [])


def test_auto_runs_live_what_can() -> None:
    ways = ways_of(application(counts()), TWO, processes=2, others=True, refused={})
    assert names(ways) == (["in"], [])
    ways = ways_of(application(new_keys()), TWO, processes=2, others=False, refused={})
    assert names(ways) == ([], ["in"])
    ways = ways_of(application(counts()), TWO, processes=2, others=False, refused={"in": "x"})
    assert (names(ways), ways.obstacles) == (([], ["in"]), {"in": "x"})


def test_live_names_what_is_in_the_way() -> None:
    with pytest.raises(ConfigError, match="cannot run live: in: KSTREAM-KEY-SELECT-in makes keys before"):
        ways_of(application(new_keys(), execution=Execution.LIVE), TWO, processes=2, others=False, refused={})


def test_one_core_is_not_shared_with_other_queries() -> None:
    app = application(counts())
    assert names(ways_of(app, TWO, processes=1, others=False, refused={})) == (["in"], [])
    ways = ways_of(app, TWO, processes=1, others=True, refused={})
    assert names(ways) == ([], ["in"])
    assert ways.obstacles["in"] == "Spark has one core for it here, which other queries need, too"
