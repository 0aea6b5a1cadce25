"""What holds the rows of a step or a piece is in no circle: else they stay in memory until Python's collector runs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streams import JoinWindows, KStream, StreamsBuilder, agg
from streams.engine.graph.step_context import SourceRows
from streams.engine.reader.pipeline import ReaderPipeline
from streams.engine.task.input import StepRecords
from streams.testing import TopologyTestDriver

Stream = KStream[Any, Any]

PROGRAMS: dict[str, Callable[[Stream, Stream], object]] = {
    "fields": lambda one, other: one.group_by_key().aggregate(n=agg.count()).to_stream().to("out"),
    "functions in readers": lambda one, other: (
        one.filter(lambda value: value["x"] > 1).map(lambda key, value: (str(value["x"]), value)).to("out")
    ),
    "a function in a task": lambda one, other: (
        one.group_by_key().reduce(lambda left, right: right).to_stream().to("out")
    ),
    "a join": lambda one, other: one.left_join(
        other, lambda left, right: [left, right], JoinWindows.of_time_difference_with_no_grace(5)
    ).to("out"),
}


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> int:
    return sum(isinstance(one, kinds) for one in gc.get_objects())


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_rows_wait_for_the_collector(program: str) -> None:
    builder = StreamsBuilder()
    PROGRAMS[program](builder.stream("in"), builder.stream("other"))
    with TopologyTestDriver(builder.build()) as driver, without_collector():
        topics = [driver.create_input_topic(topic) for topic in ("in", "other")]
        rows, readers = alive(StepRecords, SourceRows), alive(ReaderPipeline)
        for step in range(3):
            with driver.batch():
                for number in range(20):
                    for topic in topics:
                        topic.pipe_input(f"k{number % 3}", {"x": number}, step * 100 + number)
        assert driver.counts()
        assert alive(StepRecords, SourceRows) == rows
        assert alive(ReaderPipeline) <= readers + 1, "the last one may be needed again"
