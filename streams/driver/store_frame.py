"""A store as a DataFrame: one partition for each task, in which a Python process of Spark rebuilds the store from its changelog.

The application is not touched. It may run at the same time or not, on this cluster or elsewhere. Each task's rows are those of one
commit, which the frame's position columns name; two tasks may be at different commits, as they always are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from state.commit.live import LiveKafka
from state.restore.task_stores import TaskStateManager
from state.restore.verify import last_marker
from streams.application.store_rows import StoreReader, StoreRow, view_of, window_ends
from streams.application.stored_tasks import StoredTask, stored_tasks
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.serdes.json_shown import shown_json
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from streams.wording import did_you_mean

_TIME = pa.timestamp("us", "UTC")
_ARROW = pa.schema(
    [
        ("key", pa.string()),
        ("window_start", _TIME),
        ("window_end", _TIME),
        ("timestamp", _TIME),
        ("value", pa.string()),
        ("_task", pa.int32()),
        ("_version", pa.int64()),
        ("_changelog_offset", pa.int64()),
    ]
)
_SCHEMA = (
    "key STRING, window_start TIMESTAMP, window_end TIMESTAMP, timestamp TIMESTAMP, value STRING, "
    "_task INT, _version BIGINT, _changelog_offset BIGINT"
)
_ROWS = 4096
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one that Spark's timestamps have; an unlimited window is shown without an end."""


@dataclass(frozen=True, slots=True)
class _Job:
    """The data that the processes need. The client's properties may have secrets, so they are not in its repr."""

    store: str
    end_of: Callable[[int], int] | None
    view: Callable[[Any], Any] | None
    tasks: list[StoredTask]
    client: dict[str, str] = field(repr=False)
    transaction_timeout_ms: int
    bulk: bool


def store_dataframe(
    spark: SparkSession,
    topology: Topology,
    config: StreamsConfig,
    store: str,
    key_schema: DataType | str = "string",
    value_schema: DataType | str = "string",
) -> DataFrame:
    """The committed rows of a store, as `KafkaStreams.store_dataframe` describes them.

    Raises:
        ConfigError: There is no such store, or the application has never run on this cluster.
        TopologyError: The application has no stores.
    """
    if store not in topology.stores:
        known = ", ".join(sorted(topology.stores)) or "none"
        raise ConfigError(
            f"the topology has no store {store!r}; it has: {known}.{did_you_mean(store, topology.stores)}"
        )
    tasks = [task for task in stored_tasks(topology, config) if store in task.stores]
    (sub,) = [one for one in build_plan(topology, config.application_id).sub_topologies if store in one.stores]
    job = _Job(
        store,
        window_ends(sub, store),
        view_of(sub, store),
        tasks,
        dict(config.client),
        config.transaction_timeout_ms,
        config.bulk_io,
    )
    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reader(job), _SCHEMA)
    typed = {"key": _typed("key", key_schema), "value": _typed("value", value_schema)}
    return rows.select(*[typed.get(name, F.col(name)) for name in _ARROW.names])


def _typed(name: str, kind: DataType | str) -> Column:
    """A column of text as a column of its type: objects and lists are JSON."""
    wanted = DataType.fromDDL(kind) if isinstance(kind, str) else kind
    if isinstance(wanted, StringType):
        return F.col(name)
    if isinstance(wanted, StructType | ArrayType | MapType):
        return F.from_json(name, wanted).alias(name)
    return F.col(name).cast(wanted).alias(name)


def _reader(job: _Job) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _rows_of(job, job.tasks[index])

    return read


def _rows_of(job: _Job, task: StoredTask) -> Iterator[pa.RecordBatch]:
    """The rows of one task, rebuilt in a temporary folder."""
    kafka = LiveKafka(job.client, job.transaction_timeout_ms, bulk=job.bulk)
    marker = last_marker(kafka, task.place)
    if marker is None:
        return
    node = task.stores[job.store]
    reader = StoreReader(node, task.place.application_id, job.end_of, job.view)
    with tempfile.TemporaryDirectory(prefix="streams-store-") as folder:
        stores = TaskStateManager(kafka, task.place.identity(marker), [node.spec], Path(folder))
        with stores.open() as opened:
            stores.restore_to(opened, marker)
            rows = reader.rows(opened, task.place.task)
            position = (task.place.task, marker.version, marker.changelog_ends.get(job.store))
            while part := list(islice(rows, _ROWS)):
                yield _columns(part, position)


def _columns(rows: list[StoreRow], position: tuple[int, int, int | None]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [_text(row.key) for row in rows],
        *([_micros(getattr(row, name)) for row in rows] for name in ("window_start", "window_end", "timestamp")),
        [_text(row.value) for row in rows],
        *([part] * len(rows) for part in position),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, of.type) for column, of in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _text(data: Any) -> str | None:
    """Text as it is, and everything else as JSON."""
    return data if data is None or isinstance(data, str) else shown_json(data).decode()


def _micros(at: int | None) -> int | None:
    return None if at is None or at > _LAST_MS else at * 1000
