"""One Spark session for all Spark tests, started with the engine's own settings."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streams.broker import EmbeddedBroker
from streams.spark.session import start_session
from tests.spark.harness import Harness


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
    }
    session = start_session("tests", settings, str(folder))
    yield session
    session.stop()


@pytest.fixture
def harness(broker: EmbeddedBroker, spark: SparkSession, tmp_path, request) -> Harness:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))[:60]
    return Harness(broker.bootstrap_servers, spark, tmp_path, name)
