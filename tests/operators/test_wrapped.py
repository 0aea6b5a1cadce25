"""`processor_wrapper`: it sees every processor and every record, and changes no result that it does not mean to change."""

import pytest

from streams import (
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    WrappedProcessor,
    agg,
)
from streams.testing import TopologyTestDriver
from tests.operators.test_global_stores import ByCode

SEEN: list[tuple[str, str, object]] = []


class Watched(WrappedProcessor):
    """Books what it wraps and what comes in."""

    def init(self, ctx):
        SEEN.append((self.node, "init", type(self.inner).__name__))
        super().init(ctx)

    def process(self, record):
        SEEN.append((self.node, "process", record.key))
        super().process(record)


class Doubled(Processor):
    def process(self, record):
        self.ctx.forward(record)
        self.ctx.forward(record)


def built(wrapper=None, optimize=False):
    builder = StreamsBuilder(processor_wrapper=wrapper, optimize=optimize)
    stream = builder.stream("in").filter(lambda value: value["v"] > 0, named="positive")
    windows = TimeWindows.of_size_and_grace(10, 5)
    stream.group_by_key(Grouped(name="g")).windowed_by(windows).aggregate(
        n=agg.count(), total=agg.sum("v"), materialized=Materialized(name="sums")
    ).to_stream().to("sums")
    plain = builder.stream("plain").group_by_key()
    plain.aggregate(n=agg.count(), materialized=Materialized(name="counts")).to_stream().to("counts")
    stream.process(Doubled, named="doubled").to("doubled")
    stream.left_join(builder.stream("other"), lambda a, b: [a, b], JoinWindows.of_time_difference_with_no_grace(5)).to(
        "joined"
    )
    builder.add_global_store(Stores.key_value_store("by-code", StringSerde(), StringSerde()), "airports", ByCode)
    return builder.build()


def outputs(topology):
    with TopologyTestDriver(topology) as driver:
        for time in (1, 4, 12, 3, 40):
            with driver.batch():
                for topic in ("in", "other", "plain"):
                    driver.create_input_topic(topic).pipe_input(f"k{time % 2}", {"v": time - 2}, time)
            if time == 12:
                driver.restart()
        driver.create_input_topic("airports").pipe_input("Newark", {"code": "EWR"}, 5)
        return {
            name: driver.create_output_topic(name).read_records_to_list()
            for name in ("sums", "counts", "doubled", "joined")
        }


def test_every_processor_is_wrapped_and_results_stay():
    SEEN.clear()
    topology = built(Watched)
    assert outputs(topology) == outputs(built())
    wrapped = {node for node, what, _ in SEEN if what == "init"}
    processors = {name for name, node in topology.nodes.items() if hasattr(node, "processor")}
    assert wrapped == processors | {"GLOBAL-STORE-airports"}
    # Records too, where without a wrapper they are handled as columns.
    assert {node for node, what, _ in SEEN if what == "process"} == wrapped
    assert ("doubled", "init", "Doubled") in SEEN


def test_a_wrapper_may_change_what_runs():
    class Silent(WrappedProcessor):
        def process(self, record):
            if self.node != "positive" or record.key == "k1":
                super().process(record)

    topology = built(lambda node, processor: Silent(node, processor) if node == "positive" else processor)
    rows = outputs(topology)
    assert {row.key for row in rows["doubled"]} == {"k1"}
    assert rows["counts"] == outputs(built())["counts"]


def test_the_structure_is_the_same_and_a_bad_wrapper_is_refused():
    assert built(Watched).describe() == built().describe()
    with pytest.raises(TypeError, match="gave 5 for the node"):
        TopologyTestDriver(built(lambda node, processor: 5))


def test_a_wrapper_sees_the_errors_of_what_it_wraps():
    """They meet the policy of the node only if the wrapper lets them pass."""
    seen = []

    class Caught(WrappedProcessor):
        def process(self, record):
            try:
                super().process(record)
            except ValueError as error:
                seen.append((self.node, str(error), record.key))
                if record.key != "forgiven":
                    raise

    def failing(value):
        if value["v"] == 2:
            raise ValueError("two")
        return value

    def added(key, value, total):
        if value["v"] == 3:
            raise ValueError("three")
        return total + value["v"]

    builder = StreamsBuilder(processor_wrapper=Caught)
    checked = builder.stream("in").map_values(failing, named="checked")
    checked.group_by_key().aggregate(
        lambda: 0, added, named="sums", materialized=Materialized("sum-store")
    ).to_stream().to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        topic = driver.create_input_topic("in")
        for key, value in [("a", 1), ("a", 2), ("a", 3), ("forgiven", 2), ("a", 4)]:
            topic.pipe_input(key, {"v": value}, value)
        assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1), ("a", 5)]
        assert driver.counts()["skipped:processing"] == 2
    assert seen == [
        ("checked", "two", "a"),
        ("sums", "three", "a"),
        ("checked", "two", "forgiven"),
    ]
