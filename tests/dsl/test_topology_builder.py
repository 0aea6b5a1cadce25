"""`TopologyBuilder`: a graph node by node, as Kafka Streams' `Topology`."""

import re

import pytest

from streams import (
    Consumed,
    Int64Serde,
    Processor,
    Produced,
    Stores,
    StringSerde,
    TopologyBuilder,
    TopologyError,
)
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from tests.operators.test_global_stores import ByCode, LookUp


class Count(Processor):
    """Counts keys over both of its parents; counts of even number go to the one child, all to the other."""

    def process(self, record):
        store = self.ctx.store("counts")
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count, record.timestamp)
        self.ctx.forward(record.with_value(count), "all")
        if count % 2 == 0:
            self.ctx.forward(record.with_value(count), "even")


class Pass(Processor):
    def process(self, record):
        self.ctx.forward(record.with_key(f"{record.key}!"))


COUNTS = Stores.key_value_store("counts", StringSerde(), Int64Serde())


def built():
    return (
        TopologyBuilder()
        .add_source("left", "in", Consumed(value_serde=Int64Serde()))
        .add_source("right", ["more", "most"])
        .add_processor("count", Count, ["left", "right"])
        .add_state_store(COUNTS, ["count"])
        .add_processor("pass", Pass, ["left"])
        .add_sink("all", "all-counts", ["count"], Produced(value_serde=Int64Serde()))
        .add_sink("even", lambda key, value, context: f"even-{context.topic}", ["count", "pass"])
        .build()
    )


def test_records_take_the_ways_that_were_declared():
    with TopologyTestDriver(built()) as driver:
        driver.create_input_topic("in").pipe_input("a", 7, 1)
        driver.create_input_topic("most").pipe_input("a", {"x": 1}, 2)
        driver.restart()
        driver.create_input_topic("more").pipe_input("b", {"x": 1}, 3)
        assert driver.create_output_topic("all-counts").read_key_values_to_list() == [("a", 1), ("a", 2), ("b", 1)]
        assert driver.create_output_topic("even-most").read_key_values_to_list() == [("a", 2)]
        # What "pass" makes keeps its source's serde unless another is named: JSON, of an int.
        assert driver.create_output_topic("even-in").read_key_values_to_list() == [("a!", 7)]


def test_it_is_described_planned_and_named_by_the_user():
    topology = built()
    assert (
        "    Processor: count (stores: [counts])\n      --> all, even\n      <-- left, right\n" in topology.describe()
    )
    assert len(build_plan(topology, "app").sub_topologies) == 1
    assert list(topology.stores) == ["counts"]


def test_shared_stores_and_connecting_later():
    builder = TopologyBuilder(ensure_explicit_naming=True).add_source("one", "in").add_source("two", "more")
    builder.add_processor("first", Pass, ["one"]).add_processor("second", Pass, ["two"])
    assert len(build_plan(builder.build(), "app").sub_topologies) == 2
    builder.add_state_store(COUNTS)
    builder.connect_processor_and_state_stores("first", ["counts"])
    builder.connect_processor_and_state_stores("second", ["counts", "counts"])
    assert len(build_plan(builder.build(), "app").sub_topologies) == 1


def test_global_stores_and_patterns():
    builder = TopologyBuilder()
    builder.add_global_store(Stores.key_value_store("by-code", StringSerde(), StringSerde()), "airports", ByCode)
    builder.add_source("in", re.compile("in-.*")).add_processor("look", LookUp, ["in"], ["by-code"])
    builder.add_sink("out", "out", ["look"])
    with TopologyTestDriver(builder.build(), partitions={"in-1": 1}) as driver:
        driver.create_input_topic("airports", value_serde=None).pipe_input("Newark", {"code": "EWR"}, 1)
        driver.create_input_topic("in-1").pipe_input("k", "EWR", 2)
        assert driver.create_output_topic("out").read_values_to_list() == ["Newark"]


MISTAKES = {
    "a source with the name of another node": (lambda b: b.add_source("in", "other"), "Two nodes are called 'in'"),
    "a topic with two sources": (lambda b: b.add_source("again", "in"), "read twice|has one source"),
    "a processor without a parent": (lambda b: b.add_processor("q", Pass, []), "'q' needs a parent"),
    "an unknown parent": (
        lambda b: b.add_processor("q", Pass, ["nobody"]),
        "'nobody', which does not exist. Known: in, p",
    ),
    "a processor instead of its supplier": (lambda b: b.add_processor("q", Pass(), ["in"]), "makes processors"),
    "a processor with an unknown store": (
        lambda b: b.add_processor("q", Pass, ["in"], ["nothing"]),
        "'nothing', which does not exist",
    ),
    "a sink with the name of another node": (lambda b: b.add_sink("p", "out", ["in"]), "Two nodes are called 'p'"),
    "a source with a store": (lambda b: b.connect_processor_and_state_stores("in", ["x"]), "'in' is no processor"),
    "an unknown store": (lambda b: b.connect_processor_and_state_stores("p", ["x"]), "'x' does not exist"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_declaration_is_refused_with_its_reason(mistake: str) -> None:
    declare, reason = MISTAKES[mistake]
    builder = TopologyBuilder().add_source("in", "in").add_processor("p", Pass, ["in"])
    with pytest.raises(TopologyError, match=reason):
        declare(builder)
