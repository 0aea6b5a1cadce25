"""Heads process batches, and leave the rows of one record in the order in which Kafka Streams would, depth first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.columns import RecordColumns
from streams import Produced, Record, StreamsBuilder
from streams.engine.graph.settings import TaskSettings
from streams.engine.graph.values import load_value
from streams.engine.reader.pipeline import ReaderPipeline
from streams.operators.columnar import ColumnarBatch, KeyColumn
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology, build_plan
from tests.budget import up_to

COUNT = 12


def program(rng: random.Random) -> SubTopology:
    """Filters, mappers, flat maps, branches and merges of one source, and sinks."""
    builder = StreamsBuilder()
    streams = [builder.stream("in").map_values(lambda v: v)]
    for number in range(rng.randint(2, 10)):
        stream, size = rng.choice(streams), rng.randint(2, 4)
        made = rng.choice(("filter", "values", "flat", "pairs", "merge", "branch", "sink"))
        if made == "filter":
            streams.append(stream.filter(lambda v, size=size: v % size != 0))
        elif made == "values":
            streams.append(stream.map_values(lambda v: v + 1))
        elif made == "flat":
            streams.append(stream.flat_map_values(lambda v, size=size: [v + i for i in range(v % size)]))
        elif made == "pairs":
            streams.append(stream.flat_map(lambda k, v: [(k, v), (k, -v)]))
        elif made == "merge":
            streams.append(stream.merge(rng.choice(streams).filter(lambda v: True)))
        elif made == "branch":
            streams += stream.split(f"b{number}-").branch(lambda v: v % 2 == 0).default_branch().values()
        else:
            stream.to("out", Produced(name=f"sink-{number}"))
    streams[-1].to("out", Produced(name="last"))
    streams[0].to("out", Produced(name="first"))
    (sub,) = build_plan(builder.build(), "app").sub_topologies
    return sub


class DepthFirst:
    """The model: each result takes all its ways before the next one does.

    Attributes:
        rows: The offset, the receiving node and the value of all that leaves the head.
    """

    def __init__(self, sub: SubTopology) -> None:
        self.rows: list[tuple[int, str, Any]] = []
        self.offset = 0
        self._sub = sub
        self._operators: dict[str, Any] = {}
        for name, node in sub.nodes.items():
            if name in sub.head and isinstance(node, ProcessorNode):
                self._operators[name] = node.processor()
                self._operators[name].ctx = _Context(self, name)

    def send(self, name: str, record: Record, only: str | None = None) -> None:
        for child in self._sub.children(name) if only is None else (only,):
            if child in self._operators:
                self._operators[child].process(record)
            else:
                self.rows.append((self.offset, child, record.value))


class _Context:
    results_change = False

    def __init__(self, model: DepthFirst, name: str) -> None:
        self._model, self._name = model, name

    def forward(self, record: Record, child: str | None = None) -> None:
        self._model.send(self._name, record, child)

    def forward_batch(self, batch: ColumnarBatch, child: str | None = None) -> None:
        for record in batch.records():
            self.forward(record, child)

    @contextmanager
    def alone(self, record: Record) -> Iterator[ColumnarBatch]:
        yield ColumnarBatch(
            KeyColumn.of([record.key]), [record.value], np.array([record.timestamp]), np.zeros(1, np.int64)
        )


@pytest.mark.slow
@up_to(60)
@given(st.integers(0, 10**9), st.integers(1, COUNT))
def test_rows_of_a_record_are_in_depth_first_order(seed: int, size: int) -> None:
    sub = program(random.Random(seed))
    (source,) = sub.sources
    model = DepthFirst(sub)
    for model.offset in range(COUNT):
        model.send(source.name, Record("k", model.offset, 0))
    head, found = ReaderPipeline(sub, 1, TaskSettings("app")), []
    values = pa.array([b"%d" % value for value in range(COUNT)], pa.binary())
    offsets = np.arange(COUNT)
    whole = RecordColumns("in", 0, offsets, offsets, pa.array([b"k"] * COUNT, pa.binary()), values)
    for first in range(0, COUNT, size):
        for _, batch in head.run(whole.part(first, first + size)):
            rows = batch.rows.to_pydict()
            node = sub.entries[batch.entry].node
            found += [(*row, node) for row in zip(rows["offset"], rows["seq"], rows["value"], strict=True)]
    found.sort(key=lambda row: row[:2])
    assert [(offset, node, load_value(value)) for offset, _, value, node in found] == model.rows
    assert len({row[:2] for row in found}) == len(found)
