"""An application id, a folder and topics of its own for each Spark test."""

import pytest
from pyspark.sql import SparkSession

from streams.broker import EmbeddedBroker
from tests.spark.harness import Harness


@pytest.fixture
def harness(broker: EmbeddedBroker, spark: SparkSession, tmp_path, request) -> Harness:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))[:60]
    micro_batches = request.node.get_closest_marker("micro_batches") is not None
    return Harness(broker.bootstrap_servers, spark, tmp_path, name, micro_batches)
