"""`KTable.transform_values`: state, deletions, what is kept when, and that steps and restarts change nothing."""

import random

import pytest

from streams import (
    Int64Serde,
    JsonSerde,
    Materialized,
    Stores,
    StreamsBuilder,
    StringSerde,
    TopologyError,
    ValueTransformer,
)
from streams.errors import RecordError
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.manifest import manifest


class Numbered(ValueTransformer):
    """Value and the number of the update of its key, deletions included."""

    def transform(self, key, value):
        store = self.ctx.store("versions")
        number = (store.get(key) or 0) + 1
        store.put(key, number, 0)
        return None if value is None else [number, value]


def table(builder, materialized=None, named=None):
    builder.add_state_store(Stores.key_value_store("versions", StringSerde(), Int64Serde()))
    source = builder.table("in", materialized=Materialized(caching=False))
    return source.transform_values(Numbered, ["versions"], named, materialized)


def built(finish, materialized=None):
    builder = StreamsBuilder()
    finish(builder, table(builder, materialized))
    return builder.build()


def test_a_result_without_a_lookup_is_not_stored():
    topology = built(lambda builder, made: made.to_stream().to("out"))
    assert list(topology.stores) == ["versions"]
    with TopologyTestDriver(topology) as driver:
        records = driver.create_input_topic("in")
        for value in ("x", None, "y"):
            records.pipe_input("a", value, 5)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, "x"], None, [3, "y"]]


def test_looked_up_it_is_kept_and_transformed_once():
    def finish(builder, made):
        builder.stream("asks").join(made, lambda ask, found: found).to("out")

    topology = built(finish)
    assert len(topology.stores) == 2
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 5)
        for _ in range(3):
            driver.create_input_topic("asks").pipe_input("a", 0, 6)
        assert driver.create_output_topic("out").read_values_to_list() == [[1, "x"]] * 3


def test_old_values_are_those_that_went_down():
    def finish(builder, made):
        grouped = made.group_by(lambda key, value: ("all", value[0]))
        grouped.reduce(lambda a, b: a + b, lambda a, b: a - b, materialized=Materialized(caching=False)).to_stream().to(
            "out"
        )

    with TopologyTestDriver(built(finish)) as driver:
        records = driver.create_input_topic("in")
        for key in ("a", "a", "b"):
            records.pipe_input(key, "x", 5)
        assert driver.create_output_topic("out").read_values_to_list() == [1, 2, 3]


def test_a_name_keeps_it_and_a_filter_above_a_join_computes_on_it():
    topology = built(
        lambda builder, made: (
            builder.stream("asks")
            .left_join(made.filter(lambda value: value[0] > 1), lambda ask, found: found)
            .to("out")
        ),
        Materialized(name="numbered", value_serde=JsonSerde(), caching=False),
    )
    assert sorted(topology.stores) == ["numbered", "versions"]
    with TopologyTestDriver(topology) as driver:
        for _ in range(2):
            driver.create_input_topic("in").pipe_input("a", "x", 5)
            driver.create_input_topic("asks").pipe_input("a", 0, 6)
        assert driver.create_output_topic("out").read_values_to_list() == [None, [2, "x"]]
        assert driver.get_store("numbered").get("a").value == [2, "x"]


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_restarts_change_nothing(seed):
    drawn = random.Random(seed)
    updates = [(drawn.choice("abc"), drawn.choice([1, 2, 3, None]), drawn.randrange(50)) for _ in range(40)]

    def run(split):
        rows = []
        with TopologyTestDriver(
            built(lambda b, made: made.to_stream().to("out"), Materialized(caching=False))
        ) as driver:
            records, out = driver.create_input_topic("in"), driver.create_output_topic("out")
            left = list(updates)
            while left:
                with driver.batch():
                    for key, value, time in left[: (size := drawn.randrange(1, 9) if split else 1)]:
                        records.pipe_input(key, value, time)
                left = left[size:]
                if split and drawn.random() < 0.4:
                    driver.restart(wipe_state=drawn.random() < 0.7)
                rows += out.read_records_to_list()
        return rows

    # One partition, so that the order of the records is that of their offsets however they are cut.
    assert run(split=True) == run(split=False)


def test_it_is_described_and_a_lost_store_is_reported():
    kept = built(lambda builder, made: made.to_stream().to("out"), Materialized(name="numbered"))
    assert "Processor: KTABLE-TRANSFORMVALUES-numbered (stores: [versions, numbered])" in kept.describe()
    renamed = built(lambda builder, made: made.to_stream().to("out"), Materialized(name="other"))
    assert worst(compare(manifest(kept), renamed)).value == "loses state"
    builder = StreamsBuilder(ensure_explicit_naming=True)
    builder.stream("asks").join(table(builder), lambda ask, found: found).to("out")
    with pytest.raises(TopologyError, match="KTABLE-TRANSFORMVALUES-STATE-STORE"):
        builder.build()
    builder = StreamsBuilder(ensure_explicit_naming=True)
    builder.stream("asks").join(table(builder, named="mine"), lambda ask, found: found).to("out")
    assert "mine-store" in builder.build().stores


class Forwarding(ValueTransformer):
    def transform(self, key, value):
        self.ctx.forward(value)


@pytest.mark.parametrize("wrong", [Numbered(), 5], ids=["a transformer", "a number"])
def test_a_transformer_needs_a_supplier(wrong: object) -> None:
    with pytest.raises(TopologyError, match="a supplier of value transformers"):
        StreamsBuilder().table("in").transform_values(wrong)


def test_a_transformer_needs_an_existing_store() -> None:
    with pytest.raises(TopologyError, match="'nowhere', which does not exist"):
        StreamsBuilder().table("in").transform_values(Numbered, ["nowhere"])


def test_a_transformer_cannot_forward() -> None:
    builder = StreamsBuilder()
    builder.table("in").transform_values(Forwarding).to_stream().to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises((TopologyError, RecordError), match="gives its result"),
    ):
        driver.create_input_topic("in").pipe_input("a", 1, 5)


class Times(ValueTransformer):
    def init(self, ctx):
        super().init(ctx)
        ctx.schedule(10, "stream_time", lambda time: ctx.state.update(ticks=ctx.state.get("ticks", 0) + 1))

    def transform(self, key, value):
        return [value, self.ctx.state.get("ticks", 0), self.ctx.record_metadata.offset]


def test_the_context_has_state_schedules_and_metadata():
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized(caching=False)).transform_values(Times).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for time in (5, 6, 25):
            driver.create_input_topic("in").pipe_input("a", "x", time)
            driver.restart()
        assert driver.create_output_topic("out").read_values_to_list() == [["x", 0, 0], ["x", 1, 1], ["x", 1, 2]]
