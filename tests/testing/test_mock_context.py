"""`MockProcessorContext`: processors alone."""

import inspect
from datetime import datetime, timedelta, timezone

import pytest

from streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StringSerde,
    TopologyError,
    ValueAndTimestamp,
    ValueTransformer,
)
from streams.engine.graph.node import NodeContext
from streams.model.record import RecordMetadata
from streams.operators.operator import OperatorContext
from streams.operators.process.user_processor import UserContext
from streams.serdes import Int64Serde
from streams.testing import Forwarded, MockProcessorContext


class CountSeen(Processor):
    def init(self, ctx):
        super().init(ctx)
        ctx.schedule(10, "stream_time", self.tell)
        self.clock = ctx.schedule(100, "wall_clock", self.tell)

    def process(self, record):
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        counts = self.ctx.store("counts")
        counts.put(record.key, (counts.get(record.key) or 0) + 1, record.timestamp)
        self.ctx.state["records"] = self.ctx.state.get("records", 0) + 1

    def tell(self, time):
        for key, count in self.ctx.store("counts").all():
            self.ctx.forward(Record(key, count, time), "child")


def test_a_processor_alone():
    ctx = MockProcessorContext([Stores.key_value_store("counts", StringSerde(), Int64Serde())], now_ms=1000)
    processor = CountSeen()
    processor.init(ctx)
    for key in ("a", "a", None):
        processor.process(Record(key, 1, 5))
    assert (ctx.forwarded, ctx.state, ctx.store("counts").get("a")) == ([], {"records": 2}, 2)
    assert ctx.dropped == [(Record(None, 1, 5), "null_key")]
    assert ctx.punctuate("stream_time", 25) == 1
    assert ctx.forwarded == [Forwarded(Record("a", 2, 25), "child")]
    assert (ctx.punctuate("stream_time", 29), ctx.punctuate("wall_clock", 1099)) == (0, 0)
    assert ctx.punctuate("wall_clock", 1100) == 1
    processor.clock.cancel()
    assert ctx.punctuate("wall_clock", 1300) == 0
    assert (ctx.stream_time, ctx.now_ms, len(ctx.forwarded)) == (29, 1300, 2)
    with pytest.raises(KeyError, match=r"was given \['counts'\]"):
        ctx.store("other")


def test_a_value_transformer_alone():
    class Prefixed(ValueTransformer):
        def transform(self, key, value):
            return f"{self.ctx.task_id} {key} {value}"

    transformer = Prefixed()
    transformer.init(MockProcessorContext())
    assert transformer.transform("a", 1) == "0_0 a 1"


def test_it_has_all_that_a_context_has():
    ctx = MockProcessorContext()
    asked = [name for name in vars(ProcessorContext) if not name.startswith("_")]
    assert [name for name in asked if not hasattr(ctx, name)] == []


def methods(of):
    found = inspect.getmembers(of, lambda one: inspect.isfunction(one) or isinstance(one, property))
    return {name: one for name, one in found if not name.startswith("_")}


@pytest.mark.parametrize(
    ("context", "protocol"),
    [(NodeContext, OperatorContext), (UserContext, ProcessorContext), (MockProcessorContext, ProcessorContext)],
)
def test_contexts_are_called_as_the_protocol_says(context, protocol):
    """An operator that gives an argument must not fail under the one or the other of them.

    A context may do without an argument that the protocol wants, to say in its own words what is missing.
    """
    for name, wanted in methods(protocol).items():
        if isinstance(wanted, property):
            continue
        given = list(inspect.signature(methods(context)[name]).parameters.values())
        asked = list(inspect.signature(wanted).parameters.values())
        assert [one.name for one in given] == [one.name for one in asked], name
        for here, there in zip(given, asked, strict=True):
            assert there.default in (inspect.Parameter.empty, here.default), name


class Remembering(Processor):
    def init(self, ctx):
        super().init(ctx)
        self.last = ctx.get_state_store("last")
        ctx.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, lambda time: self.last.put("tick", time))

    def process(self, record):
        self.last.put(record.key, record.value)
        self.ctx.forward(Record("a", 1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), {"h": "x"}))


def test_it_takes_what_the_context_of_a_task_takes():
    ctx = MockProcessorContext([Stores.timestamped_key_value_store("last", StringSerde(), Int64Serde())], now_ms=5)
    ctx.stream_time, ctx.record_metadata = 7, RecordMetadata("in", 0, 3)
    processor = Remembering()
    processor.init(ctx)
    processor.process(Record("a", 1, 7))
    assert ctx.forwarded == [Forwarded(Record("a", 1, 1000, (("h", b"x"),)), None)]
    assert (ctx.topic, ctx.current_stream_time_ms(), ctx.current_system_time_ms()) == ("in", 7, 5)
    assert ctx.store("last").get("a") == ValueAndTimestamp(1, 7)
    assert ctx.punctuate("WALL_CLOCK_TIME", 1005) == 1
    assert ctx.store("last").get("tick").value == 1005


def test_it_refuses_what_is_no_record():
    with pytest.raises(TopologyError, match="forward takes a Record"):
        MockProcessorContext().forward("a", 1)
