"""One topology with built-in aggregates, run twice: over columns and record by record; both give the same to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import orjson
from hypothesis import strategies as st

from state.headers import decode_headers
from streams import JsonSerde, StreamsBuilder, StringSerde, Topology
from streams.testing import TopologyTestDriver
from streams.topology.plan import plan_alone
from tests.both_ways import quietly
from tests.budget import up_to

examples = up_to(40)

KINDS = ["count", "sum", "min", "max", "mean", "first", "last"]


class RecordByRecord(JsonSerde):
    """Not exactly `JsonSerde`, so the planner sends whole records."""


class Step(NamedTuple):
    """The records of a step, and whether the application restarts after it without its local state."""

    records: list[tuple[Any, Any, int]]
    restarts: bool


NUMBERS = (0, 1, 2, -3, 7, 100, 0.1, 0.2, 0.3, 2.5, 1.0, -0.0, 1e16, -1e16)
HUGE = (*NUMBERS, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, 2**64 - 1, 10**30, -(10**25), 1.7e308, -1.7e308)
OTHERS = (None, True, False, [1], {"z": 4})
"""No number; a minimum of texts is found record by record."""


def _value(random: Random, numbers: Sequence[Any]) -> Any:
    if random.random() < 0.1:
        return random.choice((None, 5, "text", {}))
    cells = {name: random.choice((*numbers, *numbers, *OTHERS)) for name in random.sample("xyz", 2)}
    return {**cells, "o": {"z": random.choice(numbers)}} if random.random() < 0.7 else cells


def _steps(seed: int, apart: int, numbers: Sequence[Any]) -> list[Step]:
    random, time, steps = Random(seed), 0, []
    for _ in range(random.randint(1, 4)):
        records = []
        for _ in range(random.randint(0, 14)):
            time += random.choice((0, 0, 1, 2, 4, 7, 13)) * apart
            back = random.choice((0, 0, random.randint(0, 7), random.randint(4, 10), random.randint(0, 40))) * apart
            key = random.choice(("a", "a", "a", "a", "b", "ab", None))
            records.append((key, _value(random, numbers), max(0, time - back)))
        steps.append(Step(records, random.random() < 0.3))
    return steps


def steps(apart: int = 1, numbers: Sequence[Any] = NUMBERS) -> st.SearchStrategy[list[Step]]:
    """Several steps of records out of order, some of the same time, `apart` ms or a multiple of that from one to the next."""
    return st.integers(0, 2**32).map(lambda seed: _steps(seed, apart, numbers))


@contextmanager
def _without_fallback() -> Iterator[None]:
    """Within the context, a step that cannot be processed at once fails."""
    fallbacks = (
        "keyed_windows.KeyedAggregation.call",
        "column_aggregate.ColumnAggregate._add_in_turn",
        "column_aggregate.WindowColumnAggregateOnClose._add_in_turn",
        "distinct.CountsDistinct.process_read",
    )
    error = AssertionError("the step is not processed at once")
    with ExitStack() as patches:
        for name in fallbacks:
            patches.enter_context(mock.patch(f"streams.operators.aggregate.{name}", side_effect=error))
        yield


def check(build: Callable[[Any], Any], steps: list[Step], at_once: bool = True, **settings: Any) -> None:
    """Requires that both ways leave the same behind.

    Args:
        build: See `everything`, as for the others.
        steps: The records.
        at_once: Whether every step is processed at once; otherwise some may go record by record after all.
        **settings: Settings of the driver.
    """
    with _without_fallback() if at_once else nullcontext():
        columns = everything(build, True, steps, **settings)
    assert columns == everything(build, False, steps, **settings)


def everything(build: Callable[[Any], Any], columns: bool, steps: list[Step], **settings: Any) -> dict[str, Any]:
    """What a topology gives and keeps: results with headers, counters, every topic's records, the operators' state.

    Args:
        build: Adds the operators behind the stream of the topic `in`.
        columns: Whether built-in aggregates get columns; otherwise whole records.
        steps: The records.
        **settings: Settings of the driver.
    """
    serde = JsonSerde() if columns else RecordByRecord()
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=JsonSerde())
    build(builder.stream("in", value_serde=serde))
    topology = builder.build()
    transports = {entry.transport for sub in plan_alone(topology).sub_topologies for entry in sub.entries}
    assert ("columns" in transports) == columns
    return left_behind(topology, steps, **settings)


def left_behind(topology: Topology, steps: list[Step], **settings: Any) -> dict[str, Any]:
    """What a topology gives and keeps, as `everything` has it."""
    policies = {"deserialization": "skip", "processing": "dlq", "production": "skip", "dead_letter_topic": "dead"}
    given = {**policies, **settings}
    with quietly(), TopologyTestDriver(topology, partitions={"in": 2}, tasks=1, settings=given) as driver:
        topic = driver.create_input_topic("in", value_serde=JsonSerde())
        for number, step in enumerate(steps):
            with driver.batch():
                for at, (key, value, timestamp) in enumerate(step.records):
                    topic.pipe_input(key, value, timestamp, headers=[("at", f"{number}.{at}".encode())])
            if step.restarts:
                driver.restart()
        return {
            "topics": {name: _records(driver, name) for name in sorted(driver.produced_topic_names() - {"in"})},
            "counts": dict(sorted((name, count) for name, count in driver.counts().items() if count)),
            "state": [orjson.dumps(marker.operator_state, option=orjson.OPT_SORT_KEYS) for marker in _markers(driver)],
        }


def _records(driver: TopologyTestDriver, topic: str) -> list[Any]:
    """All records of a topic as bytes."""
    kafka, found = driver._kafka, []
    for partition in range(kafka.partition_count(topic)):
        rows = kafka.columns(topic, partition)
        if rows is not None:
            cells = [None] * len(rows) if rows.headers is None else rows.headers.to_pylist()
            # Of an error's traceback, only its end is the same.
            headers = [[one for one in decode_headers(cell) if "stacktrace" not in one[0]] for cell in cells]
            found += zip(rows.keys.to_pylist(), rows.values.to_pylist(), rows.timestamps.tolist(), headers, strict=True)
    # The index of open windows is written window by window, and not record by record: each of its keys has the same rows in turn.
    return sorted(found, key=itemgetter(0)) if topic.endswith("-open-changelog") else found


def _markers(driver: TopologyTestDriver) -> list[Any]:
    return [marker for query in driver._queries for marker in query.markers]
