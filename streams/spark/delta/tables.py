"""Looks at Delta tables by path or by name in Spark's catalog."""

from __future__ import annotations

from pyspark.sql import SparkSession

from delta.tables import DeltaTable
from streams.spark.checkpoint_files import qualified


def open_delta(session: SparkSession, name: str, is_path: bool) -> DeltaTable | None:
    """A Delta table; None: there is none."""
    if is_path:
        path = qualified(session, name)
        return DeltaTable.forPath(session, path) if DeltaTable.isDeltaTable(session, path) else None
    return DeltaTable.forName(session, name) if session.catalog.tableExists(name) else None
