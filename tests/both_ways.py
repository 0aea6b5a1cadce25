"""A program's steps played twice: records processed together (`streams.operators.columnar`), and one by one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from state.headers import decode_headers
from streams.engine.graph.settings import ONE_BY_ONE
from streams.errors import RecordFailedError
from streams.model.record import Headers
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator import Operator
from streams.testing import TopologyTestDriver
from streams.topology.graph import Node, SourceNode
from streams.topology.plan import SubTopology, build_plan
from streams.topology.planning.units import Unit
from streams.topology.topology import Topology


@dataclass(frozen=True)
class Fed:
    """A record that is fed to a topic, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    partition: int | None = None


def any_fed(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (b"a", b"b", b"c", None),
    topics: Sequence[str] = ("in",),
) -> st.SearchStrategy[Fed]:
    """Any record of few keys and values, at a time from 0 to 40, perhaps with a header, in one of two partitions."""
    headers = st.sampled_from(((), (("h", b"1"),)))
    of_few = (st.sampled_from(cells) for cells in (topics, keys, values))
    return st.builds(Fed, *of_few, st.integers(0, 40), headers, st.integers(0, 1))


@dataclass(frozen=True)
class Seen:
    """Everything that a run leaves behind: records by topic and partition (changelogs too), counters, or the failed record.

    Attributes:
        fallbacks: The counters of records that could not be processed together, which only one of the ways has.
    """

    topics: dict[tuple[str, int], list[tuple[Any, ...]]]
    counters: dict[str, int]
    failed: str | None
    fallbacks: dict[str, int]

    def values(self, topic: str) -> list[bytes | None]:
        """The values in all partitions of the topics whose names end so."""
        return [row[1] for (name, _), rows in self.topics.items() if name.endswith(topic) for row in rows]


@contextmanager
def quietly() -> Iterator[None]:
    """Within the context, records that are skipped or become dead letters are not logged: a property has thousands."""
    log = logging.getLogger("streams.engine.graph.handlers")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Within the context, topologies are planned so that each record passes all nodes, depth first, before the next one."""

    def one_unit(nodes: Mapping[str, Node], head: Collection[str], entries: object) -> tuple[Unit, ...]:
        inside = (name for name, node in nodes.items() if name not in head and not isinstance(node, SourceNode))
        return (Unit(tuple(inside), (), "a test asks for it"),)

    with mock.patch("streams.topology.plan.units", one_unit):
        yield


def check_both_ways(
    topology: Topology,
    steps: Sequence[Sequence[Fed]],
    restarts: Sequence[int] = (),
    apart_ms: int = 0,
    **settings: Any,
) -> Seen:
    """Requires that both ways leave the same behind.

    Args:
        topology: The program, of whose sub-topologies at least one processes records together.
        steps: The records of each micro-batch.
        restarts: The steps after which the application restarts, without its local state.
        apart_ms: How much wall-clock time passes after each step.
        **settings: Those of `TopologyTestDriver`.
    """
    assert takes_batches(topology), reasons(topology)
    together = played(topology, steps, restarts, apart_ms, **settings)
    with one_by_one():
        expected = played(topology, steps, restarts, apart_ms, **settings)
    assert together.topics == expected.topics
    assert together.counters == expected.counters
    assert together.failed == expected.failed
    return together


def reasons(topology: Topology) -> list[str | None]:
    """Why a node of each sub-topology processes single records; None: none does."""
    return [_reason(sub) for sub in build_plan(topology, "test").sub_topologies]


def takes_batches(topology: Topology) -> bool:
    """Whether a node processes batches, or records do not pass all nodes depth first."""
    units = (sub.units for sub in build_plan(topology, "test").sub_topologies)
    return any(len(those) > 1 or those[0].groups for those in units if those)


def _reason(sub: SubTopology) -> str | None:
    return next((unit.reason for unit in sub.units if not unit.groups), None)


def played(
    topology: Topology,
    steps: Sequence[Sequence[Fed]],
    restarts: Sequence[int] = (),
    apart_ms: int = 0,
    **settings: Any,
) -> Seen:
    """Runs the steps."""
    failed = None
    with TopologyTestDriver(topology, **settings) as driver:
        topics = {record.topic: driver.create_input_topic(record.topic) for step in steps for record in step}
        try:
            for number, step in enumerate(steps):
                with driver.batch():
                    for one in step:
                        topics[one.topic].pipe_bytes(one.key, one.value, one.timestamp, one.headers, one.partition)
                if apart_ms:
                    driver.advance_wall_clock_time(apart_ms)
                if number in restarts:
                    driver.restart()
        except RecordFailedError as error:
            failed = str(error)
        counters = dict(driver.counters)
        fallbacks = {name: counters.pop(name) for name in list(counters) if name.startswith(ONE_BY_ONE)}
        return Seen(_records(driver), counters, failed, fallbacks)


def _records(driver: TopologyTestDriver) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    kafka = driver._kafka
    found = {}
    for topic in driver.produced_topic_names():
        for partition in range(kafka.partition_count(topic)):
            columns = kafka.columns(topic, partition)
            if columns is not None:
                headers = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
                found[topic, partition] = [
                    (key, value, timestamp, _headers(cell))
                    for key, value, timestamp, cell in zip(
                        columns.keys.to_pylist(),
                        columns.values.to_pylist(),
                        columns.timestamps.tolist(),
                        headers,
                        strict=True,
                    )
                ]
    return found


def _headers(cell: bytes | None) -> Headers:
    """Without stack traces, which name the engine's functions on either way."""
    headers = decode_headers(cell) if cell else []
    return tuple((name, value) for name, value in headers if name != "__streams.errors.stacktrace")


@contextmanager
def counted(kind: type[Operator]) -> Iterator[list[str]]:
    """Within the context, the answer of each call of `process_batch`: `together`, or the error that led to the other way."""
    answers: list[str] = []
    process = kind.process_batch

    def counting(self: Operator, batch: ColumnarBatch) -> None:
        try:
            process(self, batch)
        except Exception as error:
            answers.append(type(error).__name__)
            raise
        answers.append("together")

    with mock.patch.object(kind, "process_batch", counting):
        yield answers
