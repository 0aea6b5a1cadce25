"""The rows of a DataFrame as records: key, value and timestamp, divided among the tasks of an ingest.

A row's task depends on nothing but its key (its value, if it has none), so a batch that runs again gives each task the same rows.
Times are in UTC, whatever the session's zone.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from streams.errors import ConfigError
from streams.topology.ingest import Ingest

CHANGE, VERSION, COMMITTED = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that Delta's change data feed adds."""
_UTC = {"timeZone": "UTC"}
_JSON = {**_UTC, "ignoreNullFields": "false"}
_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"
"""Times without a zone are in UTC. Sums and differences of them do not depend on the session's zone, while casts do."""


def records_of(frame: DataFrame, ingest: Ingest, now_ms: int) -> DataFrame:
    """The columns `key` and `value` (text), `timestamp` (ms) and `hash` (of key and value), in one partition for each task.

    Changes are in the order of their commits; within a commit, deletions come first.

    Raises:
        ConfigError: A column is missing.
    """
    check_columns(frame, ingest)
    own = [name for name in frame.columns if not (ingest.change_feed and name in (CHANGE, VERSION, COMMITTED))]
    value = F.to_json(F.struct(*map(_column, own)), _JSON)
    order = [F.col("timestamp")] if ingest.timestamp else []
    if ingest.change_feed:
        frame = frame.where(F.col(CHANGE) != "update_preimage")
        deleted = F.col(CHANGE) == "delete"
        value = F.when(~deleted, value)
        order = [F.col("version"), F.col("lives"), *order]
    rows = frame.select(
        _key(frame, ingest).alias("key"),
        value.alias("value"),
        _timestamp(frame, ingest, now_ms).alias("timestamp"),
        *([F.col(VERSION).alias("version"), (~deleted).alias("lives")] if ingest.change_feed else []),
    )
    rows = rows.repartition(ingest.partitions, F.coalesce("key", "value"))
    return (rows.sortWithinPartitions(*order) if order else rows).select(
        "key", "value", "timestamp", F.xxhash64("key", "value").alias("hash")
    )


def check_columns(frame: DataFrame, ingest: Ingest) -> None:
    """Checks that a DataFrame has the columns that the source names.

    Raises:
        ConfigError: A column is missing.
    """
    wanted = [*ingest.key, *filter(None, [ingest.timestamp]), *([CHANGE, VERSION] if ingest.change_feed else [])]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the source '{ingest.name}' has no column {', '.join(map(repr, missing))}; it has {', '.join(frame.columns)}. "
            f"Nothing was written."
        )


def _key(frame: DataFrame, ingest: Ingest) -> Column:
    """One column as text, several columns as a JSON object; null where a part is null."""
    if not ingest.key:
        return F.lit(None).cast("string")
    columns = [_column(name) for name in ingest.key]
    if ingest.plain_key:
        if isinstance(frame.schema[ingest.key[0]].dataType, TimestampType):
            seconds = (F.unix_micros(columns[0]) / F.lit(1_000_000).cast("decimal(7,0)")).cast("decimal(18,6)")
            columns[0] = F.expr(_EPOCH) + F.make_dt_interval(secs=seconds)
        return columns[0].cast("string")
    known = columns[0].isNotNull()
    for column in columns[1:]:
        known = known & column.isNotNull()
    return F.when(known, F.to_json(F.struct(*columns), _UTC))


def _timestamp(frame: DataFrame, ingest: Ingest, now_ms: int) -> Column:
    name = ingest.timestamp or (COMMITTED if ingest.change_feed else None)
    if name is None:
        return F.lit(now_ms).cast("long")
    column, kind = _column(name), frame.schema[name].dataType
    if isinstance(kind, TimestampType):
        column = F.unix_millis(column)
    elif isinstance(kind, TimestampNTZType):
        column = F.floor((column - F.expr(_EPOCH)).cast("interval second").cast("decimal(18,6)") * 1000)
    elif isinstance(kind, DateType):
        column = F.unix_date(column).cast("long") * 86_400_000
    return F.coalesce(column.cast("long"), F.lit(now_ms).cast("long"))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
