"""Sources outside Kafka: Delta tables and any other DataFrame (`StreamsBuilder.from_delta`, `from_dataframe`)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.dsl.arguments import names
from streams.dsl.kstream import KStream
from streams.dsl.nodes.graph_builder import GraphBuilder
from streams.errors import TopologyError
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.topology.graph import InternalTopic, SourceNode
from streams.topology.ingest import Ingest
from streams.topology.naming import check_name

PARTITIONS = 4
"""Partitions of the internal topic of a source outside Kafka, unless the program says otherwise."""


@dataclass(frozen=True, slots=True)
class DeltaRead:
    """Makes the streaming DataFrame of a Delta table.

    Attributes:
        table: The table's path or URI, or its name in Spark's catalog.
        is_path: Whether it is a path or URI.
        change_feed: Whether to read the change data feed.
        options: Options of Delta's streaming source.
    """

    table: str
    is_path: bool
    change_feed: bool
    options: tuple[tuple[str, str], ...]

    def __call__(self, spark: Any) -> Any:
        """The stream of the table's rows, or of its changes."""
        reader = spark.readStream.format("delta").options(**dict(self.options))
        if self.change_feed:
            reader = reader.option("readChangeFeed", "true")
        return reader.load(self.table) if self.is_path else reader.table(self.table)


class IngestMixin:
    """The sources outside Kafka, of builders."""

    _graph: GraphBuilder

    def from_dataframe(
        self,
        frame: Callable[[Any], Any],
        named: str,
        *,
        key: str | Sequence[str] = (),
        timestamp: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        partitions: int = PARTITIONS,
    ) -> KStream[Any, Any]:
        """Reads the rows of a Spark DataFrame as a stream, each row exactly once.

        A query of its own writes the rows to an internal topic, each batch once; a static DataFrame is one batch, which is read
        once in the application's life. The records' values are the rows as JSON objects.

        Args:
            frame: `frame(spark)` makes the DataFrame, streaming (`spark.readStream...`) or static, at each start. A batch that
                runs again must give the same rows, as it does from files, tables and Kafka.
            named: The source's name, which its internal topic, its commits and its checkpoint are called after.
            key: The column, or columns, of the key: one column as text, several as a JSON object. Default: records without a key.
            timestamp: The column of the timestamp, a TIMESTAMP or ms since 1970. Default: the time of the batch.
            key_serde: How keys are written, if not like that.
            value_serde: How values are written; default: JSON.
            partitions: The number of partitions of the internal topic, decided at the first start.

        Raises:
            TopologyError: The name is taken or not valid in a topic's name, or the number of partitions is none.
        """
        if not callable(frame):
            raise TopologyError(
                f"from_dataframe() takes a function that makes the DataFrame, such as lambda spark: spark.read.parquet('in'), "
                f"since there is no session yet; not {frame!r}."
            )
        return _add(
            self._graph,
            Ingest(named, partitions, frame, *_keys(key, key_serde), value_serde or JsonSerde(), timestamp),
        )

    def from_delta(
        self,
        table: str | os.PathLike[str],
        *,
        key: str | Sequence[str] = (),
        change_feed: bool = False,
        timestamp: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        partitions: int = PARTITIONS,
        options: Mapping[str, str] | None = None,
        named: str | None = None,
    ) -> KStream[Any, Any]:
        """Reads a Delta table as a stream: the rows it has at the first start, then all that are added, each exactly once.

        With `change_feed`, updates and deletions follow, too: an inserted row, and a row after its update, is a record; a deleted
        row is a tombstone, so that `to_table()` has the table's rows. Updates must not change the key's columns.

        Args:
            table: The table's path or URI, or its name in Spark's catalog. Without `change_feed` it must only ever be appended to.
            key: As for `from_dataframe`; needed with `change_feed`.
            change_feed: Whether to read Delta's change data feed, which the table must have (`delta.enableChangeDataFeed`).
            timestamp: As for `from_dataframe`; default with `change_feed`: the time of the commit.
            key_serde: As for `from_dataframe`.
            value_serde: As for `from_dataframe`.
            partitions: As for `from_dataframe`.
            options: Options of Delta's streaming source, such as `{"startingVersion": "7", "maxFilesPerTrigger": "100"}`.
            named: The source's name; default: `delta-` and the last part of the table's path or name.

        Raises:
            TopologyError: There is no key for a change feed, or as for `from_dataframe`.
        """
        text = os.fspath(table)
        if change_feed and not key:
            raise TopologyError(
                "from_delta(change_feed=True) needs key=...: a deletion is a record with a key and no value."
            )
        is_path = not isinstance(table, str) or re.search(r"[/\\:]", text) is not None
        frame = DeltaRead(text, is_path, change_feed, tuple(sorted((options or {}).items())))
        last = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/\\]", text.rstrip("/\\"))[-1]).strip("-.")
        made = Ingest(
            named or f"delta-{last or 'table'}",
            partitions,
            frame,
            *_keys(key, key_serde),
            value_serde or JsonSerde(),
            timestamp,
            change_feed,
            delta=True,
        )
        return _add(self._graph, made)


def _keys(key: str | Sequence[str], serde: Serde[Any] | None) -> tuple[tuple[str, ...], Serde[Any]]:
    columns = names(key)
    return columns, serde or (StringSerde() if len(columns) <= 1 else JsonSerde())


def _add(graph: GraphBuilder, ingest: Ingest) -> KStream[Any, Any]:
    """Adds the source and the internal topic that it reads."""
    if ingest.partitions < 1:
        raise TopologyError(f"'{ingest.name}': an internal topic has at least one partition, not {ingest.partitions}.")
    topic = InternalTopic(check_name(ingest.name), ingest.partitions)
    graph.topology.add_ingest(ingest)
    source = SourceNode(
        f"{ingest.name}-source", (topic,), ingest.key_serde, ingest.value_serde, FAIL_ON_INVALID_TIMESTAMP
    )
    return KStream(graph, graph.source(source))
