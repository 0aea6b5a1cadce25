"""Checks the Delta table of a source before anything is read; Delta itself would refuse it only in the first batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streams.dsl.builder import DeltaRead
from streams.errors import ConfigError
from streams.spark.delta.tables import open_delta
from streams.topology.ingest import Ingest

_FEED = "delta.enableChangeDataFeed"


def check_table(session: SparkSession, ingest: Ingest) -> None:
    """Checks that the table of `from_delta` exists, and has the changes that are asked for.

    Raises:
        ConfigError: There is no such table, or it does not record changes.
    """
    read = ingest.frame
    if not isinstance(read, DeltaRead):
        return
    table = open_delta(session, read.table, read.is_path)
    if table is None:
        raise ConfigError(
            f"the source '{ingest.name}' reads the Delta table {read.table}, and there is none. Nothing was written. Create the "
            f"table before the start, or correct its path or name."
        )
    properties = table.detail().select("properties").collect()[0].properties
    if read.change_feed and properties.get(_FEED, "").lower() != "true":
        name = f"delta.`{read.table}`" if read.is_path else read.table
        raise ConfigError(
            f"the source '{ingest.name}' reads the change data feed of {read.table}, and that table records no changes. Nothing "
            f"was written. Switch the feed on: ALTER TABLE {name} SET TBLPROPERTIES ({_FEED} = true); or, for a table that "
            f'to_delta() makes, properties={{"{_FEED}": "true"}}. Without change_feed=True, rows that are appended are read.'
        )
