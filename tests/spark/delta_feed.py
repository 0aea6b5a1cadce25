"""An application that follows a Delta table, through a lost checkpoint: `python -m tests.spark.delta_feed SERVERS FOLDER TOPIC`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streams import StreamsBuilder, Topology
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.spark.ingest.query import check_table
from streams.spark.runner import StreamsApplication
from streams.spark.session import start_session

APPLICATION_ID = "delta-feed"


def topology(table: Path, topic: str) -> Topology:
    builder = StreamsBuilder()
    builder.from_delta(table, key="id", change_feed=True, named="orders", partitions=2).to(topic)
    return builder.build()


def check_refusals(spark: SparkSession, folder: Path) -> None:
    """What is said of a table that is missing, and of one that records no changes."""
    plain = folder / "plain"
    spark.range(1).write.format("delta").save(str(plain))
    for table, told in ((folder / "missing", "and there is none"), (plain, "that table records no changes")):
        (ingest,) = topology(table, "out").ingests.values()
        with pytest.raises(ConfigError, match=told):
            check_table(spark, ingest)


def main(servers: str, folder: Path, topic: str) -> None:
    config = StreamsConfig(
        application_id=APPLICATION_ID, bootstrap_servers=servers, base_dir=folder / "var", available_now=True
    )
    spark = start_session(APPLICATION_ID, {"spark.master": "local[2]"}, config.checkpoint_dir, delta=True)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    table = folder / "orders"
    rows = spark.createDataFrame([(1, 5.0), (2, 7.5)], "id INT, amount DOUBLE").coalesce(1)
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(table))
    check_refusals(spark, folder)
    application = topology(table, topic)
    StreamsApplication(application, config).run(spark)

    spark.sql(f"UPDATE delta.`{table}` SET amount = 6.0 WHERE id = 1")
    StreamsApplication(application, config).run(spark)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 2")
    shutil.rmtree(Path(config.checkpoint_dir) / "orders-ingest")
    StreamsApplication(application, config).run(spark)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
