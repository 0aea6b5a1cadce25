"""The rows that a lake sink would write, read from its internal topic in the simulated Kafka."""

from __future__ import annotations

from typing import Any

import numpy as np

from state.columns import RecordColumns, binary_column
from streams.lake.writer import DELETED, arrow_schema, row_batch
from streams.testing.simulation import SimulatedKafka
from streams.topology.graph import DeltaTable, Graph, LakeSink


def find_sink(topology: Graph, name: str) -> LakeSink:
    """The sink of that name, or the one that writes a table of that name or path.

    Raises:
        LookupError: There is none, or several write the table.
    """
    sinks = topology.lake_sinks
    found = [sinks[name]] if name in sinks else [sink for sink in sinks.values() if _table(sink) == name]
    if len(found) != 1:
        known = ", ".join(f"{sink.name} ({sink.target_text})" for sink in sinks.values()) or "none"
        raise LookupError(
            f"{len(found)} lake sinks are called {name!r} or write a table of that name; there are: {known}"
        )
    return found[0]


def table_rows(sink: LakeSink, topic: str, kafka: SimulatedKafka) -> list[dict[str, Any]]:
    """The rows of the table by now: all of them where each record is a row, else the last of each key.

    Args:
        sink: The sink.
        topic: The real name of its internal topic.
        kafka: The simulated Kafka.
    """
    layout, schema = sink.layout, arrow_schema(sink.layout)
    rows: list[dict[str, Any]] = []
    for partition in range(kafka.partition_count(topic) if topic in kafka.topics else 0):
        records = list(kafka.log(topic, partition).readable(0))
        if records:
            columns = RecordColumns(
                topic,
                partition,
                np.arange(len(records), dtype=np.int64),
                np.array([record.timestamp for record in records], np.int64),
                binary_column([record.key for record in records]),
                binary_column([record.value for record in records]),
            )
            rows += row_batch(columns, layout, schema).to_pylist()
    if layout.keys:
        last = {repr([row[key] for key in layout.keys]): row for row in rows}
        rows = [row for row in last.values() if not row[DELETED]]
    return [{name: row[name] for name in layout.names} for row in rows]


def _table(sink: LakeSink) -> str | None:
    return sink.target.name if isinstance(sink.target, DeltaTable) else None
