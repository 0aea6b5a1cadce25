"""Runs what a newcomer writes: a few lines against a builder, a test driver or the command line."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

import streams
from streams import Int64Serde, Materialized, SessionWindows, StreamsBuilder, StringSerde, TimeWindows, Topology
from streams.testing import TestRecord, TopologyTestDriver

ORDER = {"id": 7, "n": 5, "at": "2026-01-01T00:00:00Z", "customer": "ann"}
VALUES: dict[str, object] = {"lines": "one two", "numbers": 5}
"""What is piped in by topic; an order into every other one."""

GIVEN = {
    "stream": lambda builder: builder.stream("in"),
    "lines": lambda builder: builder.stream("lines", value_serde=StringSerde()),
    "numbers": lambda builder: builder.stream("numbers", value_serde=Int64Serde()),
    "table": lambda builder: builder.table("table"),
    "customers": lambda builder: builder.global_table("customers"),
}
"""What a program has besides `builder`, if it uses the name."""

NAMES = {
    **{name: getattr(streams, name) for name in streams.__all__},  # type: ignore[attr-defined]
    "__name__": "__main__",  # as in a script and in a notebook, whose classes other processes cannot import
    "streams": streams,
    "dataclass": dataclasses.dataclass,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
    "TestRecord": TestRecord,
    "TopologyTestDriver": TopologyTestDriver,
}
"""What every snippet has imported."""


def run_program(code: str) -> list[tuple[object, object]]:
    """Builds a topology, pipes one record with the key `a` into each of its topics, and gives the records of `out`.

    Args:
        code: The program; it may call the topology that it builds `topology`.
    """
    builder = StreamsBuilder()
    used = {name: make(builder) for name, make in GIVEN.items() if re.search(rf"\b{name}(?=[.,)])", code)}
    names = {**NAMES, **used, "builder": builder}
    exec(compile(code, "app.py", "exec"), names)
    topology = names.get("topology", builder).build()
    with TopologyTestDriver(topology) as driver:
        for topic in topics_of(topology):
            driver.create_input_topic(topic).pipe_input("a", VALUES.get(topic, ORDER), timestamp=1000)
        if "out" not in driver.produced_topic_names():
            return []
        return driver.create_output_topic("out").read_key_values_to_list()


def topics_of(topology: Topology) -> list[str]:
    """The topics that a topology reads, `in` last, so that it finds tables filled."""
    sources = [*topology.sources(), *(table.source for table in topology.global_tables.values())]
    topics = {topic for source in sources for topic in source.topics if isinstance(topic, str)}
    return sorted(topics, key=lambda topic: (topic == "in", topic))


def processor(in_process: str, in_init: str = "pass", store: str | None = None) -> str:
    """A program whose processor has these lines, and the store as `self.store`."""
    add = "" if store is None else f"builder.add_state_store(Stores.{store})"
    get, connect = ("pass", "") if store is None else ("self.store = self.ctx.get_state_store('s')", ", 's'")
    return f"""{add}
class Mine(Processor):
    def init(self, context):
        self.ctx = context
        {get}
        {in_init}
    def process(self, record):
        key = record.key
        {in_process}
builder.stream("in").process(Mine{connect}).to("out")"""


def forwarding(value: str, store: str | None = None, before: str = "pass") -> str:
    """The same for a processor that forwards a value."""
    return processor(f"{before}; self.ctx.forward(record.with_value({value}))", store=store)


def counting() -> StreamsBuilder:
    """A program that writes what it reads, and counts it in each kind of store."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("out")
    group = stream.group_by_key()
    group.count(Materialized("counts"))
    group.windowed_by(TimeWindows.of_size_with_no_grace(1000)).count(Materialized("windowed"))
    group.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(1000)).count(Materialized("sessions"))
    builder.table("prices", Materialized("prices", history_retention=datetime.timedelta(hours=1)))
    return builder


def run_test(code: str) -> Any:
    """What the last line of a test gives, which has `driver`, and `topic` and `out`, the ends of topics `in` and `out`."""
    *lines, last = code.strip().split("\n")
    builder = counting()
    with TopologyTestDriver(builder.build()) as driver:
        names = {**NAMES, "driver": driver, "builder": builder}
        names |= {"topic": driver.create_input_topic("in"), "out": driver.create_output_topic("out")}
        exec("\n".join(lines), names)
        return eval(last, names)


def matches(said: str, message: str) -> bool:
    """Whether a message has this text, in which … stands for any other."""
    return re.search(re.escape(said).replace("…", ".*"), message, re.DOTALL) is not None


def says(said: str, run: Callable[[], object]) -> None:
    """Checks that something fails, with this sentence."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is not what a newcomer reads
        run()
    assert matches(said, str(caught.value)), str(caught.value)


def name_of(row: tuple[str, object]) -> str:
    """A row's name in the list of tests: what is written in it."""
    return " ".join(row[0].split())[:90]
