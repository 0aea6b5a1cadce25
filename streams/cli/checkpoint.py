"""The checkpoint folder of an application, for commands that work on it without a running query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streams.checkpoint.files import CheckpointFiles, LocalFiles, is_local
from streams.config import StreamsConfig


@contextmanager
def open_checkpoint(config: StreamsConfig) -> Iterator[CheckpointFiles]:
    """The checkpoint folder; if it is not on this disk, through a Spark session."""
    if is_local(config.checkpoint_dir) and "spark.hadoop.fs.defaultFS" not in config.spark:
        yield LocalFiles(config.checkpoint_dir)
        return
    from streams.spark.checkpoint_files import checkpoint_files
    from streams.spark.session import start_session

    session = start_session(config.application_id, config.spark, config.checkpoint_dir)
    try:
        yield checkpoint_files(session, config.checkpoint_dir)
    finally:
        session.stop()
