"""Sinks outside Kafka, which queries of their own write; the sources outside Kafka are `streams.topology.ingest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.model.table_columns import RowLayout
from streams.topology.graph.nodes import InternalTopic


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The Delta table that a lake sink writes.

    Attributes:
        name: A path or URI, or a name in Spark's catalog.
        is_path: Whether the name is a path or URI.
        partition_by: The columns that the table is partitioned by.
        add_columns: Whether columns that an existing table lacks are added.
        records_per_file: How many records of one commit share a file, about.
        optimize_every: After how many commits small files are compacted; None: never.
        properties: Properties of a table that the sink creates.
    """

    name: str
    is_path: bool
    partition_by: tuple[str, ...] = ()
    add_columns: bool = False
    records_per_file: int = 1_000_000
    optimize_every: int | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A sink outside Kafka: an internal topic, and what a query of its own does with the rows in it.

    Attributes:
        name: The sink's name.
        layout: The columns.
        target: The table, or the function that gets each batch as a DataFrame with the batch's number.
    """

    name: str
    topic: InternalTopic
    layout: RowLayout
    target: DeltaTable | Callable[[Any, int], object]

    @property
    def target_text(self) -> str:
        """What the sink writes to, for descriptions."""
        if isinstance(self.target, DeltaTable):
            return f"delta table {self.target.name}"
        return f"function {getattr(self.target, '__qualname__', type(self.target).__qualname__)}"
