"""The Spark session of the Spark tests, for the cases that run on it."""

from tests.spark.conftest import spark  # noqa: F401 - a fixture
