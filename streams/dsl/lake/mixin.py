"""`to_delta` and `foreach_batch`: the ends of streams and tables outside Kafka."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from streams.dsl.arguments import names as several
from streams.dsl.arguments import operator_name
from streams.dsl.lake.columns import ColumnNames, Schema, add_lake_sink, layout_of
from streams.dsl.nodes.abstract_stream import AbstractStream
from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.options import NameLike
from streams.errors import TopologyError
from streams.model.row_layout import RowLayout
from streams.topology.graph import DeltaTable

Mode: TypeAlias = Literal["append", "upsert"]


def _check_target(target: DeltaTable, layout: RowLayout) -> None:
    unknown = sorted(set(target.partition_by) - set(layout.names))
    if unknown:
        raise TopologyError(f"to_delta(partition_by=...): {', '.join(unknown)} is none of {', '.join(layout.names)}.")
    for option, number in (("records_per_file", target.records_per_file), ("optimize_every", target.optimize_every)):
        if number is not None and (type(number) is not int or number < 1):
            raise TopologyError(f"to_delta({option}={number!r}): at least 1.")


def _last_part(table: str) -> str:
    """What a sink is called after: the last part of a path or name, as topics' names take it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/\\]", table.rstrip("/\\"))[-1]).strip("-.") or "table"


class LakeMixin(AbstractStream):
    """The sinks outside Kafka, of streams and of tables."""

    _graph: GraphBuilder
    _mode: ClassVar[Mode] = "append"

    def _rows_port(self, named: NameLike) -> Port:
        """The records, for a sink of that name: a table's updates are records whose value is None where a row is deleted."""
        raise NotImplementedError

    def to_delta(
        self,
        table: str | os.PathLike[str],
        mode: Mode | None = None,
        *,
        keys: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        schema: Schema | None = None,
        key: str | None = "key",
        value: str = "value",
        timestamp: str | None = "timestamp",
        add_columns: bool = False,
        records_per_file: int = 1_000_000,
        optimize_every: int | None = None,
        properties: Mapping[str, str] | None = None,
        named: NameLike = None,
    ) -> None:
        """Writes each record to a Delta table, exactly once; the stream ends here.

        Columns: the key (`key`, and `window_start` and `window_end` of a windowed key), the record's `timestamp`, and the fields of
        the value, or `value` where it has none. Their types are those of the serdes or of `schema`. A record that does not
        fit meets the processing policy (fail, skip, dead letter). A missing table is created.

        Args:
            table: The table's path or URI, or its name in Spark's catalog.
            mode: `"append"` (default of streams): each record is a row. `"upsert"` (default of tables): the last record of each key
                is the row, and a record whose value is None deletes the row.
            keys: The columns that make a row unique; default: those of the record's key and its window.
            partition_by: The columns that a new table is partitioned by.
            schema: The fields of the values with their types, such as `{"user": str, "amount": float | None}`, or a class with
                annotations, or the type of values without fields. An entry called like the key's column is the key's type.
            key: What the key's column is called; None: the table does not have it.
            value: What the column of values without fields is called.
            timestamp: What the timestamp's column is called; None: the table does not have it.
            add_columns: Whether columns that an existing table lacks are added to it. Else a start is refused.
            records_per_file: How many records of one commit share a file, about.
            optimize_every: After how many commits Delta's OPTIMIZE compacts small files; default: never.
            properties: Properties of a new table, such as `{"delta.enableChangeDataFeed": "true"}`.
            named: The sink's name, which its internal topic and its commits are called after; default: `delta-` and the last part
                of the table's path or name.

        Raises:
            TopologyError: The type of a column is unknown, a column does not exist, or the name is taken.
        """
        mode = mode or self._mode
        text = os.fspath(table)
        if mode not in ("append", "upsert"):
            raise TopologyError(f"to_delta(mode={mode!r}): the mode is 'append' or 'upsert'.")
        if keys and mode == "append":
            raise TopologyError(
                "to_delta(keys=...) goes with mode='upsert': append writes each record as a row of its own."
            )
        if not text.strip():
            raise TopologyError("to_delta() takes a table's path or its name in Spark's catalog, not an empty text.")
        name = operator_name("to_delta", named) or f"delta-{_last_part(text)}"
        port = self._rows_port(name)
        unique = several(keys) if mode == "upsert" else None
        layout = layout_of(self._graph, port, "to_delta", schema, ColumnNames(key, value, timestamp), unique)
        target = DeltaTable(
            text,
            not isinstance(table, str) or re.search(r"[/\\:]", text) is not None,
            several(partition_by),
            add_columns,
            records_per_file,
            optimize_every,
            tuple(sorted((properties or {}).items())),
        )
        _check_target(target, layout)
        add_lake_sink(self._graph, port, name, layout, target)

    def foreach_batch(
        self,
        function: Callable[[Any, int], object],
        named: str,
        *,
        schema: Schema | None = None,
        key: str | None = "key",
        value: str = "value",
        timestamp: str | None = "timestamp",
    ) -> None:
        """Hands the records to any Spark sink: `function(frame, batch_id)` gets each batch as a Spark DataFrame, on the driver.

        A batch that runs again after a crash has the same number and the same rows, so a function that writes them under that
        number, or skips a number it has seen, writes each record exactly once; any other one writes each record at least once.
        Rows leave the internal topic only after the function has returned. The stream ends here.

        Args:
            function: `function(frame, batch_id)`; `frame` is a `pyspark.sql.DataFrame` with the columns as for `to_delta`, and
                `_partition` and `_offset` in the internal topic, which give the rows of a key their order.
            named: The sink's name, which its internal topic and its checkpoint are called after.
            schema: As for `to_delta`.
            key: As for `to_delta`.
            value: As for `to_delta`.
            timestamp: As for `to_delta`.

        Raises:
            TopologyError: The type of a column is unknown, or the name is taken.
        """
        if not callable(function):
            raise TopologyError(f"foreach_batch() takes a function(frame, batch_id), not {function!r}.")
        name = operator_name("foreach_batch", named)
        if name is None:
            raise TopologyError("foreach_batch() needs a name: its checkpoint is called after it.")
        port = self._rows_port(name)
        layout = layout_of(self._graph, port, "foreach_batch", schema, ColumnNames(key, value, timestamp), None)
        add_lake_sink(self._graph, port, name, layout, function)
